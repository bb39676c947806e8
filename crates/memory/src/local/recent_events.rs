//! The most recent events by their ids, so that a repeated event is appended once.

use std::collections::{BTreeMap, VecDeque};

use hone_protocol::EnvelopeId;

/// The number of events whose ids are kept in memory.
const MOST_RECENT: usize = 1_000;

/// The numbers of the most recent events. An event whose write failed is not found under its number.
#[derive(Default)]
pub(super) struct RecentEvents {
    numbers: BTreeMap<EnvelopeId, u64>,
    order: VecDeque<EnvelopeId>,
}

impl RecentEvents {
    pub(super) fn number_of(&self, id: EnvelopeId) -> Option<u64> {
        self.numbers.get(&id).copied()
    }

    pub(super) fn note(&mut self, id: EnvelopeId, number: u64) {
        self.numbers.insert(id, number);
        self.order.push_back(id);
        if self.order.len() > MOST_RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.numbers.remove(&oldest);
        }
    }
}
