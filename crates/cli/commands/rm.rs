//! `hone rm`: removes models from the store.

use serde::Serialize;

use crate::app::App;
use crate::arguments::RmArguments;
use crate::failure::Outcome;
use crate::output::bytes;

/// What `--json` prints of each model.
#[derive(Serialize)]
struct JsonRemoved<'a> {
    name: &'a str,
    freed_bytes: u64,
}

/// Removes the models, in the order in which they are named.
///
/// # Errors
/// At the first that cannot be removed.
pub(crate) fn run(app: &App, arguments: &RmArguments) -> anyhow::Result<Outcome> {
    let mut removed = Vec::new();
    for name in &arguments.names {
        let freed_bytes = app.store.remove(name)?;
        if !arguments.json.json {
            app.output.print_line(&format!("{name} is removed ({} freed)", bytes(freed_bytes)))?;
        }
        removed.push(JsonRemoved { name, freed_bytes });
    }
    if arguments.json.json {
        app.output.print_json(&removed)?;
    }
    Ok(Outcome::Done)
}
