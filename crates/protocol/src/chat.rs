//! The turns of a conversation.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The speaker of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions before the conversation.
    System,
    /// The user.
    User,
    /// The model that answers.
    Assistant,
    /// A tool that the model has called.
    Tool,
}

impl Role {
    /// The name that chat templates use for the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The speaker.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The model's reasoning before the text; chat templates decide which parts of it the model is shown again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The tools that the model calls in this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call that this turn is the result of, if its sender gave the call one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_of: Option<String>,
}

impl Message {
    /// A turn of `role`.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Message { role, content: content.into(), reasoning: String::new(), tool_calls: Vec::new(), result_of: None }
    }
}

/// A function that a model may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its purpose and when to call it, for the model to read.
    pub description: String,
    /// JSON schema of its arguments, an object.
    pub parameters: serde_json::Value,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The call's id in the sender's conversation, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// Its arguments, an object.
    pub arguments: serde_json::Value,
}

impl ToolCall {
    /// A call without an id.
    pub fn new(name: impl Into<String>, arguments: serde_json::Value) -> Self {
        ToolCall { id: None, name: name.into(), arguments }
    }
}
