//! `hone intention`: the day's intention, challenged by the critic.

use hone_agents::{Decided, Intended, Intender};
use hone_app::describe::on_one_line;
use hone_memory::Engram;
use hone_protocol::{CritiqueResult, Lane, QueryId, VettingState};
use hone_work::TaskRecord;
use serde::Serialize;

use super::gates::{Gate, outcome, said};
use crate::arguments::IntentionArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::progress;

/// Maximum number of open tasks that an intention is written from.
const OPEN_TASKS: usize = 6;

/// An intention as JSON.
#[derive(Serialize)]
struct JsonIntention<'a> {
    query_id: QueryId,
    intention: &'a str,
    state: VettingState,
    reason: Option<&'a str>,
    critique: Option<&'a CritiqueResult>,
    /// The first one, which the critic wanted to block.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<Box<JsonIntention<'a>>>,
}

/// Writes the intention of today.
///
/// # Errors
/// When memory or the model fails, or a hard gate may not ask its critic now.
pub(crate) fn run(app: &Invocation, arguments: &IntentionArguments) -> anyhow::Result<Outcome> {
    let gate = Gate::open(app, Lane::Interactive)?;
    let rememberer = gate.rememberer();
    let (records, errors) = app.tasks().list();
    errors.iter().for_each(|error| app.output.error(&error.to_string()));
    let listening = gate.interrupt.listen();
    let is_stopped = || !listening.pressed().is_empty();
    let intender = Intender {
        rememberer: &rememberer,
        writer: gate.writer(&is_stopped),
        gatekeeper: gate.keeper(),
        settings: &app.config.notes,
        open_ends: &open_ends(&records),
    };
    let spinner = progress::spinner(app.output, "writing");
    let intended = intender.intend();
    spinner.finish_and_clear();
    if is_stopped() {
        return Ok(Outcome::Interrupted);
    }
    let Intended { note, decided, first } = intended?;
    gate.write_statistics()?;
    if arguments.json.json {
        let first = first.as_ref().map(|(note, decided)| Box::new(json(note, decided, None)));
        app.output.print_json(&json(&note, &decided, first))?;
        return Ok(outcome(&decided));
    }
    if let Some((note, decided)) = &first {
        app.output.note(&format!("the first one was not good enough: {}", note.answer));
        app.output.note(&said(decided));
    }
    app.output.print_line(&note.answer)?;
    app.output.note(&said(&decided));
    Ok(outcome(&decided))
}

/// The tasks that are neither accepted nor rejected, in the order of the records.
fn open_ends(records: &[TaskRecord]) -> Vec<String> {
    let open = records.iter().filter(|record| !record.state.is_over()).take(OPEN_TASKS);
    open.map(|record| format!("Task ({}): {}", record.state.as_str(), on_one_line(&record.assignment.goal))).collect()
}

fn json<'a>(note: &'a Engram, decided: &'a Decided, first: Option<Box<JsonIntention<'a>>>) -> JsonIntention<'a> {
    JsonIntention {
        query_id: note.query_id,
        intention: &note.answer,
        state: decided.state,
        reason: decided.reason.as_deref(),
        critique: decided.critique.as_ref(),
        first,
    }
}

#[cfg(test)]
mod tests {
    use hone_work::{Assignment, TaskState, TaskStore};

    use super::*;

    #[test]
    fn tasks_that_are_not_over_are_open_ends() {
        let folder = tempfile::tempdir().unwrap();
        let store = TaskStore::new(folder.path().to_path_buf());
        let record = |goal: &str, state| {
            let assignment = Assignment::parse(&format!("goal = \"\"\"{goal}\"\"\"\n")).unwrap();
            TaskRecord { state, ..store.create(assignment, folder.path().to_path_buf()).unwrap() }
        };
        let mut records: Vec<TaskRecord> = [
            ("mend the roof", TaskState::Waiting),
            ("sweep the yard", TaskState::Accepted),
            ("paint the door\ngreen", TaskState::Working),
            ("sell the car", TaskState::Rejected),
        ]
        .map(|(goal, state)| record(goal, state))
        .into();
        assert_eq!(open_ends(&records), ["Task (waiting): mend the roof", "Task (working): paint the door green"]);
        records.extend((0..OPEN_TASKS).map(|number| record(&number.to_string(), TaskState::Working)));
        assert_eq!(open_ends(&records).len(), OPEN_TASKS);
    }
}
