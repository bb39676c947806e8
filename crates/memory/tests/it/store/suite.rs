//! Writing, reading, updating, searching and moving, for every kind of storage.

mod backlog;
mod documents;
mod engrams;
mod events;
mod outlines;
mod recall;
mod search;
mod transfer;
mod vetting;

use hone_memory::{Engram, MemoryStore};
use hone_protocol::{Envelope, Payload, SessionId};

use super::Home;
use crate::support;

pub(crate) fn numbers(engrams: &[Engram]) -> Vec<u64> {
    engrams.iter().map(|engram| engram.at.0 / 1_000).collect()
}

#[track_caller]
pub(crate) fn check_whole(store: &MemoryStore, engrams: u64, vectors: u64) {
    let verification = store.verify().unwrap();
    assert_eq!(verification.problems, [""; 0]);
    assert_eq!((verification.engrams, verification.vectors, verification.indexed), (engrams, vectors, vectors));
}

/// A line of an export.
pub(crate) fn exported_line(number: u64, vector: &[f32]) -> String {
    let vector = serde_json::json!({ "model": support::MODEL, "values": vector });
    serde_json::json!({ "engram": support::engram(number), "vector": vector }).to_string()
}

pub(crate) fn event(session: u128, payload: Payload) -> Envelope {
    Envelope::new("test", SessionId::from_bits(session), payload)
}
