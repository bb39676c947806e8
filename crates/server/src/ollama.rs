//! Ollama's API, as <https://docs.ollama.com/api> describes it.

mod answers;
mod embed;
mod models;
mod pull;
mod shapes;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::shapes::OllamaVersion;
use crate::Shared;

/// The API's routes.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default()
        .routes(routes!(version))
        .routes(routes!(models::tags))
        .routes(routes!(models::show))
        .routes(routes!(models::loaded))
        .routes(routes!(models::remove))
        .routes(routes!(pull::pull))
        .routes(routes!(models::copy))
        .routes(routes!(models::create))
        .routes(routes!(models::push))
        .routes(routes!(answers::chat))
        .routes(routes!(answers::generate))
        .routes(routes!(embed::embed))
        .routes(routes!(embed::embed_one))
}

/// The version of Ollama whose API this is. Clients ask for it, and some require a minimum.
const OLLAMA_VERSION: &str = "0.13.5";

/// The version of Ollama that this server stands in for, and hone's version.
#[utoipa::path(get, path = "/api/version", tag = "Ollama", responses((status = OK, body = OllamaVersion)))]
async fn version(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({"version": OLLAMA_VERSION, "hone": shared.parts.version}))
}

/// A time in seconds since 1970, in RFC 3339 format.
fn rfc3339(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let moment = moment.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second) = moment.to_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", moment.date())
}
