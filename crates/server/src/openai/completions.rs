//! `/v1/completions`: a text is continued as is, without a chat template. Token ids, and texts whose own
//! log-probabilities are requested, are [computed by the model alone](super::scoring).

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response as HttpResponse;
use hone_protocol::{AnswerOptions, Prompt, Query, Response, TokenLogprobs};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::choices::{Form, Part, Streaming, finish_reason, respond};
use super::common::{Common, Defaults, several};
use super::logprobs::{MOST_TOP, of_text};
use super::scoring::Scoring;
use super::shapes::{OpenAiCompletion, OpenAiPrompts};
use crate::Shared;
use crate::answering::{Answered, Whole};
use crate::clients::{Caller, RecallHeader};
use crate::error::ApiError;
use crate::requests::{or_default, parsed};
use crate::shapes::ServerSentEvent;

/// The default token limit of a continuation.
const DEFAULT_MAX_TOKENS: usize = 16;
/// Maximum number of texts per request.
const MOST_PROMPTS: usize = 64;

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiCompletionRequest)]
struct CompletionRequest {
    #[schema(value_type = OpenAiPrompts)]
    prompt: Prompts,
    #[serde(default)]
    suffix: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    echo: bool,
    #[serde(default)]
    logprobs: Option<usize>,
    #[serde(default)]
    best_of: Option<usize>,
    #[serde(flatten)]
    common: Common,
}

/// One prompt, or several: texts, or token ids.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompts {
    One(String),
    Several(Vec<String>),
    OneOfTokens(Vec<u32>),
    SeveralOfTokens(Vec<Vec<u32>>),
}

