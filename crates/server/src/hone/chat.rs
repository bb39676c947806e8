//! A question of the page, in a saved conversation. Its answer is kept however it ends: the work is a task of its own,
//! which stops the answer when the page has gone, and saves what there is.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response as HttpResponse;
use futures_util::stream::unfold;
use hone_agents::{Asker, Exchange, ExchangeChange};
use hone_app::conversations::{Conversations, SavedConversation, SavedExchange};
use hone_protocol::{
    AnswerOptions, Chunk, Envelope, GenerateError, Message, Query, QueryId, RespondentId, Response, Role, SecondAnswer,
    SessionId, ThinkingOptions,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::ToSchema;

use super::blocking;
use super::conversations::{exchange_json, recalled};
use super::sessions::{Session, Turn};
use super::shapes::HoneStopped;
use crate::answering::says_remembered;
use crate::clients::Client;
use crate::error::ApiError;
use crate::markup::html_of;
use crate::requests::parsed;
use crate::shapes::{EmptyBody, ServerSentEvent};
use crate::{Shared, streams};

/// Pieces that may wait for a slow page.
const UNREAD: usize = 256;

/// How often the page is shown an answer in progress as HTML.
const RENDERING_INTERVAL: Duration = Duration::from_millis(100);

/// A question.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneChatRequest)]
struct ChatRequest {
    question: String,
    /// The conversation that it continues; a new one otherwise.
    #[serde(default)]
    conversation: Option<String>,
    /// How many exchanges come before it: once it is answered, those after them stay as another branch. All otherwise.
    #[serde(default)]
    keep: Option<usize>,
    /// The model that answers; that of the conversation otherwise.
    #[serde(default)]
    model: Option<String>,
    /// Whether the model reasons, if it can.
    #[serde(default)]
    thinking: Option<bool>,
    /// Whether the second respondent answers, too; what `server.respondent_b` says otherwise.
    #[serde(default)]
    compare: Option<bool>,
    /// The model of the second respondent; what `server.model_b` says otherwise.
    #[serde(default)]
    model_b: Option<String>,
}

/// Answers a question with events: `begun`, `prefill`, `recalled`, `thinking`, `text`, `html` and, at the end,
/// `answered`, `stopped` or `failed`.
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
    let request: ChatRequest = parsed(&body)?;
    if request.question.trim().is_empty() {
        return Err(ApiError::bad_request("question is empty"));
    }
    let (slot, room) = (shared.streams.take(client)?, shared.take_room()?);
    let talk = Talk::begin(&shared, client, request, room).await?;
    let (to_page, events) = mpsc::channel(UNREAD);
    tokio::spawn(talk.run(Page { events: to_page, is_gone: false }));
    let stream = unfold(events, async |mut events| events.recv().await.map(|event: Value| (event.to_string(), events)));
    Ok(streams::events(slot, stream))
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

/// The page that asked, which may go away.
struct Page {
    events: mpsc::Sender<Value>,
    is_gone: bool,
}

impl Page {
    async fn tell(&self, event: Value) {
        // Whoever has gone is not told.
        let _ = self.events.send(event).await;
    }
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
    second: SecondAnswer,
    /// What was recalled for the answer.
    recalled: Vec<QueryId>,
    _room: OwnedSemaphorePermit,
}

/// How an attempt ended.
enum Ending {
    /// With whether memory has the answer, if it is to.
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
        let saved = match request.conversation.clone() {
            Some(name) => Some(load(&conversations, name).await?),
            None => None,
        };
        let model = chosen_model(shared, request.model, saved.as_ref())?;
        let second = second_answer(shared, request.compare, request.model_b)?;
        let (name, is_new) = match request.conversation {
            Some(name) => (name, false),
            None => (begin_conversation(&conversations, &request.question, &model).await?, true),
        };
        let busy = || ApiError::new(StatusCode::CONFLICT, "a question of this conversation is being answered");
        let (turn, session) = shared.sessions.begin(&(client.owner(), name.clone())).ok_or_else(busy)?;
        // Loaded again: the answer before may have ended in between.
        let mut conversation = load(&conversations, name).await?;
        conversation.exchanges.show_first(request.keep.unwrap_or(usize::MAX));
        conversation.model.clone_from(&model);
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
            second,
            recalled: Vec::new(),
            _room: room,
        };
        Ok(talk)
    }

    /// Asks, tells the page what comes of it, and saves the answer.
    async fn run(mut self, mut page: Page) {
        let (ending, left_out) = self.attempts(&mut page).await;
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
        turn.keep(session);
        page.tell(end).await;
    }

    /// Asks until the conversation fits the model's context, which may leave out the oldest exchanges; returns how many.
    async fn attempts(&mut self, page: &mut Page) -> (Ending, usize) {
        let mut left_out = 0;
        loop {
            match self.attempt(page, left_out).await {
                Ending::TooLong(_) if left_out < self.conversation.exchanges.n_shown() => left_out += 1,
                ending => return (ending, left_out),
            }
        }
    }

    async fn attempt(&mut self, page: &mut Page, left_out: usize) -> Ending {
        let query = self.query(left_out);
        let (session, asker) = (self.session.id, &mut self.session.asker);
        let mut exchange = asker.ask(session, query);
        let id = exchange.id();
        page.tell(json!({"type": "begun", "conversation": self.turn.name(), "query_id": id})).await;
        let (mut answer, mut is_stored) = (Drawn::default(), false);
        loop {
            let envelope = tokio::select! {
                envelope = poll_fn(|context| asker.poll_heard(context)) => envelope,
                () = self.turn.stop.notified() => {
                    asker.cancel(session, id);
                    continue;
                }
                () = page.events.closed(), if !page.is_gone => {
                    page.is_gone = true;
                    asker.cancel(session, id);
                    continue;
                }
            };
            let Some(envelope) = envelope else {
                return Ending::Failed(ApiError::new(StatusCode::REQUEST_TIMEOUT, asker.too_slow().to_string()));
            };
            // Memory may say that it has the answer before the answer arrives here.
            is_stored |= says_remembered(&envelope, id);
            if let Some(mut ending) = told(&mut exchange, &envelope, &mut answer, page).await {
                self.recalled =
                    exchange.recalls().iter().flat_map(|recall| &recall.engrams).map(|it| it.query_id).collect();
                if let Ending::Answered(id, response, is_kept) = &mut ending
                    && self.shared.parts.memory.is_some()
                {
                    *is_kept = is_stored || self.shared.durability.of_heard(asker, *id, response).await;
                }
                return ending;
            }
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
            sampling: self.shared.parts.sampling.clone(),
            max_tokens: self.shared.parts.max_tokens,
            stop: self.shared.parts.stop.clone(),
            options: AnswerOptions { thinking: self.thinking, second: self.second.clone(), ..AnswerOptions::default() },
        }
    }

    /// Saves the answer, and returns what the page is told of it.
    async fn save(
        &mut self,
        id: QueryId,
        response: Response,
        is_kept: bool,
        left_out: usize,
    ) -> Result<Value, ApiError> {
        let exchange = saved_exchange(id, &response, std::mem::take(&mut self.recalled));
        // What was forgotten meanwhile is not shown again.
        let (shared, about) = (Arc::clone(&self.shared), exchange.clone());
        let recalled = blocking(move || Ok::<_, ApiError>(recalled(&shared, &about))).await?;
        let index = self.conversation.exchanges.n_shown();
        self.conversation.exchanges.push(exchange.clone());
        let event = json!({
            "type": "answered",
            "conversation": self.turn.name(),
            "index": index,
            "exchange": exchange_json(&exchange, self.conversation.exchanges.place(index), recalled),
            "is_compared": self.second != SecondAnswer::Unwanted,
            "left_out": left_out,
            "is_remembered": is_kept,
        });
        let (conversations, name) = (Arc::clone(&self.conversations), self.turn.name().to_owned());
        let conversation = self.conversation.clone();
        blocking(move || conversations.save(&name, conversation)).await?;
        Ok(event)
    }

    /// Removes a conversation in which nothing was answered.
    async fn forget_if_new(&self) {
        if self.is_new {
            let (conversations, name) = (Arc::clone(&self.conversations), self.turn.name().to_owned());
            // It stays empty then.
            let _ = blocking(move || conversations.remove(&name)).await;
        }
    }
}

