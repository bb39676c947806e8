//! `hone show`: the details of one model.

use hone_app::describe::bytes;
use hone_app::models::GgufFacts;
use hone_models::{CatalogModel, InstalledModel, StoreError};
use hone_protocol::with_causes;
use serde::Serialize;

use super::describe::{JsonModel, place_name};
use crate::arguments::ShowArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Prints what is known about the model; a file that cannot be read as a model is a failure.
///
/// # Errors
/// When the name is unknown.
pub(crate) fn run(app: &Invocation, arguments: &ShowArguments) -> anyhow::Result<Outcome> {
    let catalog = app.store.catalog();
    let known = catalog.about(&arguments.name.to_lowercase());
    let installed = match (app.store.show(&arguments.name), known) {
        (Err(StoreError::NotInstalled(_)), Some(_)) => None,
        (found, _) => Some(found?),
    };
    let gguf = installed.as_ref().and_then(gguf_facts);
    let is_broken = matches!(gguf, Some(Err(_)));
    if arguments.json.json {
        let model = installed.as_ref().map(|model| JsonModel::installed(model, catalog));
        let model = model.or_else(|| known.map(JsonModel::known));
        let (gguf, problem) = match gguf.transpose() {
            Ok(gguf) => (gguf, None),
            Err(problem) => (None, Some(problem)),
        };
        app.output.print_json(&JsonShow { model, gguf, problem })?;
    } else {
        let mut rows = known.map(known_rows).unwrap_or_default();
        match &installed {
            Some(model) => rows.extend(installed_rows(model, gguf)),
            None => rows.push(row("installed", &format!("no: `hone pull {}` downloads it", arguments.name))),
        }
        app.output.print_table(&rows)?;
    }
    Ok(if is_broken { Outcome::Failed } else { Outcome::Done })
}

/// The JSON: the model, and the contents of its GGUF header, or why that cannot be read.
#[derive(Serialize)]
struct JsonShow<'a> {
    #[serde(flatten)]
    model: Option<JsonModel<'a>>,
    gguf: Option<GgufFacts>,
    problem: Option<String>,
}

/// The contents of the model's GGUF header; `None` if it is not a GGUF.
fn gguf_facts(model: &InstalledModel) -> Option<Result<GgufFacts, String>> {
    Some(GgufFacts::read(&model.gguf()?).map_err(|error| with_causes(&error)))
}

fn known_rows(model: &CatalogModel) -> Vec<Vec<String>> {
    let mut rows = vec![
        row("role", model.role.name()),
        row("family", &model.family),
        row("parameters", &parameters(model)),
        row("quantization", &model.quantization),
        row("context", &format!("{} tokens", model.context)),
        row("licence", &model.licence),
        row("size", &bytes(model.size())),
    ];
    let draft = |draft: &String| row("draft", &format!("{draft} can draft for it (engine.draft)"));
    rows.extend(model.draft.as_ref().map(draft));
    rows.extend(model.judge_profile.as_ref().map(|profile| row("profile", profile)));
    for source in &model.sources {
        let remark = if source.is_confirmed() { "" } else { " (not confirmed)" };
        rows.push(row("from", &format!("{}{remark}", source.label())));
    }
    rows
}

fn parameters(model: &CatalogModel) -> String {
    match &model.active_parameters {
        Some(active) => format!("{}, of which a token uses {active}", model.parameters),
        None => model.parameters.clone(),
    }
}

fn installed_rows(model: &InstalledModel, gguf: Option<Result<GgufFacts, String>>) -> Vec<Vec<String>> {
    let mut rows =
        vec![row("name", &model.name), row("installed", place_name(model.place)), row("source", &model.source)];
    for file in &model.files {
        rows.push(row("file", &format!("{} ({})", file.location.path.display(), bytes(file.location.length))));
        let remark = if file.unchecked { " (not verified: no hash was available when it was downloaded)" } else { "" };
        rows.extend(file.sha256.as_ref().map(|sha256| row("sha256", &format!("{sha256}{remark}"))));
    }
    match gguf {
        Some(Ok(facts)) => rows.extend(gguf_rows(facts)),
        Some(Err(problem)) => rows.push(row("problem", &problem)),
        None => {}
    }
    rows
}

fn gguf_rows(facts: GgufFacts) -> Vec<Vec<String>> {
    let types: Vec<String> = facts.tensor_types.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let values = [
        ("title", facts.title),
        ("architecture", facts.architecture),
        ("weights", Some(facts.n_parameters.to_string())),
        ("trained for", facts.context_length.map(|length| format!("{length} tokens of context"))),
        ("blocks", facts.block_count.map(|count| count.to_string())),
        ("head", facts.has_head.then(|| "predicts further tokens (engine.speculation)".to_owned())),
        ("vocabulary", facts.vocabulary_size.map(|size| format!("{size} tokens"))),
        ("tensors", Some(types.join(", "))),
    ];
    values.into_iter().filter_map(|(name, value)| Some(row(name, &value?))).collect()
}

fn row(name: &str, value: &str) -> Vec<String> {
    vec![name.to_string(), value.to_string()]
}
