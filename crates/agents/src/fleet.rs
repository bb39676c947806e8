//! The fleet agent: has answers graded by workers on other machines, many at a time. It takes the place of the judge agent and
//! the backlog agent.
//!
//! Memory's due list decides: an answer stays due until it has a grade, whoever was asked for it. A result is taken if
//! this process has asked for it, once, and only if memory still has the answer as due where nobody waits any more. Answers
//! that are due from earlier are claimed in memory, so that no other process of this home asks for them, too. Answers are not
//! compared: `pairwise.result` says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select_biased};
use hone_bus::{Agent, Bus, Inbox};
use hone_memory::{Engram, Holder, MemoryStore};
use hone_protocol::prospect::{LATE, STOPPED, UNCOMPARED};
use hone_protocol::{
    ComparedAnswer, Comparison, Envelope, EnvelopeId, Grade, GradedAnswer, Judging, Payload, Preference, QueryId,
    RespondentId, Response, Subject, WorkResult, with_causes,
};

use crate::judge::FAILED;
use crate::judge::pairs::{AnswerPair, Graded, NextPair, SharedPairs};
use crate::topic::{Topic, Withdrawal};

/// The agent's name on the bus: that of the judge agent, in whose place it stands.
pub(crate) const NAME: &str = crate::judge::NAME;

/// The subjects that the agent listens to.
pub(crate) const SUBJECTS: [Subject; 3] = crate::judge::SUBJECTS;

/// How often the agent looks for results that are late, and for answers that are due.
const LOOK: Duration = Duration::from_secs(5);

/// How many due answers are asked for at a time, at most.
const MOST_DUE: usize = 64;

/// How long after it was asked for a grade may be lost, and is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(15 * 60);

/// How long no due answers are asked for after work was given up, at first; twice as long after every further time.
const SHORTEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Graders on other machines.
pub trait Graders: Send + Sync {
    /// Asks for the grade of the answer in a message. `is_urgent` if somebody waits.
    ///
    /// # Errors
    /// The reason why it is not asked for.
    fn ask(&self, answer: &Envelope, is_urgent: bool) -> Result<(), &'static str>;

    /// Their grades, each at least once.
    fn grades(&self) -> &Receiver<WorkResult>;

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
    /// The memory with what is due, and what of it this process holds.
    pub(crate) due: Option<(MemoryStore, Arc<Holder>)>,
    /// Whether answers from earlier are asked for, too.
    pub(crate) works_off_backlog: bool,
    pub(crate) pairs: SharedPairs,
    pub(crate) asked: SharedRequests,
}

/// The requests that no result has come for. They outlive an agent that panics.
#[derive(Clone, Default)]
pub(crate) struct SharedRequests(Arc<Mutex<HashMap<EnvelopeId, Asked>>>);

impl SharedRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<EnvelopeId, Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that was sent to graders.
struct Asked {
    graded: Graded,
    at: Instant,
    /// Until when somebody waits; `None` if nobody does.
    waits_until: Option<Instant>,
}

/// The agent.
pub(crate) struct FleetAgent {
    parts: FleetParts,
    /// Nothing more comes from the graders.
    is_cut_off: bool,
    next_look: Instant,
    /// When due answers may be asked for.
    not_before: Instant,
    pause: Duration,
}

/// What can happen to the agent.
pub(crate) enum Event {
    Message(Arc<Envelope>),
    Result(WorkResult),
    CutOff,
    Look,
}

impl FleetAgent {
    pub(crate) fn new(parts: FleetParts) -> Self {
        let now = Instant::now();
        FleetAgent { parts, is_cut_off: false, next_look: now + LOOK, not_before: now, pause: SHORTEST_PAUSE }
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
        if let Some(reason) = response.why_not_judged() {
            return self.tell(&graded, Grade::unscored(reason));
        }
        self.pair(graded.clone());
        let until = Instant::now() + self.parts.graders.patience();
        let asked = match self.parts.graders.can_be_reached() {
            true => self.ask(graded.clone(), Some(until)),
            false => Err(LATE),
        };
        if let Err(reason) = asked {
            self.tell(&graded, Grade::unscored(reason));
        }
    }

