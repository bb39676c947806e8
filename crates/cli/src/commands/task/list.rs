//! `hone task list`, `inbox` and `show`.

use hone_app::describe::on_one_line;
use hone_work::{TaskRecord, TaskState, WorkAttempt, WorkCandidate, WorkToolCall};
use serde::Serialize;

use crate::arguments::{TaskListArguments, TaskShowArguments};
use crate::evaluation::{critic_line, decision_line, print_result};
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// A task with its difference, as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    record: &'a TaskRecord,
    /// The changed files that other programs run automatically.
    runs_by_itself: Vec<&'a str>,
    diff: String,
}

/// Lists all tasks, the latest first.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn list(app: &Invocation, arguments: &TaskListArguments) -> anyhow::Result<Outcome> {
    let (records, errors) = app.tasks().list();
    errors.iter().for_each(|error| app.output.error(&error.to_string()));
    for record in &records {
        match arguments.json.json {
            true => app.output.print_json(record)?,
            false => app.output.print_line(&summary(record))?,
        }
    }
    Ok(if errors.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// Shows the tasks that wait for a person.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn inbox(app: &Invocation, arguments: &TaskListArguments) -> anyhow::Result<Outcome> {
    let (records, errors) = app.tasks().list();
    errors.iter().for_each(|error| app.output.error(&error.to_string()));
    for record in records.iter().filter(|record| record.state == TaskState::Waiting) {
        print(app, record, arguments.json.json)?;
    }
    Ok(if errors.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// Shows a task.
///
/// # Errors
/// When there is no such task, or it cannot be read.
pub(crate) fn show(app: &Invocation, arguments: &TaskShowArguments) -> anyhow::Result<Outcome> {
    print(app, &app.tasks().find(&arguments.id)?, arguments.json.json)?;
    Ok(Outcome::Done)
}

/// A task in a line.
fn summary(record: &TaskRecord) -> String {
    let decision = record.attempts.last().and_then(|attempt| attempt.decision.as_ref());
    let score = decision.and_then(|decision| decision.score).map_or("-".to_owned(), |score| format!("{score:.2}"));
    let (state, attempts) = (record.state.as_str(), record.attempts.len());
    on_one_line(&format!("{}  {state:<10} {score:>4}  {attempts} attempts  {}", record.id, record.assignment.goal))
}

/// Prints a task in a line, and the files of its work that a person should look at before anything else runs there.
pub(crate) fn print_summary(app: &Invocation, record: &TaskRecord) -> anyhow::Result<()> {
    app.output.print_line(&summary(record))?;
    let warn = |path| format!("! {path}: other programs run it automatically; read what it does");
    record.self_running().into_iter().try_for_each(|path| app.output.print_line(&warn(path)))
}

fn print(app: &Invocation, record: &TaskRecord, json: bool) -> anyhow::Result<()> {
    let diff = app.tasks().diff(record.id);
    if json {
        return app.output.print_json(&Shown { record, runs_by_itself: record.self_running(), diff });
    }
    print_summary(app, record)?;
    app.output.print_line(&format!("workspace {}", record.workspace.display()))?;
    record.attempts.iter().try_for_each(|attempt| print_attempt(app, attempt))?;
    record.attempts.last().map_or(Ok(()), |attempt| print_evidence(app, attempt))?;
    record.notes.iter().try_for_each(|note| app.output.print_line(&format!("note: {note}")))?;
    diff.lines().try_for_each(|line| app.output.print_line(line))
}

/// An agent's tool call, in a line.
pub(crate) fn call_line(call: &WorkToolCall) -> String {
    let values = call.arguments.as_object().into_iter().flatten();
    let values: Vec<String> = values.map(|(name, value)| format!("{name}={value}")).collect();
    let first = call.result.lines().next().unwrap_or_default();
    on_one_line(&format!("  {} {}: {first}", call.name, values.join(" ")))
}

/// Prints the excerpts that show what is wrong with an attempt.
fn print_evidence(app: &Invocation, attempt: &WorkAttempt) -> anyhow::Result<()> {
    for result in &attempt.results {
        for evidence in result.failed_criteria().filter_map(|criterion| criterion.evidence.as_deref()) {
            app.output.print_line(&format!("{} shows:", result.evaluator))?;
            evidence.trim().lines().try_for_each(|line| app.output.print_line(&format!("    {line}")))?;
        }
    }
    Ok(())
}

fn print_attempt(app: &Invocation, attempt: &WorkAttempt) -> anyhow::Result<()> {
    app.output.print_line(&format!("{} attempt {} by {}", attempt.phase, attempt.number, attempt.agent))?;
    attempt.calls.iter().try_for_each(|call| app.output.print_line(&call_line(call)))?;
    if let Some(chosen) = attempt.chosen {
        let score = |candidate: &WorkCandidate| candidate.evaluation.as_ref().and_then(|found| found.score);
        let scores: Vec<String> = attempt
            .candidates
            .iter()
            .map(|candidate| score(candidate).map_or("none".to_owned(), |score| format!("{score:.2}")))
            .collect();
        app.output.print_line(&format!("took candidate {chosen} of those with the scores {}", scores.join(", ")))?;
    }
    attempt.results.iter().try_for_each(|result| print_result(app.output, result))?;
    attempt.critics.iter().try_for_each(|critic| app.output.print_line(&critic_line(critic)))?;
    attempt.decision.iter().try_for_each(|decision| app.output.print_marked_line(&decision_line(decision)))
}
