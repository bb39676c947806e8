//! What the judge's log-probabilities say beyond its verdict: how confident it was.

use hone_protocol::{TokenLogprob, TokenLogprobs};

/// Log-odds of a verdict whose probabilities the generator did not report, in nats: 99 to 1.
const UNREPORTED_LOG_ODDS: f64 = 4.6;
/// Limit on log-odds: those of a probability of 0 would be infinite.
const LARGEST_LOG_ODDS: f64 = 100.0;

/// Both spellings of every name: tokenizers have tokens with a leading space, without one, or both.
pub(crate) fn spellings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).chain(names.iter().map(|name| format!(" {name}"))).collect()
}

/// Probabilities of the five scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScoreDistribution([f64; 5]);

impl ScoreDistribution {
    /// The mean of several; `None` if there are none.
    pub(crate) fn mean(distributions: &[ScoreDistribution]) -> Option<ScoreDistribution> {
        let share = 1.0 / distributions.len() as f64;
        let mean = |score: usize| distributions.iter().map(|distribution| distribution.0[score] * share).sum();
        (!distributions.is_empty()).then(|| ScoreDistribution(std::array::from_fn(mean)))
    }

    /// The mean of the scores 1 to 5, weighted by their probabilities.
    pub(crate) fn expected_score(&self) -> f64 {
        (1..=5).zip(self.0).map(|(score, probability)| f64::from(score) * probability).sum()
    }

    /// Entropy in nats.
    pub(crate) fn entropy(&self) -> f64 {
        let surprise = |probability: f64| if probability > 0.0 { -probability * probability.ln() } else { 0.0 };
        // Certainty would otherwise yield a negative zero.
        self.0.into_iter().map(surprise).sum::<f64>().max(0.0)
    }
}

/// The distribution of the scores at the last position where the judge chose `score`; `None` if the generator reported
/// none.
///
/// The probability of a score is the sum over both its spellings. The five are normalized by their sum: the softmax
/// over the score tokens alone, as if no other token could have been chosen.
pub(crate) fn score_distribution(rows: &[TokenLogprobs], score: u8) -> Option<ScoreDistribution> {
    let score = score.to_string();
    let row = rows.iter().rev().find(|row| chosen(row) == Some(&score))?;
    let logprobs = ["1", "2", "3", "4", "5"].map(|name| logprob_of(row, name));
    let largest = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_complete = ["1", "2", "3", "4", "5"].iter().all(|name| named(row, name).next().is_some());
    if !(is_complete && largest.is_finite()) {
        return None;
    }
    let weights = logprobs.map(|logprob| (logprob - largest).exp());
    let total: f64 = weights.iter().sum();
    Some(ScoreDistribution(weights.map(|weight| weight / total)))
}

/// Natural logarithm of the odds of the letter A over B at the first position where the judge chose `letter`. If the
/// generator reported no probabilities, a nearly certain judge is assumed.
pub(crate) fn log_odds_of_a(rows: &[TokenLogprobs], letter: &str) -> f64 {
    let row = rows.iter().find(|row| chosen(row) == Some(letter));
    let log_odds = row.map(|row| logprob_of(row, "A") - logprob_of(row, "B")).filter(|log_odds| !log_odds.is_nan());
    let unreported = if letter == "A" { UNREPORTED_LOG_ODDS } else { -UNREPORTED_LOG_ODDS };
    log_odds.unwrap_or(unreported).clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
}

/// The name of the chosen token, if it is one of those requested.
fn chosen(row: &TokenLogprobs) -> Option<&str> {
    row.named.iter().find(|named| named.id == row.id).map(|named| named.text.trim())
}

/// The tokens that spell a name.
fn named<'a>(row: &'a TokenLogprobs, name: &str) -> impl Iterator<Item = &'a TokenLogprob> {
    row.named.iter().filter(move |named| named.text.trim() == name)
}

