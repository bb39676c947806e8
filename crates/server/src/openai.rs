//! OpenAI's API, as <https://platform.openai.com/docs/api-reference> describes it.

mod chat;
mod choices;
mod common;
mod completions;
mod embeddings;
mod logprobs;
mod messages;
mod models;
mod request;
mod responses;
mod shapes;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;

pub(crate) use self::responses::{KeptResponses, RunningResponses};

/// Its paths.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default()
        .routes(routes!(models::list))
        .routes(routes!(models::show))
        .routes(routes!(chat::complete))
        .routes(routes!(completions::complete))
        .merge(responses::routes())
        .routes(routes!(embeddings::embed))
}
