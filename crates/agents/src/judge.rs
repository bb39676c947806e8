//! The judge agent: has every answer graded, and both answers to one question compared.
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
use hone_judging::{GradeTask, Jury, JuryRun};
use hone_protocol::prospect::{STOPPED, TOO_MANY};
use hone_protocol::{Envelope, GenerationEvent, Grade, Payload, Preference, Response, Subject};

use self::pairs::{AnswerPair, Graded, NextPair, SharedPairs};
use self::states::{
    AnswerAtJudge, Comparing, Fail, Grading, Idle, PairAtJudge, Publish, PublishPairwise, Receive, Reset, StartGrade,
    StartPairwise, State,
};
use crate::machine::AgentState;
use crate::topic::{Topic, Withdrawal};

/// The agent's name on the bus, kept from the first version.
pub(crate) const NAME: &str = "critic";

/// The subjects that the agent subscribes to.
pub(crate) const SUBJECTS: [Subject; 3] =
    [Subject::ResponseGeneration, Subject::QueryCancelled, Subject::SessionClosed];

/// The agent.
pub(crate) struct JudgeAgent {
    bus: Bus,
    judge: Jury,
    state: State,
    pairs: SharedPairs,
}

impl JudgeAgent {
    /// A judge, which begins with the comparison at which the previous one failed.
    pub(crate) fn new(bus: Bus, judge: Jury, pairs: SharedPairs) -> Self {
        let mut agent = JudgeAgent { bus, judge, state: State::default(), pairs };
        agent.resume();
        agent
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
        let Some((topic, response)) = answer_in(message) else { return State::Idle(idle) };
        inbox.claim(message);
        let receiving = idle.act(Receive);
        let graded = unscored(topic, response);
        match response.why_not_judged() {
            Some(reason) => {
                let publishing = receiving.act(Publish);
                graded.tell(&self.bus, NAME, Grade::unscored(reason));
                let idle = publishing.act(Reset);
                inbox.release(|_| true);
                self.next_comparison(idle)
            }
            None => {
                let run = self.start_grade(&graded);
                State::Grading(receiving.act(StartGrade), Box::new(AnswerAtJudge { graded, run }))
            }
        }
    }

    fn start_grade(&self, graded: &Graded) -> JuryRun<GradeTask> {
        let task = GradeTask { query: graded.query.clone(), answer: graded.answer.clone(), reference: None };
        self.judge.clone().of_owner(graded.topic.owner).start(task, &graded.model)
    }

