//! A file of tasks, judged into a file of verdicts.
//!
//! Each line of the output is a line of the input with the verdict's fields added, in the order of the input. So what is
//! there after a run that was stopped says where the next one goes on.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value};

use super::driver::{Driver, Ending};
use super::lines::{self, Appended, Fields, Line};
use super::work::Work;
use crate::failure::usage;
use crate::output::Output;
use crate::progress::Steps;

/// What is in the output when a run has ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// Tasks of the input.
    pub(crate) lines: usize,
    /// Tasks with a verdict.
    pub(crate) judged: usize,
    /// Tasks for which the judge gave none.
    pub(crate) unscored: usize,
    /// Verdicts that were in the output before.
    pub(crate) resumed: usize,
    /// Verdicts that were taken from the cache.
    pub(crate) cached: usize,
    /// The mean of the scores, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean_score: Option<f64>,
    /// Whether a person stopped it.
    pub(crate) interrupted: bool,
    #[serde(skip)]
    total_score: u64,
    #[serde(skip)]
    scored: usize,
}

impl Summary {
    fn new(lines: usize) -> Summary {
        Summary {
            lines,
            judged: 0,
            unscored: 0,
            resumed: 0,
            cached: 0,
            mean_score: None,
            interrupted: false,
            total_score: 0,
            scored: 0,
        }
    }

    /// Lines that are in the output.
    fn done(&self) -> usize {
        self.judged + self.unscored
    }

    fn count<W: Work>(&mut self, verdict: &W::Verdict) {
        match W::judging(verdict).failure {
            None => self.judged += 1,
            Some(_) => self.unscored += 1,
        }
        if let Some(score) = W::score(verdict) {
            self.total_score += u64::from(score);
            self.scored += 1;
            self.mean_score = Some(self.total_score as f64 / self.scored as f64);
        }
    }
}

/// Judges the lines of `input` that are not in `output` yet.
pub(super) fn run<W: Work>(
    driver: &Driver<'_>,
    screen: Output,
    input: &Path,
    output: &Path,
) -> anyhow::Result<Summary> {
    let lines = lines::read(input)?;
    let tasks: Vec<W::Task> = lines.iter().map(|line| task::<W>(input, line)).collect::<Result<_, _>>()?;
    refuse_same_file(input, output)?;
    let mut appended = Appended::open(output)?;
    let mut summary = Summary::new(lines.len());
    resume::<W>(&tasks, output, &mut summary)?;
    let first = summary.resumed;
    let mut steps = Steps::new(screen, W::UNIT);
    steps.show(first, lines.len(), "");
    let ending = driver.judge_all::<W>(&tasks[first..], |judged| {
        summary.count::<W>(&judged.verdict);
        summary.cached += usize::from(judged.from_cache);
        appended.add(&with_verdict(&lines[first + judged.index].object, &judged.verdict)?)?;
        let remark = summary.mean_score.map(|mean| format!("mean {mean:.2}")).unwrap_or_default();
        steps.show(summary.done(), lines.len(), &remark);
        Ok(())
    });
    steps.clear();
    appended.finish()?;
    summary.interrupted = ending? == Ending::Interrupted;
    Ok(summary)
}

fn task<W: Work>(input: &Path, line: &Line) -> anyhow::Result<W::Task> {
    let wrong = |what: String| usage(format!("line {} of {} {what}", line.number, input.display()));
    if let Some(taken) = W::FIELDS.iter().find(|field| line.object.contains_key(**field)) {
        return Err(wrong(format!("has a field {taken:?}, which the verdict is written to: give it another name")));
    }
    W::task(&Fields(&line.object)).map_err(wrong)
}

/// Looks through the lines that are in the output already: each belongs to the task of the same place.
fn resume<W: Work>(tasks: &[W::Task], output: &Path, summary: &mut Summary) -> anyhow::Result<()> {
    for (index, Line { number, object }) in lines::read(output)?.into_iter().enumerate() {
        let place = || format!("line {number} of {}", output.display());
        let done = W::task(&Fields(&object)).map_err(|what| usage(format!("{} {what}", place())))?;
        if tasks.get(index).is_none_or(|task| W::texts(task) != W::texts(&done)) {
            let advice = "give --output another file, or remove this one";
            return Err(usage(format!("{} does not belong to the input: {advice}", place())));
        }
        let verdict: W::Verdict =
            serde_json::from_value(Value::Object(object)).with_context(|| format!("{} is no verdict", place()))?;
        summary.count::<W>(&verdict);
        summary.resumed += 1;
    }
    Ok(())
}

fn with_verdict(line: &Map<String, Value>, verdict: &impl Serialize) -> anyhow::Result<Map<String, Value>> {
    let mut object = line.clone();
    if let Value::Object(fields) = serde_json::to_value(verdict)? {
        object.extend(fields);
    }
    Ok(object)
}

fn refuse_same_file(input: &Path, output: &Path) -> anyhow::Result<()> {
    match std::fs::canonicalize(input).ok() == std::fs::canonicalize(output).ok() {
        true => Err(usage(format!("--input and --output are both {}: give another output", input.display()))),
        false => Ok(()),
    }
}
