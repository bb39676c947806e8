//! The prompt of an attempt.

use hone_protocol::{EvaluationResult, Message, Role};

use super::learned::lessons;
use super::overview::Overview;
use super::record::{TaskRecord, WorkAttempt};
use super::runner::TaskRun;
use crate::TaskPhase;
use crate::evaluating::DirectoryFiles;
use crate::feedback_memory::{PastAttempt, optimized_prompt};
use crate::gate::feedback;
use crate::work_format::WORK_FORM;

/// Maximum bytes of a prompt where the model's context is unknown.
const PROMPT_BYTES: usize = 20_000;
/// Minimum bytes of source code per token in most files.
const BYTES_OF_A_TOKEN: usize = 3;
/// The share of a prompt that shows the workspace, without tools and with them.
const SHOWN: f64 = 0.6;
const SHOWN_WITH_TOOLS: f64 = 0.35;
/// The share of a prompt reserved for an agent's exploration.
const LOOKED_AT: f64 = 0.4;
/// Maximum bytes of lessons from earlier tasks.
const MOST_OF_LESSONS: usize = 2000;

/// Maximum bytes of a prompt, given the model's context and the maximum tokens of an answer.
pub(super) fn prompt_bytes(context_tokens: Option<usize>, answer_tokens: usize) -> usize {
    let Some(context) = context_tokens else { return PROMPT_BYTES };
    // A limit above half of the context is hardly ever reached.
    context.saturating_sub(answer_tokens).max(context / 2) * BYTES_OF_A_TOKEN
}

/// The bytes of a prompt that show the workspace.
pub(super) fn shown_bytes(prompt_bytes: usize, has_tools: bool) -> usize {
    (prompt_bytes as f64 * if has_tools { SHOWN_WITH_TOOLS } else { SHOWN }) as usize
}

/// The bytes of a prompt for an agent's exploration.
pub(super) fn looked_at_bytes(prompt_bytes: usize) -> usize {
    (prompt_bytes as f64 * LOOKED_AT) as usize
}

/// The results of tests, for an agent.
pub(super) fn feedback_of(results: &[EvaluationResult]) -> String {
    let failed = feedback(results, &[]);
    if !failed.is_empty() {
        return failed;
    }
    let lines = results.iter().map(|result| format!("{}: {}\n", result.evaluator, result.feedback));
    if results.is_empty() { "there are no tools that run tests".to_owned() } else { lines.collect() }
}

impl TaskRun<'_> {
    /// The messages of the next attempt, with at most `budget` bytes of the workspace. `tools` are the instructions for an
    /// agent with tools.
    pub(super) fn messages(
        &self,
        record: &TaskRecord,
        phase: &TaskPhase,
        budget: usize,
        tools: Option<&str>,
    ) -> Vec<Message> {
        let round = record.attempts.get(record.round..).unwrap_or_default();
        let past: Vec<PastAttempt> = round.iter().filter_map(past_attempt).collect();
        let most = self.runner.gate.max_retries + 1;
        let mut text = optimized_prompt(&phase.prompt_for(&record.assignment), &phase.name, &past, most);
        if !record.notes.is_empty() {
            text.push_str(&format!("\n\nA person says: {}", record.notes.join("\n")));
        }
        let learned = latest(&lessons(&record.workspace));
        if !learned.is_empty() {
            text.push_str(&format!("\n\n## What earlier tasks in this workspace taught\n{learned}"));
        }
        let files = DirectoryFiles::new(self.staging.work());
        let (first, has_tools) = (first_files(record), tools.is_some());
        let overview = Overview { files: &files, first, about: about(record, past.last()), has_tools };
        let shown = overview.text(budget);
        if !shown.is_empty() {
            text.push_str(&format!("\n\n{shown}"));
        }
        let limit = format!(
            "The answer may have {} tokens: edit parts of long files instead of writing them whole.",
            self.most_tokens(phase)
        );
        let form = [WORK_FORM, &limit].into_iter().chain(tools).collect::<Vec<_>>().join("\n");
        vec![Message::new(Role::System, form), Message::new(Role::User, text)]
    }
}

/// The files that were changed, and the files that the task names.
pub(super) fn first_files(record: &TaskRecord) -> Vec<String> {
    let task = &record.assignment;
    let of_requirements = task.requirements.iter().filter_map(|requirement| requirement.file.as_ref());
    record.files.keys().chain(&task.files).chain(&task.paths).chain(of_requirements).cloned().collect()
}

/// The text to search the files for.
fn about(record: &TaskRecord, latest: Option<&PastAttempt>) -> String {
    let task = &record.assignment;
    let requirements = task.requirements.iter().map(|requirement| requirement.text.as_str());
    let feedback = latest.map(|attempt| attempt.feedback.as_str());
    let notes = record.notes.iter().map(String::as_str);
    [task.goal.as_str()].into_iter().chain(requirements).chain(notes).chain(feedback).collect::<Vec<_>>().join("\n")
}

/// The latest lessons that fit, as a list.
fn latest(lessons: &[String]) -> String {
    let mut n_bytes = 0;
    let fits = |lesson: &&String| {
        n_bytes += lesson.len() + 3;
        n_bytes <= MOST_OF_LESSONS
    };
    let mut kept: Vec<&String> = lessons.iter().rev().take_while(fits).collect();
    kept.reverse();
    kept.into_iter().map(|lesson| format!("- {lesson}\n")).collect::<String>().trim_end().to_owned()
}

fn past_attempt(attempt: &WorkAttempt) -> Option<PastAttempt> {
    let decision = attempt.decision.as_ref()?;
    let suggestions = attempt.results.iter().flat_map(|result| result.suggestions.iter().cloned()).collect();
    let feedback = if decision.feedback.is_empty() { decision.reason.clone() } else { decision.feedback.clone() };
    Some(PastAttempt { score: decision.score, feedback, suggestions })
}
