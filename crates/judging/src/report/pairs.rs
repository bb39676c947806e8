//! Results of comparisons by judge: win rates, indications that length or order decided instead of quality, and
//! strengths.

use std::collections::BTreeMap;

use hone_protocol::{Preference, RespondentId};
use serde::{Deserialize, Serialize};

use crate::bradley_terry::{Strength, Tournament};
use crate::report::share_with_interval;

/// With fewer contenders, a plain win rate is enough.
const LEAST_FOR_STRENGTHS: usize = 3;

/// Two answers that were compared.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRow {
    /// The judge, as its name is shown.
    pub judge: String,
    /// Whether it preferred the same answer in both orders.
    pub consistent: bool,
    /// The author of the first answer.
    pub first: Contender,
    /// The author of the second answer.
    pub second: Contender,
    /// `None` for a tie.
    pub has_first_won: Option<bool>,
}

/// The author of one of two answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The respondent.
    pub respondent: String,
    /// The model.
    pub model: String,
    /// The length of the answer in characters.
    pub n_characters: usize,
}

/// A share of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The cases that could have counted.
    pub of: u64,
    /// The share of them that did; `None` without cases.
    pub share: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<[f64; 2]>,
}

impl Share {
    /// The share of `cases` in `of`.
    pub fn new(cases: u64, of: u64) -> Share {
        let found = share_with_interval(cases, of);
        Share { of, share: found.map(|(share, _)| share), interval: found.map(|(_, interval)| interval) }
    }
}

/// The comparisons of one judge.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PairReport {
    /// The judge.
    pub judge: String,
    /// Pairs of answers.
    pub compared: u64,
    /// Pairs in which neither answer won.
    pub ties: u64,
    /// The share of verdicts that differ between the two orders.
    pub inconsistent: Share,
    /// How often the longer answer won, among pairs with a winner and different lengths. A value far from a half
    /// suggests that length decided.
    pub longer_won: Share,
    /// How often each respondent won, among its pairs with a winner against another respondent.
    pub respondents: BTreeMap<String, Share>,
    /// How often each model won, among its pairs with a winner against another model.
    pub models: BTreeMap<String, Share>,
    /// The strengths of the respondents, strongest first; empty unless there are more than two.
    pub respondent_strengths: Vec<Strength>,
    /// The strengths of the models, strongest first; empty unless there are more than two.
    pub model_strengths: Vec<Strength>,
}

impl PairReport {
    /// A report for each judge, in alphabetical order.
    pub fn all(pairs: &[PairRow]) -> Vec<PairReport> {
        let mut by_judge: BTreeMap<&str, Vec<&PairRow>> = BTreeMap::new();
        for pair in pairs {
            by_judge.entry(&pair.judge).or_default().push(pair);
        }
        by_judge.into_iter().map(|(judge, pairs)| PairReport::of(judge, &pairs)).collect()
    }

    fn of(judge: &str, pairs: &[&PairRow]) -> PairReport {
        let compared = pairs.len() as u64;
        let count = |is_counted: &dyn Fn(&PairRow) -> bool| pairs.iter().filter(|pair| is_counted(pair)).count() as u64;
        let (respondents, respondent_strengths) = standings(pairs, |contender| &contender.respondent);
        let (models, model_strengths) = standings(pairs, |contender| &contender.model);
        PairReport {
            judge: judge.to_owned(),
            compared,
            ties: count(&|pair| pair.has_first_won.is_none()),
            inconsistent: Share::new(count(&|pair| !pair.consistent), compared),
            longer_won: Share::new(
                count(&|pair| pair.has_longer_won() == Some(true)),
                count(&|pair| pair.has_longer_won().is_some()),
            ),
            respondents,
            models,
            respondent_strengths,
            model_strengths,
        }
    }
}

impl PairRow {
    /// The verdict of a judge, as its name is shown, whose A is the first contender.
    pub fn new(judge: String, preference: &Preference, [first, second]: [Contender; 2]) -> PairRow {
        let has_first_won = preference.winner.map(|winner| winner == RespondentId::A);
        PairRow { judge, consistent: preference.consistent, first, second, has_first_won }
    }

