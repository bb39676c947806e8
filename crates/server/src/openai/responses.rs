//! `/v1/responses`: answers that clients may refer to later.

mod answer;
mod draft;
mod items;
mod kept;
mod request;
mod running;
mod tools;

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query as Parameters, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response as HttpResponse};
use hone_protocol::QueryId;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::answer::Answer;
use self::draft::Draft;
use self::kept::Kept;
use self::request::{AskedResponse, ResponseRequest, Sending};
use super::shapes::{OpenAiDeletedResponse, OpenAiInputTokens, OpenAiItems, OpenAiResponse};
use crate::answering::{Answering, kept_header};
use crate::clients::{Caller, Client, RecallHeader};
use crate::documents::parsed_with_texts;
use crate::error::ApiError;
use crate::shapes::{EmptyBody, ServerSentEvent};
use crate::threads::apart;
use crate::{Shared, counting};

pub(super) use self::items::{Input, turns};
pub(crate) use self::kept::KeptResponses;
pub(crate) use self::running::RunningResponses;

/// The default and the maximum number of items in one page of a list.
const ITEMS: usize = 20;
const MOST_ITEMS: usize = 100;

/// The API's routes.
pub(super) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default()
        .routes(routes!(create))
        .routes(routes!(count_tokens))
        .routes(routes!(show, delete))
        .routes(routes!(cancel))
        .routes(routes!(input_items))
        .routes(routes!(compact))
}

/// Refused: clients that find no compaction here compact conversations themselves.
#[utoipa::path(
    post,
    path = "/v1/responses/compact",
    tag = "OpenAI",
    request_body = EmptyBody,
    responses((status = NOT_FOUND))
)]
async fn compact() -> ApiError {
    let reason = "conversations are not compacted here: send the turns, or a summary of them";
    ApiError::new(StatusCode::NOT_FOUND, reason)
}

/// Answers a request.
#[utoipa::path(
    post,
    path = "/v1/responses",
    tag = "OpenAI",
    params(RecallHeader),
    request_body = ResponseRequest,
    responses(
        (status = OK, content((OpenAiResponse = "application/json"), (ServerSentEvent = "text/event-stream"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
async fn create(State(shared): State<Arc<Shared>>, caller: Caller, body: Bytes) -> Result<HttpResponse, ApiError> {
    let client = caller.client;
    let asked = asked(&shared, client, body).await?;
    let AskedResponse { query, sending, keeps, head, input, most_calls, tools } = asked;
    let slot = (sending == Sending::Streamed).then(|| shared.streams.take(client)).transpose()?;
    let answering = Answering::ask(&shared, caller, query)?;
    let header = [("x-hone-query-id", answering.id().to_string())];
    let draft = Draft::new(answering.id(), head, most_calls, tools);
    let mut answer = Answer::begin(&shared, client, answering, draft, keeps.then_some(input));
    if let Some(slot) = slot {
        answer.first().await?;
        return Ok((header, answer.streamed(slot)).into_response());
    }
    if sending == Sending::Background {
        let object = answer.object();
        tokio::spawn(answer.kept());
        return Ok((header, Json(object)).into_response());
    }
    let object = answer.whole().await?;
    let kept = kept_header(object["hone"]["kept"] != false);
    Ok((header, kept, Json(object)).into_response())
}

/// Counts the tokens of a request's prompt.
#[utoipa::path(
    post,
    path = "/v1/responses/input_tokens",
    tag = "OpenAI",
    request_body = ResponseRequest,
    responses((status = OK, body = OpenAiInputTokens), (status = NOT_FOUND))
)]
async fn count_tokens(State(shared): State<Arc<Shared>>, client: Client, body: Bytes) -> Result<Json<Value>, ApiError> {
    let query = asked(&shared, client, body).await?.query;
    let tokens = counting::prompt_tokens(&shared, query).await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": tokens})))
}

/// The question of a request, after the conversation that it continues.
async fn asked(shared: &Arc<Shared>, client: Client, body: Bytes) -> Result<AskedResponse, ApiError> {
    let request: ResponseRequest = parsed_with_texts(shared, client, body).await?;
    let before = match request.previous() {
        None => Vec::new(),
        Some(text) => {
            let not_found = || {
                let reason = format!("Previous response with id '{text}' not found.");
                ApiError::bad_request(reason).with_code("previous_response_not_found").about("previous_response_id")
            };
            let id = parsed_id(text).ok_or_else(not_found)?;
            load(shared, client, id).await?.ok_or_else(not_found)?.conversation()
        }
    };
    request.asked(&shared.parts, before)
}

/// The options for viewing a response.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct View {
    #[serde(default)]
    stream: bool,
}

/// A response, in progress or kept.
#[utoipa::path(
    get,
    path = "/v1/responses/{id}",
    tag = "OpenAI",
    params(("id" = String, Path), View),
    responses((status = OK, body = OpenAiResponse), (status = NOT_FOUND), (status = BAD_REQUEST))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(text): Path<String>,
    Parameters(view): Parameters<View>,
) -> Result<Json<Value>, ApiError> {
    if view.stream {
        return Err(ApiError::bad_request("a response is streamed only to the request that creates it"));
    }
    let id = parsed_id(&text).ok_or_else(|| unknown(&text))?;
    if let Some(object) = shared.running.object((client.owner(), id)) {
        return Ok(Json(object));
    }
    let kept = load(&shared, client, id).await?.ok_or_else(|| unknown(&text))?;
    Ok(Json(kept.response))
}

