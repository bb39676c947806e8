//! The critic agent: has every answer graded, and both answers to one question compared.
//!
//! It drives the judge's generation from its own loop, beside its mailbox: a cancellation ends a
//! grading within one token, and answers that come meanwhile are put aside. Every answer ends with exactly one
//! `critique.result`, whose score is null where the answer could not be graded, was not worth it, or nobody waits any more.

mod pairs;
pub(crate) mod states;

use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvError, never, select_biased};
use hone_bus::{Agent, Bus, Inbox};
use hone_protocol::{
    Comparison, Critique, Envelope, GenerationEvent, Grade, Judging, Payload, Preference, Response, Subject,
};
use hone_quality::{CompareTask, Comparing, GradeTask, Grading, Judge};

use self::pairs::{Graded, Pair, PairBuffer};
use self::states::{Action, State, TABLE};
use crate::machine::{IllegalTransition, Machine};
use crate::topic::{Topic, Withdrawal};

/// The agent's name.
pub(crate) const NAME: &str = "critic";

/// What the agent listens to.
pub(crate) const SUBJECTS: [Subject; 3] =
    [Subject::ResponseGeneration, Subject::QueryCancelled, Subject::SessionClosed];

/// The agent's state.
pub(crate) struct CriticAgent {
    bus: Bus,
    judge: Judge,
    pub(crate) machine: Machine<State, Action>,
    work: Work,
    pairs: PairBuffer,
}

/// What can happen to it.
pub(crate) enum Event {
    Message(Arc<Envelope>),
    Judge(usize, Result<GenerationEvent, RecvError>),
}

/// What the judge is asked.
enum Work {
    Nothing,
    Grading(Box<(Graded, Grading)>),
    Comparing(Box<(Pair, Comparing)>),
}

impl Work {
    fn topic(&self) -> Option<&Topic> {
        match self {
            Work::Nothing => None,
            Work::Grading(grading) => Some(&grading.0.topic),
            Work::Comparing(comparison) => Some(&comparison.0.a.topic),
        }
    }

    fn events<'a>(&'a self, nothing: &'a Receiver<GenerationEvent>) -> [&'a Receiver<GenerationEvent>; 2] {
        match self {
            Work::Nothing => [nothing, nothing],
            Work::Grading(grading) => [grading.1.events(), nothing],
            Work::Comparing(comparison) => comparison.1.events(),
        }
    }
}

impl CriticAgent {
    pub(crate) fn new(bus: Bus, judge: Judge) -> Self {
        let pairs = PairBuffer::default();
        CriticAgent { bus, judge, machine: Machine::new(&TABLE), work: Work::Nothing, pairs }
    }

    fn receive(&mut self, message: Arc<Envelope>, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        if let Some(withdrawal) = Withdrawal::of(&message) {
            return self.withdraw(withdrawal, inbox);
        }
        if matches!(self.work, Work::Nothing) {
            return self.begin(&message, inbox);
        }
        if let Err(refused) = inbox.put_aside(message) {
            self.leave_ungraded(&refused, "too many answers wait for their grades");
        }
        Ok(())
    }

    fn begin(&mut self, message: &Arc<Envelope>, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        let Some((topic, response)) = answer_in(message) else { return Ok(()) };
        inbox.take_up(message);
        let graded = Graded {
            topic,
            query: response.query.clone(),
            answer: response.answer.clone(),
            model: response.model.clone(),
            score: None,
        };
        self.machine.begin(Action::Receive)?;
        if let Some(reason) = why_not(response) {
            return self.publish(graded, ungraded(reason), Action::Publish, inbox);
        }
        self.machine.act(Action::StartGrade)?;
        let task = GradeTask { query: graded.query.clone(), answer: graded.answer.clone(), reference: None };
        let grading = self.judge.start_grade(task, &graded.model);
        self.work = Work::Grading(Box::new((graded, grading)));
        Ok(())
    }

