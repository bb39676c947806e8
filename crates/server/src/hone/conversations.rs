//! The saved conversations of the page and the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response as HttpResponse};
use hone_app::conversations::{
    ConversationError, Conversations, FoundConversation, SavedConversation, SavedExchange, remembered_of,
};
use hone_memory::{MemoryError, MemoryStore, Whose};
use hone_protocol::{BranchPlace, with_causes};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::critique::Judged;
use super::shapes::{HoneConversation, HoneConversationRemoved, HoneConversations, HoneExport, HoneRenamed};
use super::{Sessions, blocking};
use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::markup::html_of;
use crate::requests::parsed;

/// The filter for the list of conversations.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Search {
    /// Only conversations with this text in the name, a question or an answer, ignoring case.
    #[serde(default)]
    search: String,
}

/// All conversations, the most recently written first.
#[utoipa::path(
    get,
    path = "/hone/v1/conversations",
    tag = "hone",
    params(Search),
    responses((status = OK, body = HoneConversations), (status = BAD_REQUEST))
)]
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Query(Search { search }): Query<Search>,
) -> Result<Json<Value>, ApiError> {
    let conversations = shared.conversations_of(client);
    let found = blocking(move || conversations.search(&search)).await?;
    let entry = |FoundConversation { name, written, conversation }: FoundConversation| {
        let title = conversation.unwrap_or_default().title(&name);
        json!({"name": name, "title": title, "written": written})
    };
    let found: Vec<Value> = found.into_iter().map(entry).collect();
    Ok(Json(json!({"conversations": found})))
}

/// A conversation with the grades of its answers.
#[utoipa::path(
    get,
    path = "/hone/v1/conversations/{name}",
    tag = "hone",
    params(("name" = String, Path)),
    responses((status = OK, body = HoneConversation), (status = NOT_FOUND))
)]
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    blocking(move || shown(&shared, client, &name).map(Json)).await
}

/// The visible branch of a conversation, with the grades of its answers.
fn shown(shared: &Shared, client: Client, name: &str) -> Result<Value, ApiError> {
    // Checked before the file is read: an answer that ends in between is in the file, and can still be followed.
    let is_answering = shared.sessions.is_answering(&(client.owner(), name.to_owned()));
    let conversation = shared.conversations_of(client).load(name)?;
    let SavedConversation { model, system, exchanges } = &conversation;
    let judged = |(index, exchange): (usize, &SavedExchange)| {
        let mut object = exchange_json(exchange, exchanges.place(index), recalled(shared, exchange));
        if let Some(id) = exchange.query_id {
            // If memory cannot be read, the conversation is shown without grades.
            object["grade"] = Judged::known(shared, client, id).unwrap_or_default().to_json(id);
            object["rating"] = object["grade"]["rating"].take();
        }
        object
    };
    let judged: Vec<Value> = exchanges.shown().enumerate().map(judged).collect();
    let title = conversation.title(name);
    Ok(json!({
        "name": name,
        "title": title,
        "model": model,
        "system": system,
        "exchanges": judged,
        "is_answering": is_answering,
    }))
}

/// The branch to switch to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneSwitching)]
struct Switching {
    /// The number of exchanges before the first one of the branch.
    index: usize,
    /// Its number among the branches that begin there, from 1.
    number: usize,
}

/// Switches a conversation to another branch, which later questions continue.
#[utoipa::path(
    post,
    path = "/hone/v1/conversations/{name}/branch",
    tag = "hone",
    params(("name" = String, Path)),
    request_body = Switching,
    responses((status = OK, body = HoneConversation), (status = NOT_FOUND), (status = CONFLICT))
)]
pub(super) async fn switch(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let Switching { index, number } = parsed(body).await?;
    change(&shared, client, name.clone(), move |conversations, name| {
        let mut conversation = conversations.load(name)?;
        if !conversation.exchanges.switch(index, number) {
            return Err(ConversationError::Branch { index, number });
        }
        conversations.save(name, conversation)
    })
    .await?;
    blocking(move || shown(&shared, client, &name).map(Json)).await
}

/// The engrams that were recalled for an answer and still exist.
pub(super) fn recalled(shared: &Shared, exchange: &SavedExchange) -> Vec<Value> {
    let Some(memory) = &shared.parts.memory else { return Vec::new() };
    let found = exchange.recalled.iter().filter_map(|id| memory.store.get(*id).ok().flatten());
    found.map(|engram| json!({"query_id": engram.query_id, "query": engram.query})).collect()
}

