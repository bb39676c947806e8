//! Shared by `hone pull` and `hone import`: whether a model runs, and the report on it.

use anyhow::Context;
use hone_app::describe::bytes;
use hone_engine::{FileUse, ModelPurpose, check_file, model_purpose};
use hone_models::Pulled;
use hone_protocol::{ModelFile, with_causes};

use super::describe::JsonModel;
use crate::invocation::Invocation;

/// Reports the installed model.
pub(super) fn report(app: &Invocation, pulled: &Pulled, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        app.output.print_json(&JsonModel::installed(&pulled.model, app.store.catalog()))?;
        return Ok(());
    }
    let done = if pulled.was_there { "is installed already" } else { "is installed" };
    app.output.print_line(&format!("{} {done} ({})", pulled.model.name, bytes(pulled.model.size())))?;
    Ok(())
}

/// Checks that a model can be run, and says so if it is not a chat model.
pub(super) fn check_runs(app: &Invocation, file: &ModelFile, shown: &str) -> anyhow::Result<()> {
    let checked = check_file(file, &hone_app::workers::templates::host()?);
    match checked.with_context(|| format!("{shown} cannot be run"))? {
        FileUse::Chats => {}
        FileUse::Continues(reason) => {
            app.output.note(&format!("{shown} can continue text but not chat: {}", with_causes(&reason)));
        }
        FileUse::Embeds => app.output.note(&format!("{shown} turns texts into vectors: `hone embed` runs it")),
        FileUse::Scores if model_purpose(file) == Some(ModelPurpose::Rewards) => app.output.note(&format!(
            "{shown} rates answers: `hone judge exam` examines it, and judge.model makes it the judge; `hone rerank` runs it, too"
        )),
        FileUse::Scores => app.output.note(&format!("{shown} scores texts: `hone rerank` runs it")),
    }
    Ok(())
}
