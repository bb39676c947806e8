//! Statistics by judge: only scores of one judge, by one rubric, are on one scale.

use std::collections::BTreeMap;

use hone_protocol::{Judging, JudgingMethod, RespondentId};
use serde::{Deserialize, Serialize};

use crate::engram::{Compared, Engram};

/// One judge's scores by one rubric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JudgeTally {
    /// The model that judged.
    pub judge: String,
    /// Whether it judged its own answers.
    pub self_graded: bool,
    /// The method of judging.
    pub method: JudgingMethod,
    /// The rubric.
    pub rubric: String,
    /// All of its scores.
    #[serde(flatten)]
    pub all: Scores,
    /// The number of answers with each score, from 1 to 5.
    pub scores: [u64; 5],
    /// Its scores by the model that answered.
    pub models: BTreeMap<String, Scores>,
    /// Its scores by respondent.
    pub respondents: BTreeMap<String, Scores>,
}

/// Scores of one judge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Their number.
    pub scored: u64,
    /// Their mean.
    pub mean_score: f64,
}

/// The outcomes of one judge's comparisons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparisonTally {
    /// The model that judged.
    pub judge: String,
    /// Whether it also gave one of the answers.
    pub self_graded: bool,
    /// The method of judging.
    pub method: JudgingMethod,
    /// Pairs of answers.
    pub compared: u64,
    /// Pairs with the same verdict in both orders.
    pub consistent: u64,
    /// Pairs in which respondent A's answer was the better one.
    pub wins_a: u64,
    /// Pairs in which respondent B's answer was the better one.
    pub wins_b: u64,
    /// Pairs in which neither was better.
    pub ties: u64,
}

impl JudgeTally {
    /// The judge, as a verdict names it.
    pub fn judging(&self) -> Judging {
        let JudgeTally { judge, self_graded, method, .. } = self.clone();
        Judging { judge, self_graded, method, ..Judging::default() }
    }

    fn count(&mut self, engram: &Engram, score: u8) {
        let of_model = self.models.entry(engram.model.clone()).or_default();
        let of_respondent = self.respondents.entry(engram.respondent_id.to_string()).or_default();
        [&mut self.all, of_model, of_respondent].into_iter().for_each(|scores| scores.count(score));
        let index = usize::from(score).checked_sub(1);
        if let Some(count) = index.and_then(|index| self.scores.get_mut(index)) {
            *count += 1;
        }
    }
}

impl Scores {
    fn count(&mut self, score: u8) {
        let sum = self.mean_score * self.scored as f64 + f64::from(score);
        self.scored += 1;
        self.mean_score = sum / self.scored as f64;
    }
}

impl ComparisonTally {
    /// The judge, as a verdict names it.
    pub fn judging(&self) -> Judging {
        let ComparisonTally { judge, self_graded, method, .. } = self.clone();
        Judging { judge, self_graded, method, ..Judging::default() }
    }

    fn count(&mut self, consistent: bool, has_b_won: Option<bool>) {
        self.compared += 1;
        self.consistent += u64::from(consistent);
        self.wins_a += u64::from(has_b_won == Some(false));
        self.wins_b += u64::from(has_b_won == Some(true));
        self.ties += u64::from(has_b_won.is_none());
    }
}

/// Counts an engram's score, if it has one.
pub(super) fn count_grade(judges: &mut Vec<JudgeTally>, engram: &Engram) {
    let Some((grade, score)) = engram.grade.as_ref().and_then(|grade| Some((grade, grade.score?))) else { return };
    let is_same = |it: &JudgeTally| it.rubric == grade.rubric && it.judging().is_by_same_judge(&grade.judging);
    let place = judges.iter().position(is_same).unwrap_or_else(|| {
        let Judging { judge, self_graded, method, .. } = grade.judging.clone();
        judges.push(JudgeTally { judge, self_graded, method, rubric: grade.rubric.clone(), ..JudgeTally::default() });
        judges.len() - 1
    });
    judges[place].count(engram, score);
}

