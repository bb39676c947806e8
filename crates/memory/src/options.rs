//! The options of memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The options of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryOptions {
    /// Name of the current embedding model, whose vectors are stored and searched. Vectors of other models stay, but are
    /// left out of every search.
    pub embedding_model: String,
    /// How search results are ranked.
    pub ranking: Ranking,
    /// The number of changed vectors after which the index is written to disk. A crash costs at most that many insertions
    /// into the index when memory is next opened. An index of more than eight times as many vectors is written after an
    /// eighth of them have changed.
    pub changes_until_save: u64,
    /// Bytes to keep free on the disk: a write that would leave less is refused before it begins.
    pub reserved_bytes: u64,
    /// The number of daily backups to keep; 0 for none.
    pub backups: usize,
    /// How long a claim on a due answer lasts if its process is not heard of any more. A process that works renews its claims.
    pub lease: Duration,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions {
            embedding_model: "all-minilm:l6-v2".to_owned(),
            ranking: Ranking::default(),
            changes_until_save: 256,
            reserved_bytes: 16 << 20,
            backups: 7,
            lease: Duration::from_secs(30),
        }
    }
}

/// How a search result is ranked:
///
/// `relevance = similarity * (1 + score_weight * (score - 3) / 2)`
///
/// The best grade, 5, raises a similarity by `score_weight` and the worst, 1, lowers it by as much. A grade of 3, or no
/// grade, leaves it unchanged. A negative similarity is not weighted: a good grade would push it further down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ranking {
    /// The weight of the grade, from 0 (none) to 1.
    pub score_weight: f32,
}

impl Default for Ranking {
    fn default() -> Self {
        Ranking { score_weight: 0.2 }
    }
}

impl Ranking {
    /// The relevance of an engram with this similarity and score.
    pub fn relevance(&self, similarity: f32, score: Option<u8>) -> f32 {
        match score {
            Some(score) if similarity > 0.0 => similarity * (1.0 + self.weight() * (f32::from(score) - 3.0) / 2.0),
            _ => similarity,
        }
    }

    /// The highest relevance that an engram of this similarity can have.
    pub(crate) fn highest_relevance(&self, similarity: f32) -> f32 {
        self.relevance(similarity, Some(5))
    }

    /// Outside of 0 to 1, a good grade could count against an answer.
    fn weight(&self) -> f32 {
        self.score_weight.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(score_weight: f32, similarity: f32, score: Option<u8>, expected: f32) {
        let relevance = Ranking { score_weight }.relevance(similarity, score);
        assert!((relevance - expected).abs() < 1e-6, "{relevance}");
        assert!(relevance <= Ranking { score_weight }.highest_relevance(similarity) + 1e-6);
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
}
