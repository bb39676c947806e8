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

/// The list of messages for a template.
pub(super) fn messages(messages: &[Message]) -> Value {
    let mut calls = CallIds::default();
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

/// Assigns ids to calls, so that the answers can refer to them. Some templates (Mistral's) insist on nine letters or
/// digits.
#[derive(Default)]
struct CallIds {
    n_calls: usize,
    /// Ids and names of the calls that have not been answered.
    open: VecDeque<(String, String)>,
}

impl CallIds {
    fn message(&mut self, message: &Message) -> Value {
        let role = Value::from(message.role.as_str());
        let mut fields = vec![("role", role), ("content", message.content.as_str().into())];
        if !message.tool_calls.is_empty() {
            fields.push(("tool_calls", message.tool_calls.iter().map(|call| self.call(call)).collect()));
        }
        if message.role == Role::Tool
            && let Some((id, name)) = self.open.pop_front()
        {
            fields.extend([("tool_call_id", id.into()), ("name", name.into())]);
        }
        Value::from_pairs(fields)
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let id = format!("call{:05}", self.n_calls);
        self.n_calls += 1;
        self.open.push_back((id.clone(), call.name.clone()));
        let arguments = from_json(&call.arguments);
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
