//! Presets: named settings for a chat. They belong to the server's owner, so clients with keys have none.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use hone_app::config::{check_preset, preset_keys};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::blocking;
use super::shapes::{HonePresetSaved, HonePresets};
use super::status::reported;
use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::requests::parsed;

/// The presets of the server's owner; clients with keys see none.
#[utoipa::path(get, path = "/hone/v1/presets", tag = "hone", responses((status = OK, body = HonePresets)))]
pub(super) async fn list(State(shared): State<Arc<Shared>>, client: Client) -> Result<Json<Value>, ApiError> {
    reported(shared, move |shared| {
        let is_own = client.owner().is_none();
        let presets = shared.parts.app.presets().ok().filter(|_| is_own);
        let names = presets.as_ref().and_then(|presets| presets.names().ok()).unwrap_or_default();
        let keys = |name: &String| presets.as_ref()?.keys(name).ok();
        let presets: Vec<Value> = names
            .iter()
            // Invalid presets are not offered; `hone preset show` says why.
            .filter_map(|name| Some(json!({"name": name, "settings": BTreeMap::from_iter(keys(name)?)})))
            .collect();
        Ok(json!({"presets": presets, "can_save": is_own}))
    })
    .await
}

/// A new preset. Settings that are omitted stay as configured.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HonePresetSaving)]
struct PresetSaving {
    name: String,
    /// Instructions before the conversation.
    #[serde(default, rename(serialize = "chat.system"))]
    system: Option<String>,
    #[serde(default, rename(serialize = "sampling.temperature"))]
    temperature: Option<f64>,
    #[serde(default, rename(serialize = "sampling.top_p"))]
    top_p: Option<f64>,
    /// The maximum number of tokens in an answer.
    #[serde(default, rename(serialize = "sampling.max_tokens"))]
    max_tokens: Option<u32>,
    /// Whether the model reasons, if it can.
    #[serde(default, rename(serialize = "sampling.thinking"), serialize_with = "on_or_off")]
    thinking: Option<bool>,
}

fn on_or_off<S: Serializer>(is_on: &Option<bool>, serializer: S) -> Result<S::Ok, S::Error> {
    is_on.map(|is_on| if is_on { "on" } else { "off" }).serialize(serializer)
}

/// Saves a preset under a new name.
#[utoipa::path(
    post,
    path = "/hone/v1/presets",
    tag = "hone",
    request_body = PresetSaving,
    responses(
        (status = OK, body = HonePresetSaved),
        (status = BAD_REQUEST),
        (status = FORBIDDEN),
        (status = CONFLICT)
    )
)]
pub(super) async fn save(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let saving: PresetSaving = parsed(body).await?;
    if client.owner().is_some() {
        let reason = "presets belong to the server's owner: clients with a key cannot save any";
        return Err(ApiError::new(StatusCode::FORBIDDEN, reason));
    }
    blocking(move || saved(&shared, saving).map(Json)).await
}

fn saved(shared: &Shared, saving: PresetSaving) -> Result<Value, ApiError> {
    let bad = |error| ApiError::bad_request(format!("{error:#}"));
    let failed = |error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"));
    let presets = shared.parts.app.presets().map_err(failed)?;
    let mut keys = preset_keys(&saving).map_err(bad)?;
    // The name is not a setting.
    keys.retain(|(key, _)| key != "name");
    if keys.is_empty() {
        return Err(ApiError::bad_request("a preset needs a setting"));
    }
    let name = saving.name;
    presets.path(&name).map_err(bad)?;
    check_preset(&name, &keys).map_err(bad)?;
    let taken = || {
        let reason = format!("a preset {name:?} exists already: choose another name");
        ApiError::new(StatusCode::CONFLICT, reason)
    };
    presets.create(&name, keys).map_err(failed)?.ok_or_else(taken)?;
    Ok(json!({"name": name}))
}
