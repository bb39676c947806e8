//! Models between machines: as a worker describes its own, and as a server passes that on.

use std::path::Path;

use hone_fleet::OfferedModel;
use serde_json::Map;

use super::served::{capabilities, info, open};
use super::{ModelDescription, ModelDetails, ModelInfo};
use crate::app::App;

/// The abilities that are reported to clients.
const CAPABILITIES: [&str; 4] = ["completion", "tools", "thinking", "embedding"];

/// A worker's description of its model of this name, with which it does the work of a role.
///
/// # Errors
/// When it is not installed.
pub(crate) fn offered(app: &App, role: &str, name: &str) -> anyhow::Result<OfferedModel> {
    if Path::new(name).is_dir() {
        return Ok(OfferedModel { role: role.to_owned(), name: name.to_owned(), ..OfferedModel::default() });
    }
    let model = app.store.show(name)?;
    let ModelInfo { bytes, digest, details, context, .. } =
        info(&model, app.store.catalog().about(name), app.config.engine.options.model.context_length);
    let ModelDetails { format, family, parameters, quantization } = details;
    let capabilities = open(&model).map(|gguf| capabilities(&gguf)).unwrap_or_default();
    let capabilities = capabilities.into_iter().map(str::to_owned).collect();
    let (role, name) = (role.to_owned(), name.to_owned());
    Ok(OfferedModel { role, name, bytes, digest, format, family, parameters, quantization, context, capabilities })
}

impl From<OfferedModel> for ModelInfo {
    fn from(offered: OfferedModel) -> ModelInfo {
        let OfferedModel { name, bytes, digest, format, family, parameters, quantization, context, .. } = offered;
        let details = ModelDetails { format, family, parameters, quantization };
        ModelInfo { name, bytes, installed: 0, digest, details, context, is_elsewhere: true }
    }
}

impl From<OfferedModel> for ModelDescription {
    fn from(offered: OfferedModel) -> ModelDescription {
        let capabilities =
            CAPABILITIES.into_iter().filter(|known| offered.capabilities.iter().any(|can| can == known)).collect();
        ModelDescription {
            info: offered.into(),
            template: String::new(),
            licence: String::new(),
            metadata: Map::new(),
            capabilities,
        }
    }
}
