//! The options of memory.

use std::time::Duration;

use hone_protocol::Rating;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engram::Engram;

/// Merges two versions of a document, the later one first; `None` if one of them cannot be read. One of them could not be
/// written in time, and another process has written the other since.
pub type MergeDocuments = fn(Value, Value) -> Option<Value>;

/// The options of memory.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The address of a PostgreSQL database for memory, as `postgres://USER@HOST/NAME`; `None` for memory in its
    /// folder.
    pub url: Option<String>,
    /// Name of the current embedding model, whose vectors are stored and searched. Vectors of other models stay, but
    /// are left out of every search.
    pub embedding_model: String,
    /// The ranking of search results.
    pub ranking: Ranking,
    /// The number of changed vectors after which the index is written to disk. A crash costs at most that many
    /// insertions into the index when memory is next opened. An index of more than eight times as many vectors is
    /// written after an eighth of them have changed.
    pub changes_until_save: u64,
    /// Bytes to keep free on the disk: a write that would leave less is refused before it begins.
    pub reserved_bytes: u64,
    /// The number of daily backups to keep; 0 for none.
    pub backups: usize,
    /// How long a claim on a due answer lasts without renewal. A live process renews its claims.
    pub lease: Duration,
    /// Merges two versions of a document; by default, none are merged, and the late one is set aside.
    pub merge_documents: MergeDocuments,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions {
            url: None,
            embedding_model: "all-minilm:l6-v2".to_owned(),
            ranking: Ranking::default(),
            changes_until_save: 256,
            reserved_bytes: 16 << 20,
            backups: 7,
            lease: Duration::from_secs(30),
            merge_documents: |_, _| None,
        }
    }
}

/// The ranking of a search result:
///
/// `relevance = similarity * (1 + weight * mark)`
///
/// The mark is 1 for the best, -1 for the worst, and comes from the first available of these: the person's rating, a
/// comparison with another answer, the grade of a judge (`(score - 3) / 2`), the generator's grade of its own answer.
/// Each has a weight of its own. An answer without a mark keeps its similarity, and so does a negative similarity: a
/// good mark would push it further down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ranking {
    /// The weight of a person's rating, from 0 (none) to 1, the range of all weights.
    pub person_weight: f32,
    /// The weight of a comparison.
    pub comparison_weight: f32,
    /// The weight of a judge's grade.
    pub score_weight: f32,
    /// The weight of a grade, or of a comparison, by the generator itself.
    pub self_score_weight: f32,
}

impl Default for Ranking {
    fn default() -> Self {
        Ranking { person_weight: 0.3, comparison_weight: 0.25, score_weight: 0.2, self_score_weight: 0.05 }
    }
}

impl Ranking {
    /// The relevance of an engram with this similarity.
    pub fn relevance(&self, similarity: f32, engram: &Engram) -> f32 {
        match self.weighted_mark(engram) {
            Some(mark) if similarity > 0.0 => similarity * (1.0 + mark),
            _ => similarity,
        }
    }

    /// The highest relevance that an engram of this similarity can have.
    pub(crate) fn highest_relevance(&self, similarity: f32) -> f32 {
        let weights = [self.person_weight, self.comparison_weight, self.score_weight, self.self_score_weight];
        similarity.max(similarity * (1.0 + weights.into_iter().map(sound).fold(0.0, f32::max)))
    }

    fn weighted_mark(&self, engram: &Engram) -> Option<f32> {
        let is_self_compared = engram.compared.as_ref().is_some_and(|compared| compared.self_graded);
        let compared = |is_self: bool, weight: f32| {
            let winner = engram.pairwise_winner.filter(|_| is_self_compared == is_self);
            winner.map(|is_winner| (weight, of_best(is_winner)))
        };
        let graded = |is_self: bool, weight: f32| {
            let grade = engram.grade.as_ref().filter(|grade| grade.judging.self_graded == is_self)?;
            Some((weight, (f32::from(grade.score?) - 3.0) / 2.0))
        };
        let rated = engram.user_feedback.map(|rating| (self.person_weight, of_best(rating == Rating::Good)));
        let by_others = || compared(false, self.comparison_weight).or_else(|| graded(false, self.score_weight));
        let by_itself = || compared(true, self.self_score_weight).or_else(|| graded(true, self.self_score_weight));
        rated.or_else(by_others).or_else(by_itself).map(|(weight, mark)| sound(weight) * mark)
    }
}

