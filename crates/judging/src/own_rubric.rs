//! Tasks with their own rubric, such as those of a data set with a rubric in each line.

use hone_protocol::Completion;
use serde::{Deserialize, Serialize};

use crate::judge::{Judge, VerdictOptions};
use crate::likelihood::Opinion;
use crate::prompt::JudgePrompt;
use crate::rubric::Rubric;
use crate::suspicion::ExaminedAnswer;
use crate::task::{JudgeTask, ShownTexts};

/// A task with its own rubric; without one, the judge's rubric applies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnRubric<T> {
    /// The task.
    #[serde(flatten)]
    pub task: T,
    /// The rubric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rubric: Option<Rubric>,
}

impl<T: JudgeTask> JudgeTask for OwnRubric<T> {
    type Verdict = T::Verdict;

    fn query(&self) -> &str {
        self.task.query()
    }

    fn answers(&self) -> Vec<&str> {
        self.task.answers()
    }

    fn requests(&self, judge: &Judge, shown: &ShownTexts) -> Vec<(JudgePrompt, VerdictOptions)> {
        match &self.rubric {
            None => self.task.requests(judge, shown),
            Some(rubric) => self.task.requests(&judge.clone().with_rubric(rubric.clone()), shown),
        }
    }

    fn unjudged(judge: &Judge, examined: &[ExaminedAnswer]) -> T::Verdict {
        T::unjudged(judge, examined)
    }

    fn conclude(
        judge: &Judge,
        said: &[Option<&Completion>],
        shown: &ShownTexts,
        unjudged: T::Verdict,
    ) -> Option<T::Verdict> {
        T::conclude(judge, said, shown, unjudged)
    }

    fn weigh(judge: &Judge, opinions: &[Opinion], unjudged: T::Verdict) -> T::Verdict {
        T::weigh(judge, opinions, unjudged)
    }

    fn rate(judge: &Judge, rewards: &[f64], unjudged: T::Verdict) -> T::Verdict {
        T::rate(judge, rewards, unjudged)
    }
}
