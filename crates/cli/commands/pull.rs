//! `hone pull`: downloads a model.

use std::path::Path;

use anyhow::Context;
use hone_engine::model::check_file;
use hone_models::{Program, PullOptions, Pulled};
use hone_protocol::{ModelFile, with_causes};

use super::describe::JsonModel;
use super::import;
use crate::app::App;
use crate::arguments::PullArguments;
use crate::failure::Outcome;
use crate::templates;
use crate::terminal::bytes;

/// Downloads the model, or links the one that Ollama has.
///
/// # Errors
/// When it is not known, or cannot be downloaded or linked.
pub(crate) fn run(app: &App, arguments: PullArguments) -> anyhow::Result<Outcome> {
    let PullArguments { reference, from_ollama, name, json } = arguments;
    let pulled = match (&reference, &from_ollama) {
        (_, Some(model)) => import::adopt(app, model, Some(Program::Ollama), name.as_deref())?,
        (Some(reference), None) => {
            if app.store.catalog().find(&reference.to_lowercase()).is_none() {
                check_own_file(app, Path::new(reference))?;
            }
            app.pull(reference, &PullOptions { name, ..app.pull_options() })?
        }
        (None, None) => unreachable!("clap requires one of them"),
    };
    report(app, &pulled, json.json)?;
    Ok(Outcome::Done)
}

/// Says what is installed now.
pub(super) fn report(app: &App, pulled: &Pulled, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return Ok(app.output.print_json(&JsonModel::installed(&pulled.model, app.store.catalog()))?);
    }
    let done = if pulled.was_there { "is installed already" } else { "is installed" };
    Ok(app.output.print_line(&format!("{} {done} ({})", pulled.model.name, bytes(pulled.model.size())))?)
}

/// Checks a local file before it is copied: a file that cannot be run is useless in the store.
fn check_own_file(app: &App, path: &Path) -> anyhow::Result<()> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if !metadata.is_file() {
        return Ok(());
    }
    check_runs(app, &ModelFile::at_path(path)?, &path.display().to_string())
}

/// Checks that a model can be run, and says so if it cannot chat.
pub(super) fn check_runs(app: &App, file: &ModelFile, shown: &str) -> anyhow::Result<()> {
    let chat = check_file(file, &templates::host()?).with_context(|| format!("{shown} cannot be run"))?;
    if let Err(problem) = chat {
        app.output.note(&format!("{shown} can continue text but not chat: {}", with_causes(&problem)));
    }
    Ok(())
}
