//! The memory agent: writes engrams, and later findings about them.
//!
//! It subscribes before the agents that react to answers, so that an answer is in its mailbox before the answer's grade
//! can be. An answer is durable before its vector is computed. Vectors are computed once no question is being answered:
//! a vector takes as long as a short answer, and no user should wait for it. When idle, the agent computes missing
//! vectors, for engrams written without an embedder or with a different one, then searches questions from earlier
//! versions for facts, and then has memory backed up once a day. Errors of the store are logged, and the agent resumes
//! with the next message. A store that keeps failed writes (see [`MemoryStore::keeping`]) performs them later. Before
//! the agent stops, it processes everything in its mailbox.

pub(crate) mod states;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select_biased};
use hone_bus::{Agent, Bus, Inbox};
use hone_memory::{Due, Engram, MemoryError, MemoryStore, Update};
use hone_protocol::{
    Envelope, Feedback, Grade, GradedAnswer, HolderId, Payload, QueryId, Rating, RespondentId, Response, Reward,
    Stored, Subject, Timestamp, with_causes,
};

use self::states::{
    AddFacts, AnnotateFeedback, AnnotatePairwise, EmbedOne, Error, Fail, Idle, Reset, State, UpdateScore, Write,
};
use crate::machine::{AgentAction, AgentState, Allows};
use crate::remembering::Rememberer;
use crate::topic::Topic;

/// The agent's name.
pub(crate) const NAME: &str = "memory";

/// The subjects that the agent subscribes to.
pub(crate) const SUBJECTS: [Subject; 5] = [
    Subject::QueryReceived,
    Subject::ResponseGeneration,
    Subject::CritiqueResult,
    Subject::PairwiseResult,
    Subject::UserFeedback,
];

/// Idle time before the agent computes a vector.
const REST: Duration = Duration::from_millis(250);

/// Idle time before that while a question is being answered.
const REST_BESIDE_QUESTIONS: Duration = Duration::from_secs(10);

/// The longest wait of engrams for their vectors until one of them is completed, however busy the bus is.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The most open questions tracked. Not every question is answered.
const MOST_OPEN: usize = 4096;

/// Idle time, with no vector missing, before the agent checks whether a backup is due.
const LONG_REST: Duration = Duration::from_secs(30);

/// The most engrams kept in the agent's memory while they wait for their vectors. Earlier ones are looked up later.
const MOST_INCOMPLETE: usize = 256;

/// Time limit for computing vectors when the agent stops; the rest follow after the next start.
const LAST_WORK: Duration = Duration::from_secs(2);

/// The number of engrams without a vector that are looked up at once.
const LOOKED_UP: usize = 32;

/// The agent's state.
pub(crate) struct MemoryAgent {
    bus: Bus,
    rememberer: Rememberer,
    judging: WhoGrades,
    state: State,
    /// Engrams that were just written and need their vectors next.
    incomplete: VecDeque<Engram>,
    /// When the first of them began to wait, or when one was last completed.
    waiting_since: Instant,
    /// Questions that are being answered.
    open: HashSet<QueryId>,
    /// Whether no message has arrived since the agent became idle.
    is_quiet: bool,
    /// Engrams without a vector; `None` once all have been processed.
    lacking: Option<Vec<Engram>>,
    /// Engrams of earlier versions whose questions were not searched for facts; `None` once all were.
    unsearched: Option<Vec<Engram>>,
}

/// The grader of the answers that are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhoGrades {
    /// They are not graded.
    Never,
    /// They are due, and graded when a judge has time.
    Later,
    /// This process grades them, and holds them until then.
    By(HolderId),
}

/// The agent's events.
pub(crate) enum Event {
    Message(Arc<Envelope>),
    /// Nothing happened for a while.
    Rest,
    /// An engram has waited for its vector long enough.
    Overdue,
}

impl MemoryAgent {
    pub(crate) fn new(bus: Bus, rememberer: Rememberer, judging: WhoGrades) -> Self {
        let lacking = rememberer.embedder.is_some().then(Vec::new);
        let unsearched = rememberer.takes_facts.then(Vec::new);
        MemoryAgent {
            bus,
            rememberer,
            judging,
            state: State::default(),
            incomplete: VecDeque::new(),
            waiting_since: Instant::now(),
            open: HashSet::new(),
            is_quiet: false,
            lacking,
            unsearched,
        }
    }

