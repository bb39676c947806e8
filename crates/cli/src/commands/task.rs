//! `hone task`: work on tasks, and its evaluation.

mod check;
mod list;
mod resolve;
mod run;

use crate::arguments::{TaskArguments, TaskCommand};
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Runs the subcommand.
///
/// # Errors
/// When the task or the configuration is not valid, or the workspace cannot be used.
pub(crate) fn run(app: &Invocation, arguments: &TaskArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        TaskCommand::Check(arguments) => check::run(app, arguments),
        TaskCommand::Run(arguments) => run::run(app, arguments),
        TaskCommand::List(arguments) => list::list(app, arguments),
        TaskCommand::Inbox(arguments) => list::inbox(app, arguments),
        TaskCommand::Show(arguments) => list::show(app, arguments),
        TaskCommand::Resolve(arguments) => resolve::run(app, arguments),
    }
}
