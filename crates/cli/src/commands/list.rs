//! `hone list`: the installed models, and with `--all` the rest of the catalog, with an estimate of each model here.

use anyhow::Context;
use hone_app::SavedPrefixes;
use hone_app::describe::bytes;
use hone_app::estimates::{Estimate, Limits};
use hone_app::machine::Machine;
use hone_models::{CatalogModel, InstalledModel, Listing};

use super::describe::{JsonModel, place_name, role_of};
use crate::arguments::ListArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Prints the list.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn run(app: &Invocation, arguments: &ListArguments) -> anyhow::Result<Outcome> {
    let listing = app.store.list()?;
    let catalog = app.store.catalog();
    let is_missing = |model: &&CatalogModel| !listing.models.iter().any(|installed| installed.name == model.name);
    let missing: Vec<&CatalogModel> =
        if arguments.all { catalog.models.iter().filter(is_missing).collect() } else { Vec::new() };
    let limits = arguments.all.then(|| Limits::here(app, &Machine::look()));
    let of_installed =
        |model: &InstalledModel| limits.as_ref().map(|limits| limits.installed(model, catalog.about(&model.name)));
    let of_missing = |model: &CatalogModel| limits.as_ref().map(|limits| limits.known(model));
    if arguments.json.json {
        let installed =
            listing.models.iter().map(|model| JsonModel::installed(model, catalog).expecting(of_installed(model)));
        let missing = missing.iter().map(|model| JsonModel::known(model).expecting(of_missing(model)));
        app.output.print_json(&installed.chain(missing).collect::<Vec<_>>())?;
        return Ok(Outcome::Done);
    }
    let role = |model: &InstalledModel| role_of(model, catalog).name();
    let installed = listing.models.iter().map(|model| {
        row(&model.name, model.size(), of_installed(model), role(model), place_name(model.place), &model.source)
    });
    let missing = missing
        .iter()
        .map(|model| row(&model.name, model.size(), of_missing(model), model.role.name(), "-", "not installed"));
    app.output.print_titled(&titles(arguments.all), installed.chain(missing))?;
    if let Some(limits) = limits {
        app.output.note(&limits.remark());
    }
    remark(app, &listing);
    let folder = app.prefix_folder();
    let kept = SavedPrefixes::in_folder(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    if kept.files > 0 {
        let size = bytes(kept.bytes);
        app.output.note(&format!("kept KV cache of saved conversations: {size}, which `hone rm --kv` frees"));
    }
    Ok(Outcome::Done)
}

fn titles(has_estimates: bool) -> Vec<&'static str> {
    let names = ["name", "size", "fits", "speed", "role", "place", "source"];
    names.into_iter().filter(|name| has_estimates || !matches!(*name, "fits" | "speed")).collect()
}

fn row(name: &str, size: u64, estimate: Option<Estimate>, role: &str, place: &str, source: &str) -> Vec<String> {
    let mut row = vec![name.to_string(), bytes(size)];
    row.extend(estimate.iter().flat_map(Estimate::columns));
    row.extend([role, place, source].map(str::to_string));
    row
}

/// Prints remarks about facts that are not in the table.
fn remark(app: &Invocation, listing: &Listing) {
    if listing.models.is_empty() {
        app.output.note("no model is installed: `hone list --all` shows those that `hone pull` can download");
    }
    for broken in &listing.broken {
        app.output.note(&format!("broken: {}", broken.reason));
    }
    for name in &listing.unfinished {
        app.output.note(&format!("{name} is only partly downloaded: `hone pull {name}` resumes the download"));
    }
}
