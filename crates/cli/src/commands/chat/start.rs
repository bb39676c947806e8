//! Better models for a person who begins: the guide of the first start (what this machine is, and which model of the catalog
//! suits it), and a hint to those who chat with the smallest model. Each is shown once.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hone_app::config::Places;
use hone_app::conversations::Session;
use hone_app::describe::bytes;
use hone_app::kept;
use hone_models::{CatalogModel, Role};

use crate::chat::fetching::{Fetch, Fetching};
use crate::commands::doctor::machine::Machine;
use crate::commands::estimate::{Estimate, Limits};
use crate::invocation::Invocation;
use crate::terminal::keyboard::{self, Consent};
use crate::terminal::lines::Lines;

/// The file that says that the guide was shown.
const SHOWN: &str = "guided";

/// The file that says that the hint was shown.
const HINTED: &str = "hinted";

/// How much of the machine's memory a suggested model may take, in per cent: people have other programs, too.
const MOST_MEMORY: u64 = 60;

/// Tokens per second that are about as fast as people read.
const READING_SPEED: f64 = 8.0;

/// Guides a person who starts hone for the first time; returns the name of the model that they want, if they do.
///
/// # Errors
/// When the terminal cannot be used, or the data folder cannot be written.
pub(super) fn guide(app: &Invocation) -> anyhow::Result<Option<String>> {
    let shown = app.data_folder().join(SHOWN);
    if shown.exists() {
        return Ok(None);
    }
    let machine = Machine::look();
    let limits = Limits::here(app, &machine);
    let memory = machine.memory_bytes.map_or_else(|| "an unknown amount".to_owned(), bytes);
    app.output.print_prose(&format!(
        "hone answers on this machine and nowhere else: {}, {} cores, {memory} of memory.",
        machine.processor, machine.physical_cores
    ))?;
    let current = &app.config.engine.model;
    let suggested = suggested(app, limits, current);
    kept::write(app.data_folder(), &shown, &true)?;
    let Some((model, estimate)) = suggested else { return Ok(None) };
    let [_, speed] = estimate.columns();
    let (name, size) = (&model.name, bytes(model.size()));
    let is_known = app.store.catalog().find(current).is_some();
    let compared = if is_known { format!(", which answers better than {current}") } else { String::new() };
    app.output.print_prose(&format!("It can run {name} ({size} to download, {speed}){compared}."))?;
    app.output.note_piece("Download it now, and chat meanwhile? [y/N] ");
    let consent = keyboard::ask().context("cannot read from the terminal")?;
    app.output.note(if consent == Consent::Yes { "yes" } else { "no" });
    if consent != Consent::Yes {
        app.output.note(&format!("`hone pull {name}` downloads it later, `hone chat -m {name}` chats with it"));
        return Ok(None);
    }
    Ok(Some(name.clone()))
}

/// Downloads the model that a person wants while another one answers, and makes it that of later chats where no other is
/// configured.
///
/// # Errors
/// When no thread can be started.
pub(super) fn fetch(app: &Invocation, name: String, session: &Session, lines: &Lines) -> anyhow::Result<Fetching> {
    let instead = session.model().to_owned();
    app.output.note(&format!("{name} is being downloaded; until it is here, {instead} answers"));
    let remembered = name.clone();
    let arrived = Box::new(move || match keep(&remembered) {
        Ok(Some(path)) => format!("{remembered} is here, and answers from now on, as {} says", path.display()),
        Ok(None) => format!(
            "{remembered} is here, and answers the next question; set engine.model to {remembered:?}, so that it answers \
             in later chats, too"
        ),
        Err(error) => format!("{remembered} is here, and answers the next question; {error:#}"),
    });
    let (options, lines) = (app.pull_options(), lines.clone());
    Fetching::start(Arc::clone(&app.store), Fetch { name, instead, options, lines, arrived })
}

/// Says once to a person who chats with the smallest model which better one suits this machine. A chat that leaves no trace
/// says nothing, because it would say so again.
///
/// # Errors
/// When the data folder cannot be written.
pub(super) fn hint(app: &Invocation, session: &Session) -> anyhow::Result<()> {
    let (output, chat) = (app.output, &session.config().chat);
    let is_shown = [SHOWN, HINTED].iter().any(|name| app.data_folder().join(name).exists());
    if is_shown || !chat.save || !output.stdout_is_terminal || !output.stderr_is_terminal {
        return Ok(());
    }
    if !is_smallest(app, session.model()) {
        return Ok(());
    }
    kept::write(app.data_folder(), &app.data_folder().join(HINTED), &true)?;
    let limits = Limits::here(app, &Machine::look());
    let Some((model, estimate)) = suggested(app, limits, session.model()) else { return Ok(()) };
    let [_, speed] = estimate.columns();
    let (name, size) = (&model.name, bytes(model.size()));
    output
        .note(&format!("{name} ({size}, {speed}) answers better, and suits this machine: /model {name} downloads it"));
    Ok(())
}

/// Whether no model of the catalog that answers is smaller than this one.
fn is_smallest(app: &Invocation, name: &str) -> bool {
    let catalog = app.store.catalog();
    let answers = catalog.models.iter().filter(|model| model.role == Role::Generator);
    let smallest = answers.min_by_key(|model| model.size());
    smallest.is_some_and(|smallest| catalog.find(name).is_some_and(|model| model.name == smallest.name))
}

/// The largest model that leaves room on this machine and is as fast as people read; `None` if the present one is not
/// smaller.
fn suggested<'a>(app: &'a Invocation, limits: Limits, present: &str) -> Option<(&'a CatalogModel, Estimate)> {
    let limits = Limits { memory_bytes: limits.memory_bytes.map(|memory| memory / 100 * MOST_MEMORY), ..limits };
    let catalog = app.store.catalog();
    let present = catalog.find(present).map_or(0, CatalogModel::size);
    let answers = catalog.models.iter().filter(|model| model.role == Role::Generator && model.size() > present);
    let estimated = answers.map(|model| (model, limits.known(model)));
    estimated.filter(|(_, estimate)| estimate.is_as_fast_as(READING_SPEED)).max_by_key(|(model, _)| model.size())
}

/// Makes a model that of later chats, and returns the file that says so; `None` if the user has such a file.
fn keep(name: &str) -> anyhow::Result<Option<PathBuf>> {
    let file = Places::of_this_process().folder().map(|folder| folder.join("engine.toml"));
    let Some(path) = file.filter(|path| !path.exists()) else { return Ok(None) };
    let failure = || format!("cannot write {}", path.display());
    path.parent().map_or(Ok(()), std::fs::create_dir_all).with_context(failure)?;
    std::fs::write(&path, format!("model = {name:?}\n")).with_context(failure)?;
    Ok(Some(path))
}
