//! Presets: named settings for a chat. They belong to the server's owner, so clients with keys have none.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hone_app::config::{check_preset, preset_keys};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::blocking;
use super::shapes::{HonePresetSaved, HonePresets, HoneRemoved};
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
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HonePresetSaving)]
struct PresetSaving {
    name: String,
    /// Whether it takes the place of a preset of this name, whose other settings stay.
    #[serde(default)]
    replace: bool,
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

impl PresetSaving {
    /// Whether a client can set the key.
    fn has(key: &str) -> bool {
        serde_json::to_value(PresetSaving::default()).is_ok_and(|fields| fields.get(key).is_some())
    }
}

/// Presets belong to the server's owner.
fn check_is_owner(client: Client) -> Result<(), ApiError> {
    match client.owner() {
        None => Ok(()),
        Some(_) => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "presets belong to the server's owner: clients with a key cannot change them",
        )),
    }
}

fn on_or_off<S: Serializer>(is_on: &Option<bool>, serializer: S) -> Result<S::Ok, S::Error> {
    is_on.map(|is_on| if is_on { "on" } else { "off" }).serialize(serializer)
}

/// Saves a preset.
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
    check_is_owner(client)?;
    blocking(move || saved(&shared, saving).map(Json)).await
}

fn saved(shared: &Shared, saving: PresetSaving) -> Result<Value, ApiError> {
    let bad = |error| ApiError::bad_request(format!("{error:#}"));
    let failed = |error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"));
    let presets = shared.parts.app.presets().map_err(failed)?;
    let mut keys = preset_keys(&saving).map_err(bad)?;
    // The name and the flag are not settings.
    keys.retain(|(key, _)| key.contains('.'));
    if keys.is_empty() {
        return Err(ApiError::bad_request("a preset needs a setting"));
    }
    let name = saving.name;
    presets.path(&name).map_err(bad)?;
    if saving.replace && presets.names().map_err(failed)?.contains(&name) {
        let others = presets.keys(&name).map_err(bad)?.into_iter().filter(|(key, _)| !PresetSaving::has(key));
        keys.splice(0..0, others);
        check_preset(&name, &keys).map_err(bad)?;
        presets.replace(&name, keys).map_err(failed)?;
        return Ok(json!({"name": name}));
    }
    check_preset(&name, &keys).map_err(bad)?;
    let taken = || {
        let reason = format!("a preset {name:?} exists already: choose another name");
        ApiError::new(StatusCode::CONFLICT, reason)
    };
    presets.create(&name, keys).map_err(failed)?.ok_or_else(taken)?;
    Ok(json!({"name": name}))
}

/// Deletes a preset.
#[utoipa::path(
    delete,
    path = "/hone/v1/presets/{name}",
    tag = "hone",
    params(("name" = String, Path)),
    responses((status = OK, body = HoneRemoved), (status = FORBIDDEN), (status = NOT_FOUND))
)]
pub(super) async fn remove(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    check_is_owner(client)?;
    let failed = |error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"));
    blocking(move || {
        let presets = shared.parts.app.presets().map_err(failed)?;
        if !presets.names().map_err(failed)?.contains(&name) {
            return Err(ApiError::new(StatusCode::NOT_FOUND, format!("no preset {name:?} exists")));
        }
        presets.delete(&name).map_err(failed)?;
        Ok::<_, ApiError>(Json(json!({"removed": true})))
    })
    .await
}
