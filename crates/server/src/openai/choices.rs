//! The choices of a response, whole or streamed, for chats and completions alike.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use axum::Json;
use axum::response::{IntoResponse, Response as HttpResponse};
use futures_util::Stream;
use futures_util::stream::unfold;
use hone_protocol::{Query, Response, Timestamp, Timings, TokenLogprobs};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::Shared;
use crate::answering::{Answered, Answering, Piece, Whole, kept_header, note_kept, was_cut};
use crate::clients::Caller;
use crate::error::ApiError;
use crate::streams;

/// The format of choices.
pub(super) trait Form: Send + 'static {
    /// The prefix of response ids.
    const ID: &'static str;
    /// The object type of a whole response.
    const WHOLE: &'static str;
    /// The object type of a part of a streamed response.
    const PART: &'static str;

    /// A whole choice.
    fn choice(&self, index: usize, whole: &Whole) -> Value;

    /// The first parts of a streamed choice.
    fn begin(&self, index: usize) -> Vec<Value>;

    /// A part of a streamed choice.
    fn part(&mut self, index: usize, part: Part<'_>) -> Value;

    /// The last parts of a streamed choice, including its finish reason.
    fn end(&mut self, index: usize, response: &Response) -> Vec<Value>;
}

/// A part of an answer.
pub(super) enum Part<'a> {
    /// A piece of the model's reasoning.
    Thinking(&'a str),
    /// A piece of the answer with the log-probabilities of its tokens, if requested.
    Text(&'a str, &'a [TokenLogprobs]),
}

/// Asks the questions and answers the request with the results.
///
/// # Errors
/// When a question cannot be asked, or has no answer.
pub(super) async fn respond<F: Form>(
    shared: &Shared,
    caller: Caller,
    queries: Vec<Query>,
    form: F,
    stream: Streaming,
) -> Result<HttpResponse, ApiError> {
    let model = queries.first().map(|query| query.model.clone()).unwrap_or_default();
    let slot = stream.is_on.then(|| shared.streams.take(caller.client)).transpose()?;
    let choices: Vec<Answering> =
        queries.into_iter().map(|query| Answering::ask(shared, caller, query)).collect::<Result<_, _>>()?;
    let query_id = choices.first().map(|choice| choice.id().to_string()).unwrap_or_default();
    let header = [("x-hone-query-id", query_id.clone())];
    let head = Head { query_id, model, created: Timestamp::now().0 / 1000, form };
    if let Some(slot) = slot {
        let stream = Choices::begin(choices, head, stream.include_usage).await?.stream();
        return Ok((header, streams::events(slot, stream)).into_response());
    }
    let mut wholes = Vec::new();
    for choice in choices {
        wholes.push(choice.whole().await?);
    }
    let kept = kept_header(wholes.iter().all(|whole| whole.answered.is_kept));
    Ok((header, kept, Json(head.whole(&wholes))).into_response())
}

/// Whether a response is streamed, and whether the stream ends with the usage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streaming {
    pub(super) is_on: bool,
    pub(super) include_usage: bool,
}

/// Why a choice ended.
pub(super) fn finish_reason(response: &Response) -> &'static str {
    match (response.tool_calls.is_empty(), was_cut(response.finish_reason)) {
        (false, _) => "tool_calls",
        (true, true) => "length",
        (true, false) => "stop",
    }
}

/// The data that every part of a response repeats.
struct Head<F> {
    query_id: String,
    model: String,
    created: u64,
    form: F,
}

impl<F: Form> Head<F> {
    fn object(&self, kind: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": format!("{}-{}", F::ID, self.query_id),
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn whole(&self, wholes: &[Whole]) -> Value {
        let choices = wholes.iter().enumerate().map(|(index, whole)| self.form.choice(index, whole)).collect();
        let mut object = self.object(F::WHOLE, choices);
        object["usage"] = usage(wholes.iter().map(|whole| &whole.answered.response.timings));
        object["hone"] = json!({"query_id": self.query_id});
        note_kept(&mut object, wholes.iter().all(|whole| whole.answered.is_kept));
        object
    }

    fn part(&self, choice: Value) -> Value {
        self.object(F::PART, vec![choice])
    }
}

fn usage<'a>(timings: impl Iterator<Item = &'a Timings>) -> Value {
    let (mut prompt, mut cached, mut generated) = (0, 0, 0);
    for timings in timings {
        // The choices share one prompt.
        prompt = prompt.max(timings.prompt_tokens);
        cached = cached.max(timings.cached_tokens);
        generated += timings.generation_tokens;
    }
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    })
}

