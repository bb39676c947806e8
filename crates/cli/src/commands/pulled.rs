//! What `hone pull` and `hone import` have in common: whether a model runs, and what is said of it.

use anyhow::Context;
use hone_app::describe::bytes;
use hone_engine::check_file;
use hone_models::Pulled;
use hone_protocol::{ModelFile, with_causes};

use super::describe::JsonModel;
use crate::invocation::Invocation;

/// Says what is installed now.
pub(super) fn report(app: &Invocation, pulled: &Pulled, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        app.output.print_json(&JsonModel::installed(&pulled.model, app.store.catalog()))?;
        return Ok(());
    }
    let done = if pulled.was_there { "is installed already" } else { "is installed" };
    app.output.print_line(&format!("{} {done} ({})", pulled.model.name, bytes(pulled.model.size())))?;
    Ok(())
}

/// Checks that a model can be run, and says so if it cannot chat.
pub(super) fn check_runs(app: &Invocation, file: &ModelFile, shown: &str) -> anyhow::Result<()> {
    let chat =
        check_file(file, &hone_app::workers::templates::host()?).with_context(|| format!("{shown} cannot be run"))?;
    if let Err(problem) = chat {
        app.output.note(&format!("{shown} can continue text but not chat: {}", with_causes(&problem)));
    }
    Ok(())
}
