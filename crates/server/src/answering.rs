//! A question being answered for a client.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hone_agents::{Asker, Exchange, ExchangeChange};
use hone_protocol::{
    Chunk, Envelope, FinishReason, Payload, Query, QueryId, RespondentId, Response, SessionId, TokenLogprobs,
};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

use crate::clients::Caller;
use crate::error::ApiError;
use crate::{RETRY_AFTER, Shared};

/// The bus sender of questions that arrive through third-party APIs. Only their clients know the preceding
/// conversation.
pub const API_SENDER: &str = "server";

/// How long an answer waits to be stored in memory, and the wait after memory missed that deadline for the last answer.
const PATIENCE: Duration = Duration::from_secs(5);
const SHORT_PATIENCE: Duration = Duration::from_millis(50);

/// One piece of a streamed answer, or its outcome.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// A piece of the model's reasoning.
    Thinking(String),
    /// The log-probabilities of a token of the next text.
    Logprobs(Box<TokenLogprobs>),
    /// A piece of the answer.
    Text(String),
    /// The whole answer; the last piece.
    Answered(Box<Answered>),
    /// The failure; the last piece.
    Failed(ApiError),
}

/// A finished answer.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) response: Response,
    /// False if memory should have stored the answer and has not; the client is told.
    pub(crate) is_kept: bool,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) answered: Answered,
    /// The log-probabilities of its tokens, if requested.
    pub(crate) logprobs: Vec<TokenLogprobs>,
}

/// The token counts of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptTokens {
    /// Tokens found in the KV cache.
    pub(crate) cached: usize,
    pub(crate) total: usize,
}

/// A question in progress. Dropping it stops the answer; a finished answer is still graded.
pub(crate) struct Answering {
    /// `None` once the server has ended the answer, or the asker waits for the grade.
    asker: Option<Asker>,
    exchange: Exchange,
    prompt: Option<PromptTokens>,
    /// Tracks whether memory stores answers; `None` if memory is off.
    durability: Option<Arc<Durability>>,
    /// The whole answer, held back until memory has stored it.
    held: Option<Held>,
    /// Whether memory has stored the answer. Its confirmation may arrive before the answer.
    is_stored: bool,
    /// Ready once the server ends answers in progress.
    end: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    _room: OwnedSemaphorePermit,
}

impl Answering {
    /// Asks a question of a client. The model must be installed or the default: clients must not name files.
    ///
    /// # Errors
    /// When the model does not exist, or the limit on questions in progress is reached.
    pub(crate) fn ask(shared: &Shared, caller: Caller, mut query: Query) -> Result<Answering, ApiError> {
        shared.check_model(&query.model)?;
        query.max_tokens = query.max_tokens.or(shared.parts.max_tokens);
        query.options.recalls = caller.recalls;
        let room = shared.take_room()?;
        let mut asker =
            Asker::new(&shared.parts.bus, API_SENDER, shared.parts.expected).owned_by(caller.client.owner());
        let exchange = asker.ask(SessionId::fresh(), query);
        let end = Box::pin(shared.end_of_answers());
        let durability = shared.parts.memory.is_some().then(|| Arc::clone(&shared.durability));
        Ok(Answering {
            asker: Some(asker),
            exchange,
            prompt: None,
            durability,
            held: None,
            is_stored: false,
            end,
            _room: room,
        })
    }

    /// The question's id.
    pub(crate) fn id(&self) -> QueryId {
        self.exchange.id()
    }

    /// The prompt's token counts; 0 until the model reads it.
    pub(crate) fn prompt_tokens(&self) -> PromptTokens {
        self.prompt.unwrap_or_default()
    }

