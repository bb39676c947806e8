//! Conversation items in the Responses API's format.

use hone_protocol::{EnvelopeId, Message};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::tools::{INPUT, full_name};
use crate::error::ApiError;
use crate::openai::messages::{ChatMessage, messages};

/// Finds tools that are not shown to the model until it asks for them; the client or another server runs it.
const TOOL_SEARCH: &str = "tool_search";

/// A question, or items.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenAiInput)]
pub(in crate::openai) enum Input {
    Text(String),
    Items(Vec<Value>),
}

impl Input {
    /// The items, each with its type and an id.
    ///
    /// # Errors
    /// When one of them is not an object.
    pub(in crate::openai) fn items(self) -> Result<Vec<Value>, ApiError> {
        let items = match self {
            Input::Text(text) => vec![json!({"role": "user", "content": [{"type": "input_text", "text": text}]})],
            Input::Items(items) => items,
        };
        items.into_iter().map(complete).collect()
    }
}

/// The item with a type and an id, which are added if missing.
fn complete(mut item: Value) -> Result<Value, ApiError> {
    let Some(fields) = item.as_object_mut() else {
        return Err(ApiError::bad_request(format!("an item of input is {item}: it must be an object")).about("input"));
    };
    let kind = fields.entry("type").or_insert_with(|| json!("message"));
    let prefix = match kind.as_str() {
        Some("function_call") => "fc",
        Some("function_call_output") => "fco",
        Some("reasoning") => "rs",
        _ => "msg",
    };
    if fields.get("id").is_none_or(Value::is_null) {
        fields.insert("id".to_owned(), json!(format!("{prefix}_{}", EnvelopeId::fresh())));
    }
    Ok(item)
}

/// The turns that items stand for.
///
/// # Errors
/// When an item's type is unknown, or the item is malformed.
pub(in crate::openai) fn turns(items: &[Value]) -> Result<Vec<Message>, ApiError> {
    let turns: Vec<Option<Value>> = items.iter().map(as_chat_message).collect::<Result<_, _>>()?;
    let read = |turn: Value| serde_json::from_value::<ChatMessage>(turn);
    let turns: Result<Vec<ChatMessage>, _> = turns.into_iter().flatten().map(read).collect();
    messages(
        turns
            .map_err(|error| ApiError::bad_request(format!("an item of input is not valid: {error}")).about("input"))?,
    )
}

/// The chat message equivalent to an item; `None` for content that only its author can read.
///
/// Agents' histories hold items of tools that other servers have. They are shown as tool calls, or as notes: refusing
/// one would block the conversation permanently.
fn as_chat_message(item: &Value) -> Result<Option<Value>, ApiError> {
    let kind = item["type"].as_str().unwrap_or_default();
    let call = |name: &Value, arguments: Value| {
        let name = name.as_str().map(|name| full_name(item["namespace"].as_str(), name));
        let call = json!({"id": item["call_id"], "function": {"name": name, "arguments": arguments}});
        Ok(Some(json!({"role": "assistant", "tool_calls": [call]})))
    };
    match kind {
        "message" => Ok(Some(item.clone())),
        "function_call" => call(&item["name"], item["arguments"].clone()),
        "custom_tool_call" => call(&item["name"], json!({INPUT: item["input"]})),
        "local_shell_call" | "shell_call" | "computer_call" => call(&json!(kind), item["action"].clone()),
        "apply_patch_call" => call(&json!(kind), item["operation"].clone()),
        "mcp_call" => call(&item["name"], item["arguments"].clone()),
        "tool_search_call" => call(&json!(TOOL_SEARCH), item["arguments"].clone()),
        "tool_search_output" => Ok(Some(json!({
            "role": "tool", "tool_call_id": item["call_id"], "content": item["tools"].to_string()
        }))),
        kind if kind.ends_with("_call_output") => Ok(Some(json!({
            "role": "tool", "tool_call_id": item["call_id"], "content": output(&item["output"])
        }))),
        "reasoning" => Ok(Some(json!({"role": "assistant", "reasoning_content": reasoning(item)}))),
        "compaction" | "context_compaction" | "compaction_summary" | "item_reference" => Ok(None),
        "mcp_list_tools" | "mcp_approval_request" | "mcp_approval_response" => Ok(None),
        kind if kind.ends_with("_call") => Ok(Some(json!({"role": "assistant", "content": said_of(kind, item)}))),
        other => {
            let known = "message, reasoning, and calls of tools with their outputs";
            Err(ApiError::bad_request(format!("an item of input is of the type {other:?}: only {known} are known"))
                .about("input"))
        }
    }
}

