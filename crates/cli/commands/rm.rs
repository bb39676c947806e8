//! `hone rm`: removes models from the store.

use crate::app::App;
use crate::arguments::RmArguments;
use crate::failure::Outcome;
use crate::output::bytes;

/// Removes the models, in the order in which they are named.
///
/// # Errors
/// At the first that cannot be removed.
pub(crate) fn run(app: &App, arguments: &RmArguments) -> anyhow::Result<Outcome> {
    for name in &arguments.names {
        let freed = app.store.remove(name)?;
        app.output.print_line(&format!("{name} is removed ({} freed)", bytes(freed)))?;
    }
    Ok(Outcome::Done)
}
