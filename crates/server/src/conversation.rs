//! What the APIs write alike: tools, calls of them, and a conversation that ends in a question.

use hone_protocol::{Message, Role, Tool, ToolCall};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::requests::or_default;

/// A conversation, taken apart at its last question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conversation {
    pub(crate) history: Vec<Message>,
    pub(crate) question: String,
    pub(crate) turns_after: Vec<Message>,
}

impl Conversation {
    /// Takes the turns of a request.
    ///
    /// # Errors
    /// When no user speaks in them.
    pub(crate) fn of(mut turns: Vec<Message>) -> Result<Conversation, ApiError> {
        let place = turns.iter().rposition(|turn| turn.role == Role::User);
        let place =
            place.ok_or_else(|| ApiError::bad_request("messages has no message of the role user").about("messages"))?;
        let turns_after = turns.split_off(place + 1);
        let question = turns.pop().map(|turn| turn.content).unwrap_or_default();
        Ok(Conversation { history: turns, question, turns_after })
    }
}

/// A turn with the ids that its API gives to calls of tools.
#[derive(Debug)]
pub(crate) struct IdentifiedTurn {
    pub(crate) message: Message,
    /// The ids of the calls in it.
    pub(crate) calls: Vec<String>,
    /// The id of the call that it is the result of.
    pub(crate) result_of: Option<String>,
}

impl From<Message> for IdentifiedTurn {
    fn from(message: Message) -> IdentifiedTurn {
        IdentifiedTurn { message, calls: Vec::new(), result_of: None }
    }
}

/// The turns with the results of tools in the order of their calls, as templates show them without ids. A result of an
/// unknown call comes after the others.
pub(crate) fn in_order_of_calls(turns: impl IntoIterator<Item = IdentifiedTurn>) -> Vec<Message> {
    let mut ordered: Vec<Message> = Vec::new();
    let mut calls: Vec<String> = Vec::new();
    let mut results: Vec<(usize, Message)> = Vec::new();
    for turn in turns {
        if turn.message.role == Role::Tool {
            let place = calls.iter().position(|id| Some(id) == turn.result_of.as_ref());
            results.push((place.unwrap_or(calls.len()), turn.message));
            continue;
        }
        if !results.is_empty() {
            release(&mut results, &mut ordered);
            calls.clear();
        }
        calls.extend(turn.calls);
        ordered.push(turn.message);
    }
    release(&mut results, &mut ordered);
    ordered
}

fn release(results: &mut Vec<(usize, Message)>, ordered: &mut Vec<Message>) {
    // Those of one place keep their order.
    results.sort_by_key(|(place, _)| *place);
    ordered.extend(results.drain(..).map(|(_, result)| result));
}

/// Joins turns of one role that follow each other, since chat templates expect that the roles alternate. The results of
/// tools, and what is said after a call, stay turns of their own.
pub(crate) fn joined(turns: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut joined: Vec<Message> = Vec::new();
    for turn in turns {
        match joined.last_mut() {
            Some(last) if is_continued(last, &turn) => {
                let separator = if last.content.is_empty() || turn.content.is_empty() { "" } else { "\n\n" };
                last.content = format!("{}{separator}{}", last.content, turn.content);
                last.tool_calls.extend(turn.tool_calls);
            }
            _ => joined.push(turn),
        }
    }
    joined
}

/// Whether a turn belongs to the one before it.
fn is_continued(last: &Message, turn: &Message) -> bool {
    let is_said_after_call = !last.tool_calls.is_empty() && !turn.content.is_empty();
    last.role == turn.role && turn.role != Role::Tool && !is_said_after_call
}

/// A tool that the model may call.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ToolSpec {
    function: FunctionSpec,
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

impl From<ToolSpec> for Tool {
    fn from(spec: ToolSpec) -> Tool {
        let FunctionSpec { name, description, parameters } = spec.function;
        let parameters = parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        Tool { name, description, parameters }
    }
}

/// A call in an earlier turn.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CalledTool {
    /// Names the call, where the API gives calls names.
    #[serde(default)]
    pub(crate) id: Option<String>,
    function: CalledFunction,
}

#[derive(Debug, Deserialize, ToSchema)]
struct CalledFunction {
    name: String,
    /// An object, or its JSON in a text.
    #[serde(default)]
    arguments: Value,
}

impl CalledTool {
    /// The call.
    ///
    /// # Errors
    /// When its arguments are a text that is not JSON.
    pub(crate) fn call(self) -> Result<ToolCall, ApiError> {
        let CalledFunction { name, arguments } = self.function;
        let arguments = match arguments {
            Value::Null => json!({}),
            Value::String(text) if text.is_empty() => json!({}),
            Value::String(text) => serde_json::from_str(&text).map_err(|error| {
                ApiError::bad_request(format!("the arguments of a call of {name:?} are not JSON: {error}"))
                    .about("messages")
            })?,
            arguments => arguments,
        };
        Ok(ToolCall { name, arguments })
    }
}
