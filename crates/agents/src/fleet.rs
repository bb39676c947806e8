//! The fleet agent: has answers graded by workers on other machines, many at a time. It takes the place of the judge agent and
//! the backlog agent.
//!
//! A grade that comes is wanted if this process has asked for it, or if memory still has it as due: it may come twice, to
//! several processes of one home, or to a process that did not ask. What is due in memory and that nobody works on is
//! asked for while the graders can be reached. Answers are not compared: `pairwise.result` says so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, select_biased};
use hone_bus::{Agent, Bus, Inbox};
use hone_memory::{Engram, Holder, MemoryStore};
use hone_protocol::prospect::{LATE, STOPPED};
use hone_protocol::{
    Envelope, Grade, GradedAnswer, Judging, Payload, Preference, QueryId, RespondentId, Response, Subject, with_causes,
};

use crate::judge::pairs::{AnswerPair, Graded, NextPair, SharedPairs};
use crate::topic::{Topic, Withdrawal};

/// The agent's name on the bus: that of the judge agent, in whose place it stands.
pub(crate) const NAME: &str = crate::judge::NAME;

/// What the agent listens to.
pub(crate) const SUBJECTS: [Subject; 3] = crate::judge::SUBJECTS;

/// How often memory is asked for answers whose grades are due.
const LOOK: Duration = Duration::from_secs(5);

/// How many due answers are asked for at a time, at most.
const MOST_DUE: usize = 256;

/// Why an answer is not sent.
const TOO_LONG: &str = "question and answer are too long for the bus";

/// Why two answers are not compared.
const UNCOMPARED: &str = "workers on other machines grade answers and do not compare them";

/// Graders on other machines.
pub trait Graders: Send + Sync {
    /// Asks for the grade of the answer in a message, unless that is too long to be sent; returns whether it is not. Asking
    /// again for the same is harmless. `is_urgent` if somebody waits.
    fn ask(&self, id: QueryId, answer: &Envelope, is_urgent: bool) -> bool;

    /// Their grades, each at least once.
    fn grades(&self) -> &Receiver<Envelope>;

    /// Whether they can be reached now.
    fn can_be_reached(&self) -> bool;

    /// How long somebody should wait for a grade.
    fn patience(&self) -> Duration;
}

/// What the agent needs from outside.
#[derive(Clone)]
pub(crate) struct FleetParts {
    pub(crate) bus: Bus,
    pub(crate) graders: Arc<dyn Graders>,
    /// Where what is due is kept, and what of it this process holds.
    pub(crate) due: Option<(MemoryStore, Arc<Holder>)>,
    /// Whether answers from earlier are asked for, too.
    pub(crate) works_off_backlog: bool,
    pub(crate) pairs: SharedPairs,
}

/// The agent.
pub(crate) struct FleetAgent {
    parts: FleetParts,
    /// Answers of this process that wait for their grades, and until when.
    waiting: HashMap<QueryId, (Graded, Instant)>,
    /// Answers from earlier that were asked for.
    n_due: usize,
    next_look: Instant,
}

/// What can happen to the agent.
pub(crate) enum Event {
    Message(Arc<Envelope>),
    Grade(Box<Envelope>),
    Look,
}

impl FleetAgent {
    pub(crate) fn new(parts: FleetParts) -> Self {
        FleetAgent { parts, waiting: HashMap::new(), n_due: 0, next_look: Instant::now() + LOOK }
    }

    fn receive(&mut self, message: &Envelope) {
        if let Some(withdrawal) = Withdrawal::of(message) {
            return self.withdraw(withdrawal);
        }
        let (Some(topic), Payload::ResponseGeneration(response)) = (Topic::of(message), &message.payload) else {
            return;
        };
        let Response { query, answer, model, .. } = response.clone();
        let graded = Graded { topic, query, answer, model, grade: None };
        match response.why_not_judged() {
            Some(reason) => self.tell(graded, Grade::unscored(reason)),
            None => self.ask(graded),
        }
    }

    /// Asks for a grade that somebody waits for.
    fn ask(&mut self, graded: Graded) {
        let Graded { topic, query, answer, model, .. } = &graded;
        let message = message(topic, Response::new(query, answer, model));
        let graders = &self.parts.graders;
        if !graders.ask(topic.query_id, &message, true) {
            self.tell(graded, Grade::unscored(TOO_LONG));
        } else if graders.can_be_reached() {
            let until = Instant::now() + graders.patience();
            self.waiting.insert(topic.query_id, (graded, until));
        } else {
            self.tell(graded, Grade::unscored(LATE));
        }
    }

    fn withdraw(&mut self, withdrawal: Withdrawal) {
        let pairs = self.parts.pairs.lock().withdraw(withdrawal);
        pairs.iter().for_each(|pair| self.leave_uncompared(pair, withdrawal.reason()));
        self.stop_waiting(withdrawal.reason(), |graded, _| withdrawal.concerns(&graded.topic));
    }

    /// Says of answers why they have no grade yet.
    fn stop_waiting(&mut self, reason: &str, is_meant: impl Fn(&Graded, Instant) -> bool) {
        let left = self.waiting.extract_if(|_, (graded, until)| is_meant(graded, *until));
        let left: Vec<Graded> = left.map(|(_, (graded, _))| graded).collect();
        left.into_iter().for_each(|graded| self.tell(graded, Grade::unscored(reason)));
    }