fn of_best(is_best: bool) -> f32 {
    if is_best { 1.0 } else { -1.0 }
}

/// Clamps a weight: outside of 0 to 1, a good mark could count against an answer.
fn sound(weight: f32) -> f32 {
    weight.clamp(0.0, 1.0)
}

/// The thresholds of recall, and those for telling engrams apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matching {
    /// The least cosine similarity to the question, -1 to 1.
    pub threshold: f32,
    /// The least similarity as a share of the most similar engram's, 0 to 1.
    pub nearness: f32,
    /// The share of the question's words, each weighted by its rarity, that makes up for a lower similarity.
    pub words_threshold: f32,
    /// The least share of the question's words, whatever the similarity.
    pub least_words: f32,
    /// The weight of the ranking by words, relative to that by meaning.
    pub words_weight: f32,
    /// The additional relevance of a fact over an exchange of the same similarity: its relevance times 1 + weight.
    pub facts_weight: f32,
    /// The least similarity of two engrams that say the same; only the newer one is recalled.
    pub duplicate: f32,
    /// The least similarity of two facts about the same thing; the newer one comes first.
    pub same_statement: f32,
    /// Like [`Matching::same_statement`], when the newer one says that something has changed.
    pub changed_statement: f32,
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Grade, Judging};

    use super::*;
    use crate::engram::Compared;
    use crate::engram::tests::{example, graded};

    fn unmarked() -> Engram {
        Engram { grade: None, pairwise_winner: None, user_feedback: None, ..example(2) }
    }

    fn scored(score: Option<u8>) -> Engram {
        Engram { grade: score.map(graded), ..unmarked() }
    }

    #[track_caller]
    fn check(score_weight: f32, similarity: f32, score: Option<u8>, expected: f32) {
        let ranking = Ranking { score_weight, ..Ranking::default() };
        let relevance = ranking.relevance(similarity, &scored(score));
        assert!((relevance - expected).abs() < 1e-6, "{relevance}");
        assert!(relevance <= ranking.highest_relevance(similarity) + 1e-6);
    }

    #[test]
    fn grades_raise_and_lower_a_similarity() {
        check(0.2, 0.5, None, 0.5);
        check(0.2, 0.5, Some(3), 0.5);
        check(0.2, 0.5, Some(5), 0.6);
        check(0.2, 0.5, Some(4), 0.55);
        check(0.2, 0.5, Some(1), 0.4);
        check(0.0, 0.5, Some(1), 0.5);
        check(1.0, 0.5, Some(1), 0.0);
        check(9.0, 0.5, Some(5), 1.0);
        check(0.2, -0.5, Some(5), -0.5);
    }

    #[test]
    fn a_person_counts_before_a_comparison_and_a_comparison_before_grades() {
        let ranking = Ranking { person_weight: 0.4, comparison_weight: 0.3, score_weight: 0.2, self_score_weight: 0.1 };
        let check = |engram: &Engram, expected: f32| {
            let relevance = ranking.relevance(1.0, engram);
            assert!((relevance - expected).abs() < 1e-6, "{relevance}, not {expected}");
        };
        let judging = Judging { self_graded: true, ..Judging::default() };
        let self_graded = Engram { grade: Some(Grade { judging, ..graded(5) }), ..unmarked() };
        check(&self_graded, 1.1);
        check(&scored(Some(5)), 1.2);
        let lost = Engram { pairwise_winner: Some(false), ..scored(Some(5)) };
        check(&lost, 0.7);
        check(&Engram { user_feedback: Some(Rating::Good), ..lost.clone() }, 1.4);
        let by_itself = Some(Compared { self_graded: true, ..example(3).compared.unwrap() });
        let judged = Engram { compared: by_itself, ..lost.clone() };
        check(&judged, 1.2);
        check(&Engram { grade: self_graded.grade.clone(), ..judged }, 0.9);
        check(&Engram { user_feedback: Some(Rating::Bad), pairwise_winner: Some(true), ..lost }, 0.6);
    }
}
