//! Better models for a new user: the guide of the first start (this machine, and the models of the catalog that suit
//! it: a generator and a judge), and a hint to users of the smallest model. Each is shown once.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hone_app::config::{Config, Places};
use hone_app::conversations::Session;
use hone_app::describe::bytes;
use hone_app::estimates::{Estimate, Limits};
use hone_app::kept;
use hone_app::machine::Machine;
use hone_judging::LIKELIHOOD;
use hone_models::{CatalogModel, Role, offline_in_environment};

use crate::badge::CANNOT_TELL;
use crate::chat::announcements::Remark;
use crate::chat::fetching::{Fetch, Fetching};
use crate::commands::doctor;
use crate::invocation::Invocation;
use crate::terminal::Output;
use crate::terminal::keyboard::{Consent, consent};
use crate::terminal::lines::Lines;

/// The file that records that the guide was shown.
const SHOWN: &str = "guided";

/// The file that records that the hint was shown.
const HINTED: &str = "hinted";

/// The file that records that a missing mark was explained.
const REMARKED: &str = "silence-explained";

/// The models to download during the chat.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    generator: Option<String>,
    judge: Option<String>,
}

/// The models that are being downloaded.
#[derive(Default)]
pub(super) struct Downloads {
    /// The model that answers once it has arrived.
    pub(super) generator: Option<Fetching>,
    judge: Option<Fetching>,
}

/// Guides a person who starts hone for the first time; returns the models that they want.
///
/// # Errors
/// When the terminal cannot be used, or the data folder cannot be written.
pub(super) fn guide(app: &Invocation) -> anyhow::Result<Wanted> {
    let shown = app.data_folder().join(SHOWN);
    if shown.exists() {
        return Ok(Wanted::default());
    }
    let machine = Machine::look();
    let memory = machine.memory_bytes.map_or_else(|| "an unknown amount".to_owned(), bytes);
    app.output.print_prose(&format!(
        "hone runs on this machine alone: {}, {} cores, {memory} of memory.",
        machine.processor, machine.physical_cores
    ))?;
    kept::write(app.data_folder(), &shown, &true)?;
    if offline_in_environment() {
        return Ok(Wanted::default());
    }
    let suggested = Limits::here(app, &machine).suggested(app, &app.config.engine.model);
    let generator = match suggested {
        Some((model, estimate)) => offer_generator(app, model, estimate)?,
        None => None,
    };
    Ok(Wanted { judge: offer_judge(app, generator.as_deref())?, generator })
}

fn offer_generator(app: &Invocation, model: &CatalogModel, estimate: Estimate) -> anyhow::Result<Option<String>> {
    let current = &app.config.engine.model;
    let [_, speed] = estimate.columns();
    let (name, size) = (&model.name, bytes(model.size()));
    let is_known = app.store.catalog().find(current).is_some();
    let compared = if is_known { format!(", which answers better than {current}") } else { String::new() };
    app.output.print_prose(&format!("It can run {name} ({size} to download, {speed}){compared}."))?;
    let is_wanted = consent(app.output, "Download it now, and chat meanwhile? [y/N] ")? == Consent::Yes;
    if !is_wanted {
        app.output.note(&format!("`hone pull {name}` downloads it later, `hone chat -m {name}` chats with it"));
    }
    Ok(is_wanted.then(|| name.clone()))
}

/// The remark on the first answer without a mark, if no configured judge is installed and it was not made before.
pub(super) fn remark_on_silence(app: &Invocation) -> Option<Remark> {
    let remarked = app.data_folder().join(REMARKED);
    if !app.config.chat.save || remarked.exists() || has_judge(app) {
        return None;
    }
    let app = app.with_config(app.config.clone());
    Some(Box::new(move || {
        // If the file cannot be written, the remark is made again in another chat.
        let _ = kept::write(app.data_folder(), &remarked, &true);
        let advice = missing_judge(&app, &app.config.engine.model).map(|(name, size)| {
            let size = bytes(size);
            format!(". `hone pull {name}` ({size}) gets a judge that grades every answer")
        });
        format!("no mark: {CANNOT_TELL}{}", advice.unwrap_or_default())
    }))
}

/// Whether a configured judge is installed, or none is wanted.
fn has_judge(app: &Invocation) -> bool {
    let Config { judge, chat, .. } = &app.config;
    !chat.grade || judge.jurors().iter().any(|name| name == LIKELIHOOD || app.store.show(name).is_ok())
}

/// Name and size of the judge that fits this machine beside a generator, if it is not installed.
fn missing_judge(app: &Invocation, generator: &str) -> Option<(String, u64)> {
    doctor::judge_beside(generator, app).filter(|(name, _)| app.store.show(name).is_err())
}