/// Deletes a response.
#[utoipa::path(
    delete,
    path = "/v1/responses/{id}",
    tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = OK, body = OpenAiDeletedResponse), (status = NOT_FOUND))
)]
async fn delete(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(text): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let id = parsed_id(&text).ok_or_else(|| unknown(&text))?;
    let responses = shared.responses.of(client.owner());
    match apart(move || responses.delete(id)).await? {
        true => Ok(Json(json!({"id": text, "object": "response", "deleted": true}))),
        false => Err(unknown(&text)),
    }
}

/// Cancels a response in the background.
#[utoipa::path(
    post,
    path = "/v1/responses/{id}/cancel",
    tag = "OpenAI",
    request_body = EmptyBody,
    params(("id" = String, Path)),
    responses(
        (status = OK, body = OpenAiResponse),
        (status = NOT_FOUND),
        (status = BAD_REQUEST)
    )
)]
async fn cancel(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(text): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let id = parsed_id(&text).ok_or_else(|| unknown(&text))?;
    if let Some(object) = shared.running.cancel((client.owner(), id)) {
        return Ok(Json(object));
    }
    let response = load(&shared, client, id).await?.ok_or_else(|| unknown(&text))?.response;
    match response["status"].as_str() {
        Some("cancelled") => Ok(Json(response)),
        _ => Err(ApiError::bad_request(format!("the response {text:?} has ended: it cannot be cancelled"))),
    }
}

/// The page of items that a client wants.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Page {
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    #[param(inline)]
    order: Order,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    #[default]
    Desc,
}

/// The items that a response answers.
#[utoipa::path(
    get,
    path = "/v1/responses/{id}/input_items",
    tag = "OpenAI",
    params(("id" = String, Path), Page),
    responses((status = OK, body = OpenAiItems), (status = NOT_FOUND), (status = BAD_REQUEST))
)]
async fn input_items(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(text): Path<String>,
    Parameters(page): Parameters<Page>,
) -> Result<Json<Value>, ApiError> {
    let id = parsed_id(&text).ok_or_else(|| unknown(&text))?;
    let kept = load(&shared, client, id).await?.ok_or_else(|| unknown(&text))?;
    Ok(Json(page.of(kept.input)))
}

impl Page {
    fn of(&self, mut items: Vec<Value>) -> Value {
        if self.order == Order::Desc {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let place = items.iter().position(|item| item["id"] == **after);
            items.drain(..place.map_or(0, |place| place + 1));
        }
        let limit = self.limit.unwrap_or(ITEMS).clamp(1, MOST_ITEMS);
        let has_more = items.len() > limit;
        items.truncate(limit);
        let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        let (first, last) = (id(items.first()), id(items.last()));
        json!({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more})
    }
}

/// The id of a response as clients know it.
fn response_id(id: QueryId) -> String {
    format!("resp_{id}")
}

/// A client's response id, parsed; `None` if hone cannot have issued it.
fn parsed_id(text: &str) -> Option<QueryId> {
    let id: QueryId = text.strip_prefix("resp_")?.parse().ok()?;
    (response_id(id) == text).then_some(id)
}

fn unknown(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("Response with id '{id}' not found."))
}

async fn load(shared: &Arc<Shared>, client: Client, id: QueryId) -> Result<Option<Kept>, ApiError> {
    let responses = shared.responses.of(client.owner());
    apart(move || responses.load(id)).await
}