    /// Whether the longer answer won; `None` for a tie, and for answers of equal length.
    pub(super) fn has_longer_won(&self) -> Option<bool> {
        let (first, second) = (self.first.n_characters, self.second.n_characters);
        self.has_first_won.filter(|_| first != second).map(|won| won == (first > second))
    }
}

/// The win rates of the contenders that `name` distinguishes, and their strengths if there are more than two.
fn standings(pairs: &[&PairRow], name: fn(&Contender) -> &String) -> (BTreeMap<String, Share>, Vec<Strength>) {
    let mut wins: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    let mut tournament = Tournament::default();
    for pair in pairs {
        let (first, second) = (name(&pair.first).as_str(), name(&pair.second).as_str());
        tournament.count(first, second, pair.has_first_won);
        for (name, has_won) in [(first, pair.has_first_won), (second, pair.has_first_won.map(|won| !won))] {
            let [won, decided] = wins.entry(name).or_default();
            let has_won = has_won.filter(|_| first != second);
            *won += u64::from(has_won == Some(true));
            *decided += u64::from(has_won.is_some());
        }
    }
    let rates = wins.into_iter().filter(|(_, [_, decided])| *decided > 0);
    let rates = rates.map(|(name, [won, decided])| (name.to_owned(), Share::new(won, decided))).collect();
    let strengths = if tournament.len() < LEAST_FOR_STRENGTHS { Vec::new() } else { tournament.strengths() };
    (rates, strengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(model: &str, n_characters: usize) -> Contender {
        Contender { respondent: if model == "x" { "A" } else { "B" }.to_owned(), model: model.to_owned(), n_characters }
    }

    fn pair(first: &str, second: &str, lengths: [usize; 2], has_first_won: Option<bool>) -> PairRow {
        let (first, second) = (contender(first, lengths[0]), contender(second, lengths[1]));
        PairRow { judge: "j".to_owned(), consistent: true, first, second, has_first_won }
    }

    #[test]
    fn win_rates_stand_beside_the_bias_for_length_and_the_inconsistent_verdicts() {
        let mut pairs = vec![
            pair("x", "y", [10, 20], Some(false)),
            pair("x", "y", [30, 20], Some(true)),
            pair("x", "y", [30, 20], Some(false)),
            pair("x", "y", [20, 20], Some(true)),
            pair("x", "y", [30, 20], None),
        ];
        pairs[0].consistent = false;
        let reports = PairReport::all(&pairs);
        let [report] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((report.compared, report.ties), (5, 1));
        assert_eq!((report.inconsistent.of, report.inconsistent.share), (5, Some(0.2)));
        assert_eq!((report.longer_won.of, report.longer_won.share), (3, Some(2.0 / 3.0)));
        assert_eq!((report.respondents["A"].share, report.respondents["B"].of), (Some(0.5), 4));
        assert_eq!(report.models["x"], report.respondents["A"]);
        assert!(report.model_strengths.is_empty(), "two have a win rate");
    }

    #[test]
    fn judges_are_kept_apart_and_more_than_two_have_strengths() {
        let mut pairs = vec![
            pair("x", "y", [1, 1], Some(true)),
            pair("x", "z", [1, 1], Some(true)),
            pair("y", "z", [1, 1], Some(true)),
            pair("y", "y", [1, 1], Some(true)),
        ];
        pairs.push(PairRow { judge: "other".to_owned(), ..pair("x", "y", [1, 1], None) });
        let reports = PairReport::all(&pairs);
        assert_eq!(
            reports.iter().map(|it| (it.judge.as_str(), it.compared)).collect::<Vec<_>>(),
            [("j", 4), ("other", 1)]
        );
        let names: Vec<&str> = reports[0].model_strengths.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["x", "y", "z"]);
        assert_eq!(reports[0].models["y"].of, 2, "nobody wins against themselves");
        assert_eq!(reports[1].models.len(), 0, "a tie has no winner");
        assert_eq!(reports[1].longer_won.share, None);
    }
}