/// The choices of a response being streamed.
struct Choices<F> {
    /// `None` for a finished choice.
    open: Vec<Option<Answering>>,
    /// For each choice, the log-probabilities of tokens whose text has not arrived yet.
    logprobs: Vec<Vec<TokenLogprobs>>,
    ended: Vec<Timings>,
    head: Head<F>,
    include_usage: bool,
    /// Texts to send before anything else.
    waiting: VecDeque<String>,
    is_over: bool,
}

impl<F: Form> Choices<F> {
    /// Waits briefly for the first piece: it shows whether the answer has failed, and so determines the HTTP status.
    async fn begin(choices: Vec<Answering>, head: Head<F>, include_usage: bool) -> Result<Choices<F>, ApiError> {
        let (n_choices, open) = (choices.len(), choices.into_iter().map(Some).collect());
        let first = (0..n_choices).flat_map(|index| head.form.begin(index));
        let waiting = first.map(|choice| head.part(choice).to_string()).collect();
        let (logprobs, ended, is_over) = (vec![Vec::new(); n_choices], Vec::new(), false);
        let mut choices = Choices { open, logprobs, ended, head, include_usage, waiting, is_over };
        match timeout(streams::OPENING, poll_fn(|context| choices.poll_piece(context))).await {
            Ok((_, Piece::Failed(error))) => Err(error),
            Ok((index, piece)) => {
                choices.take(index, piece);
                Ok(choices)
            }
            Err(_) => Ok(choices),
        }
    }

    fn stream(self) -> impl Stream<Item = String> + Send + 'static {
        unfold(self, async |mut choices| Some((choices.next().await?, choices)))
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(text) = self.waiting.pop_front() {
                return Some(text);
            }
            if self.is_over {
                return None;
            }
            if self.open.iter().all(Option::is_none) {
                self.end();
                continue;
            }
            let (index, piece) = poll_fn(|context| self.poll_piece(context)).await;
            self.take(index, piece);
        }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<(usize, Piece)> {
        for (index, choice) in self.open.iter_mut().enumerate() {
            if let Some(answering) = choice
                && let Poll::Ready(piece) = answering.poll_next(context)
            {
                return Poll::Ready((index, piece));
            }
        }
        Poll::Pending
    }

    fn take(&mut self, index: usize, piece: Piece) {
        match piece {
            Piece::Logprobs(logprobs) => self.logprobs[index].push(*logprobs),
            Piece::Text(text) => {
                let logprobs = std::mem::take(&mut self.logprobs[index]);
                let choice = self.head.form.part(index, Part::Text(&text, &logprobs));
                self.send(choice);
            }
            Piece::Thinking(text) => {
                let choice = self.head.form.part(index, Part::Thinking(&text));
                self.send(choice);
            }
            Piece::Answered(answered) => self.end_choice(index, *answered),
            Piece::Failed(error) => {
                self.waiting.push_back(error.to_openai().to_string());
                self.is_over = true;
                self.open.clear();
            }
        }
    }

    fn end_choice(&mut self, index: usize, Answered { response, is_kept }: Answered) {
        let mut parts: Vec<Value> =
            self.head.form.end(index, &response).into_iter().map(|choice| self.head.part(choice)).collect();
        parts.last_mut().into_iter().for_each(|part| note_kept(part, is_kept));
        self.waiting.extend(parts.iter().map(Value::to_string));
        self.ended.push(response.timings);
        self.open[index] = None;
    }

    fn send(&mut self, choice: Value) {
        self.waiting.push_back(self.head.part(choice).to_string());
    }

    fn end(&mut self) {
        if self.include_usage {
            let mut object = self.head.object(F::PART, Vec::new());
            object["usage"] = usage(self.ended.iter());
            self.waiting.push_back(object.to_string());
        }
        self.waiting.push_back("[DONE]".to_owned());
        self.is_over = true;
    }
}
