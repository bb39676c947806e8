//! A grading or comparison in progress: events in, a verdict out.

use std::iter::repeat;

use crossbeam_channel::{Receiver, RecvError, Select, bounded};
use hone_protocol::{Completion, GenerationEvent};

use crate::attempt::{Attempt, Method};
use crate::judge::Judge;
use crate::likelihood::{AnswerEvidence, Opinion};
use crate::request::{JudgeRequest, RequestProgress};
use crate::reward;
use crate::shorten::shortened;
use crate::suspicion::ExaminedAnswer;
use crate::task::{JudgeTask, ShownTexts, Verdict, without_verdict};

impl Judge {
    /// Starts to judge answers. The model that gave the first of them, `answered_by`, stands in for a judge that cannot
    /// be loaded; an empty name means that it is unknown. Returns at once.
    pub fn start<T: JudgeTask>(&self, task: T, answered_by: &str) -> JudgeRun<T> {
        JudgeRun::start(self.clone(), task, answered_by)
    }

    /// Judges answers and waits for the verdict.
    pub fn judge<T: JudgeTask>(&self, task: T, answered_by: &str) -> T::Verdict {
        self.start(task, answered_by).wait()
    }
}

/// A grading or comparison in progress. Its owner takes the events from [`channels`](JudgeRun::channels) and passes
/// them to [`take`](JudgeRun::take), until that returns the verdict. Dropping it cancels the judge's requests within
/// one token.
#[derive(Debug)]
pub struct JudgeRun<T> {
    judge: Judge,
    task: T,
    examined: Vec<ExaminedAnswer>,
    attempt: Attempt,
    shown: ShownTexts,
    requests: Vec<JudgeRequest>,
    refusal: Option<NoJudge>,
}

/// The number of the channel that signals a refusal.
const REFUSED: usize = usize::MAX;

/// The reason why no judge may be asked. Its channel is closed, so that a waiting owner wakes up at once.
#[derive(Debug)]
struct NoJudge {
    reason: String,
    closed: Receiver<GenerationEvent>,
}

impl<T: JudgeTask> JudgeRun<T> {
    fn start(judge: Judge, task: T, answered_by: &str) -> JudgeRun<T> {
        let leaves_out = judge.settings().leave_out_suspicious;
        let answers = task.answers().into_iter();
        let examined: Vec<ExaminedAnswer> =
            answers.map(|answer| ExaminedAnswer::of(task.query(), answer, leaves_out)).collect();
        let characters = examined.iter().map(|examined| examined.shown.chars().count()).sum();
        let attempt = Attempt::first(&judge, answered_by, characters);
        let judge = if attempt.is_by_stand_in() { judge.standing_in() } else { judge };
        let refusal = judge.refusal(answered_by).map(|reason| NoJudge { reason, closed: bounded(0).1 });
        let (shown, mut requests) = (shown(&judge, &task, &examined, &attempt), Vec::new());
        if refusal.is_none() {
            requests = ask(&judge, &task, &shown, &attempt);
        }
        JudgeRun { judge, task, examined, attempt, shown, requests, refusal }
    }

    /// The event channels, each with its number. Every [`take`](JudgeRun::take) may change them, so get them again
    /// before every wait.
    pub fn channels(&self) -> impl Iterator<Item = (usize, &Receiver<GenerationEvent>)> {
        let requests = self.requests.iter().enumerate();
        let refusal = self.refusal.iter().map(|refusal| (REFUSED, &refusal.closed));
        requests.filter_map(|(number, request)| Some((number, request.events()?))).chain(refusal)
    }

    /// Processes an event or error received from the channel with this number. Returns the verdict once it is certain.
    pub fn take(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>) -> Option<T::Verdict> {
        if let Some(refusal) = self.refusal.take() {
            return Some(self.failed(&refusal.reason));
        }
        let request = self.requests.get_mut(channel).filter(|request| request.events().is_some())?;
        let next = match request.take(event) {
            RequestProgress::Running => return None,
            RequestProgress::Ended => return self.conclude(),
            RequestProgress::TooLong(overflow) => self.attempt.shorten(overflow),
            RequestProgress::Failed(error) => self.attempt.fall_back(&error),
        };
        match next {
            Ok(()) => {
                self.ask_anew();
                None
            }
            Err(failure) => Some(self.failed(&failure)),
        }
    }

    /// Ends the run without a verdict, for this reason.
    pub fn give_up(self, reason: &str) -> T::Verdict {
        self.failed(reason)
    }

    fn wait(mut self) -> T::Verdict {
        loop {
            let (channel, event) = self.next_event();
            if let Some(verdict) = self.take(channel, event) {
                return verdict;
            }
        }
    }

