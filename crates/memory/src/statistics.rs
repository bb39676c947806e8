//! Statistics of memory.

mod judges;

use std::collections::BTreeMap;

use hone_protocol::{Likely, Rating, VettingState};
use serde::{Deserialize, Serialize};

pub use self::judges::{ComparisonTally, JudgeTally, Scores};
use crate::engram::{Engram, EngramKind};

/// Statistics of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// All answers.
    pub all: Tally,
    /// Facts that the user stated; they count only here.
    #[serde(default)]
    pub facts: u64,
    /// Notes made from memory; they count only here.
    #[serde(default)]
    pub notes: u64,
    /// Answers and notes that count as long-term memory.
    #[serde(default)]
    pub reviewed: u64,
    /// Answers and notes that a critic has blocked.
    #[serde(default)]
    pub blocked: u64,
    /// The number of engrams with each score, from 1 to 5.
    pub scores: [u64; 5],
    /// Scores by the judge that gave them. A model's grades of its own answers are separate, and so are grades from
    /// log-probabilities.
    #[serde(default)]
    pub judges: Vec<JudgeTally>,
    /// Comparisons by the judge that made them.
    #[serde(default)]
    pub comparisons: Vec<ComparisonTally>,
    /// Engrams by the model that answered.
    pub models: BTreeMap<String, Tally>,
    /// Engrams by respondent.
    pub respondents: BTreeMap<String, Tally>,
    /// Vectors by embedding model, without those of other dimensions than the model's.
    pub vectors: BTreeMap<String, u64>,
    /// The embedding model whose vectors are indexed.
    pub indexed_model: String,
    /// Vectors in the index.
    pub indexed_vectors: u64,
    /// Size of the index in memory, in bytes.
    pub index_memory_bytes: u64,
    /// Size of the index on disk, in bytes.
    pub index_file_bytes: u64,
    /// Size of engrams, vectors and events on disk, in bytes.
    pub storage_bytes: u64,
    /// Events in the log.
    pub events: u64,
    /// Requests on the due list.
    #[serde(default)]
    pub due: u64,
    /// Answers whose grade is due.
    #[serde(default)]
    pub grades_due: u64,
    /// Pairs of answers whose comparison is due.
    #[serde(default)]
    pub comparisons_due: u64,
}

impl Statistics {
    /// Engrams without a vector of the current embedding model, which semantic search cannot find.
    pub fn without_vector(&self, model: &str) -> u64 {
        (self.all.engrams + self.facts + self.notes)
            .saturating_sub(self.vectors.get(model).copied().unwrap_or_default())
    }

    pub(crate) fn count(&mut self, engram: &Engram) {
        if engram.kind == EngramKind::Fact {
            self.facts += 1;
            return;
        }
        self.reviewed += u64::from(engram.vetting.state == VettingState::Reviewed);
        self.blocked += u64::from(engram.vetting.state == VettingState::Blocked);
        if engram.kind.is_note() {
            self.notes += 1;
            return;
        }
        let mut tallies = [
            &mut self.all,
            self.models.entry(engram.model.clone()).or_default(),
            self.respondents.entry(engram.respondent_id.to_string()).or_default(),
        ];
        tallies.iter_mut().for_each(|tally| tally.count(engram));
        judges::count_grade(&mut self.judges, engram);
        judges::count_comparison(&mut self.comparisons, engram);
        self.grades_due += u64::from(engram.due.as_ref().is_some_and(|due| due.grade));
        self.comparisons_due += u64::from(engram.due.as_ref().is_some_and(|due| due.comparison));
        let score = engram.score().and_then(|score| usize::from(score).checked_sub(1));
        if let Some(count) = score.and_then(|index| self.scores.get_mut(index)) {
            *count += 1;
        }
    }

    /// Completes the count. Scores of several judges are on different scales and have no common mean.
    pub(crate) fn conclude(&mut self) {
        if self.judges.len() > 1 {
            let groups = self.models.values_mut().chain(self.respondents.values_mut());
            groups.chain([&mut self.all]).for_each(|tally| tally.mean_score = None);
        }
    }
}

