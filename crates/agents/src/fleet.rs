//! The fleet agent: has workers on other machines grade answers, many at a time. It replaces the judge agent and the
//! backlog agent.
//!
//! Memory's due list is authoritative: an answer stays due until it has a grade, whichever worker was asked. A result
//! is accepted once, and only if this process requested it; if no caller waits any more, the answer must still be due
//! in memory, and the result is kept until memory can be reached. Due answers from earlier are claimed in memory, so that
//! no other process requests them, too.
//! Two answers to one question are compared after both have been graded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select_biased};
use hone_bus::{Agent, Bus, Inbox};
use hone_memory::{Due, Engram, Holder, MemoryError, MemoryStore};
use hone_protocol::prospect::{ALONE, LATE, NO_WORKER, STOPPED};
use hone_protocol::{
    AnswersToCompare, Envelope, EnvelopeId, Grade, GradedAnswer, Payload, QueryId, RespondentId, Response, Subject,
    WorkResult, with_causes,
};

use crate::judge::pairs::{AnswerPair, Graded, SharedPairs};
use crate::judge::{FAILED, answer_in, unscored};
use crate::topic::{Topic, Withdrawal};

/// The agent's name on the bus, which is the name of the judge agent that it replaces.
pub(crate) const NAME: &str = crate::judge::NAME;

/// The subjects that the agent listens to.
pub(crate) const SUBJECTS: [Subject; 3] = crate::judge::SUBJECTS;

/// Interval for checking for late results and due answers.
const LOOK: Duration = Duration::from_secs(5);

/// The most due answers that are requested at a time.
const MOST_DUE: usize = 64;

/// Timeout after which a requested grade is considered lost and requested again.
const ASK_AGAIN: Duration = Duration::from_secs(15 * 60);

/// The longest time until an answer is remembered.
const LONGEST_REMEMBERING: Duration = Duration::from_secs(60);

/// The first pause in requesting due answers after work was given up; each further failure doubles it.
const SHORTEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Graders on other machines.
pub trait Graders: Send + Sync {
    /// Requests the grade of the answer in a message, or the comparison of the two answers in it. `is_urgent` if a
    /// caller waits.
    ///
    /// # Errors
    /// The reason why it was not requested.
    fn ask(&self, answers: &Envelope, is_urgent: bool) -> Result<(), &'static str>;

    /// Their verdicts, each at least once.
    fn verdicts(&self) -> &Receiver<WorkResult>;

    /// Whether they can be reached now.
    fn can_be_reached(&self) -> bool;

    /// How long a caller should wait for a verdict.
    fn patience(&self) -> Duration;
}

/// The agent's surroundings.
#[derive(Clone)]
pub(crate) struct FleetParts {
    pub(crate) bus: Bus,
    pub(crate) graders: Arc<dyn Graders>,
    /// The memory with the due answers, and this process's claims on them.
    pub(crate) due: Option<(MemoryStore, Arc<Holder>)>,
    /// Whether due answers from earlier are requested, too.
    pub(crate) works_off_backlog: bool,
    pub(crate) pairs: SharedPairs,
    pub(crate) asked: SharedRequests,
}

/// The requests without a result. They outlive an agent that panics.
#[derive(Clone, Default)]
pub(crate) struct SharedRequests(Arc<Mutex<HashMap<EnvelopeId, Asked>>>);

impl SharedRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<EnvelopeId, Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers that were sent to graders.
struct Asked {
    judged: Judged,
    at: Instant,
    /// When the caller stops waiting; `None` if no caller waits.
    waits_until: Option<Instant>,
    /// The verdict, while memory cannot be asked whether it is still due.
    verdict: Option<Payload>,
}

/// An answer to grade, or two to compare.
#[derive(Clone)]
enum Judged {
    One(Box<Graded>),
    Pair(Box<AnswerPair>),
}

impl Judged {
    /// The answer in memory for which the verdict is due.
    fn due_with(&self) -> QueryId {
        match self {
            Judged::One(graded) => graded.topic.query_id,
            Judged::Pair(pair) => pair.b.topic.query_id,
        }
    }

    fn is_due(&self, due: &Due) -> bool {
        match self {
            Judged::One(_) => due.grade,
            Judged::Pair(_) => due.comparison,
        }
    }

    fn topic(&self) -> &Topic {
        match self {
            Judged::One(graded) => &graded.topic,
            Judged::Pair(pair) => &pair.a.topic,
        }
    }