    fn follow(
        &mut self,
        index: usize,
        event: Result<GenerationEvent, RecvError>,
        inbox: &mut Inbox,
    ) -> Result<(), IllegalTransition> {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => Ok(()),
            Work::Grading(mut grading) => match grading.1.take(event) {
                Some(grade) => self.conclude(grading.0, grade, inbox),
                None => {
                    self.work = Work::Grading(grading);
                    Ok(())
                }
            },
            Work::Comparing(mut comparison) => match comparison.1.take(index, event) {
                Some(preference) => self.prefer(comparison.0, preference),
                None => {
                    self.work = Work::Comparing(comparison);
                    Ok(())
                }
            },
        }
    }

    /// Publishes the judge's grade, and goes on to compare where both answers to a question are graded.
    fn conclude(&mut self, graded: Graded, grade: Grade, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        let graded = Graded { score: grade.score, ..graded };
        let action = if grade.judging.failure.is_some() { Action::Fail } else { Action::Publish };
        self.publish(graded.clone(), grade, action, inbox)?;
        match graded.score.and_then(|_| self.pairs.take(graded)) {
            Some(pair) => self.compare(pair),
            None => Ok(()),
        }
    }

    fn publish(
        &mut self,
        graded: Graded,
        grade: Grade,
        action: Action,
        inbox: &mut Inbox,
    ) -> Result<(), IllegalTransition> {
        let step = self.machine.act(action);
        if let Some(failure) = &grade.judging.failure {
            tracing::info!(query_id = %graded.topic.query_id, "an answer stays unscored: {failure}");
        }
        let critique = Critique { query: graded.query, answer: graded.answer, grade };
        graded.topic.publish(&self.bus, NAME, Payload::CritiqueResult(critique));
        inbox.put_down();
        step?;
        self.machine.act(Action::Reset)
    }

    fn compare(&mut self, pair: Pair) -> Result<(), IllegalTransition> {
        self.machine.begin(Action::StartPairwise)?;
        let task = CompareTask {
            query: pair.a.query.clone(),
            answer_a: pair.a.answer.clone(),
            answer_b: pair.b.answer.clone(),
        };
        let comparing = self.judge.start_compare(task, &pair.a.model);
        self.work = Work::Comparing(Box::new((pair, comparing)));
        Ok(())
    }

    fn prefer(&mut self, pair: Pair, preference: Preference) -> Result<(), IllegalTransition> {
        let failure = preference.judging.failure.clone();
        let comparison = Comparison {
            original_query_id: pair.a.topic.correlation_id,
            query_id_a: pair.a.topic.query_id,
            query_id_b: pair.b.topic.query_id,
            score_a: pair.a.score,
            score_b: pair.b.score,
            preference,
        };
        pair.a.topic.publish(&self.bus, NAME, Payload::PairwiseResult(comparison));
        match failure {
            None => self.machine.act(Action::PublishPairwise),
            Some(failure) => {
                tracing::info!(query_id = %pair.a.topic.correlation_id, "two answers stay uncompared: {failure}");
                self.machine.act(Action::Fail)?;
                self.machine.act(Action::Reset)
            }
        }
    }

    /// Ends what the judge is doing, for a reason that is no failure of the judge.
    fn end_work(&mut self, reason: &str, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => Ok(()),
            Work::Grading(grading) => {
                let (graded, grading) = *grading;
                self.publish(graded, grading.give_up(reason), Action::Publish, inbox)
            }
            Work::Comparing(comparison) => {
                let (pair, comparing) = *comparison;
                self.prefer(pair, comparing.give_up(reason))
            }
        }
    }

    fn withdraw(&mut self, withdrawal: Withdrawal, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        self.pairs.withdraw(withdrawal);
        let is_concerned = |message: &Envelope| Topic::of(message).is_some_and(|topic| withdrawal.concerns(&topic));
        for message in inbox.take_waiting(is_concerned) {
            self.leave_ungraded(&message, withdrawal.reason());
        }
        match self.work.topic().is_some_and(|topic| withdrawal.concerns(topic)) {
            true => self.end_work(withdrawal.reason(), inbox),
            false => Ok(()),
        }
    }

    fn leave_ungraded(&self, message: &Envelope, reason: &str) {
        if let Some((topic, response)) = answer_in(message) {
            let (query, answer) = (response.query.clone(), response.answer.clone());
            let critique = Critique { query, answer, grade: ungraded(reason) };
            topic.publish(&self.bus, NAME, Payload::CritiqueResult(critique));
        }
    }
}

impl Agent for CriticAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        if matches!(self.work, Work::Nothing)
            && let Some(message) = inbox.next_waiting()
        {
            return Some(Event::Message(message));
        }
        let nothing = never();
        let [first, second] = self.work.events(&nothing);
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok().map(Event::Message),
            recv(first) -> event => Some(Event::Judge(0, event)),
            recv(second) -> event => Some(Event::Judge(1, event)),
        }
    }

    fn handle_event(&mut self, event: Event, inbox: &mut Inbox) {
        let outcome = match event {
            Event::Message(message) => self.receive(message, inbox),
            Event::Judge(index, event) => self.follow(index, event, inbox),
        };
        if let Err(illegal) = outcome {
            self.work = Work::Nothing;
            if let Some(message) = inbox.put_down() {
                self.leave_ungraded(&message, &illegal.to_string());
            }
        }
    }

    fn stopped(&mut self, inbox: &mut Inbox) {
        // The agent ends here: where its state machine stands does not matter any more.
        let _ = self.end_work(STOPPED, inbox);
        let mut left = inbox.take_waiting(|_| true);
        left.extend(inbox.messages().try_iter());
        left.iter().for_each(|message| self.leave_ungraded(message, STOPPED));
    }

    fn recover(&mut self, message: &Envelope) {
        self.leave_ungraded(message, "the critic failed at this answer and was started again");
    }
}

const STOPPED: &str = "the critic was stopped";

fn answer_in(message: &Envelope) -> Option<(Topic, &Response)> {
    match &message.payload {
        Payload::ResponseGeneration(response) => Some((Topic::of(message)?, response)),
        _ => None,
    }
}

/// Why an answer is not worth a grade.
fn why_not(response: &Response) -> Option<&'static str> {
    if response.finish_reason.is_none() {
        return Some("cancelled");
    }
    response.answer.trim().is_empty().then_some("the answer is empty")
}

/// The grade of an answer that the judge was not asked about.
fn ungraded(reason: &str) -> Grade {
    Grade { judging: Judging { failure: Some(reason.to_owned()), ..Judging::default() }, ..Grade::default() }
}
