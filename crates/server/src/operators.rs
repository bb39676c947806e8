//! Questions of operators and probes: whether the server lives, whether it is ready, and what it has done.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;
use crate::error::ApiError;
use crate::threads::apart;

/// The text by which clients of Ollama see that it runs.
const OLLAMA_RUNS: &str = "Ollama is running";
/// The type of the metrics' text.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Their paths.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default().routes(routes!(alive)).routes(routes!(ready)).routes(routes!(metrics))
}

/// The root as Ollama answers it.
pub(crate) fn root_of_compat_port() -> Router<Arc<Shared>> {
    Router::new().route("/", get(async || OLLAMA_RUNS))
}

/// Whether the server lives.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "Operation",
    responses((status = OK, body = String, content_type = "text/plain"))
)]
async fn alive() -> &'static str {
    "ok\n"
}

/// Whether a question would be answered.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "Operation",
    responses((status = OK, body = String, content_type = "text/plain"))
)]
async fn ready(State(shared): State<Arc<Shared>>) -> Result<&'static str, ApiError> {
    shared.check_serving()?;
    let model = shared.parts.models.default_name();
    shared.check_model(&model).map_err(|error| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.message))?;
    Ok("ready\n")
}

/// What the server has done, in the text form of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "Operation",
    responses((status = OK, body = String, content_type = "application/openmetrics-text"))
)]
async fn metrics(State(shared): State<Arc<Shared>>) -> Result<impl IntoResponse, ApiError> {
    let asked = Arc::clone(&shared);
    let fleet = apart(move || asked.parts.app.fleet_overview()).await?;
    let text = shared.metrics.text(shared.n_questions(), fleet.as_ref());
    let text = text.map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], text))
}
