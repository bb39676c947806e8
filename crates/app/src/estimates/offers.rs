//! The models of the catalog as offers to a person.

use hone_models::{CatalogModel, StoreError};
use serde::Serialize;

use super::{Estimate, Limits};
use crate::App;
use crate::machine::Machine;

/// The models of the catalog.
#[derive(Debug, Serialize)]
pub struct Offers {
    models: Vec<Offer>,
}

#[derive(Debug, Serialize)]
struct Offer {
    name: String,
    role: &'static str,
    family: String,
    parameters: String,
    quantization: String,
    licence: String,
    context: u32,
    bytes: u64,
    installed: bool,
    /// Whether it would be a better generator than the configured one.
    suggested: bool,
    estimate: Estimate,
}

impl Offers {
    /// Offers all models, with estimates for this machine.
    ///
    /// # Errors
    /// When the installed models cannot be listed.
    pub fn here(app: &App) -> Result<Offers, StoreError> {
        let installed = app.store.list()?.models;
        let (catalog, limits) = (app.store.catalog(), Limits::here(app, &Machine::look()));
        let suggested = limits.suggested(app, &app.config.engine.model).map(|(model, _)| &model.name);
        let offer = |model: &CatalogModel| Offer {
            name: model.name.clone(),
            role: model.role.name(),
            family: model.family.clone(),
            parameters: model.parameters.clone(),
            quantization: model.quantization.clone(),
            licence: model.licence.clone(),
            context: model.context,
            bytes: model.size(),
            installed: installed.iter().any(|installed| installed.name == model.name),
            suggested: suggested == Some(&model.name),
            estimate: limits.known(model),
        };
        Ok(Offers { models: catalog.models.iter().map(offer).collect() })
    }
}
