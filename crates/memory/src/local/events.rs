//! The event log: the messages on the bus, in order.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use hone_protocol::{Envelope, EnvelopeId, Subject};

use super::opened::{Draft, Opened};
use crate::error::MemoryError;
use crate::filters::EventFilter;
use crate::lock::lock;
use crate::records::{Numbered, from_json, number_of, to_json};
use crate::storage::Pair;

/// How far back the log is searched for a repeated event.
const REPEATS_WITHIN: u64 = 10_000;

impl Opened {
    /// Appends an event and returns its number. A repeated event, whose sender did not learn that it had arrived, is
    /// appended only if it had not. The repetition may arrive before the original: a process that was stopped still
    /// finds the original in its socket, while the sender has kept it elsewhere. So recent events are known by their
    /// ids.
    pub(super) fn append_event(&self, envelope: &Envelope, is_repeated: bool) -> Result<u64, MemoryError> {
        if envelope.subject() == Subject::ResponseChunk {
            return Err(MemoryError::Chunk);
        }
        let bytes = to_json("an event", envelope)?;
        if let Some(database) = self.storage.database() {
            return database.append_event(envelope.id, &bytes);
        }
        self.write(|draft| {
            if is_repeated && let Some(number) = self.number_of_event(&bytes, draft.head.last_event)? {
                return Ok(number);
            }
            let mut recent = lock(&self.recent_events);
            if let Some(number) = recent.number_of(envelope.id)
                && draft.storage.get(&Numbered::Event.key(number))?.is_some_and(|stored| is_event(&stored, envelope.id))
            {
                return Ok(number);
            }
            let number = draft.append(bytes);
            recent.note(envelope.id, number);
            Ok(number)
        })
    }

    pub(super) fn last_event(&self) -> Result<u64, MemoryError> {
        Ok(self.head()?.last_event)
    }

    /// The events after one number and up to another that pass the filter, oldest first.
    pub(super) fn events(
        &self,
        filter: &EventFilter,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<(u64, Envelope)>, MemoryError> {
        if after >= up_to {
            return Ok(Vec::new());
        }
        let range = Numbered::Event.key(after + 1)..=Numbered::Event.key(up_to);
        let accepted = |record: Pair| read(record, filter).transpose();
        let Some(last) = filter.last else { return self.storage.range(range).filter_map(accepted).collect() };
        let latest_first = self.storage.range_back(range).filter_map(accepted);
        let mut latest: Vec<_> = latest_first.take(last).collect::<Result<_, _>>()?;
        latest.reverse();
        Ok(latest)
    }

    fn number_of_event(&self, bytes: &[u8], last: u64) -> Result<Option<u64>, MemoryError> {
        let recent = Numbered::Event.key(last.saturating_sub(REPEATS_WITHIN))..=Numbered::Event.key(last);
        for record in self.storage.range_back(recent) {
            let (key, value) = record?;
            if value == bytes {
                return number_of(&key).map(Some);
            }
        }
        Ok(None)
    }
}

impl Draft<'_> {
    /// Adds an event to the other changes of this write, and returns its number.
    pub(super) fn add_event(&mut self, envelope: &Envelope) -> Result<u64, MemoryError> {
        let known = match self.storage.database() {
            // An earlier attempt may have succeeded without its reply arriving.
            Some(database) => database.number_of_event(envelope.id)?,
            None => None,
        };
        let event = to_json("an event", envelope)?;
        Ok(known.unwrap_or_else(|| self.append(event)))
    }

    fn append(&mut self, event: Vec<u8>) -> u64 {
        self.head.last_event += 1;
        self.batch.insert(Numbered::Event.key(self.head.last_event), event);
        self.head.last_event
    }
}

/// Whether a stored record is the event with this id, even if its texts were forgotten.
fn is_event(stored: &[u8], id: EnvelopeId) -> bool {
    std::str::from_utf8(stored).is_ok_and(|text| text.contains(&id.to_string()))
}

/// An event that passes the filter. An event of a later version with an unknown subject is left out.
fn read(record: Pair, filter: &EventFilter) -> Result<Option<(u64, Envelope)>, MemoryError> {
    let (key, value) = record?;
    let number = number_of(&key)?;
    match from_json::<Envelope>("it", &value) {
        Ok(envelope) => Ok(Some((number, envelope)).filter(|(_, envelope)| filter.accept(envelope))),
        Err(error) => {
            tracing::debug!(number, %error, "an event was skipped");
            Ok(None)
        }
    }
}

/// The last durable event, and the callers that wait for the next one.
pub(super) struct Watermark {
    state: Mutex<WatermarkState>,
    changed: Condvar,
}

struct WatermarkState {
    last: u64,
    is_closed: bool,
}

impl Watermark {
    pub(super) fn new(last: u64) -> Watermark {
        Watermark { state: Mutex::new(WatermarkState { last, is_closed: false }), changed: Condvar::new() }
    }

    /// Records that the events up to this one are durable.
    pub(super) fn raise(&self, event: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = state.last.max(event);
        self.changed.notify_all();
    }

    /// Makes all waiting callers return, now and from now on.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.changed.notify_all();
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Waits until there is an event after `number`, or until the time is over.
    pub(super) fn wait_past(&self, event: u64, milliseconds: u64) {
        let must_wait = |state: &mut WatermarkState| state.last <= event && !state.is_closed;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, Duration::from_millis(milliseconds), must_wait);
        drop(waited);
    }
}