    fn store(&self) -> &MemoryStore {
        &self.rememberer.store
    }

    fn receive(&mut self, message: &Envelope) {
        let Some(topic) = Topic::of(message) else { return };
        let (store, id) = (self.store().clone(), topic.query_id);
        match message.payload {
            Payload::QueryReceived(_) if self.open.len() < MOST_OPEN => drop(self.open.insert(id)),
            Payload::ResponseGeneration(_) => drop(self.open.remove(&id)),
            _ => {}
        }
        match &message.payload {
            Payload::ResponseGeneration(response) if !is_nothing(response) => {
                self.perform(Write, |agent| agent.write(&topic, message, response))
            }
            Payload::CritiqueResult(critique) if says_something(critique) => {
                self.perform(UpdateScore, |_| store.update_score(id, &critique.grade).map(drop))
            }
            Payload::PairwiseResult(comparison) => {
                self.perform(AnnotatePairwise, |_| store.annotate_pairwise(comparison).map(drop))
            }
            Payload::UserFeedback(feedback) => {
                self.perform(AnnotateFeedback, |agent| agent.take_feedback(&topic, *feedback))
            }
            _ => {}
        }
    }

    /// Performs an operation on the store in the corresponding state.
    fn perform<A, S>(&mut self, action: A, work: impl FnOnce(&mut Self) -> Result<(), MemoryError>)
    where
        A: AgentAction,
        S: AgentState + Allows<Reset, Next = Idle> + Allows<Fail, Next = Error>,
        Idle: Allows<A, Next = S>,
    {
        let State::Idle(idle) = std::mem::take(&mut self.state);
        let at_work = idle.act(action);
        let idle = match work(self) {
            Ok(()) => at_work.act(Reset),
            Err(error) => {
                tracing::error!(action = A::NAME, "memory could not store something: {}", with_causes(&error));
                at_work.act(Fail).act(Reset)
            }
        };
        self.state = State::Idle(idle);
    }

    fn write(&mut self, topic: &Topic, message: &Envelope, response: &Response) -> Result<(), MemoryError> {
        let engram = Engram {
            at: message.at,
            owner: topic.owner,
            respondent_id: topic.respondent_id,
            correlation_id: topic.correlation_id,
            ..Engram::new(topic.query_id, topic.session_id, response)
        };
        let engram = self.with_prospect(engram, response);
        let holder = match self.judging {
            WhoGrades::By(holder) => Some(holder),
            WhoGrades::Never | WhoGrades::Later => None,
        };
        let (sequence, is_complete) = self.rememberer.remember_first(engram.clone(), holder)?;
        if !is_complete {
            if self.incomplete.is_empty() {
                self.waiting_since = Instant::now();
            }
            self.incomplete.push_back(engram);
        }
        if self.incomplete.len() > MOST_INCOMPLETE {
            self.incomplete.pop_front();
            self.lacking.get_or_insert_default();
        }
        if sequence == 0 {
            tracing::info!(query_id = %topic.query_id, "an answer is kept, and remembered when memory can be reached");
            return Ok(());
        }
        topic.publish(&self.bus, NAME, Payload::MemoryStored(Stored { sequence }));
        Ok(())
    }

    /// The engram with its due verdicts, or with the reason why it will never have a grade. Of the two answers to a
    /// question, respondent B's records that the comparison is due.
    fn with_prospect(&self, engram: Engram, response: &Response) -> Engram {
        match (self.judging, response.why_not_judged()) {
            (WhoGrades::Never, _) => engram,
            (_, Some(reason)) => Engram { grade: Some(Grade::unscored(reason)), ..engram },
            (_, None) => Engram { due: Some(Due::fresh(engram.respondent_id == RespondentId::B)), ..engram },
        }
    }

    /// Computes the vector of an engram that was just written.
    fn complete_one(&mut self) {
        self.waiting_since = Instant::now();
        if let Some(engram) = self.incomplete.pop_front() {
            self.perform(EmbedOne, |agent| agent.rememberer.complete(&engram));
        }
    }

    /// Computes one missing vector.
    fn embed_one(&mut self) {
        let (Some(embedder), Some(mut lacking)) = (self.rememberer.embedder.clone(), self.lacking.take()) else {
            return;
        };
        self.perform(EmbedOne, |agent| {
            if lacking.is_empty() {
                lacking = agent.store().engrams_without_vector(embedder.model(), LOOKED_UP)?;
                lacking.reverse();
            }
            let Some(engram) = lacking.pop() else { return Ok(()) };
            if let Some(vector) = agent.rememberer.vector_of(&engram) {
                agent.store().set_vector(engram.query_id, vector)?;
                agent.lacking = Some(lacking);
            }
            Ok(())
        });
    }

