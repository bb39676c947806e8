//! A file of tasks, judged into a file of verdicts, or one after another for a pipe.
//!
//! Each line of the output is a line of the input with the verdict's fields added, in the order of the input. So the
//! output of an interrupted run shows where the next one resumes. A line without a verdict is judged again: its new
//! line is appended, and replaces the old one at the end of the run.

use std::path::Path;

use hone_judging::Verdict;
use serde::Serialize;
use serde_json::{Map, Value};

use super::driver::{Completed, Driver};
use super::lines::{self, JsonLine, VerdictFile, Written, parsed_task};
use super::setting::{SETTING, Setting};
use super::task::{BatchTask, columns};
use crate::usage;

/// The error for a line of the output that this run would not have written.
const FOREIGN: &str = "does not belong to the input";

/// The contents of the output after a run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Tasks of the input.
    pub lines: usize,
    /// Tasks with a verdict.
    pub judged: usize,
    /// Tasks without a verdict.
    pub unscored: usize,
    /// Verdicts that were already in the output.
    pub resumed: usize,
    /// Verdicts that were taken from the cache.
    pub cached: usize,
    /// The mean of the scores, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_score: Option<f64>,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// The reason why the last task without a verdict has none.
    #[serde(skip)]
    pub failure: Option<String>,
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
            failure: None,
            total_score: 0,
            scored: 0,
        }
    }

    /// Whether there were tasks, but none has a verdict.
    pub fn is_fruitless(&self) -> bool {
        self.judged == 0 && self.failure.is_some()
    }

    fn count(&mut self, verdict: &impl Verdict) {
        match &verdict.judging().failure {
            None => self.judged += 1,
            Some(failure) => {
                self.unscored += 1;
                self.failure = Some(failure.clone());
            }
        }
        if let Some(score) = verdict.score() {
            self.total_score += u64::from(score);
            self.scored += 1;
            self.mean_score = Some(self.total_score as f64 / self.scored as f64);
        }
    }
}

/// The file of tasks and the file of verdicts.
pub(super) struct Files<'a> {
    pub(super) input: &'a Path,
    pub(super) output: &'a Path,
}

/// Judges the lines of the input that have no verdict in the output yet: first those that are missing, then those for
/// which an earlier run had none.
pub(super) fn run<T: BatchTask>(driver: &Driver<'_>, setting: &Setting, files: Files<'_>) -> anyhow::Result<Summary> {
    let Files { input, output } = files;
    lines::refuse_same_file(input, output)?;
    let batch = Batch::<T>::read(setting, input)?;
    let n_lines = batch.lines.len();
    let mut file = VerdictFile::open(output)?;
    let written = file.read()?;
    let earlier = batch.earlier(&written, output)?;
    file.resume(&written)?;
    if !earlier.judged_again.is_empty() {
        file.put_in_place(n_lines, &earlier.judged_again)?;
    }
    let mut summary = Summary::new(n_lines);
    earlier.count(&mut summary);
    let first = earlier.verdicts.len();
    let again = earlier.without_verdict();
    let places: Vec<usize> = (first..n_lines).chain(again.iter().copied()).collect();
    let done = batch.judge(driver, &places, &mut summary, |line| file.add(line))?;
    let n_again = done.saturating_sub(n_lines - first);
    summary.unscored += again.len() - n_again;
    if n_again > 0 {
        file.put_in_place(n_lines, &again[..n_again])?;
    }
    file.finish()?;
    Ok(summary)
}

