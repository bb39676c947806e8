//! `hone pull`: downloads a model.

use std::path::Path;

use hone_models::{Program, PullOptions};
use hone_protocol::ModelFile;

use super::import;
use super::pulled::{check_runs, report};
use crate::arguments::PullArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// Downloads the model, or links the one that Ollama has.
///
/// # Errors
/// When it is not known, or cannot be downloaded or linked.
pub(crate) fn run(app: &Invocation, arguments: PullArguments) -> anyhow::Result<Outcome> {
    let PullArguments { reference, from_ollama, name, json } = arguments;
    let pulled = match (&reference, &from_ollama) {
        (_, Some(model)) => import::adopt(app, model, Some(Program::Ollama), name.as_deref())?,
        (Some(reference), None) => {
            match (app.store.catalog().find(&reference.to_lowercase()), &name) {
                (None, _) => check_own_file(app, Path::new(reference))?,
                (Some(known), Some(_)) => {
                    return Err(usage(format!("`{}` is a model of the catalog, which keeps its name", known.name)));
                }
                (Some(_), None) => {}
            }
            app.pull(reference, &PullOptions { name, ..app.pull_options() })?
        }
        (None, None) => unreachable!("clap requires one of them"),
    };
    report(app, &pulled, json.json)?;
    Ok(Outcome::Done)
}

/// Checks a local file before it is copied: a file that cannot be run is useless in the store.
fn check_own_file(app: &Invocation, path: &Path) -> anyhow::Result<()> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if !metadata.is_file() {
        return Ok(());
    }
    check_runs(app, &ModelFile::at_path(path)?, &path.display().to_string())
}
