//! An answer in Anthropic's format.

use hone_protocol::{FinishReason, QueryId, Response, Timings, ToolCall};
use serde_json::{Value, json};

use crate::answering::PromptTokens;

/// The data that a message needs besides the answer.
pub(super) struct Head {
    pub(super) id: QueryId,
    pub(super) model: String,
    /// The maximum number of tool calls.
    pub(super) most_calls: usize,
}

impl Head {
    /// A message that has just begun.
    pub(super) fn begun(&self, prompt: PromptTokens) -> Value {
        json!({
            "id": format!("msg_{}", self.id),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
            "usage": usage(prompt, 0),
        })
    }

    /// The whole message.
    pub(super) fn message(&self, response: &Response) -> Value {
        let mut content = Vec::new();
        if !response.thinking.is_empty() {
            content.push(json!({"type": "thinking", "thinking": response.thinking, "signature": ""}));
        }
        if !response.answer.is_empty() {
            content.push(text_block(&response.answer));
        }
        content.extend(self.calls(response).map(|(id, call)| call_block(&id, &call.name, &call.arguments)));
        let mut message = self.begun(PromptTokens::default());
        message["content"] = Value::Array(content);
        message["stop_reason"] = json!(stop_reason(response));
        message["stop_sequence"] = json!(response.stopped_by);
        message["usage"] = total(&response.timings);
        message
    }

    /// The tool calls of an answer, with their ids.
    pub(super) fn calls<'a>(&self, response: &'a Response) -> impl Iterator<Item = (String, &'a ToolCall)> {
        let id = self.id;
        let calls = response.tool_calls.iter().take(self.most_calls).enumerate();
        calls.map(move |(index, call)| (format!("toolu_{id}_{index}"), call))
    }
}

/// A text block. The API sends its null keys in every block, and clients check them.
pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text, "citations": null})
}

/// A block with a tool call.
pub(super) fn call_block(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}})
}

/// Why an answer ended.
pub(super) fn stop_reason(response: &Response) -> &'static str {
    match response.finish_reason {
        _ if !response.tool_calls.is_empty() => "tool_use",
        Some(FinishReason::Stop | FinishReason::Concluded) => "end_turn",
        Some(FinishReason::StopText) => "stop_sequence",
        Some(FinishReason::ContextFull) => "model_context_window_exceeded",
        Some(FinishReason::Length | FinishReason::Repetition) | None => "max_tokens",
    }
}

/// The token usage of a whole answer.
pub(super) fn total(timings: &Timings) -> Value {
    let prompt = PromptTokens { cached: timings.cached_tokens, total: timings.prompt_tokens };
    usage(prompt, timings.generation_tokens)
}

/// Cached tokens do not count as input.
fn usage(prompt: PromptTokens, output_tokens: usize) -> Value {
    json!({
        "input_tokens": prompt.total.saturating_sub(prompt.cached),
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": prompt.cached,
        "output_tokens": output_tokens,
        "output_tokens_details": null,
        "server_tool_use": null,
        "inference_geo": null,
        "service_tier": "standard",
    })
}