    /// The next piece.
    pub(crate) async fn next(&mut self) -> Piece {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls for the next piece, for tasks that wait for several answers.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        loop {
            let Some(asker) = &self.asker else { return Poll::Pending };
            if let Some(held) = &mut self.held
                && held.patience.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(self.answered(false));
            }
            if self.held.is_none() && self.end.as_mut().poll(context).is_ready() {
                self.asker = None;
                let reason = "the server has stopped before the answer ended";
                return Poll::Ready(Piece::Failed(ApiError::overloaded(reason, RETRY_AFTER)));
            }
            let Some(envelope) = ready!(asker.poll_heard(context)) else {
                if self.held.is_some() {
                    return Poll::Ready(self.answered(false));
                }
                let reason = asker.too_slow().to_string();
                return Poll::Ready(Piece::Failed(ApiError::new(axum::http::StatusCode::REQUEST_TIMEOUT, reason)));
            };
            self.is_stored |= says_remembered(&envelope, self.exchange.id());
            if self.held.is_some() && self.is_stored {
                return Poll::Ready(self.answered(true));
            }
            let piece = match self.exchange.take(&envelope) {
                ExchangeChange::Chunk(RespondentId::A, Chunk::Text(text)) => Piece::Text(text.clone()),
                ExchangeChange::Chunk(RespondentId::A, Chunk::Logprobs(logprobs)) => {
                    Piece::Logprobs(Box::new(logprobs.clone()))
                }
                ExchangeChange::Chunk(RespondentId::A, Chunk::Thinking(text)) => Piece::Thinking(text.clone()),
                ExchangeChange::Chunk(RespondentId::A, &Chunk::Prefill { done, total }) => {
                    self.prompt.get_or_insert(PromptTokens { cached: done, total });
                    continue;
                }
                ExchangeChange::Answered(RespondentId::A, response) => match &self.durability {
                    Some(durability) if is_remembered(response) && !self.is_stored => {
                        let patience = Box::pin(tokio::time::sleep(durability.patience()));
                        self.held = Some(Held { response: Box::new(response.clone()), patience });
                        continue;
                    }
                    durability => {
                        durability.iter().filter(|_| self.is_stored).for_each(|durability| durability.note(true));
                        Piece::Answered(Box::new(Answered { response: response.clone(), is_kept: true }))
                    }
                },
                ExchangeChange::Failed(RespondentId::A, error) => Piece::Failed(error.clone().into()),
                _ => continue,
            };
            return Poll::Ready(piece);
        }
    }

    /// Releases the held answer; `is_kept` says whether memory has stored it.
    fn answered(&mut self, is_kept: bool) -> Piece {
        if let Some(durability) = &self.durability {
            durability.note(is_kept);
        }
        match self.held.take() {
            Some(held) => Piece::Answered(Box::new(Answered { response: *held.response, is_kept })),
            None => Piece::Failed(ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the answer is lost")),
        }
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    /// When the question cannot be answered.
    pub(crate) async fn whole(mut self) -> Result<Whole, ApiError> {
        let mut logprobs = Vec::new();
        loop {
            match self.next().await {
                Piece::Answered(answered) => return Ok(Whole { answered: *answered, logprobs }),
                Piece::Failed(error) => return Err(error),
                Piece::Logprobs(token) => logprobs.push(*token),
                Piece::Thinking(_) | Piece::Text(_) => {}
            }
        }
    }
}

impl Drop for Answering {
    /// Keeps the session of a finished answer open: closing it would withdraw the grade.
    fn drop(&mut self) {
        let Some(asker) = self.asker.take() else { return };
        if self.exchange.reply(RespondentId::A).response.is_some()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(wait_for_verdicts(asker, self.exchange.clone()));
        }
    }
}

/// An answer not yet delivered to its client.
struct Held {
    response: Box<Response>,
    patience: Pin<Box<Sleep>>,
}

/// How long a client waits for its answer to be stored: a delivered answer survives any failure.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// Whether the last answer was not stored in time. Memory then cannot write, and clients wait only briefly.
    has_failed: AtomicBool,
}

impl Durability {
    fn patience(&self) -> Duration {
        if self.has_failed.load(Ordering::Relaxed) { SHORT_PATIENCE } else { PATIENCE }
    }

    fn note(&self, is_kept: bool) {
        if !is_kept {
            tracing::warn!("memory has not confirmed an answer in time");
        }
        self.has_failed.store(!is_kept, Ordering::Relaxed);
    }

    /// Waits until memory has stored an answer that has arrived; false if it misses the deadline.
    pub(crate) async fn of_heard(&self, asker: &Asker, id: QueryId, response: &Response) -> bool {
        if !is_remembered(response) {
            return true;
        }
        let heard = async {
            while let Some(envelope) = poll_fn(|context| asker.poll_heard(context)).await {
                if says_remembered(&envelope, id) {
                    return true;
                }
            }
            false
        };
        let is_kept = tokio::time::timeout(self.patience(), heard).await.unwrap_or(false);
        self.note(is_kept);
        is_kept
    }
}

/// Whether a message confirms that the answer to a question is durable.
pub(crate) fn says_remembered(envelope: &Envelope, id: QueryId) -> bool {
    matches!(envelope.payload, Payload::MemoryStored(_)) && envelope.query_id == Some(id)
}

/// Whether memory stores an answer.
fn is_remembered(response: &Response) -> bool {
    !(response.is_raw || response.finish_reason.is_none() && response.answer.trim().is_empty())
}

/// Keeps a session open until everything expected after its answer has arrived.
async fn wait_for_verdicts(asker: Asker, mut exchange: Exchange) {
    while !exchange.is_complete(asker.expected()) {
        let Some(envelope) = poll_fn(|context| asker.poll_heard(context)).await else { return };
        exchange.take(&envelope);
    }
}

/// The header of a response whose answer memory did not store.
pub(crate) fn kept_header(is_kept: bool) -> Option<[(&'static str, &'static str); 1]> {
    (!is_kept).then_some([("x-hone-kept", "false")])
}

/// Notes in the last object of a response that memory did not store the answer.
pub(crate) fn note_kept(object: &mut Value, is_kept: bool) {
    if !is_kept {
        object["hone"]["kept"] = json!(false);
    }
}

/// Whether an answer ended because it reached a limit.
pub(crate) fn was_cut(reason: Option<FinishReason>) -> bool {
    !reason.is_some_and(FinishReason::is_complete)
}