/// Natural logarithm of the probability of a name in any of its spellings.
fn logprob_of(row: &TokenLogprobs, name: &str) -> f64 {
    let logprobs: Vec<f64> = named(row, name).map(|named| f64::from(named.logprob)).collect();
    let largest = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match largest.is_finite() {
        true => largest + logprobs.iter().map(|logprob| (logprob - largest).exp()).sum::<f64>().ln(),
        false => f64::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A position where `chosen` was chosen and the names had these probabilities.
    fn row(chosen: &str, probabilities: &[(&str, f32)]) -> TokenLogprobs {
        let named: Vec<TokenLogprob> = (10..)
            .zip(probabilities)
            .map(|(id, (text, probability))| TokenLogprob { id, logprob: probability.ln(), text: (*text).to_owned() })
            .collect();
        let (id, logprob) = named.iter().find(|row| row.text == chosen).map_or((0, -1.0), |row| (row.id, row.logprob));
        TokenLogprobs { id, logprob, top: Vec::new(), named }
    }

    #[track_caller]
    fn check(rows: &[TokenLogprobs], expected: Option<(f64, f64)>) {
        let seen = score_distribution(rows, 4).map(|seen| (seen.expected_score(), seen.entropy()));
        let is_close = |(a, b): ((f64, f64), (f64, f64))| (a.0 - b.0).abs() < 1e-5 && (a.1 - b.1).abs() < 1e-5;
        assert!(seen.is_some() == expected.is_some(), "{seen:?}");
        assert!(seen.zip(expected).is_none_or(is_close), "{seen:?} is not {expected:?}");
    }

    #[test]
    fn the_expected_score_is_the_mean_over_the_five_scores() {
        let half_four = [("1", 0.0), ("2", 0.0), ("3", 0.0), ("4", 0.25), ("5", 0.25)];
        check(&[row("4", &half_four)], Some((4.5, 2f64.ln())));
        let even = [("1", 0.1), ("2", 0.1), ("3", 0.1), ("4", 0.1), ("5", 0.1)];
        check(&[row("4", &even)], Some((3.0, 5f64.ln())));
        let certain = [("1", 0.0), ("2", 0.0), ("3", 0.0), ("4", 1e-30), ("5", 0.0)];
        check(&[row("4", &certain)], Some((4.0, 0.0)));
    }

    #[test]
    fn both_spellings_count() {
        let both = [("1", 0.0), ("2", 0.0), ("3", 0.0), ("4", 0.1), ("5", 0.1), (" 4", 0.2), (" 5", 0.0)];
        check(&[row(" 4", &both)], Some((0.75 * 4.0 + 0.25 * 5.0, -(0.75 * 0.75f64.ln() + 0.25 * 0.25f64.ln()))));
    }

    #[test]
    fn the_last_position_of_the_score_counts() {
        let sure_of = |score: &str| ["1", "2", "3", "4", "5"].map(|name| (name, f32::from(u8::from(name == score))));
        let rows = [row("4", &sure_of("1")), row("4", &sure_of("4")), row("5", &sure_of("2")), row("x", &sure_of("3"))];
        check(&rows, Some((4.0, 0.0)));
    }

    #[test]
    fn without_probabilities_there_is_no_expected_score() {
        check(&[], None);
        check(&[row("4", &[("4", 0.5)])], None);
        check(&[row("x", &[("1", 0.2), ("2", 0.2), ("3", 0.2), ("4", 0.2), ("5", 0.2)])], None);
        let mut unknown = row("4", &[("1", 0.2), ("2", 0.2), ("3", 0.2), ("4", 0.2), ("5", 0.2)]);
        unknown.named.iter_mut().for_each(|named| named.logprob = f32::NAN);
        check(&[unknown], None);
    }

    #[track_caller]
    fn check_odds(rows: &[TokenLogprobs], letter: &str, expected: f64) {
        let seen = log_odds_of_a(rows, letter);
        assert!((seen - expected).abs() < 1e-5, "{seen} is not {expected}");
    }

    #[test]
    fn log_odds_compare_the_letters_in_both_spellings() {
        check_odds(&[row("A", &[("A", 0.6), ("B", 0.2)])], "A", 3f64.ln());
        check_odds(&[row(" B", &[("A", 0.1), (" B", 0.2), ("B", 0.1)])], "B", (1.0f64 / 3.0).ln());
        check_odds(&[row("x", &[("A", 0.6), ("B", 0.2)]), row("A", &[("A", 0.4), ("B", 0.2)])], "A", 2f64.ln());
        check_odds(&[row("A", &[("A", 0.6), ("B", 0.0)])], "A", LARGEST_LOG_ODDS);
        check_odds(&[], "A", UNREPORTED_LOG_ODDS);
        check_odds(&[], "B", -UNREPORTED_LOG_ODDS);
    }
}
