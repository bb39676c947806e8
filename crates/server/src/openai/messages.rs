//! Messages as OpenAI's API writes them.

use hone_protocol::{Message, Role};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::conversation::{CalledTool, IdentifiedTurn, in_order_of_calls};
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
}

/// The turns of a request as the model is shown them.
///
/// # Errors
/// When what is said is not text.
pub(super) fn messages(turns: Vec<ChatMessage>) -> Result<Vec<Message>, ApiError> {
    let turns: Vec<IdentifiedTurn> = turns.into_iter().map(identified).collect::<Result<_, _>>()?;
    Ok(in_order_of_calls(turns))
}

fn identified(turn: ChatMessage) -> Result<IdentifiedTurn, ApiError> {
    let role = match turn.role {
        ChatRole::System | ChatRole::Developer => Role::System,
        ChatRole::User => Role::User,
        ChatRole::Assistant => Role::Assistant,
        ChatRole::Tool => Role::Tool,
    };
    let calls = turn.tool_calls.iter().map(|call| call.id.clone().unwrap_or_default()).collect();
    let tool_calls = turn.tool_calls.into_iter().map(CalledTool::call).collect::<Result<_, _>>()?;
    let message = Message { role, content: text(turn.content)?, tool_calls };
    Ok(IdentifiedTurn { message, calls, result_of: turn.tool_call_id })
}

fn text(content: Option<Content>) -> Result<String, ApiError> {
    match content {
        None => Ok(String::new()),
        Some(Content::Text(text)) => Ok(text),
        Some(Content::Parts(parts)) => parts.into_iter().map(part).collect(),
    }
}

fn part(part: Part) -> Result<String, ApiError> {
    match part.kind.as_str() {
        "text" | "input_text" | "output_text" => Ok(part.text),
        other => {
            Err(ApiError::bad_request(format!("a part of a message is of the type {other:?}: only text is known"))
                .about("messages"))
        }
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::ToolCall;
    use serde_json::{Value, json};

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
        let call = ToolCall { name: "clock".to_owned(), arguments: json!({"zone": "UTC"}) };
        let called = Message { tool_calls: vec![call], ..Message::new(Role::Assistant, "") };
        assert_eq!(taken.turns_after, [called, Message::new(Role::Tool, "12:00")]);
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
        check(json!([{"role": "system", "content": "x"}]), "messages has no message of the role user");
        let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
        check(image, "a part of a message is of the type \"image_url\": only text is known");
    }
}
