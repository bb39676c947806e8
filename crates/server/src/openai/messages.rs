//! Messages in OpenAI's format.

use hone_protocol::{Message, Role, ToolCall};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::conversation::{CalledTool, in_order_of_calls, left_out};
use crate::error::ApiError;
use crate::requests::or_default;

/// A turn of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiMessage)]
pub(super) struct ChatMessage {
    role: ChatRole,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    tool_calls: Vec<CalledTool>,
    #[serde(default)]
    tool_call_id: Option<String>,
    /// The model's reasoning before the answer, under llama.cpp's and DeepSeek's name.
    #[serde(default)]
    reasoning_content: Option<String>,
    /// The reasoning under vLLM's and OpenRouter's name.
    #[serde(default)]
    reasoning: Option<Value>,
    /// The text of a turn without other content.
    #[serde(default)]
    refusal: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = OpenAiRole)]
enum ChatRole {
    System,
    Developer,
    User,
    Assistant,
    #[serde(alias = "function")]
    Tool,
}

/// A text, or parts of one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenAiContent)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiPart)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    text: String,
    #[serde(default)]
    refusal: Option<String>,
    /// Data that is shown as JSON.
    #[serde(default)]
    data: Value,
}

/// The turns of a request as shown to the model.
///
/// # Errors
/// When the content is not text.
pub(super) fn messages(turns: Vec<ChatMessage>) -> Result<Vec<Message>, ApiError> {
    let turns: Vec<Message> = turns.into_iter().map(message).collect::<Result<_, _>>()?;
    Ok(in_order_of_calls(turns))
}

fn message(turn: ChatMessage) -> Result<Message, ApiError> {
    let role = match turn.role {
        ChatRole::System | ChatRole::Developer => Role::System,
        ChatRole::User => Role::User,
        ChatRole::Assistant => Role::Assistant,
        ChatRole::Tool => Role::Tool,
    };
    let said = text(turn.content, role)?;
    let reasoning = turn.reasoning_content.or_else(|| Some(turn.reasoning?.as_str()?.to_owned()));
    let (reasoning, tool_calls) = match role {
        Role::Assistant => (reasoning.unwrap_or_default(), turn.tool_calls.into_iter().map(ToolCall::from).collect()),
        _ => (String::new(), Vec::new()),
    };
    Ok(Message {
        role,
        content: if said.is_empty() { turn.refusal.unwrap_or_default() } else { said },
        reasoning,
        tool_calls,
        result_of: turn.tool_call_id.filter(|_| role == Role::Tool),
    })
}

fn text(content: Option<Content>, role: Role) -> Result<String, ApiError> {
    match content {
        None => Ok(String::new()),
        Some(Content::Text(text)) => Ok(text),
        Some(Content::Parts(parts)) => parts.into_iter().map(|part| part_text(part, role)).collect(),
    }
}

/// The text of a part. A part of a tool's result that cannot be shown becomes a note: the result stays in the
/// conversation, and refusing it would refuse every later request.
fn part_text(part: Part, role: Role) -> Result<String, ApiError> {
    match part.kind.as_str() {
        "text" | "input_text" | "output_text" => Ok(part.text),
        "input_json" if !part.data.is_null() => Ok(part.data.to_string()),
        "refusal" => Ok(part.refusal.unwrap_or_default()),
        other if role == Role::Tool => Ok(left_out(other)),
        other => Err(ApiError::bad_request(format!(
            "a part of a message is of the type {other:?}: only text, and files with their data, are known"
        ))
        .about("messages")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conversation::Conversation;

    fn conversation(turns: Value) -> Result<Conversation, String> {
        let turns: Vec<ChatMessage> = serde_json::from_value(turns).map_err(|error| error.to_string())?;
        messages(turns).and_then(Conversation::of).map_err(|error| error.message)
    }

    #[test]
    fn a_conversation_is_taken_apart_at_its_last_question() {
        let taken = conversation(json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "the time?"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{\"zone\": \"UTC\"}"}}
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
        ]))
        .unwrap();
        assert_eq!(taken.history, [Message::new(Role::System, "Be brief.")]);
        assert_eq!(taken.question, "What is the time?");
        let call = ToolCall { id: Some("c1".to_owned()), ..ToolCall::new("clock", json!({"zone": "UTC"})) };
        let called = Message { tool_calls: vec![call], ..Message::new(Role::Assistant, "") };
        let result = Message { result_of: Some("c1".to_owned()), ..Message::new(Role::Tool, "12:00") };
        assert_eq!(taken.turns_after, [called, result]);
    }

    #[test]
    fn results_stand_in_the_order_of_their_calls() {
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": id, "arguments": "{}"}});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
        let turns = json!([
            {"role": "user", "content": "Both, twice."},
            {"role": "assistant", "tool_calls": [call("a"), call("b")]},
            result("b"), result("x"), result("a"),
            {"role": "assistant", "tool_calls": [call("b"), call("a")]},
            result("a"), result("b"),
        ]);
        let said: Vec<String> = conversation(turns).unwrap().turns_after.into_iter().map(|turn| turn.content).collect();
        assert_eq!(said, ["", "a", "b", "x", "", "b", "a"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let check = |turns, expected: &str| assert_eq!(conversation(turns).unwrap_err(), expected);
        check(json!([]), "messages has no message of the role user");
        check(json!([{"role": "assistant", "content": "x"}]), "messages has no message of the role user");
        let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
        check(
            image,
            "a part of a message is of the type \"image_url\": only text, and files with their data, are known",
        );
    }

    #[test]
    fn earlier_turns_keep_their_reasoning_and_refusals() {
        for name in ["reasoning_content", "reasoning"] {
            let answer = json!({"role": "assistant", "content": "Yes.", name: "Hm."});
            let taken = conversation(json!([{"role": "user", "content": "Q"}, answer])).unwrap();
            assert_eq!((&*taken.turns_after[0].content, &*taken.turns_after[0].reasoning), ("Yes.", "Hm."));
        }
        let no =
            json!({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "reasoning": {"a": 1}});
        let never = json!({"role": "assistant", "content": null, "refusal": "Never."});
        let taken = conversation(json!([no, {"role": "user", "content": "Why?"}, never])).unwrap();
        assert_eq!((&*taken.history[0].content, &*taken.turns_after[0].content), ("No.", "Never."));
    }

    #[test]
    fn what_a_tool_shows_is_left_out_with_a_note() {
        let image = json!([{"type": "text", "text": "Here: "}, {"type": "image_url", "image_url": {"url": "x"}}]);
        let taken =
            conversation(json!([{"role": "user", "content": "Q"}, {"role": "tool", "content": image}])).unwrap();
        assert_eq!(taken.turns_after[0].content, "Here: (image_url: it cannot be shown here)");
    }
}
