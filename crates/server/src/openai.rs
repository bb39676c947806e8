//! OpenAI's API, as <https://platform.openai.com/docs/api-reference> describes it.

mod chat;
mod choices;
mod common;
mod completions;
mod decisions;
mod embeddings;
mod logprobs;
mod messages;
mod models;
mod request;
mod responses;
mod scoring;
mod shapes;

use std::sync::Arc;

use hone_protocol::Query;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;
use crate::error::ApiError;

pub(crate) use self::request::ChatRequest;
pub(crate) use self::responses::{KeptResponses, RunningResponses};

/// The API's routes.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default()
        .routes(routes!(models::list))
        .routes(routes!(models::show))
        .routes(routes!(chat::complete))
        .routes(routes!(completions::complete))
        .merge(responses::routes())
        .routes(routes!(embeddings::embed))
        .routes(routes!(decisions::create))
}

/// The question of a chat, without asking it.
///
/// # Errors
/// As for asking it.
pub(crate) fn chat_query(shared: &Shared, request: ChatRequest) -> Result<Query, ApiError> {
    let queries = request.queries(common::Defaults::of(shared))?;
    queries.into_iter().next().ok_or_else(|| ApiError::bad_request("n is 0"))
}
