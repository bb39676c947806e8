//! Moving a memory, for example from its folder into a database.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use hone_protocol::{QueryId, hexadecimal};

use super::{LINES_AT_ONCE, MemoryStore, unexpected};
use crate::error::MemoryError;
use crate::filters::Whose;
use crate::records::show_zeros;
use crate::request::{ExportedEngram, Reply, Request};

/// Events per request.
const EVENTS_AT_ONCE: usize = 256;

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveProgress {
    /// Moved engrams and events.
    pub done: u64,
    /// All engrams and events to move.
    pub total: u64,
}

/// The result of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Engrams of every kind.
    pub engrams: u64,
    /// Engrams that were new to the other memory.
    pub added: u64,
    /// Events.
    pub events: u64,
    /// Engrams that existed there and differ, for example in their grade. They are left unchanged.
    pub different: Vec<QueryId>,
    /// The SHA-256 of the engrams and their vectors in order, with all their fields except for their sequence numbers;
    /// for this memory, and for the other one.
    pub hashes: [String; 2],
}

impl MemoryStore {
    /// Copies every engram with its vector, the pending work, critiques and events to another memory, and compares
    /// both. It can be repeated after an interruption, or to move later engrams: existing ones are left unchanged.
    ///
    /// # Errors
    /// When one of the memories cannot be read or written, or the other one has different engrams or events in place of
    /// some of these.
    pub fn move_to(&self, other: &MemoryStore, mut progress: impl FnMut(MoveProgress)) -> Result<Moved, MemoryError> {
        let statistics = self.statistics(Whose::Everyones)?;
        let engrams = statistics.all.engrams + statistics.facts + statistics.notes;
        let (mut done, total) = (0, engrams + statistics.events);
        let mut step = |n: usize| {
            done += n as u64;
            progress(MoveProgress { done, total: total.max(done) });
        };
        let mut moved = self.move_engrams(other, &mut step)?;
        moved.events = self.move_events(other, &mut step)?;
        Ok(moved)
    }

    fn move_engrams(&self, other: &MemoryStore, step: &mut impl FnMut(usize)) -> Result<Moved, MemoryError> {
        let (mut moved, mut sums, mut after) = (Moved::default(), [Sha256::new(), Sha256::new()], 0);
        loop {
            let request = Request::Export { after, n: LINES_AT_ONCE };
            let (engrams, last) = expect!(self.ask(request), Reply::Exported { engrams, last } => (engrams, last))?;
            if last == after {
                moved.hashes = sums.map(|sum| hexadecimal(sum.finalize()));
                return Ok(moved);
            }
            after = last;
            let ids = engrams.iter().map(id_of).collect::<Result<Vec<QueryId>, _>>()?;
            moved.added +=
                expect!(other.ask(Request::Import { engrams: engrams.clone() }), Reply::Number(added) => added)?;
            let request = Request::These { ids: ids.clone() };
            let there = expect!(other.ask(request), Reply::Exported { engrams, .. } => engrams)?;
            let there: BTreeMap<QueryId, Vec<u8>> = there
                .iter()
                .map(|engram| Ok((id_of(engram)?, canonical(engram))))
                .collect::<Result<_, MemoryError>>()?;
            for (engram, id) in engrams.iter().zip(ids) {
                // An engram that is removed there meanwhile counts as different.
                let (here, there) = (canonical(engram), there.get(&id).map_or(&[][..], Vec::as_slice));
                if here != there {
                    moved.different.push(id);
                }
                sums[0].update(&here);
                sums[1].update(there);
            }
            moved.engrams += engrams.len() as u64;
            step(engrams.len());
        }
    }

    fn move_events(&self, other: &MemoryStore, step: &mut impl FnMut(usize)) -> Result<u64, MemoryError> {
        let (mut n_events, mut after) = (0, 0);
        loop {
            let request = Request::ExportEvents { after, n: EVENTS_AT_ONCE };
            let events = expect!(self.ask(request), Reply::ExportedEvents(events) => events)?;
            let Some((last, _)) = events.last() else { return Ok(n_events) };
            after = *last;
            let n = events.len();
            expect!(other.ask(Request::ImportEvents { events }), Reply::Number(_) => ())?;
            n_events += n as u64;
            step(n);
        }
    }
}

fn id_of(exported: &ExportedEngram) -> Result<QueryId, MemoryError> {
    let id = exported.engram.get("query_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
    id.ok_or_else(|| crate::records::damaged("an engram", "it has no query_id"))
}

/// The canonical form of an engram, whatever the order of its fields: each memory numbers its engrams itself, so the
/// number does not count.
fn canonical(exported: &ExportedEngram) -> Vec<u8> {
    let mut engram = exported.engram.clone();
    engram.remove("sequence");
    let vector = exported.vector.as_ref().map(|vector| (&vector.model, &vector.values));
    serde_json::to_vec(&(sorted(show_zeros(Value::Object(engram))), vector)).unwrap_or_default()
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(Map::from_iter(fields))
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
