//! `hone task resolve`: a person's decision about a task.

use hone_work::{Resolution, TaskState};

use super::list;
use crate::arguments::TaskResolveArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// Decides.
///
/// # Errors
/// When the task does not wait for a person, or its changes cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &TaskResolveArguments) -> anyhow::Result<Outcome> {
    let store = app.tasks();
    let record = store.find(&arguments.id)?;
    if record.state != TaskState::Waiting {
        return Err(usage(format!("task {} does not wait for a person: it is {}", record.id, record.state.as_str())));
    }
    let flags = &arguments.decision;
    let resolution = match (flags.accept, flags.reject) {
        (true, _) => Resolution::Accept,
        (_, true) => Resolution::Reject,
        (false, false) => Resolution::Retry,
    };
    let record = store.resolve(record, resolution, arguments.note.as_deref(), &app.phases()?)?;
    match arguments.json.json {
        true => app.output.print_json(&record)?,
        false => list::print_summary(app, &record)?,
    }
    Ok(Outcome::Done)
}
