//! What the judge can be put to: grading an answer, comparing two.

use crossbeam_channel::{Receiver, RecvError};
use hone_protocol::{GenerationEvent, Grade, Judging, Preference};
use hone_quality::{CompareTask, Comparing, GradeTask, Grading, Judge};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::lines::Fields;

/// One piece of work while it runs.
pub(crate) trait Work: Sized {
    /// What is to be judged.
    type Task: Clone;
    /// What the judge says.
    type Verdict: Clone + Serialize + DeserializeOwned;
    /// Its name in the cache.
    const KIND: &'static str;
    /// What a file holds of it.
    const UNIT: &'static str;
    /// How many run at once. The engine takes four sequences, and a comparison is two.
    const IN_FLIGHT: usize;
    /// The fields of a verdict.
    const FIELDS: &'static [&'static str];

    /// The task that the fields of a line describe.
    ///
    /// # Errors
    /// What is missing or wrong, to follow on the line's number.
    fn task(fields: &Fields<'_>) -> Result<Self::Task, String>;
    /// The texts of a task, for the cache.
    fn texts(task: &Self::Task) -> Value;
    /// Starts it.
    fn start(judge: &Judge, task: Self::Task, answered_by: &str) -> Self;
    /// The channels to wait on.
    fn channels(&self) -> Vec<&Receiver<GenerationEvent>>;
    /// Takes in what a channel gave; returns the verdict when it is certain.
    fn take(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>) -> Option<Self::Verdict>;
    /// What the verdict took.
    fn judging(verdict: &Self::Verdict) -> &Judging;
    /// The score, where it is one.
    fn score(verdict: &Self::Verdict) -> Option<u8>;
}

/// A grading.
pub(crate) struct GradeWork(Grading);

impl Work for GradeWork {
    type Task = GradeTask;
    type Verdict = Grade;
    const KIND: &'static str = "grade";
    const UNIT: &'static str = "answers";
    const IN_FLIGHT: usize = 4;
    const FIELDS: &'static [&'static str] = &[
        "score",
        "feedback",
        "expected_score",
        "entropy",
        "rubric",
        "suspicious",
        "judge",
        "self_graded",
        "tokens",
        "seconds",
        "queue_seconds",
        "failure",
    ];

    fn task(fields: &Fields<'_>) -> Result<GradeTask, String> {
        Ok(GradeTask {
            query: fields.text("query")?,
            answer: fields.text("answer")?,
            reference: fields.optional_text("reference")?,
        })
    }

    fn texts(task: &GradeTask) -> Value {
        json!([task.query, task.answer, task.reference])
    }

    fn start(judge: &Judge, task: GradeTask, answered_by: &str) -> Self {
        GradeWork(judge.start_grade(task, answered_by))
    }

    fn channels(&self) -> Vec<&Receiver<GenerationEvent>> {
        vec![self.0.events()]
    }

    fn take(&mut self, _: usize, event: Result<GenerationEvent, RecvError>) -> Option<Grade> {
        self.0.take(event)
    }

    fn judging(grade: &Grade) -> &Judging {
        &grade.judging
    }

    fn score(grade: &Grade) -> Option<u8> {
        grade.score
    }
}

/// A comparison.
pub(crate) struct CompareWork(Comparing);

impl Work for CompareWork {
    type Task = CompareTask;
    type Verdict = Preference;
    const KIND: &'static str = "compare";
    const UNIT: &'static str = "pairs";
    const IN_FLIGHT: usize = 2;
    const FIELDS: &'static [&'static str] = &[
        "winner",
        "log_odds",
        "consistent",
        "reason",
        "judge",
        "self_graded",
        "tokens",
        "seconds",
        "queue_seconds",
        "failure",
    ];

    fn task(fields: &Fields<'_>) -> Result<CompareTask, String> {
        Ok(CompareTask { query: fields.text("query")?, answer_a: fields.text("a")?, answer_b: fields.text("b")? })
    }

    fn texts(task: &CompareTask) -> Value {
        json!([task.query, task.answer_a, task.answer_b])
    }

    fn start(judge: &Judge, task: CompareTask, answered_by: &str) -> Self {
        CompareWork(judge.start_compare(task, answered_by))
    }

    fn channels(&self) -> Vec<&Receiver<GenerationEvent>> {
        self.0.events().into()
    }

    fn take(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>) -> Option<Preference> {
        self.0.take(channel, event)
    }

    fn judging(preference: &Preference) -> &Judging {
        &preference.judging
    }

    fn score(_: &Preference) -> Option<u8> {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::super::setting::SETTING;
    use super::*;
    use crate::arguments::Arguments;

    #[track_caller]
    fn check<W: Work>(command: &str) {
        let arguments = Arguments::command();
        let help = arguments.find_subcommand(command).unwrap().get_after_help().unwrap().to_string();
        let (_, told) = help.split_once("which are not allowed: ").unwrap();
        let told: Vec<&str> = told.trim_end_matches('.').split(',').map(str::trim).collect();
        assert_eq!(told, [W::FIELDS, &[SETTING]].concat());
    }

    #[test]
    fn the_help_names_the_keys_that_a_line_may_not_have() {
        check::<GradeWork>("grade");
        check::<CompareWork>("compare");
    }
}
