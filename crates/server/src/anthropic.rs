//! Anthropic's Messages API, as <https://docs.anthropic.com/en/api/messages> describes it.

mod blocks;
mod events;
mod message;
mod request;
mod shapes;

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response as HttpResponse};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::events::Events;
use self::message::Head;
use self::request::{AskedMessages, MessagesRequest};
use self::shapes::{AnthropicMessage, AnthropicTokens};
use crate::answering::{Answered, Answering, kept_header, note_kept};
use crate::clients::{Caller, Client, RecallHeader};
use crate::documents::parsed_with_texts;
use crate::error::{ApiError, REQUEST_ID, request_id};
use crate::shapes::ServerSentEvent;
use crate::{Shared, counting, streams};

/// Sent while a stream is silent.
const PING: &str = "ping";

/// The API's routes.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default().routes(routes!(messages)).routes(routes!(count_tokens))
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/messages",
    tag = "Anthropic",
    params(RecallHeader),
    request_body = MessagesRequest,
    responses(
        (status = OK, content((AnthropicMessage = "application/json"), (ServerSentEvent = "text/event-stream"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
async fn messages(State(shared): State<Arc<Shared>>, caller: Caller, body: Bytes) -> Result<HttpResponse, ApiError> {
    let request: MessagesRequest = parsed_with_texts(&shared, caller.client, body).await?;
    let AskedMessages { query, stream, most_calls } = request.asked(&shared.parts)?;
    let model = query.model.clone();
    let slot = stream.then(|| shared.streams.take(caller.client)).transpose()?;
    let answering = Answering::ask(&shared, caller, query)?;
    let id = answering.id();
    let head = Head { id, model, most_calls };
    let headers = [(REQUEST_ID, request_id(id)), ("x-hone-query-id", id.to_string())];
    if let Some(slot) = slot {
        let events = Events::begin(answering, head).await?.stream();
        return Ok((headers, streams::typed_events(slot, events, || Some(json!({"type": PING})))).into_response());
    }
    let Answered { response, is_kept } = answering.whole().await?.answered;
    let mut message = head.message(&response);
    note_kept(&mut message, is_kept);
    Ok((headers, kept_header(is_kept), Json(message)).into_response())
}

/// Counts the tokens of a request's prompt.
#[utoipa::path(
    post,
    path = "/v1/messages/count_tokens",
    tag = "Anthropic",
    request_body = MessagesRequest,
    responses((status = OK, body = AnthropicTokens), (status = NOT_FOUND))
)]
async fn count_tokens(State(shared): State<Arc<Shared>>, client: Client, body: Bytes) -> Result<Json<Value>, ApiError> {
    let request: MessagesRequest = parsed_with_texts(&shared, client, body).await?;
    let query = request.counted(&shared.parts)?;
    Ok(Json(json!({"input_tokens": counting::prompt_tokens(&shared, query).await?})))
}
