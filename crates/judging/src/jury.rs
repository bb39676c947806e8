//! A jury: one judge or several, which judge the same answers in sequence.
//!
//! It has the interface of a single judge, which is a jury of one: a [`JuryRun`] takes events and returns a verdict,
//! and its owner does not know how many judges there are. Several judges never run concurrently, since their models may
//! not fit in memory together. Where they disagree, a stronger judge can be asked, whose verdict then stands.

use crossbeam_channel::{Receiver, RecvError};
use hone_protocol::{GenerationEvent, Juror, Lane, OwnerId};

use crate::joint::{DisagreementLimits, JointVerdict, joint_failure, verdict_of, votes};
use crate::judge::Judge;
use crate::judge_run::JudgeRun;
use crate::standing::Standings;
use crate::task::JudgeTask;

/// Judges that give joint verdicts. Clones share them.
#[derive(Clone, Debug)]
pub struct Jury {
    first: Judge,
    others: Vec<Judge>,
    stronger: Option<Judge>,
}

impl From<Judge> for Jury {
    fn from(judge: Judge) -> Jury {
        Jury { first: judge, others: Vec::new(), stronger: None }
    }
}

impl Jury {
    /// Adds a juror.
    pub fn joined_by(mut self, juror: Judge) -> Jury {
        self.others.push(juror);
        self
    }

    /// Adds a judge that is asked where the jurors disagree.
    pub fn with_stronger(self, judge: Judge) -> Jury {
        Jury { stronger: Some(judge), ..self }
    }

    /// Puts the judges' requests in this lane.
    pub fn in_lane(self, lane: Lane) -> Jury {
        self.of_each(|judge| judge.in_lane(lane))
    }

    /// Sets the owner of the judged texts; see [`Judge::of_owner`].
    pub fn of_owner(self, owner: Option<OwnerId>) -> Jury {
        self.of_each(|judge| judge.of_owner(owner))
    }

    /// Sets the answers' author as unknown; see [`Judge::of_unknown_authors`].
    pub fn of_unknown_authors(self) -> Jury {
        self.of_each(Judge::of_unknown_authors)
    }

    pub(crate) fn of_each(self, change: impl Fn(Judge) -> Judge) -> Jury {
        Jury {
            first: change(self.first),
            others: self.others.into_iter().map(&change).collect(),
            stronger: self.stronger.map(&change),
        }
    }

    /// The first juror, or the only judge.
    pub fn first(&self) -> &Judge {
        &self.first
    }

    /// The jurors, in the order in which they judge.
    pub fn jurors(&self) -> impl Iterator<Item = &Judge> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// All judges: the jurors, and the stronger judge last.
    pub fn judges(&self) -> impl Iterator<Item = &Judge> {
        self.jurors().chain(&self.stronger)
    }

    /// Whether the verdicts of each judge may be shown.
    pub fn standings(&self) -> Vec<Standings> {
        self.judges().map(Judge::standings).collect()
    }

    /// Whether the jury has a single judge.
    pub fn is_single(&self) -> bool {
        self.others.is_empty()
    }

    /// The reason why answers of the model `answered_by` get no verdict, as far as known before a judge is asked.
    pub fn refusal(&self, answered_by: &str) -> Option<String> {
        let reason = |judge| Some((name_of(judge), Judge::refusal(judge, answered_by)?));
        let reasons: Vec<(&str, String)> = self.jurors().map(reason).collect::<Option<_>>()?;
        let reasons: Vec<(&str, &str)> = reasons.iter().map(|(name, reason)| (*name, reason.as_str())).collect();
        Some(joint_failure(&reasons))
    }

    /// Starts to judge answers. The model `answered_by` gave the first of them; an empty name means that it is unknown.
    /// Returns at once.
    pub fn start<T: JudgeTask<Verdict: JointVerdict> + Clone>(&self, task: T, answered_by: &str) -> JuryRun<T> {
        if self.is_single() {
            return JuryRun { run: self.first.start(task, answered_by), poll: None };
        }
        let run = self.first.start(task.clone(), answered_by);
        let poll = Poll { jury: self.clone(), task, answered_by: answered_by.to_owned(), members: Vec::new() };
        JuryRun { run, poll: Some(poll) }
    }

    /// Judges answers and waits for the verdict.
    pub fn judge<T: JudgeTask<Verdict: JointVerdict> + Clone>(&self, task: T, answered_by: &str) -> T::Verdict {
        let mut run = self.start(task, answered_by);
        loop {
            let (channel, event) = run.run.next_event();
            if let Some(verdict) = run.take(channel, event) {
                return verdict;
            }
        }
    }

    fn limits(&self) -> DisagreementLimits {
        DisagreementLimits::of(self.first.settings())
    }
}

/// A grading or comparison in progress. Its owner takes the events from [`channels`](JuryRun::channels) and passes them
/// to [`take`](JuryRun::take), until that returns the verdict. Dropping it cancels the judges' requests within one
/// token.
#[derive(Debug)]
pub struct JuryRun<T: JudgeTask> {
    /// The run of the current judge.
    run: JudgeRun<T>,
    /// `None` for a single judge.
    poll: Option<Poll<T>>,
}

/// The verdicts of the jury's members so far.
#[derive(Debug)]
struct Poll<T: JudgeTask> {
    jury: Jury,
    task: T,
    answered_by: String,
    members: Vec<Juror<T::Verdict>>,
}

impl<T: JudgeTask<Verdict: JointVerdict> + Clone> JuryRun<T> {
    /// The event channels, each with its number. Every [`take`](JuryRun::take) may change them, so get them again
    /// before every wait.
    pub fn channels(&self) -> impl Iterator<Item = (usize, &Receiver<GenerationEvent>)> {
        self.run.channels()
    }

    /// Processes an event or error received from the channel with this number. Returns the verdict once it is certain.
    pub fn take(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>) -> Option<T::Verdict> {
        let verdict = self.run.take(channel, event)?;
        let Some(poll) = &mut self.poll else { return Some(verdict) };
        poll.hear(verdict);
        match poll.next_judge() {
            Some(judge) => {
                self.run = judge.start(poll.task.clone(), &poll.answered_by);
                None
            }
            None => Some(poll.verdict()),
        }
    }

    /// Ends the run without a verdict, for this reason.
    pub fn give_up(self, reason: &str) -> T::Verdict {
        self.run.give_up(reason)
    }
}

impl<T: JudgeTask<Verdict: JointVerdict>> Poll<T> {
    /// Records the verdict of the current judge.
    fn hear(&mut self, verdict: T::Verdict) {
        let juror = self.jury.jurors().nth(self.members.len());
        let is_stronger = juror.is_none();
        let judge = juror.or(self.jury.stronger.as_ref()).unwrap_or(&self.jury.first);
        self.members.push(Juror { name: name_of(judge).to_owned(), is_stronger, verdict });
    }

    /// The judge to ask next: the next juror, or the stronger judge if the jurors disagree.
    fn next_judge(&self) -> Option<&Judge> {
        let n_heard = self.members.len();
        let n_jurors = self.jury.jurors().count();
        let is_open = || n_heard == n_jurors && T::Verdict::is_disputed(&votes(&self.members), self.jury.limits());
        self.jury.jurors().nth(n_heard).or_else(|| self.jury.stronger.as_ref().filter(|_| is_open()))
    }

    fn verdict(&mut self) -> T::Verdict {
        verdict_of(std::mem::take(&mut self.members), self.jury.limits())
    }
}

/// The configured name of a judge.
fn name_of(judge: &Judge) -> &str {
    &judge.settings().model
}
