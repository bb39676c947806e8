//! A question from the page, in a saved conversation. The answer is saved however it ends: it runs in its own task,
//! which continues when the page has gone. Pages can follow it from any event.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response as HttpResponse;
use hone_agents::{Asker, Exchange, ExchangeChange};
use hone_app::conversations::{ConversationError, Conversations, SavedConversation, SavedExchange};
use hone_protocol::{
    AnswerOptions, Chunk, Envelope, GenerateError, Message, Query, QueryId, RespondentId, Response, Role,
    SamplingOptions, SecondAnswer, SessionId, ThinkingOptions,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use utoipa::ToSchema;

use super::answer_log::AnswerLog;
use super::blocking;
use super::conversations::{exchange_json, recalled};
use super::events::LAST_EVENT_ID;
use super::sessions::{Session, Turn};
use super::shapes::HoneStopped;
use crate::answering::says_remembered;
use crate::clients::Client;
use crate::error::ApiError;
use crate::markup::html_of;
use crate::requests::parsed;
use crate::shapes::{EmptyBody, ServerSentEvent};
use crate::threads::{DRAWING, apart};
use crate::{Shared, streams};

/// How often the page gets an answer in progress as HTML.
const RENDERING_INTERVAL: Duration = Duration::from_millis(100);

/// A question.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneChatRequest)]
struct ChatRequest {
    question: String,
    /// The conversation to continue; a new one if omitted.
    #[serde(default)]
    conversation: Option<String>,
    /// The number of exchanges before the question; all if omitted. Later exchanges remain as another branch once it is
    /// answered.
    #[serde(default)]
    keep: Option<usize>,
    /// The id of the exchange before the question, or of the one that is continued. It tells its branch if another
    /// process has answered in another one in the meantime.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    after: Option<QueryId>,
    /// Whether the model continues the answer of the exchange at `keep`, which was cut off. The question is repeated; the
    /// new answer begins with the earlier one, and has no second respondent.
    #[serde(default)]
    continues: bool,
    /// The model; the conversation's if omitted.
    #[serde(default)]
    model: Option<String>,
    /// Whether the model reasons, if it can.
    #[serde(default)]
    thinking: Option<bool>,
    /// Instructions before the conversation, from this question on; unchanged if omitted. Empty leaves them to the
    /// model's template.
    #[serde(default)]
    system: Option<String>,
    /// The sampling temperature; defaults to `sampling.temperature`.
    #[serde(default)]
    temperature: Option<f32>,
    /// The total probability of the tokens that are kept; defaults to `sampling.top_p`.
    #[serde(default)]
    top_p: Option<f32>,
    /// The maximum number of tokens in the answer; defaults to `sampling.max_tokens`.
    #[serde(default)]
    max_tokens: Option<usize>,
    /// Whether the second respondent answers, too; defaults to `server.respondent_b`.
    #[serde(default)]
    compare: Option<bool>,
    /// The model of the second respondent; defaults to `server.model_b`.
    #[serde(default)]
    model_b: Option<String>,
}

/// Answers a question with events: `begun`, `prefill`, `recalled`, `thinking`, `text`, `html` and, at the end,
/// `answered`, `stopped` or `failed`. Each has a number as its id. The answer continues if the client leaves.
#[utoipa::path(
    post,
    path = "/hone/v1/chat",
    tag = "hone",
    request_body = ChatRequest,
    responses(
        (status = OK, body = ServerSentEvent, content_type = "text/event-stream"),
        (status = NOT_FOUND),
        (status = CONFLICT),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn ask(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: ChatRequest = parsed(body).await?;
    if request.question.trim().is_empty() {
        return Err(ApiError::bad_request("question is empty"));
    }
    let (slot, room) = (shared.streams.take(client)?, shared.take_room()?);
    // A separate task from the start: a client that leaves early does not lose its question.
    let (begun, told) = oneshot::channel();
    tokio::spawn(async move {
        match Talk::begin(&shared, client, request, room).await {
            Ok(talk) => {
                // The question is answered even if no client waits for it.
                let _ = begun.send(Ok(Arc::clone(&talk.turn.log)));
                talk.run().await;
            }
            Err(error) => drop(begun.send(Err(error))),
        }
    });
    let ended = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the question could not be asked");
    let log = told.await.map_err(ended)??;
    Ok(streams::numbered_events(slot, log.follow(0)))
}

/// Follows the answer in progress in a conversation, or replays one that has just ended: all events that
/// `/hone/v1/chat` sends, or those after the id in the header `Last-Event-ID`. Of `html`, `prefill` and `loading`, only
/// the latest is sent.
#[utoipa::path(
    get,
    path = "/hone/v1/conversations/{name}/answer",
    tag = "hone",
    params(("name" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses(
        (status = OK, body = ServerSentEvent, content_type = "text/event-stream"),
        (status = BAD_REQUEST),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn follow(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<HttpResponse, ApiError> {
    let after = match headers.get(LAST_EVENT_ID) {
        None => 0,
        Some(id) => {
            let number = id.to_str().ok().and_then(|id| id.trim().parse().ok());
            number.ok_or_else(|| ApiError::bad_request("Last-Event-ID is not the number of an event"))?
        }
    };
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "nothing is being answered in this conversation");
    let log = shared.sessions.answer_log(&(client.owner(), name)).ok_or_else(missing)?;
    let slot = shared.streams.take(client)?;
    Ok(streams::numbered_events(slot, log.follow(after)))
}

/// Stops the answer in a conversation.
#[utoipa::path(
    post,
    path = "/hone/v1/conversations/{name}/stop",
    tag = "hone",
    request_body = EmptyBody,
    params(("name" = String, Path)),
    responses((status = OK, body = HoneStopped))
)]
pub(super) async fn stop(State(shared): State<Arc<Shared>>, client: Client, Path(name): Path<String>) -> Json<Value> {
    Json(json!({"stopped": shared.sessions.stop(&(client.owner(), name))}))
}

/// A question in a conversation, until its answer is saved.
struct Talk {
    shared: Arc<Shared>,
    /// Where it is saved.
    conversations: Arc<Conversations>,
    turn: Turn,
    session: Session,
    conversation: SavedConversation,
    /// Whether the conversation began with this question.
    is_new: bool,
    question: String,
    model: String,
    thinking: ThinkingOptions,
    sampling: SamplingOptions,
    max_tokens: Option<usize>,
    second: SecondAnswer,
    /// The exchange whose answer is continued.
    continued: Option<SavedExchange>,
    /// The engrams recalled for the answer.
    recalled: Vec<QueryId>,
    _room: OwnedSemaphorePermit,
}

/// How an attempt ended.
enum Ending {
    /// The flag tells whether memory has stored the answer, if it should.
    Answered(QueryId, Box<Response>, bool),
    Failed(ApiError),
    /// The conversation is too long for the model's context.
    TooLong(GenerateError),
}

impl Talk {
    async fn begin(
        shared: &Arc<Shared>,
        client: Client,
        request: ChatRequest,
        room: OwnedSemaphorePermit,
    ) -> Result<Talk, ApiError> {
        let conversations = shared.conversations_of(client);
        let (sampling, max_tokens) = sampling(shared, &request)?;
        let compare = if request.continues { Some(false) } else { request.compare };
        let second = second_answer(shared, compare, request.model_b.clone())?;
        let (name, is_new) = named(shared, &conversations, &request).await?;
        let busy = || ApiError::new(StatusCode::CONFLICT, "a question of this conversation is being answered");
        let (turn, session) = shared.sessions.begin(&(client.owner(), name.clone())).ok_or_else(busy)?;
        // Not loaded earlier: the previous answer may have ended in between.
        let mut conversation = load(&conversations, name).await?;
        let continued = show_what_precedes(&mut conversation, &request)?;
        let of_continued = continued.as_ref().map(|exchange| exchange.model.clone());
        let model = chosen_model(shared, request.model.or(of_continued), Some(&conversation.model))?;
        conversation.model.clone_from(&model);
        if let Some(system) = request.system {
            conversation.system = system;
        }
        let asker = || Asker::new(&shared.parts.bus, "page", shared.parts.expected).owned_by(client.owner());
        let session = session.unwrap_or_else(|| Session { id: SessionId::fresh(), asker: asker() });
        let thinking = ThinkingOptions { is_on: request.thinking, ..ThinkingOptions::default() };
        let (shared, question) = (Arc::clone(shared), request.question);
        let talk = Talk {
            shared,
            conversations,
            turn,
            session,
            conversation,
            is_new,
            question,
            model,
            thinking,
            sampling,
            max_tokens,
            second,
            continued,
            recalled: Vec::new(),
            _room: room,
        };
        Ok(talk)
    }

    /// Asks the question, sends the events to pages, and saves the answer.
    async fn run(mut self) {
        let (ending, left_out) = self.attempts().await;
        let end = match ending {
            Ending::Answered(id, response, is_kept) if !response.answer.trim().is_empty() => {
                self.save(id, *response, is_kept, left_out).await.unwrap_or_else(|error| failed(&error))
            }
            ending => {
                self.forget_if_new().await;
                unanswered(ending)
            }
        };
        let Talk { turn, session, .. } = self;
        turn.end(end, session);
    }

    /// Retries without the oldest exchanges until the conversation fits the model's context; returns how many are left
    /// out.
    async fn attempts(&mut self) -> (Ending, usize) {
        let mut left_out = 0;
        loop {
            match self.attempt(left_out).await {
                Ending::TooLong(_) if left_out < self.conversation.exchanges.n_shown() => left_out += 1,
                ending => return (ending, left_out),
            }
        }
    }

    async fn attempt(&mut self, left_out: usize) -> Ending {
        let query = self.query(left_out);
        let (session, asker) = (self.session.id, &mut self.session.asker);
        let mut exchange = asker.ask(session, query);
        let id = exchange.id();
        self.turn.log.tell(&json!({
            "type": "begun",
            "conversation": self.turn.name(),
            "query_id": id,
            "question": self.question,
            "index": self.conversation.exchanges.n_shown(),
            "continues": self.continued.is_some(),
        }));
        let (mut answer, mut is_stored) = (Drawn::default(), false);
        loop {
            let envelope = tokio::select! {
                envelope = poll_fn(|context| asker.poll_heard(context)) => envelope,
                () = self.turn.stop.notified() => {
                    asker.cancel(session, id);
                    continue;
                }
            };
            let Some(envelope) = envelope else {
                return Ending::Failed(ApiError::new(StatusCode::REQUEST_TIMEOUT, asker.too_slow().to_string()));
            };
            // Memory's confirmation may arrive before the answer.
            is_stored |= says_remembered(&envelope, id);
            if let Some(mut ending) = told(&mut exchange, &envelope, &mut answer, &self.turn.log) {
                self.recalled =
                    exchange.recalls().iter().flat_map(|recall| &recall.engrams).map(|it| it.query_id).collect();
                if let Ending::Answered(id, response, is_kept) = &mut ending
                    && self.shared.parts.memory.is_some()
                {
                    *is_kept = is_stored || self.shared.durability.of_heard(asker, *id, response).await;
                }
                return ending;
            }
            answer.tell_html(&self.turn.log).await;
        }
    }

    fn query(&self, left_out: usize) -> Query {
        let SavedConversation { system, exchanges, .. } = &self.conversation;
        let mut history = Vec::new();
        if !system.is_empty() {
            history.push(Message::new(Role::System, system));
        }
        for exchange in exchanges.shown().skip(left_out) {
            history.push(Message::new(Role::User, &exchange.question));
            history.push(Message::new(Role::Assistant, &exchange.answer));
        }
        Query {
            query: self.question.clone(),
            history,
            model: self.model.clone(),
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            stop: self.shared.parts.stop.clone(),
            options: AnswerOptions {
                thinking: self.thinking,
                second: self.second.clone(),
                begun: self.continued.as_ref().map_or_else(String::new, |continued| continued.answer.clone()),
                ..AnswerOptions::default()
            },
        }
    }

    /// Saves the answer, and returns the event for the page.
    async fn save(
        &mut self,
        id: QueryId,
        response: Response,
        is_kept: bool,
        left_out: usize,
    ) -> Result<Value, ApiError> {
        let mut exchange = saved_exchange(id, &response, std::mem::take(&mut self.recalled));
        if let Some(SavedExchange { thinking, recalled, .. }) = self.continued.take() {
            exchange.thinking = thinking;
            exchange.recalled = sorted([recalled, exchange.recalled].concat());
        }
        let index = self.conversation.exchanges.n_shown();
        self.conversation.exchanges.push(exchange.clone());
        let place = self.conversation.exchanges.place(index);
        let (shared, about) = (Arc::clone(&self.shared), exchange.clone());
        // Engrams forgotten meanwhile are not shown.
        let recalled = apart(move || recalled(&shared, &about)).await?;
        let exchange = DRAWING.computed(move || exchange_json(&exchange, place, recalled)).await?;
        let event = json!({
            "type": "answered",
            "conversation": self.turn.name(),
            "index": index,
            "exchange": exchange,
            "is_compared": self.second != SecondAnswer::Unwanted,
            "left_out": left_out,
            "is_remembered": is_kept,
            "is_saved": self.save_conversation().await?,
        });
        Ok(event)
    }

    /// Saves the conversation; returns whether it was saved. One that another process has removed or renamed is not.
    async fn save_conversation(&self) -> Result<bool, ApiError> {
        let (conversations, name) = (Arc::clone(&self.conversations), self.turn.name().to_owned());
        let conversation = self.conversation.clone();
        blocking(move || match conversations.save(&name, conversation) {
            Err(ConversationError::Missing(_)) => Ok(false),
            saved => saved.map(|()| true),
        })
        .await
    }

    /// Removes a new conversation if its question was not answered.
    async fn forget_if_new(&self) {
        if self.is_new {
            let (conversations, name) = (Arc::clone(&self.conversations), self.turn.name().to_owned());
            // On failure, it remains empty.
            let _ = blocking(move || conversations.remove(&name)).await;
        }
    }
}

/// An answer in progress as the page shows it.
#[derive(Default)]
struct Drawn {
    text: String,
    /// The number of bytes that pages have as HTML.
    n_drawn: usize,
    /// When it is rendered next.
    due: Option<Instant>,
}

impl Drawn {
    /// Sends the answer to pages as HTML, if it has grown, the interval has passed and the processor has time for it. A
    /// longer answer, which takes longer to render, is sent less often.
    async fn tell_html(&mut self, page: &AnswerLog) {
        let begin = Instant::now();
        if self.n_drawn == self.text.len() || self.due.is_some_and(|due| begin < due) {
            return;
        }
        let text = self.text.clone();
        let length = text.len();
        // Without HTML, the page shows the text.
        if let Ok(Some(html)) = DRAWING.computed_now(move || html_of(&text)).await {
            self.n_drawn = length;
            page.tell(&json!({"type": "html", "html": html}));
        }
        self.due = Some(Instant::now() + RENDERING_INTERVAL.max(begin.elapsed() * 10));
    }
}

/// Takes a message and passes it on to pages; returns how the answer ended, once it has.
fn told(exchange: &mut Exchange, envelope: &Envelope, answer: &mut Drawn, page: &AnswerLog) -> Option<Ending> {
    let id = exchange.id();
    match exchange.take(envelope) {
        ExchangeChange::Chunk(RespondentId::A, Chunk::Text(text)) => {
            answer.text.push_str(text);
            page.tell(&json!({"type": "text", "text": text}));
        }
        ExchangeChange::Chunk(RespondentId::A, Chunk::Thinking(text)) => {
            page.tell(&json!({"type": "thinking", "text": text}));
        }
        ExchangeChange::Chunk(RespondentId::A, Chunk::Loading { done, total }) => {
            page.tell(&json!({"type": "loading", "done": done, "total": total}));
        }
        ExchangeChange::Chunk(RespondentId::A, Chunk::Prefill { done, total }) => {
            page.tell(&json!({"type": "prefill", "done": done, "total": total}));
        }
        ExchangeChange::Recalled(RespondentId::A, recall) => {
            page.tell(&json!({"type": "recalled", "engrams": recall.engrams}));
        }
        ExchangeChange::Answered(RespondentId::A, response) => {
            return Some(Ending::Answered(id, Box::new(response.clone()), true));
        }
        ExchangeChange::Failed(RespondentId::A, error @ GenerateError::ContextOverflow { .. }) => {
            return Some(Ending::TooLong(error.clone()));
        }
        ExchangeChange::Failed(RespondentId::A, error) => return Some(Ending::Failed(error.clone().into())),
        _ => {}
    }
    None
}

/// The last event for the page if there is no answer to save.
fn unanswered(ending: Ending) -> Value {
    match ending {
        Ending::Answered(_, response, _) if response.finish_reason.is_none() => json!({"type": "stopped"}),
        Ending::Answered(..) => failed(&ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the model ended its answer before it said anything",
        )),
        Ending::Failed(error) => failed(&error),
        Ending::TooLong(error) => failed(&error.into()),
    }
}

fn failed(error: &ApiError) -> Value {
    json!({"type": "failed", "error": error.to_hone()["error"]})
}

/// The name of the conversation, and whether it begins with this question.
async fn named(
    shared: &Shared,
    conversations: &Arc<Conversations>,
    request: &ChatRequest,
) -> Result<(String, bool), ApiError> {
    match &request.conversation {
        Some(name) => {
            request.model.as_deref().map_or(Ok(()), |model| shared.check_model(model))?;
            Ok((name.clone(), false))
        }
        None if request.continues => Err(nothing_to_continue()),
        None => {
            let model = chosen_model(shared, request.model.clone(), None)?;
            Ok((begin_conversation(conversations, &request.question, &model).await?, true))
        }
    }
}

/// Shows the exchanges that the question follows, and no others; returns the exchange whose answer is continued.
fn show_what_precedes(
    conversation: &mut SavedConversation,
    request: &ChatRequest,
) -> Result<Option<SavedExchange>, ApiError> {
    if let Some(after) = request.after {
        // One that is not saved changes nothing: the question follows what is shown.
        conversation.exchanges.show_to(|exchange| exchange.query_id == Some(after));
    }
    let continued = request.continues.then(|| cut_off(conversation, request.keep, &request.question)).transpose()?;
    conversation.exchanges.show_first(request.keep.unwrap_or(usize::MAX));
    Ok(continued)
}

/// The exchange with this question at `keep`, whose answer can be continued.
///
/// # Errors
/// When it does not exist, or its answer is complete.
fn cut_off(conversation: &SavedConversation, keep: Option<usize>, question: &str) -> Result<SavedExchange, ApiError> {
    let found = keep.and_then(|keep| conversation.exchanges.shown().nth(keep));
    let found = found.filter(|exchange| exchange.question == question).ok_or_else(nothing_to_continue)?;
    let is_complete = || ApiError::bad_request("the answer is complete: there is nothing to continue");
    Some(found).filter(|exchange| exchange.is_cut_off()).cloned().ok_or_else(is_complete)
}

fn nothing_to_continue() -> ApiError {
    ApiError::bad_request("continues needs a conversation, and keep as the index of this question in it")
}

/// The model that answers: the requested one, or the conversation's if it is installed.
fn chosen_model(shared: &Shared, asked: Option<String>, of_conversation: Option<&String>) -> Result<String, ApiError> {
    if let Some(name) = asked {
        shared.check_model(&name)?;
        return Ok(name);
    }
    let installed = of_conversation.filter(|name| shared.check_model(name).is_ok());
    Ok(installed.cloned().unwrap_or_else(|| shared.parts.models.default_name()))
}

/// Whether and how the second respondent answers.
fn second_answer(shared: &Shared, compare: Option<bool>, model: Option<String>) -> Result<SecondAnswer, ApiError> {
    if !compare.unwrap_or(shared.settings.respondent_b) {
        return Ok(SecondAnswer::Unwanted);
    }
    let Some(model) = model else { return Ok(SecondAnswer::AsConfigured) };
    shared.check_model(&model)?;
    Ok(SecondAnswer::By(model))
}

/// The sampling options, and the answer's token limit.
fn sampling(shared: &Shared, request: &ChatRequest) -> Result<(SamplingOptions, Option<usize>), ApiError> {
    let defaults = &shared.parts.sampling;
    let sampling = SamplingOptions {
        temperature: request.temperature.unwrap_or(defaults.temperature),
        top_p: request.top_p.unwrap_or(defaults.top_p),
        ..defaults.clone()
    };
    sampling.check().map_err(|error| ApiError::bad_request(error.to_string()))?;
    match request.max_tokens.or(shared.parts.max_tokens) {
        Some(0) => Err(ApiError::bad_request("max_tokens is 0: it must be 1 or more")),
        max_tokens => Ok((sampling, max_tokens)),
    }
}

async fn load(conversations: &Arc<Conversations>, name: String) -> Result<SavedConversation, ApiError> {
    let conversations = Arc::clone(conversations);
    blocking(move || conversations.load(&name)).await
}

async fn begin_conversation(
    conversations: &Arc<Conversations>,
    question: &str,
    model: &str,
) -> Result<String, ApiError> {
    let conversations = Arc::clone(conversations);
    let (question, model) = (question.to_owned(), model.to_owned());
    blocking(move || conversations.begin(&question, &model)).await
}

/// The ids in order, each once.
fn sorted(mut ids: Vec<QueryId>) -> Vec<QueryId> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn saved_exchange(id: QueryId, response: &Response, recalled: Vec<QueryId>) -> SavedExchange {
    let Response { query: question, answer, thinking, model, finish_reason, timings, .. } = response.clone();
    let recalled = sorted(recalled);
    SavedExchange { question, answer, thinking, model, finish_reason, timings, query_id: Some(id), recalled }
}
