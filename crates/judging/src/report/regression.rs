//! Compares a model with past answers: whether it would have answered better.

use serde::Serialize;

use super::Share;
use super::pairs::PairRow;
use crate::random::SplitMix;

/// The share of cases that may lie outside an exact interval on each side.
const TAIL: f64 = 0.025;
/// Number of halvings of a share's range, matching the precision of its digits.
const STEPS: usize = 60;

/// A model's answers compared with past answers to the same questions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regression {
    /// Pairs with a verdict.
    pub pairs: u64,
    /// Pairs in which the model's answer is better in both orders.
    pub won: u64,
    /// Pairs in which the past answer is better in both orders.
    pub lost: u64,
    /// Pairs in which neither is better.
    pub ties: u64,
    /// Pairs whose winner depends on the order. They count neither as won or lost nor as ties.
    pub inconsistent: Share,
    /// The share of won pairs among won and lost pairs, with Clopper and Pearson's exact interval.
    pub win_rate: Share,
    /// The conclusion drawn from the win rate.
    pub conclusion: Conclusion,
    /// How often the longer answer won, among won and lost pairs whose answers differ in length. A value far from a
    /// half suggests that length decided.
    pub longer_won: Share,
}

/// The outcome of comparing a model's answer with a past one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PairOutcome {
    /// The model's answer is better.
    Won,
    /// The past answer is better.
    Lost,
    /// Neither is better.
    Tie,
    /// The better answer depends on the order in which the judge sees them.
    Inconsistent,
}

/// Whether a model is better than past answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The interval of its win rate lies above a half.
    Better,
    /// The interval of its win rate lies below a half.
    Worse,
    /// Neither can be concluded.
    Undecided,
}

impl Regression {
    /// The outcome of these pairs, in which the past answer comes first and the model's second.
    pub fn of<'a>(pairs: impl IntoIterator<Item = &'a PairRow>) -> Regression {
        let pairs: Vec<&PairRow> = pairs.into_iter().collect();
        let count = |is_counted: &dyn Fn(&PairRow) -> bool| pairs.iter().filter(|pair| is_counted(pair)).count() as u64;
        let of_outcome = |outcome| count(&|pair| pair.outcome() == outcome);
        let [won, lost, ties, inconsistent] =
            [PairOutcome::Won, PairOutcome::Lost, PairOutcome::Tie, PairOutcome::Inconsistent].map(of_outcome);
        let (of, n_pairs) = (won + lost, pairs.len() as u64);
        let is_decided = |pair: &PairRow| matches!(pair.outcome(), PairOutcome::Won | PairOutcome::Lost);
        let win_rate = Share { interval: exact_interval(won, of), ..Share::new(won, of) };
        Regression {
            pairs: n_pairs,
            won,
            lost,
            ties,
            inconsistent: Share::new(inconsistent, n_pairs),
            win_rate,
            conclusion: Conclusion::from_interval(win_rate.interval),
            longer_won: Share::new(
                count(&|pair| is_decided(pair) && pair.has_longer_won() == Some(true)),
                count(&|pair| is_decided(pair) && pair.has_longer_won().is_some()),
            ),
        }
    }
}

impl PairRow {
    /// The outcome of a pair whose first answer is the past one, and whose second is a model's.
    pub fn outcome(&self) -> PairOutcome {
        match self.has_first_won {
            _ if !self.consistent => PairOutcome::Inconsistent,
            None => PairOutcome::Tie,
            Some(true) => PairOutcome::Lost,
            Some(false) => PairOutcome::Won,
        }
    }
}

impl Conclusion {
    fn from_interval(interval: Option<[f64; 2]>) -> Conclusion {
        match interval {
            Some([low, _]) if low > 0.5 => Conclusion::Better,
            Some([_, high]) if high < 0.5 => Conclusion::Worse,
            _ => Conclusion::Undecided,
        }
    }

    /// The conclusion in words, for a sentence about the model.
    pub fn in_words(self) -> &'static str {
        match self {
            Conclusion::Better => "better",
            Conclusion::Worse => "worse",
            Conclusion::Undecided => "no difference can be told",
        }
    }
}

/// The 95 % interval of a share of cases, whose coverage holds regardless of the true share (Clopper and Pearson, 1934,
/// "The use of confidence or fiducial limits illustrated in the case of the binomial"); `None` without cases. It
/// excludes a half exactly when the sign test rejects it, so conclusions can be drawn from few cases, too.
fn exact_interval(cases: u64, of: u64) -> Option<[f64; 2]> {
    (of > 0).then(|| [lower_end(cases, of), 1.0 - lower_end(of - cases, of)])
}

/// The share for which `cases` or more occur with the probability [`TAIL`].
fn lower_end(cases: u64, of: u64) -> f64 {
    if cases == 0 {
        return 0.0;
    }
    let log_choices = log_choices(of);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let share = f64::midpoint(low, high);
        match upper_tail(&log_choices, cases, share) < TAIL {
            true => low = share,
            false => high = share,
        }
    }
    f64::midpoint(low, high)
}

/// The probability of `cases` or more (binomial distribution).
fn upper_tail(log_choices: &[f64], cases: u64, share: f64) -> f64 {
    let of = log_choices.len() as u64 - 1;
    let probability = |(k, log_choices): (u64, &f64)| {
        (log_choices + k as f64 * share.ln() + (of - k) as f64 * (1.0 - share).ln()).exp()
    };
    (0..=of).zip(log_choices).skip(cases as usize).map(probability).sum()
}

