//! Turns and their blocks as Anthropic's API writes them.

use hone_protocol::{Message, Role, ToolCall};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::conversation::{IdentifiedTurn, in_order_of_calls, joined};
use crate::error::ApiError;
use crate::requests::or_default;

/// A turn of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicTurn)]
pub(super) struct Turn {
    role: TurnRole,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AnthropicRole)]
enum TurnRole {
    User,
    Assistant,
    System,
}

/// A text, or blocks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = AnthropicContent)]
pub(super) enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

/// A block of any kind, with the keys of those that are known.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicBlock)]
pub(super) struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    text: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    id: String,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    name: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    #[schema(no_recursion)]
    content: Option<Content>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    is_error: bool,
}

/// The turns of a request as the model is shown them, after the instructions.
///
/// # Errors
/// When a block is of a kind that hone does not know, or the conversation ends with an answer.
pub(super) fn messages(system: Option<Content>, turns: Vec<Turn>) -> Result<Vec<Message>, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = system {
        messages.push(IdentifiedTurn::from(Message::new(Role::System, text(system)?)));
    }
    for turn in turns {
        messages.extend(turn_messages(turn)?);
    }
    let messages = joined(in_order_of_calls(messages));
    if messages.last().is_some_and(|last| last.role == Role::Assistant) {
        let reason = "messages ends with a turn of the assistant: hone does not continue an answer that has begun";
        return Err(ApiError::bad_request(reason));
    }
    Ok(messages)
}

fn turn_messages(turn: Turn) -> Result<Vec<IdentifiedTurn>, ApiError> {
    match turn.content {
        Content::Text(text) => Ok(vec![Message::new(turn.role.role(), text).into()]),
        Content::Blocks(blocks) => {
            let messages: Vec<Option<IdentifiedTurn>> =
                blocks.into_iter().map(|block| block_message(turn.role, block)).collect::<Result<_, _>>()?;
            Ok(messages.into_iter().flatten().collect())
        }
    }
}

/// What a block says; nothing of earlier reasoning, which models are not shown again.
fn block_message(role: TurnRole, block: Block) -> Result<Option<IdentifiedTurn>, ApiError> {
    match (block.kind.as_str(), role) {
        ("text", _) => Ok(Some(Message::new(role.role(), block.text).into())),
        ("thinking" | "redacted_thinking", TurnRole::Assistant) => Ok(None),
        ("tool_use", TurnRole::Assistant) => {
            let arguments = if block.input.is_null() { json!({}) } else { block.input };
            let call = ToolCall { name: block.name, arguments };
            let message = Message { tool_calls: vec![call], ..Message::new(Role::Assistant, "") };
            Ok(Some(IdentifiedTurn { message, calls: vec![block.id], result_of: None }))
        }
        ("tool_result", TurnRole::User) => {
            let result = block.content.map(text).transpose()?.unwrap_or_default();
            let result = if block.is_error { format!("The tool failed: {result}") } else { result };
            let message = Message::new(Role::Tool, result);
            Ok(Some(IdentifiedTurn { message, calls: Vec::new(), result_of: block.tool_use_id }))
        }
        (kind, _) => Err(unknown_block(kind)),
    }
}

/// The text of blocks that can only be text.
fn text(content: Content) -> Result<String, ApiError> {
    match content {
        Content::Text(text) => Ok(text),
        Content::Blocks(blocks) => {
            let text = |block: Block| match block.kind.as_str() {
                "text" => Ok(block.text),
                kind => Err(unknown_block(kind)),
            };
            let texts: Vec<String> = blocks.into_iter().map(text).collect::<Result<_, _>>()?;
            Ok(texts.join("\n\n"))
        }
    }
}

fn unknown_block(kind: &str) -> ApiError {
    ApiError::bad_request(format!("a block of the type {kind:?} is not supported here: only text and tools are known"))
}

impl TurnRole {
    fn role(self) -> Role {
        match self {
            TurnRole::User => Role::User,
            TurnRole::Assistant => Role::Assistant,
            TurnRole::System => Role::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn read(system: Value, turns: Value) -> Result<Vec<Message>, String> {
        let turns: Vec<Turn> = from_value(turns).map_err(|error| error.to_string())?;
        messages(from_value(system).unwrap(), turns).map_err(|error| error.message)
    }

    #[test]
    fn blocks_become_turns() {
        let system = json!([{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]);
        let turns = json!([
            {"role": "user", "content": "What time"},
            {"role": "user", "content": [{"type": "text", "text": "is it?", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "A clock tells.", "signature": ""},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a", "name": "clock", "input": {"zone": "UTC"}},
                {"type": "tool_use", "id": "b", "name": "clock", "input": {"zone": "CET"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "b", "is_error": true, "content": [
                    {"type": "text", "text": "no such zone"}
                ]},
                {"type": "tool_result", "tool_use_id": "a", "content": "12:00"},
                {"type": "text", "text": "And now?"},
            ]},
        ]);
        let call = |zone: &str| ToolCall { name: "clock".to_owned(), arguments: json!({"zone": zone}) };
        let called =
            Message { tool_calls: vec![call("UTC"), call("CET")], ..Message::new(Role::Assistant, "Let me see.") };
        let expected = [
            Message::new(Role::System, "Be brief.\n\nBe kind."),
            Message::new(Role::User, "What time\n\nis it?"),
            called,
            Message::new(Role::Tool, "12:00"),
            Message::new(Role::Tool, "The tool failed: no such zone"),
            Message::new(Role::User, "And now?"),
        ];
        assert_eq!(read(system, turns).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_shown_is_refused_by_name() {
        let check = |turns, expected: &str| {
            let error = read(Value::Null, turns).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let image = json!({"type": "image", "source": {"type": "url", "url": "x"}});
        check(json!([{"role": "user", "content": [image]}]), "a block of the type \"image\" is not supported");
        let result = json!({"type": "tool_result", "tool_use_id": "a", "content": [image]});
        check(json!([{"role": "user", "content": [result]}]), "a block of the type \"image\" is not supported");
        check(json!([{"role": "user", "content": [{"type": "tool_use"}]}]), "a block of the type \"tool_use\"");
        let begun = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "The best is ("}]);
        check(begun, "messages ends with a turn of the assistant");
    }
}
