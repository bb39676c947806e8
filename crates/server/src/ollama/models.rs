//! Models in Ollama's API: listing, details, loaded models, copying and removal.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use hone_app::models::{LoadedModel, ModelDescription, ModelDetails, ModelInfo};
use hone_protocol::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::rfc3339;
use super::shapes::{OllamaLoadedModels, OllamaModel, OllamaModels};
use crate::Shared;
use crate::error::ApiError;
use crate::requests::{or_default, parsed};
use crate::shapes::EmptyBody;

/// The expiry of a model that stays in memory: in a hundred years, in seconds.
const NEVER: u64 = 100 * 365 * 24 * 3600;

/// A request that names a model.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaNamed)]
pub(super) struct Named {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    /// The field's older name.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    name: String,
}

impl Named {
    /// The model that a request names.
    ///
    /// # Errors
    /// When it names none.
    pub(super) fn model(self) -> Result<String, ApiError> {
        let name = if self.model.is_empty() { self.name } else { self.model };
        if name.is_empty() { Err(ApiError::bad_request("model is missing").about("model")) } else { Ok(name) }
    }
}

/// All installed models.
#[utoipa::path(get, path = "/api/tags", tag = "Ollama", responses((status = OK, body = OllamaModels)))]
pub(super) async fn tags(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ApiError> {
    let models: Vec<Value> = shared.on_models(|models| models.list()).await?.iter().map(tag).collect();
    Ok(Json(json!({"models": models})))
}

/// A model's details.
#[utoipa::path(
    post,
    path = "/api/show",
    tag = "Ollama",
    request_body = Named,
    responses((status = OK, body = OllamaModel), (status = NOT_FOUND))
)]
pub(super) async fn show(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let name = parsed::<Named>(body).await?.model()?;
    let shown = shared.on_models(move |models| models.describe(&name)).await?;
    let ModelDescription { info, template, licence, metadata, capabilities, .. } = shown;
    Ok(Json(json!({
        "modelfile": "",
        "parameters": "",
        "template": template,
        "license": licence,
        "details": details(&info.details),
        "model_info": metadata,
        "capabilities": capabilities,
        "modified_at": rfc3339(info.installed),
    })))
}

/// The models in memory.
#[utoipa::path(get, path = "/api/ps", tag = "Ollama", responses((status = OK, body = OllamaLoadedModels)))]
pub(super) async fn loaded(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ApiError> {
    let now = Timestamp::now().0 / 1000;
    let in_memory = |loaded: &LoadedModel| {
        let mut object = tag(&loaded.info);
        object["size"] = json!(loaded.bytes);
        object["size_vram"] = json!(loaded.device_bytes);
        object["expires_at"] = json!(rfc3339(now + loaded.expires_in.unwrap_or(NEVER)));
        object
    };
    let models: Vec<Value> = shared.on_models(|models| models.loaded()).await?.iter().map(in_memory).collect();
    Ok(Json(json!({"models": models})))
}

/// Removes a model.
#[utoipa::path(
    delete,
    path = "/api/delete",
    tag = "Ollama",
    request_body = Named,
    responses((status = OK), (status = NOT_FOUND), (status = CONFLICT))
)]
pub(super) async fn remove(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<(), ApiError> {
    let name = parsed::<Named>(body).await?.model()?;
    shared.on_models(move |models| models.remove(&name)).await
}

/// A request for a copy.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaCopy)]
struct Copy {
    source: String,
    destination: String,
}

/// Makes a model available under an additional name.
#[utoipa::path(
    post,
    path = "/api/copy",
    tag = "Ollama",
    request_body = Copy,
    responses((status = OK), (status = NOT_FOUND), (status = CONFLICT))
)]
pub(super) async fn copy(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<(), ApiError> {
    let Copy { source, destination } = parsed(body).await?;
    shared.on_models(move |models| models.copy(&source, &destination)).await
}

/// Not offered.
#[utoipa::path(
    post,
    path = "/api/create",
    tag = "Ollama",
    request_body = EmptyBody,
    responses((status = NOT_IMPLEMENTED))
)]
pub(super) async fn create() -> ApiError {
    not_offered("hone makes no models: `hone pull FILE.gguf` installs a file")
}

/// Not offered.
#[utoipa::path(
    post,
    path = "/api/push",
    tag = "Ollama",
    request_body = EmptyBody,
    responses((status = NOT_IMPLEMENTED))
)]
pub(super) async fn push() -> ApiError {
    not_offered("hone publishes no models")
}

fn not_offered(reason: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, reason)
}

fn tag(model: &ModelInfo) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": rfc3339(model.installed),
        "size": model.bytes,
        "digest": model.digest.clone().unwrap_or_default(),
        "details": details(&model.details),
    })
}

fn details(details: &ModelDetails) -> Value {
    let ModelDetails { format, family, parameters, quantization } = details;
    json!({
        "parent_model": "",
        "format": format,
        "family": family,
        "families": [family],
        "parameter_size": parameters,
        "quantization_level": quantization,
    })
}