/// An answer in progress as the page shows it.
#[derive(Default)]
struct Drawn {
    text: String,
    /// When it is shown again.
    due: Option<Instant>,
}

impl Drawn {
    /// The answer as HTML, if it is time to show it again. A longer answer, which takes longer, is shown less often.
    fn due_html(&mut self) -> Option<String> {
        let begin = Instant::now();
        if self.due.is_some_and(|due| begin < due) {
            return None;
        }
        let html = html_of(&self.text);
        let pause = RENDERING_INTERVAL.max(begin.elapsed() * 10);
        self.due = Some(Instant::now() + pause);
        Some(html)
    }
}

/// Takes a message and tells the page of it; returns how the answer ended, once it has.
async fn told(exchange: &mut Exchange, envelope: &Envelope, answer: &mut Drawn, page: &Page) -> Option<Ending> {
    let id = exchange.id();
    match exchange.take(envelope) {
        ExchangeChange::Chunk(RespondentId::A, Chunk::Text(text)) => {
            answer.text.push_str(text);
            page.tell(json!({"type": "text", "text": text})).await;
            if let Some(html) = answer.due_html() {
                page.tell(json!({"type": "html", "html": html})).await;
            }
        }
        ExchangeChange::Chunk(RespondentId::A, Chunk::Thinking(text)) => {
            page.tell(json!({"type": "thinking", "text": text})).await;
        }
        ExchangeChange::Chunk(RespondentId::A, Chunk::Loading { done, total }) => {
            page.tell(json!({"type": "loading", "done": done, "total": total})).await;
        }
        ExchangeChange::Chunk(RespondentId::A, Chunk::Prefill { done, total }) => {
            page.tell(json!({"type": "prefill", "done": done, "total": total})).await;
        }
        ExchangeChange::Recalled(RespondentId::A, recall) => {
            page.tell(json!({"type": "recalled", "engrams": recall.engrams})).await;
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

/// What the page is told where there is no answer to save.
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

/// The model that answers: the one that was asked for, or that of the conversation if it is installed.
fn chosen_model(
    shared: &Shared,
    asked: Option<String>,
    conversation: Option<&SavedConversation>,
) -> Result<String, ApiError> {
    if let Some(name) = asked {
        shared.check_model(&name)?;
        return Ok(name);
    }
    let of_conversation = conversation.map(|conversation| conversation.model.clone());
    let installed = of_conversation.filter(|name| shared.check_model(name).is_ok());
    Ok(installed.unwrap_or_else(|| shared.parts.models.default_name()))
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

fn saved_exchange(id: QueryId, response: &Response, mut recalled: Vec<QueryId>) -> SavedExchange {
    let Response { query: question, answer, thinking, model, finish_reason, timings, .. } = response.clone();
    recalled.sort_unstable();
    recalled.dedup();
    SavedExchange { question, answer, thinking, model, finish_reason, timings, query_id: Some(id), recalled }
}
