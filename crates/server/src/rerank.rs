//! `/v1/rerank`: orders texts by their relevance to a query, for Jina's and Cohere's clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use hone_protocol::{QueryId, Relevance, Rerank, RerankError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::requests::{or_default, parsed};
use crate::threads::apart;
use crate::{Shared, Waiting};

/// Maximum number of texts per request.
const MOST_TEXTS: usize = 2048;

/// The API's routes: Jina's and Cohere's, Cohere's newer one, and llama.cpp's.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default().routes(routes!(rerank)).routes(routes!(rerank_v2)).routes(routes!(rerank_bare))
}

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
struct RerankRequest {
    /// Empty for the installed reranker.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    query: RankedText,
    documents: Vec<RankedText>,
    /// The number of texts to return; all if omitted.
    #[serde(default)]
    top_n: Option<usize>,
    /// Whether the response has the texts, too.
    #[serde(default)]
    return_documents: Option<bool>,
}

/// A text, or an object with one.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "it must be a text, or an object with one (text)")]
enum RankedText {
    Bare(String),
    Object {
        text: String,
        #[serde(flatten)]
        #[schema(value_type = Object)]
        others: Map<String, Value>,
    },
}

impl RankedText {
    fn text(&self) -> &str {
        match self {
            RankedText::Bare(text) | RankedText::Object { text, .. } => text,
        }
    }

    /// The text as an object, as responses have it.
    fn as_object(&self) -> RankedText {
        match self {
            RankedText::Bare(text) => RankedText::Object { text: text.clone(), others: Map::new() },
            object @ RankedText::Object { .. } => object.clone(),
        }
    }
}

/// The response body: the most relevant texts come first.
#[derive(Debug, Serialize, ToSchema)]
struct RerankResponse {
    id: String,
    object: &'static str,
    model: String,
    results: Vec<RankedResult>,
    usage: RerankUsage,
    meta: RerankMeta,
}

/// A text's place in the request, and its relevance.
#[derive(Debug, Serialize, ToSchema)]
struct RankedResult {
    index: usize,
    /// The head's first output, or the probability of yes if the outputs are yes and no.
    relevance_score: f32,
    /// Whether the text is longer than the part that the model reads.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<RankedText>,
}

#[derive(Debug, Serialize, ToSchema)]
struct RerankUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// Cohere's clients expect it.
#[derive(Debug, Serialize, ToSchema)]
struct RerankMeta {
    api_version: RerankVersion,
    billed_units: RerankUnits,
}

#[derive(Debug, Serialize, ToSchema)]
struct RerankVersion {
    version: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct RerankUnits {
    search_units: usize,
}

/// Orders texts by their relevance to a query.
#[utoipa::path(
    post,
    path = "/v1/rerank",
    tag = "Reranking",
    request_body = RerankRequest,
    responses((status = OK, body = RerankResponse), (status = NOT_FOUND))
)]
async fn rerank(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<RerankResponse>, ApiError> {
    answered(&shared, body).await
}

/// Orders texts for Cohere's newer clients.
#[utoipa::path(
    post,
    path = "/v2/rerank",
    tag = "Reranking",
    request_body = RerankRequest,
    responses((status = OK, body = RerankResponse), (status = NOT_FOUND))
)]
async fn rerank_v2(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<RerankResponse>, ApiError> {
    answered(&shared, body).await
}

/// Orders texts for llama.cpp's clients.
#[utoipa::path(
    post,
    path = "/rerank",
    tag = "Reranking",
    request_body = RerankRequest,
    responses((status = OK, body = RerankResponse), (status = NOT_FOUND))
)]
async fn rerank_bare(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<RerankResponse>, ApiError> {
    answered(&shared, body).await
}

async fn answered(shared: &Arc<Shared>, body: Bytes) -> Result<Json<RerankResponse>, ApiError> {
    let RerankRequest { model, query, documents, top_n, return_documents } = parsed(body).await?;
    check(&query, &documents, top_n)?;
    let reranker = shared.on_models(move |models| models.reranker(&model)).await?;
    let model = reranker.model().to_owned();
    let texts = documents.iter().map(|document| document.text().to_owned()).collect();
    let found = scored(shared, reranker, query.text().to_owned(), texts).await?;
    let tokens = found.iter().map(|relevance| relevance.tokens).sum();
    let result = |(index, relevance): (usize, Relevance)| RankedResult {
        index,
        relevance_score: relevance.score,
        is_cut: relevance.is_cut,
        document: return_documents.unwrap_or_default().then(|| documents[index].as_object()),
    };
    let mut results: Vec<RankedResult> = found.into_iter().enumerate().map(result).collect();
    results.sort_by(|one, other| other.relevance_score.total_cmp(&one.relevance_score));
    results.truncate(top_n.unwrap_or(usize::MAX));
    Ok(Json(RerankResponse {
        id: format!("rerank-{}", QueryId::fresh()),
        object: "list",
        model,
        results,
        usage: RerankUsage { prompt_tokens: tokens, total_tokens: tokens },
        meta: RerankMeta { api_version: RerankVersion { version: "2" }, billed_units: RerankUnits { search_units: 1 } },
    }))
}

fn check(query: &RankedText, documents: &[RankedText], top_n: Option<usize>) -> Result<(), ApiError> {
    if query.text().trim().is_empty() {
        return Err(ApiError::bad_request("query is empty").about("query"));
    }
    if top_n == Some(0) {
        return Err(ApiError::bad_request("top_n is 0: it must be at least 1").about("top_n"));
    }
    match documents.len() {
        0 => Err(ApiError::bad_request("documents is empty").about("documents")),
        1..=MOST_TEXTS => Ok(()),
        many => {
            let reason = format!("documents has {many} texts: at most {MOST_TEXTS} are scored at once");
            Err(ApiError::bad_request(reason).about("documents"))
        }
    }
}

/// Scores the texts on a thread that may block. It holds a place and a turn until the work ends, which is early if the
/// client is gone or the server stops.
async fn scored(
    shared: &Shared,
    reranker: Arc<dyn Rerank>,
    query: String,
    texts: Vec<String>,
) -> Result<Vec<Relevance>, ApiError> {
    let room = shared.take_room()?;
    let turn = shared.reranking_turn().await?;
    let (waiting, is_ending) = (Waiting::default(), shared.is_ending.subscribe());
    let is_gone = Arc::clone(&waiting.0);
    let work = move || {
        let _held = (room, turn);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        reranker.rerank(&query, &texts, &|| is_gone.load(Ordering::Relaxed) || *is_ending.borrow())
    };
    let found = apart(work).await?;
    drop(waiting);
    found.map_err(|error| match &error {
        RerankError::Request { .. } => ApiError::bad_request(error.to_string()),
        RerankError::Model { .. } | RerankError::Stopped => {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    })
}
