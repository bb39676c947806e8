//! Turns and their content blocks in Anthropic's format.

use std::collections::BTreeSet;

use hone_protocol::{Message, Role, ToolCall};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::conversation::{arguments_of, in_order_of_calls, joined, left_out};
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

/// A block of any kind, with the keys of the known kinds.
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
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    thinking: String,
    /// The name of a referenced tool.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    tool_name: String,
}

/// The tools that results refer to; a client may declare others before they are of use.
pub(super) fn referenced_tools(turns: &[Turn]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut left: Vec<&Content> = turns.iter().map(|turn| &turn.content).collect();
    while let Some(content) = left.pop() {
        let Content::Blocks(blocks) = content else { continue };
        names.extend(blocks.iter().filter(|block| block.kind == "tool_reference").map(|block| block.tool_name.clone()));
        left.extend(blocks.iter().filter_map(|block| block.content.as_ref()));
    }
    names
}

/// The turns of a request as shown to the model, after the instructions.
///
/// # Errors
/// When hone does not know the kind of a block.
pub(super) fn messages(system: Option<Content>, turns: Vec<Turn>) -> Result<Vec<Message>, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = system {
        messages.push(Message::new(Role::System, text(system)?));
    }
    for turn in turns {
        messages.extend(turn_messages(turn)?);
    }
    Ok(joined(in_order_of_calls(messages)))
}

fn turn_messages(turn: Turn) -> Result<Vec<Message>, ApiError> {
    match turn.content {
        Content::Text(text) => Ok(vec![Message::new(turn.role.role(), text)]),
        Content::Blocks(blocks) => {
            let messages: Vec<Option<Message>> =
                blocks.into_iter().map(|block| block_message(turn.role, block)).collect::<Result<_, _>>()?;
            Ok(messages.into_iter().flatten().collect())
        }
    }
}

/// The message that a block stands for; `None` for reasoning that only its author can read.
fn block_message(role: TurnRole, block: Block) -> Result<Option<Message>, ApiError> {
    match (block.kind.as_str(), role) {
        ("text", _) => Ok(Some(Message::new(role.role(), block.text))),
        ("thinking", TurnRole::Assistant) => {
            Ok(Some(Message { reasoning: block.thinking, ..Message::new(Role::Assistant, "") }))
        }
        ("redacted_thinking", TurnRole::Assistant) => Ok(None),
        ("tool_use", TurnRole::Assistant) => {
            let id = Some(block.id).filter(|id| !id.is_empty());
            let call = ToolCall { id, ..ToolCall::new(block.name, arguments_of(block.input)) };
            Ok(Some(Message { tool_calls: vec![call], ..Message::new(Role::Assistant, "") }))
        }
        ("tool_result", TurnRole::User) => {
            let result = block.content.map(result_text).unwrap_or_default();
            let result = if block.is_error { format!("The tool failed: {result}") } else { result };
            Ok(Some(Message { result_of: block.tool_use_id, ..Message::new(Role::Tool, result) }))
        }
        (kind, _) => Err(unknown_block(kind)),
    }
}

/// The text of content in which only text blocks are allowed.
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

/// The text of a tool's result, with notes in place of content that cannot be shown: the result stays in the
/// conversation, and refusing it would refuse every later request.
fn result_text(content: Content) -> String {
    match content {
        Content::Text(text) => text,
        Content::Blocks(blocks) => {
            let text = |block: Block| match block.kind.as_str() {
                "text" => block.text,
                "tool_reference" => format!("(the tool {})", block.tool_name),
                "search_result" => block.content.map(result_text).unwrap_or_default(),
                kind => left_out(kind),
            };
            blocks.into_iter().map(text).collect::<Vec<_>>().join("\n\n")
        }
    }
}

fn unknown_block(kind: &str) -> ApiError {
    ApiError::bad_request(format!(
        "a block of the type {kind:?} is not supported here: only text, tools, and documents with their data are known"
    ))
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
    use serde_json::{from_value, json};

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
        let call = |id: &str, zone: &str| ToolCall {
            id: Some(id.to_owned()),
            ..ToolCall::new("clock", json!({"zone": zone}))
        };
        let result =
            |id: &str, text: &str| Message { result_of: Some(id.to_owned()), ..Message::new(Role::Tool, text) };
        let called = Message {
            tool_calls: vec![call("a", "UTC"), call("b", "CET")],
            reasoning: "A clock tells.".to_owned(),
            ..Message::new(Role::Assistant, "Let me see.")
        };
        let expected = [
            Message::new(Role::System, "Be brief.\n\nBe kind."),
            Message::new(Role::User, "What time\n\nis it?"),
            called,
            result("a", "12:00"),
            result("b", "The tool failed: no such zone"),
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
        check(json!([{"role": "user", "content": [{"type": "tool_use"}]}]), "a block of the type \"tool_use\"");
    }

    #[test]
    fn what_a_tool_shows_is_left_out_with_a_note() {
        let content = json!([
            {"type": "text", "text": "Here."},
            {"type": "image", "source": {"type": "url", "url": "x"}},
            {"type": "tool_reference", "tool_name": "clock"},
        ]);
        let result = json!({"type": "tool_result", "tool_use_id": "a", "content": content});
        let read = read(Value::Null, json!([{"role": "user", "content": [result]}])).unwrap();
        assert_eq!(read[0].content, "Here.\n\n(image: it cannot be shown here)\n\n(the tool clock)");
    }
}
