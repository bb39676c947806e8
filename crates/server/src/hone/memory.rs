//! Memory: searching, viewing and forgetting.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use hone_app::ServedMemory;
use hone_memory::{Engram, Filters, Matching, MemoryError, MemoryStore, RecallQuestion, Update, Whose};
use hone_protocol::{RecalledEngram, with_causes};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::badge::grade_json;
use super::blocking;
use super::shapes::{HoneEngram, HoneEngrams, HoneRemoved};
use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::markup::html_of;

/// Maximum number of engrams per response.
const MOST: usize = 200;

/// A search in memory.
#[derive(Debug, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = HoneSearch)]
pub(crate) struct Search {
    /// A question or words; if empty, the latest engrams are listed.
    #[serde(default)]
    search: String,
    /// The maximum number of engrams.
    #[serde(default = "usual_limit")]
    limit: usize,
}

fn usual_limit() -> usize {
    20
}

/// The latest engrams, or those that are closest to a text.
#[utoipa::path(
    get,
    path = "/hone/v1/memory",
    tag = "hone",
    params(Search),
    responses((status = OK, body = HoneEngrams), (status = NOT_FOUND), (status = BAD_REQUEST))
)]
pub(super) async fn search(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Query(search): Query<Search>,
) -> Result<Json<Value>, ApiError> {
    let memory = memory_of(&shared)?.clone();
    blocking(move || found(&memory, client.whose(), &search).map(Json)).await
}

/// Searches an owner's memory.
pub(super) fn found(memory: &ServedMemory, whose: Whose, search: &Search) -> Result<Value, ApiError> {
    let filters = Filters { whose, facts: true, notes: true, ..Filters::default() };
    let limit = search.limit.min(MOST);
    let found = match search.search.trim() {
        "" => latest(&memory.store, &filters, limit)?,
        text => closest(memory, text, filters, limit)?,
    };
    Ok(json!({"engrams": found}))
}

fn latest(store: &MemoryStore, filters: &Filters, n: usize) -> Result<Vec<Value>, ApiError> {
    Ok(store.list(filters, n)?.iter().map(engram_json).collect())
}

/// Engrams with a similar meaning or with the words; without an embedder, engrams that contain the text.
fn closest(memory: &ServedMemory, text: &str, filters: Filters, n: usize) -> Result<Vec<Value>, ApiError> {
    let Some(recaller) = &memory.recaller else {
        return latest(&memory.store, &Filters { text: Some(text.to_owned()), ..filters }, n);
    };
    let failed = |error: &_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, with_causes(error));
    let question = RecallQuestion {
        text: text.to_owned(),
        vector: recaller.embedder.embed_query(text).map_err(|error| failed(&error))?,
        known: Vec::new(),
        matching: Matching { threshold: -1.0, nearness: 0.0, ..recaller.settings.matching(text) },
        keeps_all: true,
    };
    let found = memory.store.recall(question, n, &filters)?;
    found.iter().filter_map(|recalled| recalled_json(&memory.store, recalled).transpose()).collect()
}

fn recalled_json(store: &MemoryStore, recalled: &RecalledEngram) -> Result<Option<Value>, ApiError> {
    let Some(engram) = store.get(recalled.query_id)? else { return Ok(None) };
    let mut object = engram_json(&engram);
    object["similarity"] = json!(recalled.similarity);
    Ok(Some(object))
}

/// An engram in a list.
fn engram_json(engram: &Engram) -> Value {
    json!({
        "query_id": engram.query_id,
        "kind": engram.kind,
        "at": engram.at,
        "query": engram.query,
        "answer": engram.answer,
        "model": engram.model,
        "grade": grade_json(engram.grade.as_ref()),
        "rating": engram.user_feedback,
        "vetting": engram.vetting.state,
    })
}

/// Everything about one engram.
#[utoipa::path(
    get,
    path = "/hone/v1/memory/{id}",
    tag = "hone",
    params(("id" = String, Path)),
    responses((status = OK, body = HoneEngram), (status = NOT_FOUND))
)]
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let store = memory_of(&shared)?.store.clone();
    blocking(move || {
        let engram = remembered(&store, client, &id)?;
        let mut object = engram_json(&engram);
        object["html"] = json!(html_of(&engram.answer));
        object["fields"] = json!(store.fields(engram.query_id)?);
        Ok::<_, ApiError>(Json(object))
    })
    .await
}

/// Forgets one engram.
#[utoipa::path(
    delete,
    path = "/hone/v1/memory/{id}",
    tag = "hone",
    params(("id" = String, Path)),
    responses((status = OK, body = HoneRemoved), (status = NOT_FOUND))
)]
pub(super) async fn forget(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let store = memory_of(&shared)?.store.clone();
    let removed =
        blocking(move || Ok::<_, ApiError>(store.forget(&remembered(&store, client, &id)?)? == Update::Merged)).await?;
    Ok(Json(json!({"removed": removed})))
}

/// An engram of the client, by its full id.
pub(super) fn remembered(store: &MemoryStore, client: Client, id: &str) -> Result<Engram, ApiError> {
    let engram = id.parse().ok().map(|id| store.get(id)).transpose()?.flatten();
    let engram = engram.filter(|engram| client.whose().includes(engram.owner));
    engram.ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, format!("{id} is not remembered")))
}

/// The memory.
///
/// # Errors
/// When memory is switched off.
pub(super) fn memory_of(shared: &Shared) -> Result<&ServedMemory, ApiError> {
    switched_on(shared.parts.memory.as_ref())
}

/// The memory, if it is switched on.
///
/// # Errors
/// When memory is switched off.
pub(super) fn switched_on(memory: Option<&ServedMemory>) -> Result<&ServedMemory, ApiError> {
    memory.ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "memory is switched off (memory.remember)"))
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, with_causes(&error))
    }
}