    /// The message with the answers, reduced to the parts that a judge needs.
    fn message(&self) -> Envelope {
        let payload = match self {
            Judged::One(graded) => {
                Payload::ResponseGeneration(Response::new(&*graded.query, &*graded.answer, &*graded.model))
            }
            Judged::Pair(pair) => Payload::PairwiseAsked(AnswersToCompare {
                query: pair.a.query.clone(),
                answer_a: pair.a.answer.clone(),
                answer_b: pair.b.answer.clone(),
                model_a: pair.a.model.clone(),
            }),
        };
        let topic = self.topic();
        let envelope = Envelope::new(NAME, topic.session_id, payload);
        envelope.owned_by(topic.owner).about(topic.query_id, topic.correlation_id, topic.respondent_id)
    }
}

/// The agent.
pub(crate) struct FleetAgent {
    parts: FleetParts,
    /// Whether the channel from the graders is closed.
    is_cut_off: bool,
    next_look: Instant,
    /// The earliest time to request due answers.
    not_before: Instant,
    pause: Duration,
}

/// The agent's events.
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
        let Some((topic, response)) = answer_in(message) else { return };
        let graded = unscored(topic, response);
        if let Some(reason) = response.why_not_judged() {
            return graded.tell(&self.parts.bus, NAME, Grade::unscored(reason));
        }
        self.ask_for_caller(Judged::One(Box::new(graded)));
    }

    /// Requests a verdict for a waiting caller.
    fn ask_for_caller(&self, judged: Judged) {
        let until = Instant::now() + self.parts.graders.patience();
        let asked = match self.parts.graders.can_be_reached() {
            true => self.ask(judged.clone(), Some(until)),
            false => Err(NO_WORKER),
        };
        if let Err(reason) = asked {
            self.give_up_awaited(&judged, reason);
        }
    }

    /// Requests a verdict.
    fn ask(&self, judged: Judged, waits_until: Option<Instant>) -> Result<(), &'static str> {
        let message = judged.message();
        self.parts.graders.ask(&message, waits_until.is_some())?;
        self.parts.asked.lock().insert(message.id, Asked { judged, at: Instant::now(), waits_until, verdict: None });
        Ok(())
    }

    /// Reports why there is no verdict.
    fn tell_missing(&self, judged: &Judged, reason: &str) {
        match judged {
            Judged::One(graded) => graded.tell(&self.parts.bus, NAME, Grade::unscored(reason)),
            Judged::Pair(pair) => pair.tell_uncompared(&self.parts.bus, NAME, reason),
        }
    }

    /// Gives up a verdict for which a caller waits. An ungraded answer is still one of a pair.
    fn give_up_awaited(&self, judged: &Judged, reason: &str) {
        self.tell_missing(judged, reason);
        if let Judged::One(graded) = judged {
            self.pair((**graded).clone());
        }
    }

    /// Gives up a verdict for which no caller waits. An ungraded answer is still compared, if that is due.
    fn give_up_due(&self, judged: &Judged, reason: &str) {
        self.tell_missing(judged, reason);
        // If no worker can be asked, the claim on the answer is released, and it is taken up later.
        if let Judged::One(graded) = judged
            && reason != NO_WORKER
        {
            self.go_on_with((**graded).clone());
        }
    }

    fn give_up(&self, judged: &Judged, reason: &str, is_awaited: bool) {
        match is_awaited {
            true => self.give_up_awaited(judged, reason),
            false => self.give_up_due(judged, reason),
        }
    }

    fn withdraw(&mut self, withdrawal: Withdrawal) {
        self.parts.pairs.withdraw(withdrawal, &self.parts.bus, NAME);
        // If no caller waits, the answer is due in memory, and a verdict counts.
        let is_unwanted = |asked: &Asked| asked.waits_until.is_some() && withdrawal.concerns(asked.judged.topic());
        for asked in self.take_out(is_unwanted) {
            self.tell_missing(&asked.judged, withdrawal.reason());
        }
    }

    fn take_out(&self, is_meant: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        self.parts.asked.lock().extract_if(|_, asked| is_meant(asked)).map(|(_, asked)| asked).collect()
    }

    /// Processes the outcome of a request.
    fn take(&mut self, result: WorkResult) {
        match result.outcome {
            Ok(message) => {
                let asked = self.parts.asked.lock().remove(&result.request);
                if let Some(asked) = asked {
                    self.take_if_due(result.request, asked, message.payload);
                }
            }
            Err(reason) => self.take_failure(result.request, &reason),
        }
        self.refill();
    }

    /// Takes a verdict if a caller waits for it, or it is still due. While memory cannot be reached, another process may
    /// have taken one, and an answer may yet be remembered; then the verdict is kept. Returns whether memory could be
    /// asked.
    fn take_if_due(&mut self, request: EnvelopeId, asked: Asked, verdict: Payload) -> bool {
        let is_due = if asked.waits_until.is_some() { Ok(Some(true)) } else { self.is_due(&asked) };
        match is_due {
            Ok(Some(true)) => {
                self.pause = SHORTEST_PAUSE;
                self.take_verdict(asked, verdict);
            }
            Ok(Some(false)) => {}
            Ok(None) | Err(_) => {
                self.parts.asked.lock().insert(request, Asked { verdict: Some(verdict), ..asked });
            }
        }
        is_due.is_ok()
    }

    /// Takes verdicts that came while memory could not be reached.
    fn take_kept(&mut self) {
        let kept = |asked: &Asked| asked.verdict.is_some();
        let requests: Vec<EnvelopeId> =
            self.parts.asked.lock().iter().filter(|(_, asked)| kept(asked)).map(|(request, _)| *request).collect();
        for request in requests {
            let asked = self.parts.asked.lock().remove(&request);
            let Some(mut asked) = asked else { continue };
            let Some(verdict) = asked.verdict.take() else { continue };
            if !self.take_if_due(request, asked, verdict) {
                return;
            }
        }
    }

    fn take_verdict(&self, asked: Asked, verdict: Payload) {
        match (asked.judged, verdict) {
            (Judged::One(graded), Payload::CritiqueResult(GradedAnswer { grade, .. })) => {
                graded.tell(&self.parts.bus, NAME, grade.clone());
                let graded = Graded { grade: Some(grade), ..*graded };
                match asked.waits_until {
                    Some(_) => self.pair(graded),
                    None => self.go_on_with(graded),
                }
            }
            (Judged::Pair(pair), Payload::PairwiseResult(comparison)) => {
                pair.tell(&self.parts.bus, NAME, comparison.preference);
            }
            (judged, _) => {
                self.give_up(&judged, "the worker returned something other than a verdict", asked.waits_until.is_some())
            }
        }
    }

    /// Records that work was given up. A result still counts, since a person may have the work done anyway.
    fn take_failure(&mut self, request: EnvelopeId, reason: &str) {
        let failed = self.parts.asked.lock().get_mut(&request).map(|asked| {
            let is_awaited = asked.waits_until.take().is_some();
            (asked.judged.clone(), is_awaited)
        });
        if let Some((judged, is_awaited)) = failed {
            self.not_before = Instant::now() + self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            self.give_up(&judged, reason, is_awaited);
        }
    }

    /// Whether a verdict is still due; `None` while its answer may yet be remembered.
    fn is_due(&self, asked: &Asked) -> Result<Option<bool>, MemoryError> {
        let Some((store, _)) = &self.parts.due else { return Ok(Some(false)) };
        match store.get(asked.judged.due_with()) {
            Ok(Some(engram)) => Ok(Some(engram.due.is_some_and(|due| asked.judged.is_due(&due)))),
            Ok(None) => Ok((asked.at.elapsed() > LONGEST_REMEMBERING).then_some(false)),
            Err(error) => {
                tracing::info!("a verdict is kept until memory can be reached: {}", with_causes(&error));
                Err(error)
            }
        }
    }

    /// Checks for late or lost verdicts and for due answers.
    fn look(&mut self) {
        let now = Instant::now();
        self.next_look = now + LOOK;
        self.take_kept();
        let late: Vec<Judged> = {
            let mut asked = self.parts.asked.lock();
            let late = asked.values_mut().filter(|asked| asked.waits_until.is_some_and(|until| until < now));
            late.map(|asked| {
                asked.waits_until = None;
                asked.judged.clone()
            })
            .collect()
        };
        late.iter().for_each(|judged| self.give_up_awaited(judged, LATE));
        // The claims on lost verdicts are released, so that they are requested again.
        let is_lost =
            |asked: &Asked| asked.verdict.is_none() && asked.waits_until.is_none() && asked.at + ASK_AGAIN < now;
        for lost in self.take_out(is_lost) {
            if !matches!(self.is_due(&lost), Ok(Some(false))) {
                self.tell_missing(&lost.judged, NO_WORKER);
            }
        }
        self.refill();
    }

    /// Requests verdicts on unclaimed answers from earlier, up to a limit.
    fn refill(&mut self) {
        let Some((_, holder)) = self.parts.due.clone().filter(|_| self.parts.works_off_backlog) else { return };
        let asked_for: Vec<QueryId> = {
            let asked = self.parts.asked.lock();
            asked.values().filter(|asked| asked.waits_until.is_none()).map(|asked| asked.judged.due_with()).collect()
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
            // Nothing is due, and the check has a cost.
            self.not_before = Instant::now() + LOOK;
        }
        for engram in claimed.iter().filter(|engram| !asked_for.contains(&engram.query_id)) {
            self.take_up(engram);
        }
    }

    fn take_up(&self, engram: &Engram) {
        match engram.due.as_ref().is_some_and(|due| due.grade) {
            true => self.ask_later(Judged::One(Box::new(Graded::of_engram(engram)))),
            false => self.compare_due(engram),
        }
    }

    /// Requests a verdict for which no caller waits.
    fn ask_later(&self, judged: Judged) {
        if let Err(reason) = self.ask(judged.clone(), None) {
            self.give_up_due(&judged, reason);
        }
    }

    /// Requests the comparison of an answer from earlier that is now graded, or cannot be, if its comparison is due.
    fn go_on_with(&self, graded: Graded) {
        let Some((store, _)) = &self.parts.due else { return };
        match store.get(graded.topic.query_id) {
            Ok(Some(engram)) if engram.due.as_ref().is_some_and(|due| due.comparison) => {
                self.compare_due(&Engram { grade: graded.grade, ..engram });
            }
            Ok(_) => {}
            Err(error) if graded.topic.respondent_id == RespondentId::B => {
                tracing::info!("two answers stay uncompared: {}", with_causes(&error));
                // The claim on it is released.
                graded.tell_uncompared(&self.parts.bus, NAME, NO_WORKER);
            }
            Err(_) => {}
        }
    }

    /// Requests the comparison of respondent B's answer with that of A, if A's exists.
    fn compare_due(&self, b: &Engram) {
        let Some((store, _)) = &self.parts.due else { return };
        match store.other_answer(b) {
            Ok(Some(a)) => {
                let pair = AnswerPair { a: Graded::of_engram(&a), b: Graded::of_engram(b) };
                self.ask_later(Judged::Pair(Box::new(pair)));
            }
            Ok(None) => Graded::of_engram(b).tell_uncompared(&self.parts.bus, NAME, ALONE),
            Err(error) => {
                tracing::info!("two answers stay uncompared: {}", with_causes(&error));
                // The claim on it is released.
                Graded::of_engram(b).tell_uncompared(&self.parts.bus, NAME, NO_WORKER);
            }
        }
    }

    /// Requests the comparison of two answers to one question, once both have come back. If one has come without a
    /// grade, the workers are late, or have failed.
    fn pair(&self, graded: Graded) {
        let complete = {
            let mut pairs = self.parts.pairs.lock();
            pairs.add(graded);
            pairs.take_complete()
        };
        for pair in complete {
            match pair.a.grade.is_some() && pair.b.grade.is_some() {
                true => self.ask_for_caller(Judged::Pair(Box::new(pair))),
                false => pair.tell_uncompared(&self.parts.bus, NAME, NO_WORKER),
            }
        }
    }
}

impl Agent for FleetAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let look = after(self.next_look.saturating_duration_since(Instant::now()));
        let nothing = never();
        let results = if self.is_cut_off { &nothing } else { self.parts.graders.verdicts() };
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
                tracing::error!("no verdicts come from other machines any more");
                self.is_cut_off = true;
            }
            Event::Look => self.look(),
        }
    }

    fn stopped(&mut self, _: &mut Inbox) {
        for asked in self.take_out(|asked| asked.waits_until.is_some()) {
            self.tell_missing(&asked.judged, STOPPED);
        }
    }

    fn recover(&mut self, message: &Envelope) {
        let Some((topic, response)) = answer_in(message) else { return };
        let graded = unscored(topic, response);
        match response.why_not_judged() {
            Some(reason) => graded.tell(&self.parts.bus, NAME, Grade::unscored(reason)),
            None => self.give_up_awaited(&Judged::One(Box::new(graded)), FAILED),
        }
    }
}
