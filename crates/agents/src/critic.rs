//! The critic agent: has every answer graded, and both answers to one question compared.
//!
//! It drives the judge's generation from its own loop, alongside its mailbox: a cancellation ends a grading within one
//! token, and answers that arrive in the meantime are deferred. Every answer leads to exactly one `critique.result`,
//! whose score is null if the answer could not be graded, was not worth it, or is no longer wanted.
//! Two answers that are worth a verdict lead to exactly one `pairwise.result`, whether or not they could be graded.

pub(crate) mod pairs;
pub(crate) mod states;

use std::sync::Arc;

use crossbeam_channel::RecvError;
use hone_bus::{Agent, Bus, Inbox, Wakeup};
use hone_judging::{GradeTask, Jury};
use hone_protocol::prospect::{STOPPED, TOO_MANY};
use hone_protocol::{Critique, Envelope, GenerationEvent, Grade, Judging, Payload, Preference, Response, Subject};

use self::pairs::{Graded, NextPair, Pair, SharedPairs};
use self::states::{
    Comparing, Fail, Grading, Idle, Publish, PublishPairwise, Publishing, Receive, Receiving, Reset, StartGrade,
    StartPairwise, State,
};
use crate::machine::AgentState;
use crate::topic::{Topic, Withdrawal};

/// The agent's name.
pub(crate) const NAME: &str = "critic";

/// The subjects that the agent subscribes to.
pub(crate) const SUBJECTS: [Subject; 3] =
    [Subject::ResponseGeneration, Subject::QueryCancelled, Subject::SessionClosed];

/// The agent.
pub(crate) struct CriticAgent {
    bus: Bus,
    judge: Jury,
    state: State,
    pairs: SharedPairs,
}

impl CriticAgent {
    /// A critic, which begins with the comparison that the one before has failed at.
    pub(crate) fn new(bus: Bus, judge: Jury, pairs: SharedPairs) -> Self {
        let mut critic = CriticAgent { bus, judge, state: State::default(), pairs };
        critic.resume();
        critic
    }

