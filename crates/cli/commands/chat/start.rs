//! The first start: what this machine is, and which model of the catalog suits it. It is shown once.

use std::path::PathBuf;

use anyhow::Context;
use hone_models::{CatalogModel, Role};

use crate::app::App;
use crate::commands::doctor::machine::Machine;
use crate::commands::estimate::{Estimate, Limits};
use crate::config::{Places, Source};
use crate::kept;
use crate::terminal::bytes;
use crate::terminal::keyboard::{self, Consent};

/// The file that says that it was shown.
const SHOWN: &str = "guided";

/// How much of the machine's memory a suggested model may take, in per cent: people have other programs, too.
const MOST_MEMORY: u64 = 60;

/// Tokens per second that are about as fast as people read.
const READING_SPEED: f64 = 8.0;

/// Guides a person who starts hone for the first time; returns the app with the model that they chose, if they did.
///
/// # Errors
/// When the terminal cannot be used, or the data folder cannot be written.
pub(super) fn guide(app: &App) -> anyhow::Result<Option<App>> {
    let shown = app.data_folder().join(SHOWN);
    if shown.exists() {
        return Ok(None);
    }
    let machine = Machine::look();
    let limits = Limits::here(app, &machine);
    let memory = machine.memory_bytes.map_or_else(|| "an unknown amount".to_owned(), bytes);
    app.output.print_line(&format!(
        "hone answers on this machine and nowhere else: {}, {} cores, {memory} of memory.",
        machine.processor, machine.physical_cores
    ))?;
    let suggested = suggested(app, limits);
    kept::write(app.data_folder(), &shown, &true)?;
    let Some((model, estimate)) = suggested else { return Ok(None) };
    let [_, speed] = estimate.columns();
    let (name, size, current) = (&model.name, bytes(model.size()), &app.config.engine.model);
    let is_known = app.store.catalog().find(current).is_some();
    let compared = if is_known { format!(", which answers better than {current}") } else { String::new() };
    app.output.print_line(&format!("It can run {name} ({size} to download, {speed}){compared}."))?;
    app.output.note_piece("Download it now? Any other key begins without it. [y/N] ");
    let consent = keyboard::ask().context("cannot read from the terminal")?;
    app.output.note(if consent == Consent::Yes { "yes" } else { "no" });
    if consent != Consent::Yes {
        app.output.note(&format!("`hone pull {name}` downloads it later, `hone chat -m {name}` chats with it"));
        return Ok(None);
    }
    choose(app, model)
}

/// The largest model that leaves room on this machine and is as fast as people read; `None` if the present one is not
/// smaller.
fn suggested(app: &App, limits: Limits) -> Option<(&CatalogModel, Estimate)> {
    let limits = Limits { memory_bytes: limits.memory_bytes.map(|memory| memory / 100 * MOST_MEMORY), ..limits };
    let catalog = app.store.catalog();
    let present = catalog.find(&app.config.engine.model).map_or(0, CatalogModel::size);
    let answers = catalog.models.iter().filter(|model| model.role == Role::Generator && model.size() > present);
    let estimated = answers.map(|model| (model, limits.known(model)));
    estimated.filter(|(_, estimate)| estimate.is_as_fast_as(READING_SPEED)).max_by_key(|(model, _)| model.size())
}

/// Downloads a model, and makes it that of later chats where no other is configured.
fn choose(app: &App, model: &CatalogModel) -> anyhow::Result<Option<App>> {
    let name = &model.name;
    if let Err(error) = app.pull(name, &app.pull_options()) {
        app.output.error(&format!("{error:#}"));
        app.output.note(&format!("`hone pull {name}` tries again"));
        return Ok(None);
    }
    match settings_file().filter(|path| !path.exists()) {
        Some(path) => {
            let failure = || format!("cannot write {}", path.display());
            path.parent().map_or(Ok(()), std::fs::create_dir_all).with_context(failure)?;
            std::fs::write(&path, format!("model = {name:?}\n")).with_context(failure)?;
            app.output.note(&format!("{name} answers from now on, as {} says", path.display()));
        }
        None => app.output.note(&format!("set engine.model to {name:?}, so that it answers in later chats, too")),
    }
    let mut config = app.config.clone();
    config.set_text("engine.model", name, Source::Chat)?;
    Ok(Some(app.with_config(config)))
}

/// Where the model is configured.
fn settings_file() -> Option<PathBuf> {
    Places::of_this_process().folder().map(|folder| folder.join("engine.toml"))
}
