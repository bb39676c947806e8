//! The tasks for a judge on the command line, and the columns that they add to a line.

use hone_judging::{CompareTask, GradeTask, JointVerdict, OwnRubric};
use hone_protocol::{Grade, Judging, JudgingMethod, Juror, Likely, Preference, RespondentId, Suspicion, SuspicionKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::cache::CachedTask;

/// A task that can be read from a file, and whose verdict can be cached.
pub trait BatchTask:
    CachedTask<Verdict: JointVerdict + Serialize + DeserializeOwned> + Clone + PartialEq + DeserializeOwned
{
    /// The unit of a file's contents, for the progress bar.
    const UNIT: &'static str;

    /// A verdict with all optional parts, which determines the columns of all verdicts.
    fn full_verdict() -> Self::Verdict;
}

impl BatchTask for GradeTask {
    const UNIT: &'static str = "answers";

    fn full_verdict() -> Grade {
        Grade {
            score: Some(1),
            raw_score: Some(String::new()),
            feedback: String::new(),
            expected_score: Some(1.0),
            entropy: Some(0.0),
            probability: Some(0.0),
            likely: Some(Likely::Wrong),
            rubric: String::new(),
            suspicious: Some(Suspicion { kind: SuspicionKind::Other, is_hidden: false, passage: String::new() }),
            spread: Some(0),
            disputed: true,
            jury: vec![juror()],
            // They are made for single answers, on request.
            remarks: Vec::new(),
            judging: full_judging(),
        }
    }
}

impl BatchTask for CompareTask {
    const UNIT: &'static str = "pairs";

    fn full_verdict() -> Preference {
        Preference {
            winner: Some(RespondentId::A),
            log_odds: 0.0,
            consistent: false,
            reason: String::new(),
            jury: vec![juror()],
            judging: full_judging(),
        }
    }
}

impl<T: BatchTask> BatchTask for OwnRubric<T> {
    const UNIT: &'static str = T::UNIT;

    fn full_verdict() -> T::Verdict {
        T::full_verdict()
    }
}

fn juror<V: Default>() -> Juror<V> {
    Juror { name: String::new(), is_stronger: false, verdict: V::default() }
}

fn full_judging() -> Judging {
    Judging {
        judge: String::new(),
        self_graded: false,
        tokens: 0,
        seconds: 0.0,
        queue_seconds: 0.0,
        concluded_early: true,
        method: JudgingMethod::Likelihood,
        failure: Some(String::new()),
    }
}

/// The columns that a verdict is written to, in order.
pub fn columns<T: BatchTask>() -> Map<String, Value> {
    match serde_json::to_value(T::full_verdict()) {
        Ok(Value::Object(columns)) => columns,
        other => unreachable!("a verdict is an object, not {other:?}"),
    }
}