    fn receive(&mut self, message: Arc<Envelope>, inbox: &mut Inbox) {
        if let Some(withdrawal) = Withdrawal::of(&message) {
            return self.withdraw(withdrawal, inbox);
        }
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => self.begin(idle, &message, inbox),
            at_work => {
                if let Err(refused) = inbox.defer(message) {
                    self.leave_ungraded(&refused, TOO_MANY, Pairing::Compare);
                }
                at_work
            }
        };
    }

    fn begin(&mut self, idle: Idle, message: &Arc<Envelope>, inbox: &mut Inbox) -> State {
        let Some((topic, response)) = answer_in(message) else { return idle.into() };
        inbox.claim(message);
        let receiving = idle.act(Receive, |()| unscored(topic, response));
        match response.why_not_judged() {
            Some(reason) => {
                let idle = self.publish(receiving.act(Publish, |graded| (graded, Grade::unscored(reason))), inbox);
                self.next_comparison(idle)
            }
            None => self.grade(receiving).into(),
        }
    }

    fn grade(&self, receiving: Receiving) -> Grading {
        receiving.act(StartGrade, |graded| {
            let task = GradeTask { query: graded.query.clone(), answer: graded.answer.clone(), reference: None };
            let run = self.judge.start(task, graded.author());
            Box::new((graded, run))
        })
    }

    fn follow(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>, inbox: &mut Inbox) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => idle.into(),
            State::Grading(mut grading) => match grading.work_mut().1.take(channel, event) {
                Some(grade) => self.conclude(grading, grade, inbox),
                None => grading.into(),
            },
            State::Comparing(mut comparing) => match comparing.work_mut().1.take(channel, event) {
                Some(preference) => {
                    let idle = self.prefer(comparing, preference);
                    self.next_comparison(idle)
                }
                None => comparing.into(),
            },
        };
    }

    /// Publishes the judge's grade, and starts a comparison if both answers to the question have been judged.
    fn conclude(&mut self, grading: Grading, grade: Grade, inbox: &mut Inbox) -> State {
        let graded = Graded { grade: Some(grade.clone()), ..grading.work().0.clone() };
        let idle = match grade.judging.failure {
            Some(_) => {
                let idle = grading.act(Fail, |work| self.tell(work.0, grade)).act(Reset, drop);
                inbox.release(|_| true);
                idle
            }
            None => self.publish(grading.act(Publish, |work| (work.0, grade)), inbox),
        };
        self.pairs.lock().add(graded);
        self.next_comparison(idle)
    }

    /// Compares the next pair, where nothing else is being done.
    fn resume(&mut self) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => self.next_comparison(idle),
            at_work => at_work,
        };
    }

    /// Compares the next pair that is complete.
    fn next_comparison(&self, idle: Idle) -> State {
        loop {
            let next = self.pairs.lock().begin();
            match next {
                Some(NextPair::Compare(pair)) => return self.compare(idle, pair).into(),
                Some(NextPair::GiveUp(pair)) => self.leave_uncompared(&pair, FAILED),
                None => return idle.into(),
            }
        }
    }

    fn leave_uncompared(&self, pair: &Pair, reason: &str) {
        let judging = Judging::failed(reason);
        self.tell_preference(pair, Preference { judging, ..Preference::default() });
    }

    fn publish(&self, publishing: Publishing, inbox: &mut Inbox) -> Idle {
        let idle = publishing.act(Reset, |(graded, grade)| self.tell(graded, grade));
        inbox.release(|_| true);
        idle
    }

    fn tell(&self, graded: Graded, grade: Grade) {
        if let Some(failure) = &grade.judging.failure {
            tracing::info!(query_id = %graded.topic.query_id, "an answer stays unscored: {failure}");
        }
        let critique = Critique { query: graded.query, answer: graded.answer, grade };
        graded.topic.publish(&self.bus, NAME, Payload::CritiqueResult(critique));
    }

    fn compare(&self, idle: Idle, pair: Pair) -> Comparing {
        idle.act(StartPairwise, |()| {
            let run = self.judge.start(pair.task(), pair.author());
            Box::new((pair, run))
        })
    }

    fn prefer(&self, comparing: Comparing, preference: Preference) -> Idle {
        self.pairs.lock().end();
        match preference.judging.failure {
            None => comparing.act(PublishPairwise, |work| self.tell_preference(&work.0, preference)),
            Some(_) => comparing.act(Fail, |work| self.tell_preference(&work.0, preference)).act(Reset, drop),
        }
    }

    fn tell_preference(&self, pair: &Pair, preference: Preference) {
        if let Some(failure) = &preference.judging.failure {
            tracing::info!(query_id = %pair.a.topic.correlation_id, "two answers stay uncompared: {failure}");
        }
        pair.a.topic.publish(&self.bus, NAME, Payload::PairwiseResult(pair.comparison(preference)));
    }

    /// Ends the judge's current work, for a reason that is not the judge's failure.
    fn end_work(&mut self, reason: &str, inbox: &mut Inbox) {
        let idle = match std::mem::take(&mut self.state) {
            State::Idle(idle) => idle,
            State::Grading(grading) => {
                let publishing = grading.act(Publish, |work| (work.0, work.1.give_up(reason)));
                self.publish(publishing, inbox)
            }
            State::Comparing(comparing) => {
                self.pairs.lock().end();
                comparing.act(Fail, |work| self.tell_preference(&work.0, work.1.give_up(reason))).act(Reset, drop)
            }
        };
        self.state = idle.into();
    }

    /// The question that the judge is working on.
    fn topic(&self) -> Option<&Topic> {
        match &self.state {
            State::Idle(_) => None,
            State::Grading(grading) => Some(&grading.work().0.topic),
            State::Comparing(comparing) => Some(&comparing.work().0.a.topic),
        }
    }

    fn withdraw(&mut self, withdrawal: Withdrawal, inbox: &mut Inbox) {
        let withdrawn = self.pairs.lock().withdraw(withdrawal);
        withdrawn.iter().for_each(|pair| self.leave_uncompared(pair, withdrawal.reason()));
        let is_concerned = |message: &Envelope| Topic::of(message).is_some_and(|topic| withdrawal.concerns(&topic));
        for message in inbox.take_deferred(is_concerned) {
            self.leave_ungraded(&message, withdrawal.reason(), Pairing::Leave);
        }
        if self.topic().is_some_and(|topic| withdrawal.concerns(topic)) {
            self.end_work(withdrawal.reason(), inbox);
            self.resume();
        }
    }

    /// Says why an answer has no grade.
    fn leave_ungraded(&self, message: &Envelope, reason: &str, pairing: Pairing) {
        let Some((topic, response)) = answer_in(message) else { return };
        let (query, answer) = (response.query.clone(), response.answer.clone());
        // What can never be graded says so, whatever else keeps it from its grade.
        let why_not = response.why_not_judged();
        let critique = Critique { query, answer, grade: Grade::unscored(why_not.unwrap_or(reason)) };
        topic.publish(&self.bus, NAME, Payload::CritiqueResult(critique));
        if pairing == Pairing::Compare && why_not.is_none() {
            self.pairs.lock().add(unscored(topic, response));
        }
    }
}

impl Agent for CriticAgent {
    type Event = Wakeup<GenerationEvent>;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Self::Event> {
        match &self.state {
            State::Idle(_) => match inbox.next_deferred() {
                Some(message) => Some(Wakeup::Message(message)),
                None => inbox.wait([]),
            },
            State::Grading(grading) => inbox.wait(grading.work().1.channels()),
            State::Comparing(comparing) => inbox.wait(comparing.work().1.channels()),
        }
    }

    fn handle_event(&mut self, event: Self::Event, inbox: &mut Inbox) {
        match event {
            Wakeup::Message(message) => self.receive(message, inbox),
            Wakeup::Work(channel, event) => self.follow(channel, event, inbox),
        }
    }

    fn stopped(&mut self, inbox: &mut Inbox) {
        self.end_work(STOPPED, inbox);
        let mut left = inbox.take_deferred(|_| true);
        left.extend(inbox.messages().try_iter());
        left.iter().for_each(|message| self.leave_ungraded(message, STOPPED, Pairing::Leave));
        let left = self.pairs.lock().take_complete();
        left.iter().for_each(|pair| self.leave_uncompared(pair, STOPPED));
    }

    fn recover(&mut self, message: &Envelope) {
        self.leave_ungraded(message, FAILED, Pairing::Compare);
        self.resume();
    }
}

/// Why there is no verdict where the critic has panicked.
pub(crate) const FAILED: &str = "the critic failed at this answer and was started again";

/// Whether an answer without a grade is compared all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairing {
    Compare,
    /// Nobody waits for it.
    Leave,
}

fn unscored(topic: Topic, response: &Response) -> Graded {
    let Response { query, answer, model, logprobs, .. } = response.clone();
    Graded { topic, query, answer, model, logprobs, grade: None }
}

fn answer_in(message: &Envelope) -> Option<(Topic, &Response)> {
    match &message.payload {
        Payload::ResponseGeneration(response) => Some((Topic::of(message)?, response)),
        _ => None,
    }
}
