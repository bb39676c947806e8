//! `hone pull`: downloads a model.

use std::path::Path;

use anyhow::Context;
use hone_engine::model::check_file;
use hone_models::PullOptions;
use hone_protocol::{ModelFile, with_causes};

use super::describe::JsonModel;
use crate::app::App;
use crate::arguments::PullArguments;
use crate::failure::Outcome;
use crate::templates;
use crate::terminal::bytes;

/// Downloads the model.
///
/// # Errors
/// When it is not known, or cannot be downloaded.
pub(crate) fn run(app: &App, arguments: PullArguments) -> anyhow::Result<Outcome> {
    let options = PullOptions { name: arguments.name, ..PullOptions::from_environment() };
    if app.store.catalog().find(&arguments.reference).is_none() {
        check_own_file(app, Path::new(&arguments.reference))?;
    }
    let pulled = app.pull(&arguments.reference, &options)?;
    if arguments.json.json {
        app.output.print_json(&JsonModel::installed(&pulled.model, app.store.catalog()))?;
    } else {
        let done = if pulled.was_there { "is installed already" } else { "is installed" };
        app.output.print_line(&format!("{} {done} ({})", pulled.model.name, bytes(pulled.model.size())))?;
    }
    Ok(Outcome::Done)
}

/// Checks a local file before it is copied: a file that cannot be run is useless in the store.
fn check_own_file(app: &App, path: &Path) -> anyhow::Result<()> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if !metadata.is_file() {
        return Ok(());
    }
    let file = ModelFile::at_path(path)?;
    let chat = check_file(&file, &templates::host()?).with_context(|| format!("{} cannot be run", path.display()))?;
    if let Err(problem) = chat {
        let problem = with_causes(&problem);
        app.output.note(&format!("{} can continue text but not chat: {problem}", path.display()));
    }
    Ok(())
}
