//! `/api/embed`, and `/api/embeddings`, its older form.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::Shared;
use crate::embedding::{Texts, Vectors};
use crate::error::ApiError;
use crate::requests::{or_default, parsed};

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaEmbedRequest)]
struct EmbedRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    #[serde(default)]
    input: Value,
    /// Whether a text that is too long is truncated.
    #[serde(default)]
    truncate: Option<bool>,
    #[serde(default)]
    dimensions: Option<usize>,
}

/// The body of a response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OllamaEmbedResponse)]
pub(super) struct EmbedResponse {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

/// Embeds texts.
#[utoipa::path(
    post,
    path = "/api/embed",
    tag = "Ollama",
    request_body = EmbedRequest,
    responses((status = OK, body = EmbedResponse), (status = NOT_FOUND))
)]
pub(super) async fn embed(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<EmbedResponse>, ApiError> {
    let begin = Instant::now();
    let EmbedRequest { model, input, truncate, dimensions } = parsed(body).await?;
    // No text, or an empty one, gives no vector; clients send it to check for the model.
    let is_empty = input.is_null() || input.as_str() == Some("");
    let texts = if is_empty { Vec::new() } else { Texts::read(input)? };
    let truncates = truncate.unwrap_or(true);
    let embedded = Texts { texts, model, dimensions, truncates }.embed(&shared).await?;
    let Vectors { model, vectors, tokens } = embedded;
    let total_duration = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let response =
        EmbedResponse { model, embeddings: vectors, total_duration, load_duration: 0, prompt_eval_count: tokens };
    Ok(Json(response))
}

/// The body of a request in the older form.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaEmbeddingsRequest)]
struct PromptRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    prompt: String,
}

/// The body of a response in the older form.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OllamaEmbeddingsResponse)]
pub(super) struct PromptResponse {
    embedding: Vec<f32>,
}

/// Embeds one text.
#[utoipa::path(
    post,
    path = "/api/embeddings",
    tag = "Ollama",
    request_body = PromptRequest,
    responses((status = OK, body = PromptResponse), (status = NOT_FOUND))
)]
pub(super) async fn embed_one(
    State(shared): State<Arc<Shared>>,
    body: Bytes,
) -> Result<Json<PromptResponse>, ApiError> {
    let PromptRequest { model, prompt } = parsed(body).await?;
    let texts = if prompt.is_empty() { Vec::new() } else { vec![prompt] };
    let embedded = Texts { texts, model, dimensions: None, truncates: true }.embed(&shared).await?;
    Ok(Json(PromptResponse { embedding: embedded.vectors.into_iter().next().unwrap_or_default() }))
}
