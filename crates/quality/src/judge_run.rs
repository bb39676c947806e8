//! A grading or a comparison while it runs: events in, a verdict out.

use crossbeam_channel::{Receiver, RecvError, Select};
use hone_protocol::GenerationEvent;

use crate::attempt::Attempt;
use crate::judge::Judge;
use crate::request::{Progress, Request};
use crate::shorten::shortened;
use crate::suspicion::Examined;
use crate::task::{Shown, Task, Verdict, without_verdict};

impl Judge {
    /// Starts to judge answers, the first of them by the model `answered_by`, which stands in for a judge that cannot be
    /// loaded. Returns at once.
    pub fn start<T: Task>(&self, task: T, answered_by: &str) -> JudgeRun<T> {
        JudgeRun::start(self.clone(), task, answered_by)
    }

    /// Judges answers, and waits for the verdict.
    pub fn judge<T: Task>(&self, task: T, answered_by: &str) -> T::Verdict {
        self.start(task, answered_by).wait()
    }
}

/// A grading or a comparison while it runs. Its holder takes the events from [`channels`](JudgeRun::channels) and hands them
/// to [`take`](JudgeRun::take), until that returns the verdict. Dropping it cancels the judge's requests within one token.
#[derive(Debug)]
pub struct JudgeRun<T> {
    judge: Judge,
    task: T,
    examined: Vec<Examined>,
    attempt: Attempt,
    shown: Shown,
    requests: Vec<Request>,
}

impl<T: Task> JudgeRun<T> {
    fn start(judge: Judge, task: T, answered_by: &str) -> JudgeRun<T> {
        let leaves_out = judge.settings().leave_out_suspicious;
        let answers = task.answers().into_iter();
        let examined: Vec<Examined> = answers.map(|answer| Examined::of(task.query(), answer, leaves_out)).collect();
        let characters = examined.iter().map(|examined| examined.shown.chars().count()).sum();
        let attempt = Attempt::first(&judge, answered_by, characters);
        let (shown, requests) = ask(&judge, &task, &examined, &attempt);
        JudgeRun { judge, task, examined, attempt, shown, requests }
    }

    /// The channels that events come from, each with its number. They are others after a [`take`](JudgeRun::take): look here
    /// before every wait.
    pub fn channels(&self) -> impl Iterator<Item = (usize, &Receiver<GenerationEvent>)> {
        self.requests.iter().enumerate().filter_map(|(number, request)| Some((number, request.events()?)))
    }

    /// Takes in what the channel of this number gave. Returns the verdict when it is certain.
    pub fn take(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>) -> Option<T::Verdict> {
        let request = self.requests.get_mut(channel).filter(|request| request.events().is_some())?;
        let next = match request.take(event) {
            Progress::Running => return None,
            Progress::Ended => return self.conclude(),
            Progress::TooLong(overflow) => self.attempt.shorten(overflow),
            Progress::Failed(error) => self.attempt.fall_back(&error),
        };
        match next {
            Ok(()) => {
                self.ask_anew();
                None
            }
            Err(failure) => Some(self.failed(&failure)),
        }
    }

    /// Ends it without a verdict, and says why.
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

    /// Waits for the next event, and gives it with the number of its channel.
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

    /// All requests start again: they are to be answered by the same model on the same texts.
    fn ask_anew(&mut self) {
        self.requests.iter().for_each(|request| self.attempt.count(request));
        (self.shown, self.requests) = ask(&self.judge, &self.task, &self.examined, &self.attempt);
    }

    fn conclude(&self) -> Option<T::Verdict> {
        let said: Vec<_> = self.requests.iter().map(Request::ended).collect();
        T::conclude(&self.judge, &said, &self.shown, self.unjudged()).map(|verdict| self.accounted(verdict))
    }

    fn failed(&self, failure: &str) -> T::Verdict {
        self.accounted(without_verdict(self.unjudged(), failure))
    }

    fn unjudged(&self) -> T::Verdict {
        T::unjudged(&self.judge, &self.examined)
    }

    /// The verdict with what it took.
    fn accounted(&self, mut verdict: T::Verdict) -> T::Verdict {
        let judging = verdict.judging_mut();
        *judging = self.attempt.judging(&self.requests, judging.failure.take());
        verdict
    }
}

fn ask<T: Task>(judge: &Judge, task: &T, examined: &[Examined], attempt: &Attempt) -> (Shown, Vec<Request>) {
    let answers = shortened(examined.iter().map(|examined| examined.shown.as_str()), attempt.shown);
    let shown = Shown {
        query: judge.neutralized(task.query()),
        left_out: answers.iter().map(|answer| answer.left_out).sum(),
        answers: answers.iter().map(|answer| judge.neutralized(&answer.text)).collect(),
    };
    let requests = task.requests(judge, &shown).into_iter();
    let requests = requests.map(|(prompt, form)| judge.ask(&attempt.model, prompt, form)).collect();
    (shown, requests)
}
