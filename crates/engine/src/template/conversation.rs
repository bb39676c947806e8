//! A conversation as Hugging Face's chat templates expect it.
//!
//! `tools` is a list of `{"type": "function", "function": {name, description, parameters}}`, a turn's `tool_calls` one
//! of `{"id", "type": "function", "function": {name, arguments}}`, and a tool's answer a message with the role `tool`,
//! and with the id and name of the call that it answers. Fields that do not apply are absent, since templates test for
//! their presence.

use std::collections::VecDeque;

use hone_protocol::{Message, Role, Tool, ToolCall};
use minijinja::context;
use minijinja::value::Value;
use serde_json::Value as Json;

use super::json;
use super::messages::CallStyle;

/// The list of messages for a template.
pub(super) fn messages(messages: &[Message], style: CallStyle) -> Value {
    let mut calls = Calls { style, n_calls: 0, open: VecDeque::new() };
    messages.iter().map(|message| calls.message(message)).collect()
}

/// The list of tools for a template; undefined if there are no tools.
pub(super) fn tools(tools: &[Tool]) -> Value {
    match tools {
        [] => Value::from(()),
        _ => tools.iter().map(tool).collect(),
    }
}

fn tool(tool: &Tool) -> Value {
    let Tool { name, description, parameters } = tool;
    let parameters = from_json(parameters);
    context! { type => "function", function => context! { name, description, parameters } }
}

/// Names of the reasoning field in different families of templates.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// Assigns ids to calls that have none, so that the answers can refer to them. Some templates (Mistral's) insist on
/// nine letters or digits.
struct Calls {
    style: CallStyle,
    n_calls: usize,
    /// Ids and names of the calls that have not been answered.
    open: VecDeque<(String, String)>,
}

impl Calls {
    fn message(&mut self, message: &Message) -> Value {
        let is_silent = message.content.is_empty() && !message.tool_calls.is_empty();
        let content = match self.style.silence_is_none && is_silent {
            true => Value::from(()),
            false => message.content.as_str().into(),
        };
        let mut fields = vec![("role", Value::from(message.role.as_str())), ("content", content)];
        if !message.reasoning.is_empty() {
            fields.extend(REASONING.map(|name| (name, message.reasoning.as_str().into())));
        }
        if !message.tool_calls.is_empty() {
            fields.push(("tool_calls", message.tool_calls.iter().map(|call| self.call(call)).collect()));
        }
        if message.role == Role::Tool
            && let Some((id, name)) = self.answered_by(message)
        {
            fields.extend([("tool_call_id", id.into()), ("name", name.into())]);
        }
        Value::from_pairs(fields)
    }

    /// The call that a turn answers: the one that it names, or the next one.
    fn answered_by(&mut self, result: &Message) -> Option<(String, String)> {
        let named = self.open.iter().position(|(id, _)| Some(id) == result.result_of.as_ref());
        self.open.remove(named.unwrap_or(0))
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let id = call.id.clone().unwrap_or_else(|| format!("call{:05}", self.n_calls));
        self.n_calls += 1;
        self.open.push_back((id.clone(), call.name.clone()));
        let arguments = match self.style.arguments_are_text {
            true => Value::from(json::written(&from_json(&call.arguments))),
            false => from_json(&call.arguments),
        };
        let name = call.name.as_str();
        context! { id, type => "function", function => context! { name, arguments } }
    }
}

fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(from_json).collect(),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(key, value)| (key.as_str(), from_json(value)))),
    }
}
