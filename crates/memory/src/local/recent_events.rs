//! The events that came last, known by their ids: one that is sent a second time is appended once.

use std::collections::{BTreeMap, VecDeque};

use hone_protocol::EnvelopeId;

/// How many events are known by their ids.
const MOST_RECENT: usize = 1_000;

/// The numbers of the events that came last. One whose write has failed is not there under its number.
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