    /// Asks for a grade.
    fn ask(&self, graded: Graded, waits_until: Option<Instant>) -> Result<(), &'static str> {
        let message = message(&graded);
        self.parts.graders.ask(&message, waits_until.is_some())?;
        self.parts.asked.lock().insert(message.id, Asked { graded, at: Instant::now(), waits_until });
        Ok(())
    }

    fn withdraw(&mut self, withdrawal: Withdrawal) {
        let pairs = self.parts.pairs.lock().withdraw(withdrawal);
        pairs.iter().for_each(|pair| self.leave_uncompared(pair, withdrawal.reason()));
        for asked in self.take_out(|asked| withdrawal.concerns(&asked.graded.topic)) {
            if asked.waits_until.is_some() {
                self.tell(&asked.graded, Grade::unscored(withdrawal.reason()));
            }
        }
    }

    fn take_out(&self, is_meant: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        self.parts.asked.lock().extract_if(|_, asked| is_meant(asked)).map(|(_, asked)| asked).collect()
    }

    /// Takes what has come of a request.
    fn take(&mut self, result: WorkResult) {
        match result.outcome {
            Ok(message) => {
                let Payload::CritiqueResult(GradedAnswer { grade, .. }) = message.payload else { return };
                let asked = self.parts.asked.lock().remove(&result.request);
                if let Some(Asked { graded, waits_until, .. }) = asked
                    && (waits_until.is_some() || self.is_due(graded.topic.query_id))
                {
                    self.pause = SHORTEST_PAUSE;
                    self.tell(&graded, grade);
                }
            }
            Err(reason) => self.take_failure(result.request, &reason),
        }
        self.refill();
    }

    /// Takes note that work was given up. A person may have it done all the same, so that a result still counts.
    fn take_failure(&mut self, request: EnvelopeId, reason: &str) {
        let failed = self.parts.asked.lock().get_mut(&request).map(|asked| {
            asked.waits_until = None;
            asked.graded.clone()
        });
        if let Some(graded) = failed {
            self.not_before = Instant::now() + self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            self.tell(&graded, Grade::unscored(reason));
        }
    }

    /// Whether a grade is still due. While memory cannot be reached, it is: memory keeps the grade for later, and it would
    /// not come again.
    fn is_due(&self, id: QueryId) -> bool {
        let Some((store, _)) = &self.parts.due else { return false };
        match store.get(id) {
            Ok(engram) => engram.and_then(|engram| engram.due).is_some_and(|due| due.grade),
            Err(error) => {
                tracing::info!("a grade is taken while memory cannot be reached: {}", with_causes(&error));
                true
            }
        }
    }

    /// Looks for grades that are late or lost, and for answers that are due.
    fn look(&mut self) {
        let now = Instant::now();
        self.next_look = now + LOOK;
        let late: Vec<Graded> = {
            let mut asked = self.parts.asked.lock();
            let late = asked.values_mut().filter(|asked| asked.waits_until.is_some_and(|until| until < now));
            late.map(|asked| {
                asked.waits_until = None;
                asked.graded.clone()
            })
            .collect()
        };
        late.iter().for_each(|graded| self.tell(graded, Grade::unscored(LATE)));
        // They are free again, and are asked for again.
        for lost in self.take_out(|asked| asked.waits_until.is_none() && asked.at + ASK_AGAIN < now) {
            if self.is_due(lost.graded.topic.query_id) {
                self.tell(&lost.graded, Grade::unscored(LATE));
            }
        }
        self.refill();
    }

    /// Asks for the grades of answers from earlier that nobody works on, up to a number.
    fn refill(&mut self) {
        let Some((_, holder)) = self.parts.due.clone().filter(|_| self.parts.works_off_backlog) else { return };
        let asked_for: Vec<QueryId> = {
            let asked = self.parts.asked.lock();
            asked.values().filter(|asked| asked.waits_until.is_none()).map(|it| it.graded.topic.query_id).collect()
        };
        let is_time = Instant::now() >= self.not_before && self.parts.graders.can_be_reached();
        if !is_time || asked_for.len() > MOST_DUE / 2 {
            return;
        }
        let claimed = holder.claim_up_to(MOST_DUE - asked_for.len()).unwrap_or_else(|error| {
            tracing::info!("due answers stay ungraded: {}", with_causes(&error));
            Vec::new()
        });
        if claimed.is_empty() {
            // Nothing is due, and looking is not free.
            self.not_before = Instant::now() + LOOK;
        }
        for engram in claimed.iter().filter(|engram| !asked_for.contains(&engram.query_id)) {
            self.take_up(engram);
        }
    }

    fn take_up(&self, engram: &Engram) {
        if engram.due.as_ref().is_none_or(|due| !due.grade) {
            return self.leave_alone(engram);
        }
        let graded = Graded::of_engram(engram);
        if let Err(reason) = self.ask(graded.clone(), None) {
            self.tell(&graded, Grade::unscored(reason));
        }
    }

    /// Says of an answer of respondent B that is graded that it will not be compared.
    fn leave_alone(&self, b: &Engram) {
        let side = |query_id, grade| ComparedAnswer { query_id, model: &b.model, grade };
        let preference = Preference { judging: Judging::failed(UNCOMPARED), ..Preference::default() };
        let comparison = Comparison::new(side(b.correlation_id, None), side(b.query_id, b.grade.as_ref()), preference);
        let topic = Topic { query_id: b.correlation_id, respondent_id: RespondentId::A, ..Topic::of_engram(b) };
        topic.publish(&self.parts.bus, NAME, Payload::PairwiseResult(comparison));
    }

    fn tell(&self, graded: &Graded, grade: Grade) {
        if let Some(failure) = &grade.judging.failure {
            tracing::info!(query_id = %graded.topic.query_id, "an answer stays unscored: {failure}");
        }
        let critique = GradedAnswer { query: graded.query.clone(), answer: graded.answer.clone(), grade };
        graded.topic.publish(&self.parts.bus, NAME, Payload::CritiqueResult(critique));
    }

    /// Says of two answers to one question that they are not compared, once both are there.
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
        let nothing = never();
        let results = if self.is_cut_off { &nothing } else { self.parts.graders.grades() };
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok().map(Event::Message),
            recv(results) -> result => Some(result.map_or(Event::CutOff, Event::Result)),
            recv(look) -> _ => Some(Event::Look),
        }
    }

    fn handle_event(&mut self, event: Event, inbox: &mut Inbox) {
        match event {
            Event::Message(message) => {
                inbox.claim(&message);
                self.receive(&message);
                inbox.release(|_| true);
            }
            Event::Result(result) => self.take(result),
            Event::CutOff => {
                tracing::error!("no grades come from other machines any more");
                self.is_cut_off = true;
            }
            Event::Look => self.look(),
        }
    }

    fn stopped(&mut self, _: &mut Inbox) {
        for asked in self.take_out(|asked| asked.waits_until.is_some()) {
            self.tell(&asked.graded, Grade::unscored(STOPPED));
        }
    }

    fn recover(&mut self, message: &Envelope) {
        if let (Some(topic), Payload::ResponseGeneration(response)) = (Topic::of(message), &message.payload) {
            let Response { query, answer, model, .. } = response.clone();
            let reason = response.why_not_judged().unwrap_or(FAILED);
            self.tell(&Graded { topic, query, answer, model, grade: None }, Grade::unscored(reason));
        }
    }
}

/// The message with an answer: no more of it than a judge needs.
fn message(graded: &Graded) -> Envelope {
    let Graded { topic, query, answer, model, .. } = graded;
    let response = Response::new(query, answer, model);
    let envelope = Envelope::new(NAME, topic.session_id, Payload::ResponseGeneration(response));
    envelope.owned_by(topic.owner).about(topic.query_id, topic.correlation_id, topic.respondent_id)
}
