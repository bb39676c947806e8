//! A jury: one judge or several, which judge the same answers one after the other.
//!
//! It has the interface of a single judge, which is a jury of one: a [`JuryRun`] takes events and returns a verdict,
//! and its holder does not know how many judges there are. Several judges never run at once, since their models may not
//! fit in memory together. Where they disagree, a stronger judge can be asked, whose verdict then stands.

use crossbeam_channel::{Receiver, RecvError};
use hone_protocol::{GenerationEvent, Juror, Lane, OwnerId};

use crate::joint::{DisagreementLimits, JointVerdict, joint_failure, verdict_of, votes};
use crate::judge::Judge;
use crate::judge_run::JudgeRun;
use crate::standing::Standings;
use crate::task::JudgeTask;

/// The judges that judge together. Clones share them.
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
    /// The same jury with another juror.
    pub fn joined_by(mut self, juror: Judge) -> Jury {
        self.others.push(juror);
        self
    }

    /// The same jury with a judge that is asked where the jurors disagree.
    pub fn with_stronger(self, judge: Judge) -> Jury {
        Jury { stronger: Some(judge), ..self }
    }

    /// The same judges, with their requests in this lane.
    pub fn in_lane(self, lane: Lane) -> Jury {
        self.of_each(|judge| judge.in_lane(lane))
    }

    /// The same judges, for texts of this owner; see [`Judge::of_owner`].
    pub fn of_owner(self, owner: Option<OwnerId>) -> Jury {
        self.of_each(|judge| judge.of_owner(owner))
    }

    /// The same judges, for answers whose author is unknown.
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

    /// The first juror, which is the judge where there is only one.
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

    /// Whether verdicts of each judge may be shown.
    pub fn standings(&self) -> Vec<Standings> {
        self.judges().map(Judge::standings).collect()
    }

    /// Whether a single judge judges.
    pub fn is_single(&self) -> bool {
        self.others.is_empty()
    }

    /// Why answers of the model `answered_by` get no verdict, as far as that is known before a judge is asked.
    pub fn refusal(&self, answered_by: &str) -> Option<String> {
        let reason = |judge| Some((name_of(judge), Judge::refusal(judge, answered_by)?));
        let reasons: Vec<(&str, String)> = self.jurors().map(reason).collect::<Option<_>>()?;
        let reasons: Vec<(&str, &str)> = reasons.iter().map(|(name, reason)| (*name, reason.as_str())).collect();
        Some(joint_failure(&reasons))
    }

    /// Starts to judge answers, the first of which the model `answered_by` gave; it is empty if it is unknown. Returns at once.
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

/// A grading or comparison in progress. Its holder takes the events from [`channels`](JuryRun::channels) and passes
/// them to [`take`](JuryRun::take), until that returns the verdict. Dropping it cancels the judges' requests within one
/// token.
#[derive(Debug)]
pub struct JuryRun<T: JudgeTask> {
    /// The judge whose turn it is.
    run: JudgeRun<T>,
    /// `None` where a single judge judges.
    poll: Option<Poll<T>>,
}

/// What the members of a jury have said so far.
#[derive(Debug)]
struct Poll<T: JudgeTask> {
    jury: Jury,
    task: T,
    answered_by: String,
    members: Vec<Juror<T::Verdict>>,
}

impl<T: JudgeTask<Verdict: JointVerdict> + Clone> JuryRun<T> {
    /// The event channels, each with its number. They may change with every [`take`](JuryRun::take), so get them again
    /// before every wait.
    pub fn channels(&self) -> impl Iterator<Item = (usize, &Receiver<GenerationEvent>)> {
        self.run.channels()
    }

    /// Processes what the channel with this number returned. Returns the verdict once it is certain.
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

    /// Ends it without a verdict, and says why.
    pub fn give_up(self, reason: &str) -> T::Verdict {
        self.run.give_up(reason)
    }
}

impl<T: JudgeTask<Verdict: JointVerdict>> Poll<T> {
    /// Takes down the verdict of the judge whose turn it was.
    fn hear(&mut self, verdict: T::Verdict) {
        let juror = self.jury.jurors().nth(self.members.len());
        let is_stronger = juror.is_none();
        let judge = juror.or(self.jury.stronger.as_ref()).unwrap_or(&self.jury.first);
        self.members.push(Juror { name: name_of(judge).to_owned(), is_stronger, verdict });
    }

    /// The judge whose turn is next: the next juror, or the stronger judge if the jurors disagree.
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

/// The name by which the configuration knows a judge.
fn name_of(judge: &Judge) -> &str {
    &judge.settings().model
}