    /// Waits for the next event, and returns it with the number of its channel.
    pub fn next_event(&self) -> (usize, Result<GenerationEvent, RecvError>) {
        let channels: Vec<_> = self.channels().collect();
        let mut select = Select::new();
        for (_, events) in &channels {
            select.recv(events);
        }
        let ready = select.select();
        let (channel, events) = channels[ready.index()];
        (channel, ready.recv(events))
    }

    /// Restarts all requests, so that the same model answers all of them on the same texts.
    fn ask_anew(&mut self) {
        self.requests.iter().for_each(|request| self.attempt.count(request));
        if self.attempt.is_by_stand_in() {
            self.judge = self.judge.clone().standing_in();
        }
        self.shown = shown(&self.judge, &self.task, &self.examined, &self.attempt);
        self.requests = ask(&self.judge, &self.task, &self.shown, &self.attempt);
    }

    fn conclude(&self) -> Option<T::Verdict> {
        let said: Vec<_> = self.requests.iter().map(JudgeRequest::ended).collect();
        let verdict = match &self.attempt.method {
            Method::Prompted => T::conclude(&self.judge, &said, &self.shown, self.unjudged()),
            Method::Reward => {
                let said: Vec<&Completion> = said.into_iter().collect::<Option<_>>()?;
                let rewards: Option<Vec<f64>> = said.iter().map(|said| said.reward.map(f64::from)).collect();
                Some(match rewards {
                    Some(rewards) => T::rate(&self.judge, &rewards, self.unjudged()),
                    None => without_verdict(self.unjudged(), "the reward model gave no reward"),
                })
            }
            Method::Likelihood(likelihood) => {
                let said: Vec<&Completion> = said.into_iter().collect::<Option<_>>()?;
                let fit = self.judge.fit(likelihood, self.attempt.answered_by());
                let opinions: Vec<Opinion> = self.evidence(&said).map(|evidence| fit.opinion(&evidence)).collect();
                Some(T::weigh(&self.judge, &opinions, self.unjudged()))
            }
        };
        verdict.map(|verdict| self.accounted(verdict))
    }

    /// The evidence about each answer from the likelihood judge's requests.
    fn evidence<'a>(&'a self, said: &'a [&'a Completion]) -> impl Iterator<Item = AnswerEvidence<'a>> {
        let answers = self.task.answers();
        let said = said.chunks_exact(said.len() / answers.len());
        let answers = answers.into_iter().zip(&self.examined).zip(said);
        answers.map(|((answer, examined), said)| {
            AnswerEvidence::of(self.task.query(), answer, examined.suspicion.is_some(), said)
        })
    }

    fn failed(&self, failure: &str) -> T::Verdict {
        self.accounted(without_verdict(self.unjudged(), failure))
    }

    fn unjudged(&self) -> T::Verdict {
        T::unjudged(&self.judge, &self.examined)
    }

    /// The verdict with its cost.
    fn accounted(&self, mut verdict: T::Verdict) -> T::Verdict {
        let judging = verdict.judging_mut();
        *judging = self.attempt.judging(&self.requests, judging.failure.take());
        verdict
    }
}

/// The texts that a judge is shown in this attempt.
fn shown<T: JudgeTask>(judge: &Judge, task: &T, examined: &[ExaminedAnswer], attempt: &Attempt) -> ShownTexts {
    let answers = shortened(examined.iter().map(|examined| examined.shown.as_str()), attempt.shown);
    ShownTexts {
        query: judge.neutralized(task.query()),
        left_out: answers.iter().map(|answer| answer.left_out).sum(),
        answers: answers.iter().map(|answer| judge.neutralized(&answer.text)).collect(),
    }
}

fn ask<T: JudgeTask>(judge: &Judge, task: &T, shown: &ShownTexts, attempt: &Attempt) -> Vec<JudgeRequest> {
    match &attempt.method {
        Method::Prompted => {
            let requests = task.requests(judge, shown).into_iter();
            requests.map(|(prompt, form)| judge.ask(&attempt.model, prompt, form, attempt.can_be_shortened())).collect()
        }
        Method::Likelihood(judging) => {
            let fit = judge.fit(judging, attempt.answered_by());
            let of_answer = |answer| fit.requests(&judging.name, task.query(), answer).into_iter().zip(repeat(answer));
            let requests = task.answers().into_iter().flat_map(of_answer);
            requests.map(|(request, answer)| judge.ask_about(request, answer)).collect()
        }
        Method::Reward => {
            let reward = |answer| reward::request(&attempt.model, &shown.query, answer);
            shown.answers.iter().map(|answer| judge.ask_about(reward(answer), answer)).collect()
        }
    }
}