/// Judges the lines of the input. Each is passed on with its verdict as soon as all earlier lines have been; a later
/// run starts from the beginning.
pub(super) fn stream<T: BatchTask>(
    driver: &Driver<'_>,
    setting: &Setting,
    input: &Path,
    on_line: impl FnMut(&Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<Summary> {
    let batch = Batch::<T>::read(setting, input)?;
    let places: Vec<usize> = (0..batch.lines.len()).collect();
    let mut summary = Summary::new(places.len());
    batch.judge(driver, &places, &mut summary, on_line)?;
    Ok(summary)
}

/// The tasks of a file.
struct Batch<'a, T: BatchTask> {
    setting: &'a Setting,
    lines: Vec<JsonLine>,
    tasks: Vec<T>,
}

impl<'a, T: BatchTask> Batch<'a, T> {
    fn read(setting: &'a Setting, input: &Path) -> anyhow::Result<Batch<'a, T>> {
        let lines = lines::read(input)?;
        let columns = columns::<T>();
        let tasks = lines.iter().map(|line| task(input, line, &columns)).collect::<Result<_, _>>()?;
        Ok(Batch { setting, lines, tasks })
    }

    /// Judges the tasks at these places, in their order; returns how many were judged before the user stopped it.
    fn judge(
        &self,
        driver: &Driver<'_>,
        places: &[usize],
        summary: &mut Summary,
        mut on_line: impl FnMut(&Map<String, Value>) -> anyhow::Result<()>,
    ) -> anyhow::Result<usize> {
        let tasks: Vec<T> = places.iter().map(|place| self.tasks[*place].clone()).collect();
        let mut done = 0;
        driver.activity.advance(summary.resumed, self.lines.len(), "");
        let completed = driver.judge_all(&tasks, |judged| {
            summary.count(&judged.verdict);
            summary.cached += usize::from(judged.from_cache);
            on_line(&self.line(places[judged.index], &judged.verdict)?)?;
            done += 1;
            let remark = summary.mean_score.map(|mean| format!("mean {mean:.2}")).unwrap_or_default();
            driver.activity.advance(summary.resumed + done, self.lines.len(), &remark);
            Ok(())
        });
        summary.interrupted = completed? == Completed::UntilInterrupt;
        Ok(done)
    }

    /// Examines the existing output: each line belongs to the task at the same place. Lines after the last task come
    /// from a run that was interrupted before they replaced the lines without a verdict.
    ///
    /// # Errors
    /// For the first line that this run would not have written.
    fn earlier(&self, written: &Written, output: &Path) -> anyhow::Result<Earlier<T>> {
        let mut earlier = Earlier { verdicts: Vec::new(), unjudged: Vec::new(), judged_again: Vec::new() };
        let refused = |number: usize, what: &str| {
            let advice = "give --output another file, or remove this one";
            Err(usage(format!("line {number} of {} {what}: {advice}", output.display())))
        };
        for JsonLine { number, object } in &written.lines {
            let done = parsed_task::<T>(object);
            let place = earlier.next_place(self.tasks.len());
            let (Some(place), Ok(done)) = (place, done) else { return refused(*number, FOREIGN) };
            if self.tasks[place] != done {
                return refused(*number, FOREIGN);
            }
            let Ok(verdict) = serde_json::from_value::<T::Verdict>(Value::Object(object.clone())) else {
                return refused(*number, "is no verdict");
            };
            if !lacks_verdict(&verdict)
                && let Some(difference) = self.setting.difference(object)
            {
                return refused(*number, &difference);
            }
            earlier.add(place, verdict);
        }
        let is_ours = |place: usize| is_beginning_of::<T>(&written.tail, &self.lines[place].object);
        match written.tail.is_empty() || earlier.next_place(self.tasks.len()).is_some_and(is_ours) {
            true => Ok(earlier),
            false => refused(written.tail_number, FOREIGN),
        }
    }

    /// The line of a task with its verdict.
    fn line(&self, place: usize, verdict: &T::Verdict) -> anyhow::Result<Map<String, Value>> {
        let mut object = self.lines[place].object.clone();
        if let Value::Object(fields) = serde_json::to_value(verdict)? {
            object.extend(fields);
        }
        object.insert(SETTING.to_owned(), Value::from(self.setting.digest.as_str()));
        Ok(object)
    }
}

/// The results of earlier runs.
struct Earlier<T: BatchTask> {
    /// The verdicts, by the place of the task.
    verdicts: Vec<T::Verdict>,
    /// The places of results without a verdict.
    unjudged: Vec<usize>,
    /// The first of these, for which new lines were appended.
    judged_again: Vec<usize>,
}

impl<T: BatchTask> Earlier<T> {
    /// The place that the next line belongs to; `None` if no more lines can follow.
    fn next_place(&self, n_tasks: usize) -> Option<usize> {
        match self.verdicts.len() < n_tasks {
            true => Some(self.verdicts.len()),
            false => self.unjudged.get(self.judged_again.len()).copied(),
        }
    }

    fn add(&mut self, place: usize, verdict: T::Verdict) {
        if place < self.verdicts.len() {
            self.judged_again.push(place);
            self.verdicts[place] = verdict;
            return;
        }
        if lacks_verdict(&verdict) {
            self.unjudged.push(place);
        }
        self.verdicts.push(verdict);
    }

    /// The places of tasks to judge again.
    fn without_verdict(&self) -> Vec<usize> {
        (0..self.verdicts.len()).filter(|place| lacks_verdict(&self.verdicts[*place])).collect()
    }

    fn count(&self, summary: &mut Summary) {
        for verdict in self.verdicts.iter().filter(|verdict| !lacks_verdict(*verdict)) {
            summary.count(verdict);
            summary.resumed += 1;
        }
    }
}

fn lacks_verdict(verdict: &impl Verdict) -> bool {
    verdict.judging().failure.is_some()
}

fn task<T: BatchTask>(input: &Path, line: &JsonLine, columns: &Map<String, Value>) -> anyhow::Result<T> {
    let wrong = |what: String| usage(format!("line {} of {} {what}", line.number, lines::name(input)));
    if let Some(taken) = line.object.keys().find(|field| is_own(columns, field)) {
        return Err(wrong(format!("has a field {taken:?}, which the verdict is written to: give it another name")));
    }
    parsed_task(&line.object).map_err(wrong)
}

/// Whether a field is written by a run: one of a verdict's columns, or the setting.
fn is_own(columns: &Map<String, Value>, field: &str) -> bool {
    field == SETTING || columns.contains_key(field)
}

/// Whether `text` is the truncated line of the task in `object`, as far as can be told before it is judged.
fn is_beginning_of<T: BatchTask>(text: &[u8], object: &Map<String, Value>) -> bool {
    let mut fields = object.clone();
    let columns = columns::<T>();
    fields.extend(columns.clone());
    let known: Map<String, Value> = fields.into_iter().take_while(|(field, _)| !is_own(&columns, field)).collect();
    let mut known = serde_json::to_vec(&known).unwrap_or_default();
    known.pop();
    text.starts_with(&known) || known.starts_with(text)
}