    fn follow(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>, inbox: &mut Inbox) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => State::Idle(idle),
            State::Grading(grading, mut work) => match work.run.take(channel, event) {
                Some(grade) => self.conclude(grading, work.graded, grade, inbox),
                None => State::Grading(grading, work),
            },
            State::Comparing(comparing, mut work) => match work.run.take(channel, event) {
                Some(preference) => {
                    let idle = self.prefer(comparing, &work.pair, preference);
                    self.next_comparison(idle)
                }
                None => State::Comparing(comparing, work),
            },
        };
    }

    /// Publishes the judge's grade, and starts a comparison if both answers to the question have been judged.
    fn conclude(&mut self, grading: Grading, graded: Graded, grade: Grade, inbox: &mut Inbox) -> State {
        let idle = match grade.judging.failure {
            Some(_) => grading.act(Fail).act(Reset),
            None => grading.act(Publish).act(Reset),
        };
        graded.tell(&self.bus, NAME, grade.clone());
        inbox.release(|_| true);
        self.pairs.lock().add(Graded { grade: Some(grade), ..graded });
        self.next_comparison(idle)
    }

    /// Compares the next pair if the agent is idle.
    fn resume(&mut self) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => self.next_comparison(idle),
            at_work => at_work,
        };
    }

    /// Compares the next complete pair.
    fn next_comparison(&self, idle: Idle) -> State {
        loop {
            let next = self.pairs.lock().begin();
            match next {
                Some(NextPair::Compare(pair)) => {
                    let judge = self.judge.clone().of_owner(pair.a.topic.owner);
                    let run = judge.start(pair.task(), &pair.a.model);
                    return State::Comparing(idle.act(StartPairwise), Box::new(PairAtJudge { pair, run }));
                }
                Some(NextPair::GiveUp(pair)) => pair.tell_uncompared(&self.bus, NAME, FAILED),
                None => return State::Idle(idle),
            }
        }
    }

    /// Publishes the judge's preference.
    fn prefer(&self, comparing: Comparing, pair: &AnswerPair, preference: Preference) -> Idle {
        self.pairs.lock().end();
        let idle = match preference.judging.failure {
            None => comparing.act(PublishPairwise),
            Some(_) => comparing.act(Fail).act(Reset),
        };
        pair.tell(&self.bus, NAME, preference);
        idle
    }

    /// Ends the judge's current work, for a reason that is not the judge's failure.
    fn end_work(&mut self, reason: &str, inbox: &mut Inbox) {
        let idle = match std::mem::take(&mut self.state) {
            State::Idle(idle) => idle,
            State::Grading(grading, work) => {
                let publishing = grading.act(Publish);
                work.graded.tell(&self.bus, NAME, work.run.give_up(reason));
                inbox.release(|_| true);
                publishing.act(Reset)
            }
            State::Comparing(comparing, work) => {
                self.pairs.lock().end();
                let failed = comparing.act(Fail);
                work.pair.tell(&self.bus, NAME, work.run.give_up(reason));
                failed.act(Reset)
            }
        };
        self.state = State::Idle(idle);
    }

    /// The question that the judge is working on.
    fn topic(&self) -> Option<&Topic> {
        match &self.state {
            State::Idle(_) => None,
            State::Grading(_, work) => Some(&work.graded.topic),
            State::Comparing(_, work) => Some(&work.pair.a.topic),
        }
    }

    fn withdraw(&mut self, withdrawal: Withdrawal, inbox: &mut Inbox) {
        self.pairs.withdraw(withdrawal, &self.bus, NAME);
        let is_concerned = |message: &Envelope| Topic::of(message).is_some_and(|topic| withdrawal.concerns(&topic));
        for message in inbox.take_deferred(is_concerned) {
            self.leave_ungraded(&message, withdrawal.reason(), Pairing::Leave);
        }
        if self.topic().is_some_and(|topic| withdrawal.concerns(topic)) {
            self.end_work(withdrawal.reason(), inbox);
            self.resume();
        }
    }

    /// Publishes why an answer has no grade.
    fn leave_ungraded(&self, message: &Envelope, reason: &str, pairing: Pairing) {
        let Some((topic, response)) = answer_in(message) else { return };
        let graded = unscored(topic, response);
        // If an answer can never be graded, that is the reason published, whatever else prevents its grading.
        let why_not = response.why_not_judged();
        graded.tell(&self.bus, NAME, Grade::unscored(why_not.unwrap_or(reason)));
        if pairing == Pairing::Compare && why_not.is_none() {
            self.pairs.lock().add(graded);
        }
    }
}

impl Agent for JudgeAgent {
    type Event = Wakeup<GenerationEvent>;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Self::Event> {
        match &self.state {
            State::Idle(_) => match inbox.next_deferred() {
                Some(message) => Some(Wakeup::Message(message)),
                None => inbox.wait([]),
            },
            State::Grading(_, work) => inbox.wait(work.run.channels()),
            State::Comparing(_, work) => inbox.wait(work.run.channels()),
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
        left.iter().for_each(|pair| pair.tell_uncompared(&self.bus, NAME, STOPPED));
    }

    fn recover(&mut self, message: &Envelope) {
        self.leave_ungraded(message, FAILED, Pairing::Compare);
        self.resume();
    }
}

/// The reason for a missing verdict after a panic of the judge agent.
pub(crate) const FAILED: &str = "the judge failed at this answer and was started again";

/// Whether an answer without a grade is still compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairing {
    Compare,
    /// No caller waits for it.
    Leave,
}

pub(crate) fn unscored(topic: Topic, response: &Response) -> Graded {
    let Response { query, answer, model, .. } = response.clone();
    Graded { topic, query, answer, model, grade: None }
}

pub(crate) fn answer_in(message: &Envelope) -> Option<(Topic, &Response)> {
    match &message.payload {
        Payload::ResponseGeneration(response) => Some((Topic::of(message)?, response)),
        _ => None,
    }
}