/// An exchange as the page shows it, with its place among its branches and the engrams recalled for its answer.
pub(super) fn exchange_json(exchange: &SavedExchange, place: Option<BranchPlace>, recalled: Vec<Value>) -> Value {
    json!({
        "recalled": recalled,
        "branch": place,
        "question": exchange.question,
        "answer": exchange.answer,
        "thinking": exchange.thinking,
        "html": html_of(&exchange.answer),
        "model": exchange.model,
        "finish_reason": exchange.finish_reason,
        "is_cut_off": exchange.is_cut_off(),
        "timings": exchange.timings,
        "query_id": exchange.query_id,
    })
}

/// A new name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneRenaming)]
struct Renaming {
    name: String,
}

/// Renames a conversation.
#[utoipa::path(
    patch,
    path = "/hone/v1/conversations/{name}",
    tag = "hone",
    params(("name" = String, Path)),
    request_body = Renaming,
    responses((status = OK, body = HoneRenamed), (status = NOT_FOUND), (status = CONFLICT))
)]
pub(super) async fn rename(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let Renaming { name: new_name } = parsed(body).await?;
    let renamed = new_name.clone();
    change(&shared, client, name, move |conversations, name| conversations.rename(name, &new_name)).await?;
    Ok(Json(json!({"name": renamed})))
}

/// Options for removing a conversation.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Removal {
    /// Whether the conversation's memories are forgotten, too.
    #[serde(default)]
    forget: bool,
}

/// Removes a conversation and, on request, its memories.
#[utoipa::path(
    delete,
    path = "/hone/v1/conversations/{name}",
    tag = "hone",
    params(("name" = String, Path), Removal),
    responses((status = OK, body = HoneConversationRemoved), (status = NOT_FOUND), (status = CONFLICT), (status = BAD_REQUEST))
)]
pub(super) async fn remove(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(name): Path<String>,
    Query(Removal { forget }): Query<Removal>,
) -> Result<Json<Value>, ApiError> {
    shared.sessions.end(&(client.owner(), name.clone())).await;
    let memory = shared.parts.memory.as_ref().filter(|_| forget).map(|memory| memory.store.clone());
    let n_forgotten = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&n_forgotten);
    change(&shared, client, name, move |conversations, name| {
        if let Some(store) = memory {
            let forgotten = forget_all(&store, &conversations.load(name)?, client.whose());
            let forgotten = forgotten.map_err(|error| ConversationError::Storage(with_causes(&error)))?;
            counter.store(forgotten, Ordering::Relaxed);
        }
        conversations.remove(name)
    })
    .await?;
    Ok(Json(json!({"removed": true, "forgotten": n_forgotten.load(Ordering::Relaxed)})))
}

/// Forgets the memories of a conversation, and returns their number.
fn forget_all(store: &MemoryStore, conversation: &SavedConversation, whose: Whose) -> Result<usize, MemoryError> {
    let ids = remembered_of(conversation, store, whose)?;
    store.remove(&ids)?;
    Ok(ids.len())
}

/// Changes a conversation in which nothing is being answered.
async fn change(
    shared: &Shared,
    client: Client,
    name: String,
    change: impl FnOnce(&Conversations, &str) -> Result<(), ConversationError> + Send + 'static,
) -> Result<(), ApiError> {
    let busy = || ApiError::new(StatusCode::CONFLICT, "a question of this conversation is being answered");
    // The session belongs to the name and is closed here.
    let turn = Sessions::begin(&shared.sessions, &(client.owner(), name.clone())).ok_or_else(busy)?;
    let conversations = shared.conversations_of(client);
    let changed = blocking(move || change(&conversations, &name)).await;
    drop(turn);
    changed
}

/// The form of an export.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Export {
    #[serde(default)]
    #[param(inline)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Markdown,
    Json,
}

/// A conversation as a file.
#[utoipa::path(
    get,
    path = "/hone/v1/conversations/{name}/export",
    tag = "hone",
    params(("name" = String, Path), Export),
    responses(
        (status = OK, content((HoneExport = "application/json"), (String = "text/markdown"))),
        (status = NOT_FOUND),
        (status = BAD_REQUEST)
    )
)]
pub(super) async fn export(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(name): Path<String>,
    Query(Export { format }): Query<Export>,
) -> Result<HttpResponse, ApiError> {
    let (conversations, of_name) = (shared.conversations_of(client), name.clone());
    let conversation = blocking(move || conversations.load(&of_name)).await?;
    let (kind, text) = match format {
        Format::Markdown => ("text/markdown; charset=utf-8", conversation.to_markdown(&name)),
        Format::Json => ("application/json", conversation.to_json(&name).to_string()),
    };
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, text).into_response())
}