/// The logarithms of the binomial coefficients `of` over 0 to `of`.
fn log_choices(of: u64) -> Vec<f64> {
    let mut log_choices = vec![0.0];
    let mut sum = 0.0;
    for k in 1..=of {
        sum += ((of + 1 - k) as f64 / k as f64).ln();
        log_choices.push(sum);
    }
    log_choices
}

/// `n` of the values, in a random order determined by the seed. Whether a value is drawn depends on its key, which must
/// be unique, and hardly on the other values: a sample of a history that has grown is mostly unchanged.
pub fn sample<T>(mut values: Vec<T>, key: impl Fn(&T) -> u128, seed: u64, n: usize) -> Vec<T> {
    values.sort_by_cached_key(|value| {
        let key = key(value);
        let folded = (key as u64) ^ ((key >> 64) as u64).rotate_left(32);
        (SplitMix::seeded(seed ^ folded).below(usize::MAX), key)
    });
    values.truncate(n);
    values
}

#[cfg(test)]
mod tests {
    use super::super::pairs::Contender;
    use super::*;

    /// A pair with a winner (`None` for a tie). The past answer has 10 characters, the model's `n_characters`.
    fn pair(has_new_won: Option<bool>, consistent: bool, n_characters: usize) -> PairRow {
        let contender =
            |model: &str, n_characters| Contender { respondent: "A".to_owned(), model: model.to_owned(), n_characters };
        PairRow {
            judge: "j".to_owned(),
            consistent,
            first: contender("old", 10),
            second: contender("new", n_characters),
            has_first_won: has_new_won.map(|won| !won),
        }
    }

    fn won_and_lost(won: usize, lost: usize) -> Vec<PairRow> {
        [vec![pair(Some(true), true, 20); won], vec![pair(Some(false), true, 20); lost]].concat()
    }

    #[track_caller]
    fn check(won: usize, lost: usize, expected: Conclusion) {
        let regression = Regression::of(&won_and_lost(won, lost));
        assert_eq!(regression.conclusion, expected, "{regression:?}");
        assert_eq!((regression.won, regression.lost), (won as u64, lost as u64));
    }

    #[test]
    fn a_clearly_better_model_is_called_better_and_an_equal_one_is_not() {
        check(30, 10, Conclusion::Better);
        check(10, 30, Conclusion::Worse);
        check(20, 20, Conclusion::Undecided);
        check(24, 16, Conclusion::Undecided);
        check(0, 0, Conclusion::Undecided);
    }

    /// The sign test's two-sided p is 0.0625 for five of five, and 0.03125 for six of six.
    #[test]
    fn few_pairs_decide_only_if_chance_would_hardly_give_them() {
        check(5, 0, Conclusion::Undecided);
        check(6, 0, Conclusion::Better);
        check(0, 6, Conclusion::Worse);
    }

    #[test]
    fn verdicts_that_depend_on_the_order_and_ties_are_neither_won_nor_lost() {
        let mut pairs = won_and_lost(3, 1);
        pairs.extend(vec![pair(Some(true), false, 20); 4]);
        pairs.extend([pair(None, true, 20), pair(None, true, 20), pair(None, false, 20)]);
        let regression = Regression::of(&pairs);
        assert_eq!((regression.pairs, regression.won, regression.lost, regression.ties), (11, 3, 1, 2));
        assert_eq!((regression.inconsistent.of, regression.inconsistent.share), (11, Some(5.0 / 11.0)));
        assert_eq!((regression.win_rate.of, regression.win_rate.share), (4, Some(0.75)));
    }

    #[test]
    fn the_bias_for_length_is_that_of_the_pairs_that_count() {
        let mut pairs = won_and_lost(3, 1);
        pairs.extend([pair(Some(true), true, 10), pair(Some(true), true, 5), pair(Some(true), false, 20)]);
        let regression = Regression::of(&pairs);
        assert_eq!((regression.longer_won.of, regression.longer_won.share), (5, Some(0.6)));
    }

    /// R's `binom.test(8, 10)`, `binom.test(15, 20)` and `binom.test(0, 10)`.
    #[test]
    fn exact_intervals_are_those_of_an_independent_computation() {
        for (cases, of, [low, high]) in
            [(8, 10, [0.4439045, 0.9747893]), (15, 20, [0.5089541, 0.9134285]), (0, 10, [0.0, 0.3084971])]
        {
            let found = exact_interval(cases, of).unwrap();
            assert!((found[0] - low).abs() < 1e-6 && (found[1] - high).abs() < 1e-6, "{cases} of {of}: {found:?}");
        }
        assert_eq!(exact_interval(0, 0), None);
        let [low, high] = exact_interval(2600, 5000).unwrap();
        assert!(low > 0.505 && high < 0.535, "{low} {high}");
    }

    #[test]
    fn a_sample_is_the_same_for_a_seed_and_hardly_changes_as_the_history_grows() {
        let drawn = |n_values: u128, seed, n| sample((0..n_values).collect(), |value| *value, seed, n);
        assert_eq!(drawn(1000, 1, 50), drawn(1000, 1, 50));
        assert_ne!(drawn(1000, 1, 50), drawn(1000, 2, 50));
        assert_eq!(drawn(1000, 1, 100)[..50], drawn(1000, 1, 50));
        let (before, after) = (drawn(1000, 1, 50), drawn(1010, 1, 50));
        assert!(before.iter().filter(|value| after.contains(value)).count() >= 45, "{before:?} {after:?}");
        assert_eq!(drawn(3, 1, 50).len(), 3);
        let mean = drawn(1000, 1, 400).iter().sum::<u128>() as f64 / 400.0;
        assert!((mean - 500.0).abs() < 60.0, "{mean}: a fair sample of 0 to 999");
    }
}
