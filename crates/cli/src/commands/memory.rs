//! `hone memory`: searches, lists and manages what is remembered.

mod describe;
mod eval;
mod list;
mod remove;
mod repair;
pub(super) mod search;
mod show;
mod stats;
mod transfer;

use hone_memory::MemoryStore;

use crate::app::App;
use crate::arguments::{MemoryArguments, MemoryCommand};
use crate::failure::Outcome;

/// Runs the subcommand.
///
/// # Errors
/// When memory cannot be read or written, or the requested answer does not exist.
pub(crate) fn run(app: &App, arguments: &MemoryArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        MemoryCommand::Search(arguments) => search::run(app, &open_to_read(app)?, arguments),
        MemoryCommand::List(arguments) => list::run(app, &open_to_read(app)?, arguments),
        MemoryCommand::Show(arguments) => show::run(app, &open_to_read(app)?, arguments),
        MemoryCommand::Export(arguments) => transfer::export(app, &open_to_read(app)?, arguments),
        MemoryCommand::Import(arguments) => transfer::import(app, &open(app)?, arguments),
        MemoryCommand::Rm(arguments) => remove::run(app, &open(app)?, arguments),
        MemoryCommand::Stats(arguments) => stats::run(app, &open_to_read(app)?, arguments),
        MemoryCommand::Eval(arguments) => eval::run(app, arguments),
        MemoryCommand::Repair(arguments) => repair::run(app, arguments),
    }
}

/// Opens memory in the user's data folder for reading, or a copy of it if its disk is full or not writable.
///
/// # Errors
/// When it can be neither opened nor copied.
pub(super) fn open_to_read(app: &App) -> anyhow::Result<MemoryStore> {
    let (store, reason) = MemoryStore::open_to_read(&app.memory_folder(), app.memory_options())?;
    if let Some(reason) = reason {
        app.output.note(&format!("a copy of memory is read: {reason}"));
    }
    Ok(store)
}

/// Opens memory in the user's data folder.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn open(app: &App) -> anyhow::Result<MemoryStore> {
    Ok(MemoryStore::open(&app.memory_folder(), app.memory_options())?)
}
