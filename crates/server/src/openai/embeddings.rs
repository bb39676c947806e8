//! `/v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::shapes::OpenAiTexts;
use crate::Shared;
use crate::embedding::{Texts, Vectors};
use crate::error::ApiError;
use crate::requests::{or_default, parsed};

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiEmbeddingsRequest)]
struct EmbeddingsRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    #[schema(value_type = OpenAiTexts)]
    input: Value,
    #[serde(default)]
    encoding_format: Option<Encoding>,
    #[serde(default)]
    dimensions: Option<usize>,
}

/// The encoding of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = OpenAiEncoding)]
enum Encoding {
    /// As numbers.
    #[default]
    Float,
    /// As the bytes of their 32-bit floats, little-endian, in base64.
    Base64,
}

/// The body of a response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenAiEmbeddings)]
struct Embeddings {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: Usage,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenAiEmbedding)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Encoded,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenAiEncoded)]
enum Encoded {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenAiEmbeddingsUsage)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// Embeds the texts of a request.
#[utoipa::path(
    post,
    path = "/v1/embeddings",
    tag = "OpenAI",
    request_body = EmbeddingsRequest,
    responses((status = OK, body = Embeddings), (status = NOT_FOUND))
)]
pub(super) async fn embed(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Response, ApiError> {
    let EmbeddingsRequest { model, input, encoding_format, dimensions } = parsed(body).await?;
    let texts = Texts::read(input)?;
    if texts.iter().any(String::is_empty) || texts.is_empty() {
        return Err(ApiError::bad_request("input is empty, or holds an empty text").about("input"));
    }
    let Vectors { model, vectors, tokens } = Texts { texts, model, dimensions, truncates: true }.embed(&shared).await?;
    let data = vectors.into_iter().enumerate().map(|(index, vector)| {
        let embedding = encoding_format.unwrap_or_default().encode(vector);
        Embedding { object: "embedding", index, embedding }
    });
    let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
    Ok(Json(Embeddings { object: "list", data: data.collect(), model, usage }).into_response())
}

impl Encoding {
    fn encode(self, vector: Vec<f32>) -> Encoded {
        match self {
            Encoding::Float => Encoded::Float(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector.into_iter().flat_map(f32::to_le_bytes).collect();
                Encoded::Base64(STANDARD.encode(bytes))
            }
        }
    }
}
