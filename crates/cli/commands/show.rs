//! `hone show`: what is known about one model.

use hone_models::{CatalogModel, InstalledModel, StoreError};

use super::describe::{JsonModel, place_name, role_name};
use crate::app::App;
use crate::arguments::ShowArguments;
use crate::failure::Outcome;
use crate::output::{bytes, print_json, print_line, table};

/// Prints what is known.
///
/// # Errors
/// When nothing is known under that name.
pub(crate) fn run(app: &App, arguments: &ShowArguments) -> anyhow::Result<Outcome> {
    let catalog = app.store.catalog();
    let known = catalog.find(&arguments.name);
    let installed = match (app.store.show(&arguments.name), known) {
        (Err(StoreError::NotInstalled(_)), Some(_)) => None,
        (found, _) => Some(found?),
    };
    if arguments.json.json {
        let json = installed.as_ref().map(|model| JsonModel::installed(model, catalog));
        print_json(&json.or_else(|| known.map(JsonModel::known)))?;
    } else {
        let mut rows = known.map(known_rows).unwrap_or_default();
        match &installed {
            Some(model) => rows.extend(installed_rows(model)),
            None => rows.push(row("installed", &format!("no: `hone pull {}` fetches it", arguments.name))),
        }
        print_line(&table(&rows))?;
    }
    Ok(Outcome::Done)
}

fn known_rows(model: &CatalogModel) -> Vec<Vec<String>> {
    vec![
        row("role", role_name(model.role)),
        row("family", &model.family),
        row("parameters", &model.parameters),
        row("quantization", &model.quantization),
        row("context", &format!("{} tokens", model.context)),
        row("licence", &model.licence),
        row("size", &bytes(model.size())),
    ]
}

fn installed_rows(model: &InstalledModel) -> Vec<Vec<String>> {
    let mut rows =
        vec![row("name", &model.name), row("installed", place_name(model.place)), row("source", &model.source)];
    for file in &model.files {
        rows.push(row("file", &format!("{} ({})", file.location.path.display(), bytes(file.location.length))));
        rows.extend(file.sha256.as_ref().map(|sha256| row("sha256", sha256)));
    }
    rows
}

fn row(name: &str, value: &str) -> Vec<String> {
    vec![name.to_string(), value.to_string()]
}
