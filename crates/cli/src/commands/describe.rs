//! Descriptions of models: the JSON that `list`, `show` and `pull` share.

use std::borrow::Cow;

use hone_app::estimates::Estimate;
use hone_engine::{ModelPurpose, model_purpose};
use hone_models::{Catalog, CatalogModel, InstalledModel, Place, Role};
use serde::Serialize;

/// The role of an installed model: the catalog's, or the one that its file suits.
pub(crate) fn role_of(model: &InstalledModel, catalog: &Catalog) -> Role {
    if let Some(known) = catalog.about(&model.name) {
        return known.role;
    }
    // Models in other files turn texts into vectors.
    let Some(file) = model.gguf() else { return Role::Embedder };
    match model_purpose(&file) {
        Some(ModelPurpose::Vectors) => Role::Embedder,
        Some(ModelPurpose::Scores) => Role::Reranker,
        Some(ModelPurpose::Rewards) => Role::Judge,
        Some(ModelPurpose::Text) | None => Role::Generator,
    }
}

/// A model, installed or known.
#[derive(Debug, Serialize)]
pub(crate) struct JsonModel<'a> {
    name: &'a str,
    installed: bool,
    place: Option<&'static str>,
    size: u64,
    source: Option<&'a str>,
    added: Option<u64>,
    role: Option<&'static str>,
    family: Option<&'a str>,
    parameters: Option<&'a str>,
    /// Parameters used per token; all of them unless the catalog says otherwise.
    active_parameters: Option<&'a str>,
    quantization: Option<Cow<'a, str>>,
    context: Option<u32>,
    licence: Option<&'a str>,
    /// A model that can draft for it.
    draft: Option<&'a str>,
    files: Vec<JsonFile<'a>>,
    /// The estimate for this machine, if requested.
    #[serde(flatten)]
    estimate: Option<Estimate>,
}

#[derive(Debug, Serialize)]
struct JsonFile<'a> {
    name: &'a str,
    path: Option<String>,
    offset: u64,
    size: u64,
    sha256: Option<&'a str>,
    unchecked: bool,
}

impl<'a> JsonModel<'a> {
    /// An installed model, with its facts from the catalog.
    pub(crate) fn installed(model: &'a InstalledModel, catalog: &'a Catalog) -> JsonModel<'a> {
        let files = model.files.iter().map(|file| JsonFile {
            name: &file.name,
            path: Some(file.location.path.display().to_string()),
            offset: file.location.offset,
            size: file.location.length,
            sha256: file.sha256.as_deref(),
            unchecked: file.unchecked,
        });
        JsonModel {
            name: &model.name,
            installed: true,
            place: Some(place_name(model.place)),
            size: model.size(),
            source: Some(&model.source),
            added: model.added,
            files: files.collect(),
            role: Some(role_of(model, catalog).name()),
            ..JsonModel::facts(&model.name, catalog.about(&model.name))
        }
    }

    /// A known model that is not installed.
    pub(crate) fn known(model: &'a CatalogModel) -> JsonModel<'a> {
        let files = model.files.iter().map(|file| JsonFile {
            name: &file.name,
            path: None,
            offset: 0,
            size: file.size,
            sha256: file.sha256.as_deref(),
            unchecked: false,
        });
        JsonModel { size: model.size(), files: files.collect(), ..JsonModel::facts(&model.name, Some(model)) }
    }

    /// Adds the estimate for this machine.
    pub(crate) fn expecting(self, estimate: Option<Estimate>) -> JsonModel<'a> {
        JsonModel { estimate, ..self }
    }

    fn facts(name: &'a str, known: Option<&'a CatalogModel>) -> JsonModel<'a> {
        JsonModel {
            name,
            installed: false,
            place: None,
            size: 0,
            source: None,
            added: None,
            role: known.map(|model| model.role.name()),
            family: known.map(|model| model.family.as_str()),
            parameters: known.map(|model| model.parameters.as_str()),
            active_parameters: known.map(|model| model.active_parameters.as_deref().unwrap_or(&model.parameters)),
            quantization: known.map(|model| match model.name == name {
                true => Cow::Borrowed(model.quantization.as_str()),
                // It is the same model in the quantization that its name ends with.
                false => Cow::Owned(name[model.name.len() + 1..].to_uppercase()),
            }),
            context: known.map(|model| model.context),
            licence: known.map(|model| model.licence.as_str()),
            draft: known.and_then(|model| model.draft.as_deref()),
            files: Vec::new(),
            estimate: None,
        }
    }
}

/// A model's place, in one word.
pub(crate) fn place_name(place: Place) -> &'static str {
    match place {
        Place::Store => "store",
        Place::Bundle => "bundle",
        Place::Path => "path",
    }
}
