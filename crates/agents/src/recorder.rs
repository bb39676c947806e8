//! The recorder: writes every message except answer chunks to the event log.

use std::sync::Arc;

use crossbeam_channel::select_biased;
use hone_bus::{Agent, Inbox};
use hone_memory::MemoryStore;
use hone_protocol::{Envelope, Subject, with_causes};

/// The agent's name.
pub(crate) const NAME: &str = "recorder";

/// The subjects that the agent subscribes to.
pub(crate) fn subjects() -> Vec<Subject> {
    Subject::ALL.iter().copied().filter(|subject| *subject != Subject::ResponseChunk).collect()
}

/// The agent, which has no state beyond the store.
pub(crate) struct EventRecorder {
    store: MemoryStore,
}

impl EventRecorder {
    pub(crate) fn new(store: MemoryStore) -> Self {
        EventRecorder { store }
    }
}

impl Agent for EventRecorder {
    type Event = Arc<Envelope>;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Self::Event> {
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok(),
        }
    }

    fn handle_event(&mut self, message: Self::Event, inbox: &mut Inbox) {
        inbox.claim(&message);
        if let Err(error) = self.store.append_event(&message) {
            tracing::error!(subject = %message.subject(), "an event is not in the log: {}", with_causes(&error));
        }
        inbox.release(|_| true);
    }

    fn stopped(&mut self, inbox: &mut Inbox) {
        while let Ok(message) = inbox.messages().try_recv() {
            self.handle_event(message, inbox);
        }
    }

    fn recover(&mut self, message: &Envelope) {
        tracing::error!(subject = %message.subject(), id = %message.id, "an event is not in the log");
    }
}