    /// Takes a grade that has come from elsewhere.
    fn take(&mut self, message: Envelope) {
        let (Some(topic), Payload::CritiqueResult(GradedAnswer { query, answer, grade })) =
            (Topic::of(&message), message.payload)
        else {
            return;
        };
        match self.waiting.remove(&topic.query_id) {
            Some((graded, _)) => {
                self.tell(graded.clone(), grade.clone());
                self.pair(Graded { grade: Some(grade), ..graded });
            }
            None if self.is_due(topic.query_id) => {
                self.n_due = self.n_due.saturating_sub(1);
                let graded = Graded { topic, query, answer, model: String::new(), grade: None };
                self.tell(graded, grade);
            }
            None => {}
        }
    }

    fn is_due(&self, id: QueryId) -> bool {
        let Some((store, _)) = &self.parts.due else { return false };
        let found =
            store.get(id).inspect_err(|error| tracing::info!("a grade is not looked at: {}", with_causes(error)));
        found.ok().flatten().and_then(|engram| engram.due).is_some_and(|due| due.grade)
    }

    /// Gives up waiting where that took too long, and asks for the grades of answers from earlier.
    fn look(&mut self) {
        let now = Instant::now();
        self.next_look = now + LOOK;
        self.stop_waiting(LATE, |_, until| until < now);
        if self.parts.works_off_backlog && self.parts.graders.can_be_reached() {
            self.ask_for_due();
        }
    }

    /// Asks for the grades of answers from earlier that nobody works on.
    fn ask_for_due(&mut self) {
        let Some((_, holder)) = self.parts.due.clone() else { return };
        while self.n_due < MOST_DUE {
            match holder.claim_next() {
                Ok(Some(engram)) if engram.due.as_ref().is_some_and(|due| due.grade) => {
                    let graded = graded(&engram);
                    let message = message(&graded.topic, Response::new(&engram.query, &engram.answer, &engram.model));
                    if !self.parts.graders.ask(engram.query_id, &message, false) {
                        // It is due again at once.
                        return self.tell(graded, Grade::unscored(TOO_LONG));
                    }
                    self.n_due += 1;
                }
                Ok(Some(engram)) => self.leave_alone(&engram),
                Ok(None) => return,
                Err(error) => return tracing::info!("due answers stay ungraded: {}", with_causes(&error)),
            }
        }
    }

    /// Says of an answer of respondent B that is graded that it will not be compared.
    fn leave_alone(&self, engram: &Engram) {
        let (a, b) = (engram.correlation_id, engram.query_id);
        let side = |query_id, grade| hone_protocol::ComparedAnswer { query_id, model: &engram.model, grade };
        let preference = Preference { judging: Judging::failed(UNCOMPARED), ..Preference::default() };
        let comparison = hone_protocol::Comparison::new(side(a, None), side(b, engram.grade.as_ref()), preference);
        let topic = Topic { query_id: a, respondent_id: RespondentId::A, ..topic_of(engram) };
        topic.publish(&self.parts.bus, NAME, Payload::PairwiseResult(comparison));
    }

    fn tell(&self, graded: Graded, grade: Grade) {
        if let Some(failure) = &grade.judging.failure {
            tracing::info!(query_id = %graded.topic.query_id, "an answer stays unscored: {failure}");
        }
        let critique = GradedAnswer { query: graded.query, answer: graded.answer, grade };
        graded.topic.publish(&self.parts.bus, NAME, Payload::CritiqueResult(critique));
    }

    /// Says of two answers to one question that they are not compared, once both have their grades.
    fn pair(&self, graded: Graded) {
        self.parts.pairs.lock().add(graded);
        loop {
            let next = self.parts.pairs.lock().begin();
            let Some(NextPair::Compare(pair) | NextPair::GiveUp(pair)) = next else { return };
            self.parts.pairs.lock().end();
            self.leave_uncompared(&pair, UNCOMPARED);
        }
    }

    fn leave_uncompared(&self, pair: &AnswerPair, reason: &str) {
        let preference = Preference { judging: Judging::failed(reason), ..Preference::default() };
        pair.a.topic.publish(&self.parts.bus, NAME, Payload::PairwiseResult(pair.comparison(preference)));
    }
}

impl Agent for FleetAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let look = after(self.next_look.saturating_duration_since(Instant::now()));
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok().map(Event::Message),
            recv(self.parts.graders.grades()) -> grade => grade.ok().map(Box::new).map(Event::Grade),
            recv(look) -> _ => Some(Event::Look),
        }
    }

    fn handle_event(&mut self, event: Event, _: &mut Inbox) {
        match event {
            Event::Message(message) => self.receive(&message),
            Event::Grade(message) => self.take(*message),
            Event::Look => self.look(),
        }
    }

    fn stopped(&mut self, _: &mut Inbox) {
        self.stop_waiting(STOPPED, |_, _| true);
    }

    fn recover(&mut self, _: &Envelope) {}
}

fn topic_of(engram: &Engram) -> Topic {
    let Engram { session_id, owner, query_id, correlation_id, respondent_id, .. } = *engram;
    Topic { session_id, owner, query_id, correlation_id, respondent_id }
}

fn graded(engram: &Engram) -> Graded {
    let Engram { query, answer, model, .. } = engram.clone();
    Graded { topic: topic_of(engram), query, answer, model, grade: None }
}

/// The message with an answer: no more of it than a judge needs.
fn message(topic: &Topic, response: Response) -> Envelope {
    let envelope = Envelope::new(NAME, topic.session_id, Payload::ResponseGeneration(response));
    envelope.owned_by(topic.owner).about(topic.query_id, topic.correlation_id, topic.respondent_id)
}
