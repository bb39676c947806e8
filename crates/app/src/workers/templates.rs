//! `hone template-worker`: the process in which a model file's chat template runs.

use hone_engine::{TemplateHost, template_worker};

/// The argument that makes this program a template's process.
pub(super) const WORKER: &str = "template-worker";

/// Runs templates until there are no more requests.
pub(super) fn work() -> Result<(), String> {
    template_worker::serve().map_err(|error| error.to_string())
}

/// The host for the templates of model files: they run in processes of this program.
///
/// # Errors
/// When this program's own file cannot be found.
pub fn host() -> anyhow::Result<TemplateHost> {
    Ok(TemplateHost::Process { program: super::this_program()?, arguments: vec![WORKER.into()] })
}
