//! `hone memory`: searches, lists and manages memories.

mod describe;
mod eval;
mod list;
mod moving;
mod remove;
mod repair;
pub(super) mod search;
mod show;
mod stats;
mod transfer;

use crate::arguments::{MemoryArguments, MemoryCommand};
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Runs the subcommand.
///
/// # Errors
/// When memory cannot be read or written, or the requested answer does not exist.
pub(crate) fn run(app: &Invocation, arguments: &MemoryArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        MemoryCommand::Search(arguments) => search::run(app, &app.memory_to_read()?, arguments),
        MemoryCommand::List(arguments) => list::run(app, &app.memory_to_read()?, arguments),
        MemoryCommand::Show(arguments) => show::run(app, &app.memory_to_read()?, arguments),
        MemoryCommand::Export(arguments) => transfer::export(app, &app.memory_to_read()?, arguments),
        MemoryCommand::Import(arguments) => transfer::import(app, &app.memory_to_write()?, arguments),
        MemoryCommand::Move(arguments) => moving::run(app, arguments),
        MemoryCommand::Rm(arguments) => remove::run(app, &app.memory_to_write()?, arguments),
        MemoryCommand::Stats(arguments) => stats::run(app, &app.memory_to_read()?, arguments),
        MemoryCommand::Eval(arguments) => eval::run(app, arguments),
        MemoryCommand::Repair(arguments) => repair::run(app, arguments),
    }
}
