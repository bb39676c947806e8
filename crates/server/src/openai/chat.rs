//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response as HttpResponse;
use hone_protocol::{QueryId, Response, TokenLogprobs, ToolCall};
use serde_json::{Value, json};

use super::choices::{Form, Part, Streaming, finish_reason, respond};
use super::common::Defaults;
use super::logprobs;
use super::request::ChatRequest;
use super::shapes::OpenAiChatCompletion;
use crate::Shared;
use crate::answering::{Answered, Whole};
use crate::clients::{Caller, RecallHeader};
use crate::documents::parsed_with_texts;
use crate::error::ApiError;
use crate::shapes::ServerSentEvent;

/// Answers a chat.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "OpenAI",
    params(RecallHeader),
    request_body = ChatRequest,
    responses(
        (status = OK, content((OpenAiChatCompletion = "application/json"), (ServerSentEvent = "text/event-stream"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn complete(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: ChatRequest = parsed_with_texts(&shared, caller.client, body).await?;
    let stream = Streaming { is_on: request.common.stream, include_usage: request.common.include_usage() };
    let most_calls = if request.parallel_tool_calls.unwrap_or(true) { usize::MAX } else { 1 };
    let queries = request.queries(Defaults::of(&shared))?;
    let has_logprobs = queries.iter().any(|query| query.options.logprobs.is_some());
    respond(&shared, caller, queries, Chat { has_logprobs, most_calls }, stream).await
}

/// The format of a chat.
struct Chat {
    has_logprobs: bool,
    /// The maximum number of tool calls in one answer.
    most_calls: usize,
}

impl Chat {
    fn logprobs(&self, tokens: &[TokenLogprobs]) -> Value {
        if self.has_logprobs { logprobs::of_chat(tokens) } else { Value::Null }
    }

    fn tool_calls(&self, calls: &[ToolCall]) -> Value {
        let call = |(index, call): (usize, &ToolCall)| {
            json!({
                "index": index,
                "id": format!("call_{}", QueryId::fresh()),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments.to_string()},
            })
        };
        calls.iter().take(self.most_calls).enumerate().map(call).collect()
    }
}

impl Form for Chat {
    const ID: &'static str = "chatcmpl";
    const WHOLE: &'static str = "chat.completion";
    const PART: &'static str = "chat.completion.chunk";

    fn choice(&self, index: usize, whole: &Whole) -> Value {
        let Whole { answered: Answered { response, .. }, logprobs } = whole;
        let mut message = json!({"role": "assistant", "content": response.answer, "refusal": null, "annotations": []});
        if !response.thinking.is_empty() {
            message["reasoning_content"] = json!(response.thinking);
        }
        if !response.tool_calls.is_empty() {
            message["tool_calls"] = self.tool_calls(&response.tool_calls);
            if response.answer.is_empty() {
                message["content"] = Value::Null;
            }
        }
        let logprobs = self.logprobs(logprobs);
        json!({"index": index, "message": message, "finish_reason": finish_reason(response), "logprobs": logprobs})
    }

    fn begin(&self, index: usize) -> Vec<Value> {
        vec![delta(index, json!({"role": "assistant", "content": ""}), None)]
    }

    fn part(&mut self, index: usize, part: Part<'_>) -> Value {
        match part {
            Part::Thinking(text) => delta(index, json!({"reasoning_content": text}), None),
            Part::Text(text, tokens) => {
                let mut choice = delta(index, json!({"content": text}), None);
                choice["logprobs"] = self.logprobs(tokens);
                choice
            }
        }
    }

    fn end(&mut self, index: usize, response: &Response) -> Vec<Value> {
        let calls = (!response.tool_calls.is_empty())
            .then(|| delta(index, json!({"tool_calls": self.tool_calls(&response.tool_calls)}), None));
        calls.into_iter().chain([delta(index, json!({}), Some(finish_reason(response)))]).collect()
    }
}

fn delta(index: usize, delta: Value, finish_reason: Option<&str>) -> Value {
    json!({"index": index, "delta": delta, "finish_reason": finish_reason})
}
