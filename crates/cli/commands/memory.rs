//! `hone memory`: looks into what is remembered, and moves it.

mod describe;
mod list;
mod remove;
mod search;
mod show;
mod stats;
mod transfer;

use std::sync::Arc;

use anyhow::bail;
use hone_memory::{MemoryOptions, MemoryStore};
use hone_protocol::Embed;

use crate::app::App;
use crate::arguments::{MemoryArguments, MemoryCommand};
use crate::failure::Outcome;

pub(super) use describe::{badge, moment, on_one_line, rating};

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
    Ok(MemoryStore::open(&app.data_folder().join("memory"), MemoryOptions::default())?)
}

/// What makes vectors of texts.
///
/// # Errors
/// When there is no embedding model.
fn embedder(_app: &App) -> anyhow::Result<Arc<dyn Embed>> {
    bail!("the embedding model is not available")
}
