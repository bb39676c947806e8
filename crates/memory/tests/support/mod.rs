//! Engrams, vectors and folders for the tests.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use hone_memory::{Engram, EngramKind, MemoryOptions, MemoryStore};
use hone_protocol::{Grade, Judging, QueryId, RespondentId, SamplingOptions, SessionId, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tempfile::TempDir;

/// The embedding model of the tests.
pub(crate) const MODEL: &str = "all-minilm:l6-v2";

/// Memory in a folder of its own.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn open(&self) -> MemoryStore {
        self.open_with(MemoryOptions::default())
    }

    pub(crate) fn open_with(&self, options: MemoryOptions) -> MemoryStore {
        MemoryStore::open(self.folder.path(), options).unwrap()
    }
}

/// An ungraded engram of this number.
pub(crate) fn engram(number: u64) -> Engram {
    Engram {
        query_id: id(number),
        kind: EngramKind::Episodic,
        sequence: 0,
        query: format!("What is {number}?"),
        answer: format!("A number, and it is {number}."),
        at: Timestamp(1_000 * number),
        session_id: SessionId::from_bits(u128::from(number % 3)),
        respondent_id: if number.is_multiple_of(2) { RespondentId::A } else { RespondentId::B },
        model: "smollm2:135m".to_owned(),
        sampling: SamplingOptions::default(),
        finish_reason: None,
        intent: None,
        entities: Vec::new(),
        grade: None,
        pairwise_winner: None,
        user_feedback: None,
        correlation_id: id(number),
    }
}

/// An id as they come one after the other: the same first digits, in order.
pub(crate) fn id(number: u64) -> QueryId {
    QueryId::from_bits((0x0199_0000_0000_7000_8000_u128 << 48) | u128::from(number))
}

/// A grade of this score.
pub(crate) fn grade(score: Option<u8>) -> Grade {
    Grade {
        score,
        feedback: format!("It deserves {score:?}."),
        expected_score: score.map(|score| f64::from(score) - 0.25),
        entropy: Some(0.5),
        rubric: "helpfulness".to_owned(),
        suspicious: None,
        judging: Judging { judge: "prometheus:7b".to_owned(), tokens: 9, seconds: 1.5, ..Judging::default() },
    }
}

/// A vector in a direction of its own, the same for the same seed.
pub(crate) fn vector(seed: u64, dimensions: usize) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..dimensions).map(|_| random.next_u32() as f32 / u32::MAX as f32 - 0.5).collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    values.into_iter().map(|value| value / length).collect()
}

/// A vector of length 1 whose cosine with `(1, 0, 0)` is `cosine`.
pub(crate) fn with_cosine(cosine: f32) -> Vec<f32> {
    vec![cosine, (1.0 - cosine * cosine).sqrt(), 0.0]
}
