//! `hone list`: the installed models, and with `--all` the rest of the catalog.

use anyhow::Context;
use hone_models::{CatalogModel, InstalledModel, Listing};

use super::describe::{JsonModel, place_name, role_name};
use crate::app::App;
use crate::arguments::ListArguments;
use crate::failure::Outcome;
use crate::saved_prefixes::SavedPrefixes;
use crate::terminal::bytes;

/// Prints the list.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn run(app: &App, arguments: &ListArguments) -> anyhow::Result<Outcome> {
    let listing = app.store.list()?;
    let catalog = app.store.catalog();
    let is_missing = |model: &&CatalogModel| !listing.models.iter().any(|installed| installed.name == model.name);
    let missing: Vec<&CatalogModel> =
        if arguments.all { catalog.models.iter().filter(is_missing).collect() } else { Vec::new() };
    if arguments.json.json {
        let installed = listing.models.iter().map(|model| JsonModel::installed(model, catalog));
        let models = installed.chain(missing.iter().map(|model| JsonModel::known(model)));
        app.output.print_json(&models.collect::<Vec<_>>())?;
        return Ok(Outcome::Done);
    }
    let role = |model: &InstalledModel| catalog.find(&model.name).map_or("", |known| role_name(known.role));
    let mut rows: Vec<Vec<String>> = listing
        .models
        .iter()
        .map(|model| row(&model.name, model.size(), role(model), place_name(model.place), &model.source))
        .collect();
    rows.extend(
        missing.iter().map(|model| row(&model.name, model.size(), role_name(model.role), "-", "not installed")),
    );
    if !rows.is_empty() {
        rows.insert(0, ["NAME", "SIZE", "ROLE", "PLACE", "SOURCE"].map(str::to_string).to_vec());
        app.output.print_table(&rows)?;
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

fn row(name: &str, size: u64, role: &str, place: &str, source: &str) -> Vec<String> {
    vec![name.to_string(), bytes(size), role.to_string(), place.to_string(), source.to_string()]
}

/// Prints remarks about what the table does not show.
fn remark(app: &App, listing: &Listing) {
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
