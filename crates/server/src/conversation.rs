//! Formats that the APIs share: tools, tool calls, and a conversation that ends in a question.

use hone_protocol::{Message, Role, Tool, ToolCall};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::requests::or_default;

/// A conversation, split at its last question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conversation {
    pub(crate) history: Vec<Message>,
    pub(crate) question: String,
    pub(crate) turns_after: Vec<Message>,
}

impl Conversation {
    /// Splits the turns of a request. Consecutive turns of one role are joined, and instructions alone become the
    /// question.
    ///
    /// # Errors
    /// When there is neither a question nor an instruction.
    pub(crate) fn of(turns: Vec<Message>) -> Result<Conversation, ApiError> {
        let mut turns = joined(turns);
        if turns.iter().any(is_only_reasoning) {
            turns.retain(|turn| !is_only_reasoning(turn));
            turns = joined(turns);
        }
        let last = |role: Role| turns.iter().rposition(|turn| turn.role == role);
        let place = last(Role::User).or_else(|| last(Role::System));
        let place =
            place.ok_or_else(|| ApiError::bad_request("messages has no message of the role user").about("messages"))?;
        let turns_after = turns.split_off(place + 1);
        let question = turns.pop().map(|turn| turn.content).unwrap_or_default();
        Ok(Conversation { history: turns, question, turns_after })
    }
}

/// Whether a turn holds only reasoning, for an answer that never came.
fn is_only_reasoning(turn: &Message) -> bool {
    turn.role == Role::Assistant && !turn.reasoning.is_empty() && turn.content.is_empty() && turn.tool_calls.is_empty()
}

/// The turns, with tool results in the order of their calls, since most templates show them without ids. Results of
/// unknown calls come last.
pub(crate) fn in_order_of_calls(turns: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut ordered: Vec<Message> = Vec::new();
    let mut calls: Vec<Option<String>> = Vec::new();
    let mut results: Vec<(usize, Message)> = Vec::new();
    for turn in turns {
        if turn.role == Role::Tool {
            let place = calls.iter().position(|id| id.is_some() && *id == turn.result_of);
            results.push((place.unwrap_or(calls.len()), turn));
            continue;
        }
        if !results.is_empty() {
            release(&mut results, &mut ordered);
            calls.clear();
        }
        calls.extend(turn.tool_calls.iter().map(|call| call.id.clone()));
        ordered.push(turn);
    }
    release(&mut results, &mut ordered);
    ordered
}

fn release(results: &mut Vec<(usize, Message)>, ordered: &mut Vec<Message>) {
    // The sort is stable: results with the same place keep their order.
    results.sort_by_key(|(place, _)| *place);
    ordered.extend(results.drain(..).map(|(_, result)| result));
}

/// Joins consecutive turns of one role, since chat templates expect alternating roles. Tool results, and text after a
/// call, remain separate turns.
pub(crate) fn joined(turns: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut joined: Vec<Message> = Vec::new();
    for turn in turns {
        match joined.last_mut() {
            Some(last) if is_continued(last, &turn) => {
                last.content = in_paragraphs(&last.content, &turn.content);
                last.reasoning = in_paragraphs(&last.reasoning, &turn.reasoning);
                last.tool_calls.extend(turn.tool_calls);
            }
            _ => joined.push(turn),
        }
    }
    joined
}

/// Whether a turn continues the previous one.
fn is_continued(last: &Message, turn: &Message) -> bool {
    let says_something = !turn.content.is_empty() || !turn.reasoning.is_empty();
    let is_said_after_call = says_something && !last.tool_calls.is_empty();
    last.role == turn.role && turn.role != Role::Tool && !is_said_after_call
}

fn in_paragraphs(one: &str, other: &str) -> String {
    let separator = if one.is_empty() || other.is_empty() { "" } else { "\n\n" };
    format!("{one}{separator}{other}")
}

/// A tool that the model may call. Only functions are shown to it.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ToolSpec {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    function: Option<FunctionSpec>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct FunctionSpec {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    description: String,
    #[serde(default)]
    parameters: Option<Value>,
}

