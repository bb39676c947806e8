//! `hone pull`: fetches a model.

use hone_models::PullOptions;

use super::describe::JsonModel;
use crate::app::App;
use crate::arguments::PullArguments;
use crate::failure::Outcome;
use crate::output::bytes;

/// Fetches the model.
///
/// # Errors
/// When it is not known, or cannot be fetched.
pub(crate) fn run(app: &App, arguments: PullArguments) -> anyhow::Result<Outcome> {
    let options = PullOptions { name: arguments.name, ..PullOptions::from_environment() };
    let pulled = app.pull(&arguments.reference, &options)?;
    if arguments.json.json {
        app.output.print_json(&JsonModel::installed(&pulled.model, app.store.catalog()))?;
    } else {
        let done = if pulled.was_there { "is installed already" } else { "is installed" };
        app.output.print_line(&format!("{} {done} ({})", pulled.model.name, bytes(pulled.model.size())))?;
    }
    Ok(Outcome::Done)
}