/// Statistics of a group of engrams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Engrams.
    pub engrams: u64,
    /// Engrams with a score.
    pub scored: u64,
    /// Scored engrams whose score comes from the model that answered.
    #[serde(default)]
    pub self_graded: u64,
    /// Engrams without a score; they are neither passes nor zeros, and count in no mean.
    pub unscored: u64,
    /// Engrams that a judge without scores marked as likely right.
    #[serde(default)]
    pub likely_right: u64,
    /// Engrams that such a judge marked as likely wrong.
    #[serde(default)]
    pub likely_wrong: u64,
    /// The mean of the scores; `None` without scores, and if several judges gave the scores in memory: see
    /// [`Statistics::judges`].
    pub mean_score: Option<f64>,
    /// The better ones of two answers.
    pub pairwise_wins: u64,
    /// The worse ones of two answers.
    pub pairwise_losses: u64,
    /// Engrams that the user rated good.
    pub good: u64,
    /// Engrams that the user rated bad.
    pub bad: u64,
}

impl Tally {
    fn count(&mut self, engram: &Engram) {
        self.engrams += 1;
        match engram.score() {
            Some(score) => {
                let sum = self.mean_score.unwrap_or_default() * self.scored as f64 + f64::from(score);
                self.scored += 1;
                self.self_graded += u64::from(engram.grade.as_ref().is_some_and(|grade| grade.judging.self_graded));
                self.mean_score = Some(sum / self.scored as f64);
            }
            None => self.unscored += 1,
        }
        let likely = engram.grade.as_ref().and_then(|grade| grade.likely);
        self.likely_right += u64::from(likely == Some(Likely::Right));
        self.likely_wrong += u64::from(likely == Some(Likely::Wrong));
        self.pairwise_wins += u64::from(engram.pairwise_winner == Some(true));
        self.pairwise_losses += u64::from(engram.pairwise_winner == Some(false));
        self.good += u64::from(engram.user_feedback == Some(Rating::Good));
        self.bad += u64::from(engram.user_feedback == Some(Rating::Bad));
    }
}

/// The result of a consistency check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Engrams.
    pub engrams: u64,
    /// Vectors of the current embedding model.
    pub vectors: u64,
    /// Vectors in the index.
    pub indexed: u64,
    /// The inconsistencies found.
    pub problems: Vec<String>,
}

#[cfg(test)]
mod tests {
    use hone_protocol::Grade;

    use super::*;
    use crate::engram::tests::{example, graded};

    #[test]
    fn the_unscored_are_neither_passes_nor_zeros() {
        let mut statistics = Statistics::default();
        for (number, score) in [(1, Some(5)), (3, Some(2)), (5, None)] {
            let grade = score.map(graded);
            statistics.count(&Engram { grade, pairwise_winner: score.map(|score| score > 3), ..example(number) });
        }
        let all = &statistics.all;
        assert_eq!((all.engrams, all.scored, all.unscored), (3, 2, 1));
        assert_eq!((all.pairwise_wins, all.pairwise_losses, all.good, all.bad), (1, 1, 3, 0));
        assert!(all.mean_score.is_some_and(|mean| (mean - 3.5).abs() < 1e-9));
        assert_eq!(statistics.scores, [0, 1, 0, 0, 1]);
        assert_eq!(statistics.respondents["B"], *all);
        let mut unscored = Statistics::default();
        unscored.count(&example(2));
        assert_eq!((unscored.all.unscored, unscored.all.mean_score), (1, None));
        for (number, likely) in [(4, Likely::Right), (6, Likely::Right), (8, Likely::Wrong)] {
            let grade = Grade { score: None, likely: Some(likely), ..graded(3) };
            unscored.count(&Engram { grade: Some(grade), ..example(number) });
        }
        assert_eq!((unscored.all.unscored, unscored.all.likely_right, unscored.all.likely_wrong), (4, 2, 1));
    }
}