/// Offers a judge if answers are to be graded and no configured judge is installed.
fn offer_judge(app: &Invocation, generator: Option<&str>) -> anyhow::Result<Option<String>> {
    if has_judge(app) {
        return Ok(None);
    }
    let beside = missing_judge(app, generator.unwrap_or(&app.config.engine.model));
    let Some((name, size)) = beside else { return Ok(None) };
    app.output.print_prose(&format!(
        "A judge grades every answer from 1 to 5: {name} ({} to download) fits this machine. Without one, hone marks only \
         some answers as likely right or likely wrong, and says nothing about the others.",
        bytes(size)
    ))?;
    let is_wanted = consent(app.output, "Download the judge now? [y/N] ")? == Consent::Yes;
    if !is_wanted {
        app.output
            .note(&format!("`hone pull {name}` downloads it later; it grades once it has passed its examination"));
    }
    Ok(is_wanted.then_some(name))
}

impl Downloads {
    /// Starts downloading the wanted models while another one answers. Each becomes the default of later chats unless
    /// another is configured.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(
        app: &Invocation,
        wanted: Wanted,
        session: &Session,
        lines: &Lines,
    ) -> anyhow::Result<Downloads> {
        let Wanted { generator, judge } = wanted;
        let instead = session.model();
        let fetch = |name: String, arrived| {
            let (options, lines, instead) = (app.pull_options(), lines.clone(), instead.to_owned());
            Fetching::start(Arc::clone(&app.store), Fetch { name, instead, options, lines, arrived })
        };
        let fetch_generator = |name: String| {
            app.output.note(&format!("{name} is being downloaded; until it is here, {instead} answers"));
            fetch(name.clone(), Box::new(move || generator_arrived(&name)))
        };
        let fetch_judge = |name: String| {
            app.output.note(&format!("{name} is being downloaded; later chats are graded by it"));
            fetch(name.clone(), Box::new(move || judge_arrived(&name)))
        };
        Ok(Downloads {
            generator: generator.map(fetch_generator).transpose()?,
            judge: judge.map(fetch_judge).transpose()?,
        })
    }

    /// Tells the user how to resume unfinished downloads.
    pub(super) fn tell_unfinished(&self, output: Output) {
        [&self.generator, &self.judge].into_iter().flatten().for_each(|fetching| fetching.tell_unfinished(output));
    }
}

/// The line that is shown once the model has arrived.
fn generator_arrived(name: &str) -> String {
    match keep("engine", name) {
        Ok(Some(path)) => format!("{name} is here, and answers from now on, as {} says", path.display()),
        Ok(None) => format!(
            "{name} is here, and answers the next question; set engine.model to {name:?}, so that it answers in later chats, \
             too"
        ),
        Err(error) => format!("{name} is here, and answers the next question; {error:#}"),
    }
}

/// The line that is shown once the judge has arrived.
fn judge_arrived(name: &str) -> String {
    match keep("judge", name) {
        Ok(Some(path)) => format!(
            "{name} is here, and grades in later chats, as {} says, once it has passed its examination",
            path.display()
        ),
        Ok(None) => format!("{name} is here; set judge.model to {name:?}, so that it grades in later chats"),
        Err(error) => format!("{name} is here; {error:#}"),
    }
}

/// Suggests once to a user of the smallest model a better one for this machine. A chat that leaves no trace suggests
/// nothing, because it would repeat itself.
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
    let Some((model, estimate)) = limits.suggested(app, session.model()) else { return Ok(()) };
    let [_, speed] = estimate.columns();
    let (name, size) = (&model.name, bytes(model.size()));
    output
        .note(&format!("{name} ({size}, {speed}) answers better, and suits this machine: /model {name} downloads it"));
    Ok(())
}

/// Whether this is the smallest generator of the catalog.
fn is_smallest(app: &Invocation, name: &str) -> bool {
    let catalog = app.store.catalog();
    let answers = catalog.models.iter().filter(|model| model.role == Role::Generator);
    let smallest = answers.min_by_key(|model| model.size());
    smallest.is_some_and(|smallest| catalog.find(name).is_some_and(|model| model.name == smallest.name))
}

/// Sets the model of a section in the user's configuration, and returns the file written; `None` if the user already
/// has such a file.
fn keep(section: &str, name: &str) -> anyhow::Result<Option<PathBuf>> {
    let file = Places::of_this_process().folder().map(|folder| folder.join(format!("{section}.toml")));
    let Some(path) = file.filter(|path| !path.exists()) else { return Ok(None) };
    let failure = || format!("cannot write {}", path.display());
    path.parent().map_or(Ok(()), std::fs::create_dir_all).with_context(failure)?;
    std::fs::write(&path, format!("model = {name:?}\n")).with_context(failure)?;
    Ok(Some(path))
}
