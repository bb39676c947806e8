//! The bus with the agents on it, and a line to them: how a chat or a story asks, and hears what comes of it.

use std::sync::Arc;

use anyhow::Context;
use crossbeam_channel::Receiver;
use hone_agents::{Team, TeamParts};
use hone_bus::{Bus, Mailbox, Overload, Subscription};
use hone_memory::MemoryStore;
use hone_protocol::{Envelope, Feedback, Nothing, Payload, Query, QueryId, Rating, RespondentId, SessionId, Subject};

/// Who the terminal is on the bus.
const SENDER: &str = "terminal";

/// How many envelopes wait for a terminal that is busy before the sender waits too.
const MAILBOX: usize = 4096;

/// What a person who asks wants to hear.
const ANSWERS: [Subject; 4] =
    [Subject::ResponseChunk, Subject::ResponseGeneration, Subject::ResponseFailed, Subject::CritiqueResult];

/// The running agents. Dropping it stops them, after memory has written what it was told.
pub(crate) struct Stack {
    answers: Mailbox,
    bus: Bus,
    store: Option<MemoryStore>,
    grades: bool,
    has_respondent_b: bool,
    // Dropped last: the agents stop when nobody can ask any more.
    _team: Team,
}

impl Stack {
    /// Starts the agents.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(parts: TeamParts) -> anyhow::Result<Stack> {
        let bus = Bus::new();
        let store = parts.memory.as_ref().map(|memory| memory.store.clone());
        let (grades, has_respondent_b) = (parts.judge.is_some(), parts.respondent_b.is_some());
        let answers = subscribe(&bus, SENDER, &ANSWERS);
        let team = Team::start(&bus, parts).context("cannot start the agents")?;
        Ok(Stack { answers, bus, store, grades, has_respondent_b, _team: team })
    }

    /// What was remembered, where anything is.
    pub(crate) fn store(&self) -> Option<&MemoryStore> {
        self.store.as_ref()
    }

    /// Whether answers are graded.
    pub(crate) fn grades(&self) -> bool {
        self.grades
    }

    /// Whether a second respondent answers too.
    pub(crate) fn has_respondent_b(&self) -> bool {
        self.has_respondent_b
    }

    /// Hears everything of `subjects` from now on.
    pub(crate) fn listen(&self, name: &str, subjects: &[Subject]) -> Mailbox {
        subscribe(&self.bus, name, subjects)
    }

    /// Asks, and gives what the question is called.
    pub(crate) fn ask(&self, session: SessionId, query: Query) -> QueryId {
        let id = QueryId::fresh();
        // What an earlier question has left behind is of no use to this one.
        while self.answers.receiver().try_recv().is_ok() {}
        self.publish(Envelope::new(SENDER, session, Payload::QueryReceived(query)).about(id, id, RespondentId::A));
        id
    }

    /// What comes of questions.
    pub(crate) fn answers(&self) -> &Receiver<Arc<Envelope>> {
        self.answers.receiver()
    }

    /// Says that nobody wants the rest of an answer.
    pub(crate) fn cancel(&self, session: SessionId, id: QueryId) {
        let payload = Payload::QueryCancelled(Nothing {});
        self.publish(Envelope::new(SENDER, session, payload).about(id, id, RespondentId::A));
    }

    /// Says what a person thinks of an answer.
    pub(crate) fn rate(&self, session: SessionId, id: QueryId, rating: Rating) {
        let payload = Payload::UserFeedback(Feedback { rating });
        self.publish(Envelope::new(SENDER, session, payload).about(id, id, RespondentId::A));
    }

    /// Says that a conversation has ended.
    pub(crate) fn close(&self, session: SessionId) {
        self.publish(Envelope::new(SENDER, session, Payload::SessionClosed(Nothing {})));
    }

    fn publish(&self, envelope: Envelope) {
        if let Err(overloaded) = self.bus.publish(envelope) {
            tracing::warn!("{overloaded}");
        }
    }
}

fn subscribe(bus: &Bus, name: &str, subjects: &[Subject]) -> Mailbox {
    bus.subscribe(Subscription {
        name: name.to_string(),
        subjects: subjects.to_vec(),
        sessions: None,
        capacity: MAILBOX,
        overload: Overload::DropOldest,
    })
}
