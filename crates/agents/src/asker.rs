//! A client's connection to the agents: it asks questions, and receives the messages about them.

use std::sync::Arc;
use std::task::{Context, Poll};

use crossbeam_channel::Receiver;
use hone_bus::{Bus, Mailbox, Overload, SessionSet, Subscription};
use hone_protocol::{
    Envelope, Feedback, Nothing, OwnerId, Payload, Query, QueryId, Rating, RespondentId, SessionId, Subject,
};
use thiserror::Error;

use crate::exchange::{Exchange, Expected};

/// The most messages that may wait for a busy client.
const CAPACITY: usize = 4096;

/// Asks questions for one of possibly many clients. Its mailbox receives only the conversations in which it has asked a
/// question, never those of other clients. Dropping it closes these conversations, which stops work on answers for a
/// client that is gone.
///
/// The mailbox is bounded, but no message in it is ever dropped: a client that lets more messages wait than it holds is
/// cut off after them ([`TooSlow`]). Its next question reconnects it.
pub struct Asker {
    name: String,
    bus: Bus,
    mailbox: Mailbox,
    sessions: SessionSet,
    expected: Expected,
    owner: Option<OwnerId>,
}

/// A client was cut off because more messages waited for it than its mailbox holds.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the reader is too slow: {capacity} messages were waiting for it, and it was cut off")]
pub struct TooSlow {
    /// The capacity of the mailbox.
    pub capacity: usize,
}

impl Asker {
    /// A client of the agents on `bus`, which produce the `expected` events. It may leave 4096 messages unread.
    pub fn new(bus: &Bus, name: &str, expected: Expected) -> Asker {
        Asker::with_capacity(bus, name, expected, CAPACITY)
    }

    /// Like [`Asker::new`], with a different limit of unread messages.
    pub fn with_capacity(bus: &Bus, name: &str, expected: Expected, capacity: usize) -> Asker {
        let sessions = SessionSet::default();
        let mailbox = subscribe(bus, name, &sessions, Subject::ALL, capacity, Overload::Close);
        Asker { name: name.to_owned(), bus: bus.clone(), mailbox, sessions, expected, owner: None }
    }

    /// Sets the owner on whose behalf it asks.
    pub fn owned_by(mut self, owner: Option<OwnerId>) -> Asker {
        self.owner = owner;
        self
    }

    /// The events that follow each question if nothing goes wrong.
    pub fn expected(&self) -> Expected {
        self.expected
    }

    /// Asks a question in a conversation.
    pub fn ask(&mut self, session: SessionId, query: Query) -> Exchange {
        if self.mailbox.has_overflowed() {
            let capacity = self.mailbox.capacity();
            self.mailbox = subscribe(&self.bus, &self.name, &self.sessions, Subject::ALL, capacity, Overload::Close);
        }
        self.sessions.insert(session);
        let id = QueryId::fresh();
        self.publish(session, id, Payload::QueryReceived(query));
        Exchange::new(id)
    }

    /// Messages about its questions, including earlier ones. The channel is disconnected if the client was cut off.
    pub fn heard(&self) -> &Receiver<Arc<Envelope>> {
        self.mailbox.receiver()
    }

    /// The next message about its questions, for a task that must not block its thread; `None` if the client was cut
    /// off.
    pub fn poll_heard(&self, context: &mut Context<'_>) -> Poll<Option<Arc<Envelope>>> {
        self.mailbox.poll_next(context)
    }

    /// The error for a client that finds [`heard`](Asker::heard) disconnected.
    pub fn too_slow(&self) -> TooSlow {
        TooSlow { capacity: self.mailbox.capacity() }
    }

    /// Another mailbox for the same conversations, which drops its oldest messages when it is full.
    pub fn listen(&self, name: &str, subjects: &[Subject]) -> Mailbox {
        subscribe(&self.bus, name, &self.sessions, subjects, CAPACITY, Overload::DropOldest)
    }

    /// Withdraws a question, with the rest of its answer and its grade.
    pub fn cancel(&self, session: SessionId, id: QueryId) {
        self.publish(session, id, Payload::QueryCancelled(Nothing {}));
    }

    /// Rates an answer, which may have been given in another process.
    pub fn rate(&self, session: SessionId, id: QueryId, rating: Rating) {
        self.sessions.insert(session);
        self.publish(session, id, Payload::UserFeedback(Feedback { rating: Some(rating) }));
    }

    fn publish(&self, session: SessionId, id: QueryId, payload: Payload) {
        self.send(Envelope::new(&self.name, session, payload).about(id, id, RespondentId::A));
    }

    fn send(&self, envelope: Envelope) {
        // Publishing may fail because other mailboxes are full, which is not this client's concern.
        if let Err(overloaded) = self.bus.publish(envelope.owned_by(self.owner)) {
            tracing::warn!(sender = self.name, "{overloaded}");
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        for session in self.sessions.all() {
            self.send(Envelope::new(&self.name, session, Payload::SessionClosed(Nothing {})));
        }
    }
}

fn subscribe(
    bus: &Bus,
    name: &str,
    sessions: &SessionSet,
    subjects: &[Subject],
    capacity: usize,
    overload: Overload,
) -> Mailbox {
    let (name, subjects, sessions) = (name.to_owned(), subjects.to_vec(), Some(sessions.clone()));
    bus.subscribe(Subscription { name, subjects, sessions, capacity, overload })
}
