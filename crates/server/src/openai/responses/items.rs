//! The items of a conversation as the Responses API writes them.

use hone_protocol::{EnvelopeId, Message};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::openai::messages::{ChatMessage, messages};

/// A question, or items.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenAiInput)]
pub(super) enum Input {
    Text(String),
    Items(Vec<Value>),
}

impl Input {
    /// The items, each with its type and an id.
    ///
    /// # Errors
    /// When one of them is not an object.
    pub(super) fn items(self) -> Result<Vec<Value>, ApiError> {
        let items = match self {
            Input::Text(text) => vec![json!({"role": "user", "content": [{"type": "input_text", "text": text}]})],
            Input::Items(items) => items,
        };
        items.into_iter().map(complete).collect()
    }
}

/// The item with the type and the id that it may lack.
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

/// The turns that items stand for; nothing of earlier reasoning, which models are not shown again.
///
/// # Errors
/// When an item is of a type that hone does not know, or not of its form.
pub(super) fn turns(items: &[Value]) -> Result<Vec<Message>, ApiError> {
    let turns: Vec<Option<Value>> = items.iter().map(as_chat_message).collect::<Result<_, _>>()?;
    let read = |turn: Value| serde_json::from_value::<ChatMessage>(turn);
    let turns: Result<Vec<ChatMessage>, _> = turns.into_iter().flatten().map(read).collect();
    messages(
        turns
            .map_err(|error| ApiError::bad_request(format!("an item of input is not valid: {error}")).about("input"))?,
    )
}

/// The message of a chat that says the same as an item.
fn as_chat_message(item: &Value) -> Result<Option<Value>, ApiError> {
    match item["type"].as_str().unwrap_or_default() {
        "message" => Ok(Some(item.clone())),
        "function_call" => {
            let function = json!({"name": item["name"], "arguments": item["arguments"]});
            let call = json!({"id": item["call_id"], "function": function});
            Ok(Some(json!({"role": "assistant", "tool_calls": [call]})))
        }
        "function_call_output" => Ok(Some(json!({
            "role": "tool", "tool_call_id": item["call_id"], "content": item["output"]
        }))),
        "reasoning" => Ok(None),
        other => {
            let known = "message, function_call, function_call_output and reasoning";
            Err(ApiError::bad_request(format!("an item of input is of the type {other:?}: only {known} are known"))
                .about("input"))
        }
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
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            call("UTC"), call("CET"), result("UTC"), result("CET"),
        ]);
        let called = |zone: &str| ToolCall { name: "clock".to_owned(), arguments: json!({"zone": zone}) };
        let expected = [
            Message::new(Role::System, "Be brief."),
            Message::new(Role::User, "What time is it?"),
            Message { tool_calls: vec![called("UTC"), called("CET")], ..Message::new(Role::Assistant, "Let me see.") },
            Message::new(Role::Tool, "12:00 UTC"),
            Message::new(Role::Tool, "12:00 CET"),
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
        check(json!([{"type": "item_reference", "id": "msg_1"}]), "of the type \"item_reference\"");
        check(json!([{"role": "poet", "content": "x"}]), "an item of input is not valid");
        let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
        check(image, "a part of a message is of the type \"input_image\"");
    }
}
