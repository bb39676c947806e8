//! `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use hone_app::models::ModelInfo;
use serde_json::{Value, json};

use super::shapes::{OpenAiModel, OpenAiModels};
use crate::Shared;
use crate::error::ApiError;

/// All installed models.
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI", responses((status = OK, body = OpenAiModels)))]
pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ApiError> {
    let models: Vec<Value> = shared.on_models(|models| models.list()).await?.iter().map(object).collect();
    Ok(Json(json!({"object": "list", "data": models})))
}

/// An installed model.
#[utoipa::path(
    get,
    path = "/v1/models/{*name}",
    tag = "OpenAI",
    params(("name" = String, Path, description = "the name, which may hold slashes")),
    responses((status = OK, body = OpenAiModel), (status = NOT_FOUND))
)]
pub(super) async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let found = shared.on_models(move |models| models.find(&name)).await?;
    Ok(Json(object(&found)))
}

fn object(model: &ModelInfo) -> Value {
    json!({"id": model.name, "object": "model", "created": model.installed, "owned_by": "hone"})
}