/// Counts the comparison on an engram of respondent B, which is also on that of respondent A.
pub(super) fn count_comparison(judges: &mut Vec<ComparisonTally>, engram: &Engram) {
    let compared = engram.compared.as_ref().filter(|_| engram.respondent_id == RespondentId::B);
    let Some(compared) = compared.filter(|compared| compared.failure.is_none()) else { return };
    let is_same = |it: &ComparisonTally| it.judging().is_by_same_judge(&compared.judging());
    let place = judges.iter().position(is_same).unwrap_or_else(|| {
        let Compared { judge, self_graded, method, .. } = compared.clone();
        judges.push(ComparisonTally { judge, self_graded, method, ..ComparisonTally::default() });
        judges.len() - 1
    });
    judges[place].count(compared.consistent, engram.pairwise_winner);
}

#[cfg(test)]
mod tests {
    use hone_protocol::Grade;

    use super::*;
    use crate::engram::tests::{example, graded};
    use crate::statistics::Statistics;

    fn answer(number: u128, score: u8, judge: &str, self_graded: bool, method: JudgingMethod) -> Engram {
        let judging = Judging { judge: judge.to_owned(), self_graded, method, ..Judging::default() };
        Engram { grade: Some(Grade { judging, ..graded(score) }), model: "m".to_owned(), ..example(number) }
    }

    fn counted(engrams: &[Engram]) -> Statistics {
        let mut statistics = Statistics::default();
        engrams.iter().for_each(|engram| statistics.count(engram));
        statistics.conclude();
        statistics
    }

    #[test]
    fn every_judge_has_a_row_of_its_own_and_scores_of_several_have_no_mean() {
        use JudgingMethod::{Likelihood, Prompted};
        let (j, itself) = (answer(2, 5, "j", false, Prompted), answer(5, 5, "m", true, Prompted));
        let statistics = counted(&[
            j.clone(),
            answer(3, 2, "j", false, Prompted),
            answer(4, 1, "m", true, Likelihood),
            itself.clone(),
            answer(6, 3, "m", true, Prompted),
        ]);
        let rows = statistics.judges.iter().map(|it| (it.judge.as_str(), it.self_graded, it.method, it.all.mean_score));
        let expected = [("j", false, Prompted, 3.5), ("m", true, Likelihood, 1.0), ("m", true, Prompted, 4.0)];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        let by_j = &statistics.judges[0];
        assert_eq!((by_j.scores, by_j.all.scored), ([0, 1, 0, 0, 1], 2));
        assert_eq!((by_j.respondents["A"].mean_score, by_j.respondents["B"].mean_score), (5.0, 2.0));
        assert_eq!((statistics.all.scored, statistics.all.self_graded, statistics.all.mean_score), (5, 3, None));
        assert!(statistics.models.values().chain(statistics.respondents.values()).all(|it| it.mean_score.is_none()));
        assert_eq!(counted(&[j]).respondents["A"].mean_score, Some(5.0), "one judge's scores are on one scale");
        assert_eq!(counted(&[itself]).all.mean_score, Some(5.0));
    }

    #[test]
    fn scores_by_another_rubric_are_on_another_scale() {
        let one = answer(2, 5, "j", false, JudgingMethod::Prompted);
        let rubric = "brevity".to_owned();
        let other = Engram { grade: one.grade.clone().map(|grade| Grade { rubric, ..grade }), ..one.clone() };
        assert_eq!(counted(&[one, other]).judges.len(), 2);
    }

    #[test]
    fn a_comparison_is_counted_once_and_by_its_judge() {
        let compared = |number: u128, self_graded: bool, won: Option<bool>| {
            let compared = example(3).compared.map(|it| Compared { self_graded, ..it });
            let respondent_id = if number % 2 == 1 { RespondentId::B } else { RespondentId::A };
            Engram { compared, pairwise_winner: won, respondent_id, ..example(number) }
        };
        let failed = Compared { failure: Some("timeout".to_owned()), ..example(3).compared.unwrap() };
        let statistics = counted(&[
            compared(2, false, Some(true)),
            compared(3, false, Some(false)),
            compared(5, false, None),
            compared(7, true, Some(true)),
            Engram { compared: Some(failed), ..example(9) },
        ]);
        let rows = statistics.comparisons.iter();
        let rows: Vec<_> = rows.map(|it| (it.self_graded, it.compared, it.wins_a, it.wins_b, it.ties)).collect();
        assert_eq!(rows, [(false, 2, 1, 0, 1), (true, 1, 0, 1, 0)]);
    }
}