    /// Searches one question of an earlier version for facts.
    fn add_facts_of_one(&mut self) {
        let Some(mut unsearched) = self.unsearched.take() else { return };
        self.perform(AddFacts, |agent| {
            if unsearched.is_empty() {
                unsearched = agent.store().engrams_without_facts(LOOKED_UP)?;
                unsearched.reverse();
            }
            let Some(engram) = unsearched.pop() else { return Ok(()) };
            agent.rememberer.add_facts(&engram)?;
            agent.unsearched = Some(unsearched);
            Ok(())
        });
    }

    /// Records a person's rating, and its value as a reward. An answer that is not remembered gets no reward, since
    /// nothing could learn from it.
    fn take_feedback(&self, topic: &Topic, feedback: Feedback) -> Result<(), MemoryError> {
        match self.store().annotate_feedback(topic.query_id, feedback.rating)? {
            Update::Merged => {}
            Update::Kept => return Ok(()),
            Update::Missing => {
                tracing::warn!(query_id = %topic.query_id, "a rating of an answer that is not remembered is refused");
                return Ok(());
            }
        }
        let model = self.store().get(topic.query_id)?.map(|engram| engram.model).unwrap_or_default();
        let reward = match feedback.rating {
            Some(Rating::Good) => 1.0,
            Some(Rating::Bad) => -1.0,
            None => 0.0,
        };
        topic.publish(&self.bus, NAME, Payload::RewardEvent(Reward { reward, model }));
        Ok(())
    }
}

impl Agent for MemoryAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let has_work = self.lacking.is_some() || self.unsearched.is_some();
        let idle = if self.open.is_empty() { REST } else { REST_BESIDE_QUESTIONS };
        let overdue = LONGEST_WAIT.saturating_sub(self.waiting_since.elapsed());
        let rest = after(match (self.incomplete.is_empty(), has_work) {
            (false, _) if self.is_quiet => Duration::ZERO,
            (false, _) => idle.min(overdue),
            (true, true) => idle,
            (true, false) => LONG_REST,
        });
        if !self.incomplete.is_empty() && overdue.is_zero() {
            return inbox.stop().is_empty().then_some(Event::Overdue);
        }
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok().map(Event::Message),
            recv(rest) -> _ => Some(Event::Rest),
        }
    }

    fn handle_event(&mut self, event: Event, inbox: &mut Inbox) {
        self.is_quiet = matches!(event, Event::Rest);
        if self.is_quiet {
            self.open.clear();
        }
        match event {
            Event::Message(message) => {
                inbox.claim(&message);
                self.receive(&message);
                inbox.release(|_| true);
            }
            Event::Overdue => self.complete_one(),
            Event::Rest if !self.incomplete.is_empty() => self.complete_one(),
            Event::Rest if self.lacking.is_some() => self.embed_one(),
            Event::Rest if self.unsearched.is_some() => self.add_facts_of_one(),
            Event::Rest => self.store().back_up_if_due(Timestamp::now()),
        }
    }

    fn stopped(&mut self, inbox: &mut Inbox) {
        while let Ok(message) = inbox.messages().try_recv() {
            self.handle_event(Event::Message(message), inbox);
        }
        let begun = Instant::now();
        while !self.incomplete.is_empty() && begun.elapsed() < LAST_WORK {
            self.complete_one();
        }
    }

    fn recover(&mut self, message: &Envelope) {
        tracing::error!(subject = %message.subject(), query_id = ?message.query_id, "memory has lost a message");
    }
}

/// Whether a critique of a remembered answer has content: a verdict, or the reason for its absence.
fn says_something(critique: &GradedAnswer) -> bool {
    let GradedAnswer { answer, grade, .. } = critique;
    grade.is_verdict() || (grade.judging.failure.is_some() && !answer.trim().is_empty())
}

/// Whether there is nothing to remember: the answer was cancelled before it had any content, or it continues a text.
fn is_nothing(response: &Response) -> bool {
    response.is_raw || response.finish_reason.is_none() && response.answer.trim().is_empty()
}
