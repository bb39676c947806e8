//! Endpoints for operators and probes: liveness, readiness and metrics.

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

/// The text by which Ollama's clients recognize a running server.
const OLLAMA_RUNS: &str = "Ollama is running";
/// The content type of the metrics.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes of the endpoints.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default().routes(routes!(alive)).routes(routes!(ready)).routes(routes!(metrics))
}

/// The root path, answered as Ollama does.
pub(crate) fn root_of_compat_port() -> Router<Arc<Shared>> {
    Router::new().route("/", get(async || OLLAMA_RUNS))
}

/// Whether the server is alive.
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

/// The server's metrics, in Prometheus's text format.
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
