//! `hone memory`: searches, lists and manages what is remembered.

mod describe;
mod eval;
mod list;
mod remove;
mod repair;
mod search;
mod show;
mod stats;
mod transfer;

use hone_memory::MemoryStore;

use crate::app::App;
use crate::arguments::{MemoryArguments, MemoryCommand};
use crate::failure::Outcome;

/// Does what was asked.
///
/// # Errors
/// When memory cannot be read or written, or what was asked for is not there.
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

/// Memory in the user's data folder, to be read; a copy of it where its disk is full or cannot be written to.
///
/// # Errors
/// When it cannot be opened, nor copied.
pub(super) fn open_to_read(app: &App) -> anyhow::Result<MemoryStore> {
    let (store, reason) = MemoryStore::open_to_read(&app.memory_folder(), app.memory_options())?;
    if let Some(reason) = reason {
        app.output.note(&format!("a copy of memory is read: {reason}"));
    }
    Ok(store)
}

/// Memory in the user's data folder.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn open(app: &App) -> anyhow::Result<MemoryStore> {
    Ok(MemoryStore::open(&app.memory_folder(), app.memory_options())?)
}
