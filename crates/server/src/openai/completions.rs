//! `/v1/completions`: a text is continued as it stands, without a chat template.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response as HttpResponse;
use hone_protocol::{AnswerOptions, Query, Response, TokenLogprobs};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::choices::{Form, Part, Streaming, finish_reason, respond};
use super::common::{Common, Defaults, several};
use super::logprobs::{MOST_TOP, of_text};
use super::shapes::{OpenAiCompletion, OpenAiTexts};
use crate::Shared;
use crate::answering::{Answered, Whole};
use crate::clients::Client;
use crate::error::ApiError;
use crate::requests::{or_default, parsed};
use crate::shapes::ServerSentEvent;

/// The most tokens of a continuation, if a request does not say it.
const DEFAULT_MAX_TOKENS: usize = 16;
/// The most texts of one request.
const MOST_PROMPTS: usize = 64;

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiCompletionRequest)]
struct CompletionRequest {
    #[schema(value_type = OpenAiTexts)]
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

/// One text, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompts {
    One(String),
    Several(Vec<String>),
    Tokens(IgnoredAny),
}

/// Continues the texts of a request.
#[utoipa::path(
    post,
    path = "/v1/completions",
    tag = "OpenAI",
    request_body = CompletionRequest,
    responses(
        (status = OK, content((OpenAiCompletion = "application/json"), (ServerSentEvent = "text/event-stream"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn complete(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: CompletionRequest = parsed(&body)?;
    let stream = Streaming { is_on: request.common.stream, include_usage: request.common.include_usage() };
    let (echo, has_logprobs) = (request.echo, request.logprobs.is_some());
    let queries = request.queries(Defaults::of(&shared))?;
    let prompts: Vec<String> = queries.iter().map(|query| query.query.clone()).collect();
    let offsets = prompts.iter().map(|prompt| if echo { prompt.chars().count() } else { 0 }).collect();
    respond(&shared, client, queries, Text { prompts, echo, has_logprobs, offsets }, stream).await
}

impl CompletionRequest {
    /// The questions: for each text, one for each choice.
    fn queries(self, defaults: Defaults<'_>) -> Result<Vec<Query>, ApiError> {
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
        if self.echo && self.logprobs.is_some() {
            let reason = "logprobs are those of the answer: they cannot be combined with echo";
            return Err(ApiError::bad_request(reason).about("logprobs"));
        }
        if self.logprobs.is_some_and(|top| top > MOST_TOP) {
            return Err(ApiError::bad_request(format!("logprobs must be 0 to {MOST_TOP}")).about("logprobs"));
        }
        let prompts = self.prompt.texts()?;
        let default = if self.common.max_tokens.is_none() { Some(DEFAULT_MAX_TOKENS) } else { None };
        let query = self.common.query(defaults)?;
        let max_tokens = query.max_tokens.or(default);
        let options = AnswerOptions { is_raw: true, logprobs: self.logprobs, ..query.options };
        let query = Query { max_tokens, options, ..query };
        let queries = prompts.into_iter().map(|prompt| Query { query: prompt, ..query.clone() });
        Ok(queries.flat_map(|query| several(&query, n).collect::<Vec<_>>()).collect())
    }
}

impl Prompts {
    fn texts(self) -> Result<Vec<String>, ApiError> {
        match self {
            Prompts::One(text) => Ok(vec![text]),
            Prompts::Several(texts) if (1..=MOST_PROMPTS).contains(&texts.len()) => Ok(texts),
            Prompts::Several(texts) => {
                let n = texts.len();
                Err(ApiError::bad_request(format!("prompt has {n} texts: there must be 1 to {MOST_PROMPTS}"))
                    .about("prompt"))
            }
            Prompts::Tokens(_) => {
                Err(ApiError::bad_request("prompt holds token ids: only texts are supported").about("prompt"))
            }
        }
    }
}

/// The form of continued texts.
struct Text {
    /// The text before each choice.
    prompts: Vec<String>,
    /// Whether a choice begins with that text.
    echo: bool,
    has_logprobs: bool,
    /// Where, in characters, the next piece of each choice begins.
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