/// The tools shown to the model.
///
/// # Errors
/// When a function is missing.
pub(crate) fn tools(specs: Vec<ToolSpec>) -> Result<Vec<Tool>, ApiError> {
    let known = specs.into_iter().filter(|spec| spec.kind.as_deref().is_none_or(|kind| kind == "function"));
    let tool = |spec: ToolSpec| {
        let missing = || ApiError::bad_request("a tool of the type function has no function").about("tools");
        let FunctionSpec { name, description, parameters } = spec.function.ok_or_else(missing)?;
        Ok(Tool { name, description, parameters: parameters_of(parameters) })
    };
    known.map(tool).collect()
}

/// The schema of a tool's arguments; an object by default.
pub(crate) fn parameters_of(given: Option<Value>) -> Value {
    match given {
        Some(Value::Object(fields)) if !fields.is_empty() => Value::Object(fields),
        _ => json!({"type": "object", "properties": {}}),
    }
}

/// A call in an earlier turn.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CalledTool {
    /// The call's id, in APIs that have one.
    #[serde(default)]
    id: Option<String>,
    function: CalledFunction,
}

#[derive(Debug, Deserialize, ToSchema)]
struct CalledFunction {
    name: String,
    /// An object, or its JSON as a string.
    #[serde(default)]
    arguments: Value,
}

impl From<CalledTool> for ToolCall {
    fn from(CalledTool { id, function }: CalledTool) -> ToolCall {
        let id = id.filter(|id| !id.is_empty());
        ToolCall { id, ..ToolCall::new(function.name, arguments_of(function.arguments)) }
    }
}

/// A note in place of content for models that see or hear.
pub(crate) fn left_out(kind: &str) -> String {
    format!("({kind}: it cannot be shown here)")
}

/// The arguments of a call as an object. If a model has written anything else, the result in the conversation tells it
/// so.
pub(crate) fn arguments_of(given: Value) -> Value {
    match given {
        Value::Object(fields) => Value::Object(fields),
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(fields)) => Value::Object(fields),
            Ok(Value::Null) => json!({}),
            _ => json!({"arguments": text}),
        },
        other => json!({"arguments": other}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_alone_are_the_question() {
        let turns = vec![Message::new(Role::System, "Write."), Message::new(Role::Assistant, "What?")];
        let taken = Conversation::of(turns).unwrap();
        assert_eq!((taken.history.len(), taken.question.as_str(), taken.turns_after.len()), (0, "Write.", 1));
        assert!(Conversation::of(vec![Message::new(Role::Assistant, "x")]).is_err());
    }

    #[test]
    fn turns_in_a_row_are_one() {
        let thought = Message { reasoning: "Hm.".to_owned(), ..Message::new(Role::Assistant, "") };
        let turns = vec![Message::new(Role::User, "One."), thought.clone(), Message::new(Role::User, "Two.")];
        assert_eq!(Conversation::of(turns).unwrap().question, "One.\n\nTwo.");
        let turns = vec![Message::new(Role::User, "One."), thought, Message::new(Role::Assistant, "Yes.")];
        let answer = Conversation::of(turns).unwrap().turns_after;
        assert_eq!(answer, [Message { reasoning: "Hm.".to_owned(), ..Message::new(Role::Assistant, "Yes.") }]);
    }

    #[test]
    fn arguments_are_an_object_whatever_was_written() {
        let check = |given, expected| assert_eq!(arguments_of(given), expected);
        check(json!("{\"a\": 1}"), json!({"a": 1}));
        check(json!({"a": 1}), json!({"a": 1}));
        check(json!(""), json!({}));
        check(Value::Null, json!({}));
        check(json!("ls -l"), json!({"arguments": "ls -l"}));
        check(json!("{\"a\": 1} {\"b\": 2}"), json!({"arguments": "{\"a\": 1} {\"b\": 2}"}));
        check(json!("[1]"), json!({"arguments": "[1]"}));
        check(json!([1]), json!({"arguments": [1]}));
    }
}