/// The output of a tool: a text, parts, or its own kind of value.
fn output(output: &Value) -> Value {
    let is_parts = output.as_array().is_some_and(|parts| parts.iter().all(|part| part["type"].is_string()));
    match output {
        Value::String(_) | Value::Null => output.clone(),
        _ if is_parts => output.clone(),
        other => json!(other.to_string()),
    }
}

/// The model's reasoning, or its summary.
fn reasoning(item: &Value) -> String {
    let texts = |parts: &Value| -> Vec<String> {
        parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).map(str::to_owned).collect()
    };
    let whole = texts(&item["content"]);
    if whole.is_empty() { texts(&item["summary"]).join("\n\n") } else { whole.join("\n\n") }
}

/// A note about a call that another server ran.
fn said_of(kind: &str, item: &Value) -> String {
    let told = ["action", "queries", "code"].iter().map(|key| &item[key]).find(|value| !value.is_null());
    match told {
        Some(told) => format!("({kind}: {told})"),
        None => format!("({kind})"),
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Role, ToolCall};

    use super::*;
    use crate::conversation::joined;

    fn read(input: Value) -> Result<Vec<Message>, String> {
        let items = serde_json::from_value::<Input>(input).unwrap().items().map_err(|error| error.message)?;
        assert!(items.iter().all(|item| item["id"].is_string() && item["type"].is_string()), "{items:?}");
        turns(&items).map(joined).map_err(|error| error.message)
    }

    #[test]
    fn items_become_turns() {
        assert_eq!(read(json!("Hello")).unwrap(), [Message::new(Role::User, "Hello")]);
        let call = |zone: &str| {
            let arguments = json!({"zone": zone}).to_string();
            json!({"type": "function_call", "call_id": zone, "name": "clock", "arguments": arguments})
        };
        let result =
            |zone: &str| json!({"type": "function_call_output", "call_id": zone, "output": format!("12:00 {zone}")});
        let items = json!([
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "A clock knows."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            call("UTC"), call("CET"), result("UTC"), result("CET"),
        ]);
        let called =
            |zone: &str| ToolCall { id: Some(zone.to_owned()), ..ToolCall::new("clock", json!({"zone": zone})) };
        let answered = |zone: &str| Message {
            result_of: Some(zone.to_owned()),
            ..Message::new(Role::Tool, format!("12:00 {zone}"))
        };
        let expected = [
            Message::new(Role::System, "Be brief."),
            Message::new(Role::User, "What time is it?"),
            Message {
                tool_calls: vec![called("UTC"), called("CET")],
                reasoning: "A clock knows.".to_owned(),
                ..Message::new(Role::Assistant, "Let me see.")
            },
            answered("UTC"),
            answered("CET"),
        ];
        assert_eq!(read(items).unwrap(), expected);
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let check = |input, expected: &str| {
            let error = read(input).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(json!([7]), "an item of input is 7: it must be an object");
        check(json!([{"type": "poem", "id": "msg_1"}]), "of the type \"poem\"");
        check(json!([{"role": "poet", "content": "x"}]), "an item of input is not valid");
        let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
        check(image, "a part of a message is of the type \"input_image\"");
    }

    #[test]
    fn items_of_other_servers_tools_are_kept() {
        let items = json!([
            {"role": "user", "content": "Q"},
            {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": [{"type": "input_image", "image_url": "x"}]},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "y"}},
            {"type": "tool_search_call", "call_id": "b", "execution": "client", "arguments": {"query": "mail"}},
            {"type": "tool_search_output", "call_id": "b", "tools": [{"type": "namespace", "name": "mcp__mail"}]},
            {"type": "function_call", "call_id": "c", "namespace": "mcp__mail", "name": "search", "arguments": "{}"},
            {"type": "compaction", "encrypted_content": "x"},
            {"type": "item_reference", "id": "msg_1"},
        ]);
        let read = read(items).unwrap();
        assert_eq!(read[1].tool_calls[0].arguments, json!({"input": "x"}));
        let said: Vec<&str> = read[2..].iter().map(|turn| &*turn.content).collect();
        let expected = [
            "(input_image: it cannot be shown here)",
            "(web_search_call: {\"query\":\"y\"})",
            "[{\"type\":\"namespace\",\"name\":\"mcp__mail\"}]",
            "",
        ];
        assert_eq!(said, expected);
        let called: Vec<&str> = read.iter().flat_map(|turn| &turn.tool_calls).map(|call| &*call.name).collect();
        assert_eq!(called, ["patch", "tool_search", "mcp__mail__search"]);
    }
}
