//! `hone memory`: looks into what is remembered, and moves it.

mod describe;
mod list;
mod remove;
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
    let store = open(app)?;
    match &arguments.command {
        MemoryCommand::Search(arguments) => search::run(app, &store, arguments),
        MemoryCommand::List(arguments) => list::run(app, &store, arguments),
        MemoryCommand::Show(arguments) => show::run(app, &store, arguments),
        MemoryCommand::Export(arguments) => transfer::export(app, &store, arguments),
        MemoryCommand::Import(arguments) => transfer::import(app, &store, arguments),
        MemoryCommand::Rm(arguments) => remove::run(app, &store, arguments),
        MemoryCommand::Stats(arguments) => stats::run(app, &store, arguments),
    }
}

/// Memory in the user's data folder.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn open(app: &App) -> anyhow::Result<MemoryStore> {
    app.open_memory(&app.data_folder().join("memory"))
}
