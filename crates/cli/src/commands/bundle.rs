//! `hone bundle`: writes a copy of this program with models inside.

use anyhow::Context;
use hone_app::describe::bytes;
use hone_models::{InstalledModel, write_bundle};
use serde::Serialize;

use crate::arguments::BundleArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::progress::Transfers;

/// The output of `--json`.
#[derive(Serialize)]
struct JsonBundle<'a> {
    path: String,
    size: u64,
    models: Vec<&'a str>,
}

/// Writes the bundle. Models of the catalog that are not installed are downloaded first.
///
/// # Errors
/// When a model is unavailable, or the file cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &BundleArguments) -> anyhow::Result<Outcome> {
    let models: Vec<InstalledModel> =
        arguments.models.iter().map(|name| app.installed(name)).collect::<anyhow::Result<_>>()?;
    let executable = std::env::current_exe().context("cannot find this program's own file")?;
    let mut transfers = Transfers::new(app.output);
    write_bundle(&executable, &models, &arguments.output, &mut |event| transfers.show(event))?;
    drop(transfers);
    let output = &arguments.output;
    let size = output.metadata().with_context(|| format!("cannot read {}", output.display()))?.len();
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    if arguments.json.json {
        app.output.print_json(&JsonBundle { path: output.display().to_string(), size, models: names })?;
    } else {
        app.output.print_line(&format!("{} holds {} ({})", output.display(), names.join(", "), bytes(size)))?;
    }
    Ok(Outcome::Done)
}