/// Continues the texts of a request.
#[utoipa::path(
    post,
    path = "/v1/completions",
    tag = "OpenAI",
    params(RecallHeader),
    request_body = CompletionRequest,
    responses(
        (status = OK, content((OpenAiCompletion = "application/json"), (ServerSentEvent = "text/event-stream"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn complete(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: CompletionRequest = parsed(body).await?;
    let stream = Streaming { is_on: request.common.stream, include_usage: request.common.include_usage() };
    let (echo, has_logprobs) = (request.echo, request.logprobs.is_some());
    let n = request.common.n_choices()?;
    let (query, prompts) = request.query(Defaults::of(&shared))?;
    let texts = match prompts {
        Prompts::OneOfTokens(_) | Prompts::SeveralOfTokens(_) => None,
        _ if echo && has_logprobs => None,
        ref texts => Some(texts.texts()?),
    };
    let Some(texts) = texts else {
        return Scoring { prompts: prompts.prompts()?, query, n: n as usize, echo }
            .respond(&shared, caller.client, stream)
            .await;
    };
    let queries = texts.into_iter().map(|text| Query { query: text, ..query.clone() });
    let queries: Vec<Query> = queries.flat_map(|query| several(&query, n).collect::<Vec<_>>()).collect();
    let prompts: Vec<String> = queries.iter().map(|query| query.query.clone()).collect();
    let offsets = prompts.iter().map(|prompt| if echo { prompt.chars().count() } else { 0 }).collect();
    respond(&shared, caller, queries, Text { prompts, echo, has_logprobs, offsets }, stream).await
}

impl CompletionRequest {
    /// The question without its text, and the prompts.
    fn query(self, defaults: Defaults<'_>) -> Result<(Query, Prompts), ApiError> {
        let n = self.common.n_choices()?;
        if self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Err(
                ApiError::bad_request("suffix is not supported: models here only continue a text").about("suffix")
            );
        }
        if self.best_of.is_some_and(|best_of| best_of as u64 != n) {
            return Err(
                ApiError::bad_request("best_of is not supported: ask for n answers and choose one").about("best_of")
            );
        }
        if self.logprobs.is_some_and(|top| top > MOST_TOP) {
            return Err(ApiError::bad_request(format!("logprobs must be 0 to {MOST_TOP}")).about("logprobs"));
        }
        let default = if self.common.max_tokens.is_none() { Some(DEFAULT_MAX_TOKENS) } else { None };
        let query = self.common.query(defaults)?;
        let max_tokens = query.max_tokens.or(default);
        let options = AnswerOptions { is_raw: true, logprobs: self.logprobs, ..query.options };
        Ok((Query { max_tokens, options, ..query }, self.prompt))
    }
}

impl Prompts {
    /// The prompts that are texts.
    fn texts(&self) -> Result<Vec<String>, ApiError> {
        match self {
            Prompts::One(text) => Ok(vec![text.clone()]),
            Prompts::Several(texts) => checked(texts.clone()),
            Prompts::OneOfTokens(_) | Prompts::SeveralOfTokens(_) => Ok(Vec::new()),
        }
    }

    /// All prompts, as a model computes them.
    fn prompts(self) -> Result<Vec<Prompt>, ApiError> {
        match self {
            Prompts::OneOfTokens(tokens) => Ok(vec![Prompt::Tokens(tokens)]),
            Prompts::SeveralOfTokens(prompts) => Ok(checked(prompts)?.into_iter().map(Prompt::Tokens).collect()),
            texts => {
                let prompt = |text: String| Prompt::Text { text, parse_special: true, add_special: true };
                Ok(texts.texts()?.into_iter().map(prompt).collect())
            }
        }
    }
}

/// Checks the number of prompts.
fn checked<T>(prompts: Vec<T>) -> Result<Vec<T>, ApiError> {
    match prompts.len() {
        1..=MOST_PROMPTS => Ok(prompts),
        n => {
            Err(ApiError::bad_request(format!("prompt has {n} texts: there must be 1 to {MOST_PROMPTS}"))
                .about("prompt"))
        }
    }
}

/// The format of completions.
struct Text {
    /// The text before each choice.
    prompts: Vec<String>,
    /// Whether a choice begins with that text.
    echo: bool,
    has_logprobs: bool,
    /// The offset of each choice's next piece, in characters.
    offsets: Vec<usize>,
}

impl Text {
    fn part(&self, index: usize, text: &str, logprobs: Value, finish_reason: Option<&str>) -> Value {
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason})
    }

    fn logprobs(&self, tokens: &[TokenLogprobs], start: usize) -> Value {
        if self.has_logprobs { of_text(tokens, start) } else { Value::Null }
    }

    fn echoed(&self, index: usize) -> &str {
        if self.echo { &self.prompts[index] } else { "" }
    }
}

impl Form for Text {
    const ID: &'static str = "cmpl";
    const WHOLE: &'static str = "text_completion";
    const PART: &'static str = "text_completion";

    fn choice(&self, index: usize, whole: &Whole) -> Value {
        let Whole { answered: Answered { response, .. }, logprobs } = whole;
        let text = format!("{}{}", self.echoed(index), response.answer);
        let logprobs = self.logprobs(logprobs, self.offsets[index]);
        Text::part(self, index, &text, logprobs, Some(finish_reason(response)))
    }

    fn begin(&self, index: usize) -> Vec<Value> {
        let echoed = self.echoed(index);
        let begins = !echoed.is_empty();
        begins.then(|| Text::part(self, index, echoed, Value::Null, None)).into_iter().collect()
    }

    fn part(&mut self, index: usize, part: Part<'_>) -> Value {
        let (text, tokens) = match part {
            Part::Thinking(text) => (text, &[][..]),
            Part::Text(text, tokens) => (text, tokens),
        };
        let logprobs = self.logprobs(tokens, self.offsets[index]);
        self.offsets[index] += text.chars().count();
        Text::part(self, index, text, logprobs, None)
    }

    fn end(&mut self, index: usize, response: &Response) -> Vec<Value> {
        vec![Text::part(self, index, "", Value::Null, Some(finish_reason(response)))]
    }
}
