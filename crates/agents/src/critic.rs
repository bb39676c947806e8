//! The critic agent: has every answer graded, and both answers to one question compared.
//!
//! It drives the judge's generation from its own loop, alongside its mailbox: a cancellation ends a grading within one
//! token, and answers that arrive in the meantime are deferred. Every answer leads to exactly one `critique.result`,
//! whose score is null if the answer could not be graded, was not worth it, or is no longer wanted.

mod pairs;
pub(crate) mod states;

use std::sync::Arc;

use crossbeam_channel::RecvError;
use hone_bus::{Agent, Bus, Inbox, Wakeup};
use hone_protocol::{
    Comparison, Critique, Envelope, GenerationEvent, Grade, Judging, Payload, Preference, Response, Subject,
};
use hone_quality::{CompareTask, GradeTask, Judge};

use self::pairs::{Graded, Pair, PairBuffer};
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
    judge: Judge,
    state: State,
    pairs: PairBuffer,
}

impl CriticAgent {
    pub(crate) fn new(bus: Bus, judge: Judge) -> Self {
        CriticAgent { bus, judge, state: State::default(), pairs: PairBuffer::default() }
    }

    fn receive(&mut self, message: Arc<Envelope>, inbox: &mut Inbox) {
        if let Some(withdrawal) = Withdrawal::of(&message) {
            return self.withdraw(withdrawal, inbox);
        }
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => self.begin(idle, &message, inbox),
            at_work => {
                if let Err(refused) = inbox.defer(message) {
                    self.leave_ungraded(&refused, "too many answers wait for their grades");
                }
                at_work
            }
        };
    }

    fn begin(&mut self, idle: Idle, message: &Arc<Envelope>, inbox: &mut Inbox) -> State {
        let Some((topic, response)) = answer_in(message) else { return idle.into() };
        inbox.claim(message);
        let receiving = idle.act(Receive, |()| Graded {
            topic,
            query: response.query.clone(),
            answer: response.answer.clone(),
            model: response.model.clone(),
            score: None,
        });
        let reason = why_not(response).map(str::to_owned).or_else(|| self.judge.refusal(&response.model));
        match reason {
            Some(reason) => self.publish(receiving.act(Publish, |graded| (graded, ungraded(&reason))), inbox).into(),
            None => self.grade(receiving).into(),
        }
    }

    fn grade(&self, receiving: Receiving) -> Grading {
        receiving.act(StartGrade, |graded| {
            let task = GradeTask { query: graded.query.clone(), answer: graded.answer.clone(), reference: None };
            let run = self.judge.start(task, &graded.model);
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
                Some(preference) => self.prefer(comparing, preference).into(),
                None => comparing.into(),
            },
        };
    }

    /// Publishes the judge's grade, and starts a comparison if both answers to the question are now graded.
    fn conclude(&mut self, grading: Grading, grade: Grade, inbox: &mut Inbox) -> State {
        let graded = Graded { score: grade.score, ..grading.work().0.clone() };
        let idle = match grade.judging.failure {
            Some(_) => {
                let idle = grading.act(Fail, |work| self.tell(work.0, grade)).act(Reset, drop);
                inbox.release();
                idle
            }
            None => self.publish(grading.act(Publish, |work| (work.0, grade)), inbox),
        };
        match graded.score.and_then(|_| self.pairs.take(graded)) {
            Some(pair) => self.compare(idle, pair).into(),
            None => idle.into(),
        }
    }

    fn publish(&self, publishing: Publishing, inbox: &mut Inbox) -> Idle {
        let idle = publishing.act(Reset, |(graded, grade)| self.tell(graded, grade));
        inbox.release();
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
            let task = CompareTask {
                query: pair.a.query.clone(),
                answer_a: pair.a.answer.clone(),
                answer_b: pair.b.answer.clone(),
            };
            let run = self.judge.start(task, &pair.a.model);
            Box::new((pair, run))
        })
    }

    fn prefer(&self, comparing: Comparing, preference: Preference) -> Idle {
        match preference.judging.failure {
            None => comparing.act(PublishPairwise, |work| self.tell_preference(&work.0, preference)),
            Some(_) => comparing.act(Fail, |work| self.tell_preference(&work.0, preference)).act(Reset, drop),
        }
    }

    fn tell_preference(&self, pair: &Pair, preference: Preference) {
        if let Some(failure) = &preference.judging.failure {
            tracing::info!(query_id = %pair.a.topic.correlation_id, "two answers stay uncompared: {failure}");
        }
        let comparison = Comparison {
            original_query_id: pair.a.topic.correlation_id,
            query_id_a: pair.a.topic.query_id,
            query_id_b: pair.b.topic.query_id,
            score_a: pair.a.score,
            score_b: pair.b.score,
            preference,
        };
        pair.a.topic.publish(&self.bus, NAME, Payload::PairwiseResult(comparison));
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
        self.pairs.withdraw(withdrawal);
        let is_concerned = |message: &Envelope| Topic::of(message).is_some_and(|topic| withdrawal.concerns(&topic));
        for message in inbox.take_deferred(is_concerned) {
            self.leave_ungraded(&message, withdrawal.reason());
        }
        if self.topic().is_some_and(|topic| withdrawal.concerns(topic)) {
            self.end_work(withdrawal.reason(), inbox);
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

/// The grade of an answer that was not shown to the judge.
fn ungraded(reason: &str) -> Grade {
    Grade { judging: Judging { failure: Some(reason.to_owned()), ..Judging::default() }, ..Grade::default() }
}
