//! The requests to a template's process and its answers: one line of JSON each.

use std::borrow::Cow;

use hone_protocol::{Message, ThinkingOptions, Tool};
use serde::{Deserialize, Serialize};

/// A request to a template. Every request has one answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TemplateRequest<'a> {
    /// Parses the template that later requests use; the answer's text is empty.
    Load {
        /// The template.
        text: Cow<'a, str>,
        /// The name of the token that begins a text.
        bos: Cow<'a, str>,
        /// The name of the token that ends a text.
        eos: Cow<'a, str>,
    },
    /// Renders nothing; checks whether the template parses.
    Check,
    /// Renders a conversation.
    Render {
        /// Its turns.
        messages: Cow<'a, [Message]>,
        /// The tools that the model may call.
        tools: Cow<'a, [Tool]>,
        /// Whether and how thoroughly the model reasons.
        thinking: ThinkingOptions,
        /// How calls are passed to it.
        calls: CallStyle,
        /// Whether the text ends where the model's next turn begins.
        opens_answer: bool,
    },
}

/// How calls are passed to a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallStyle {
    /// Arguments are the text of their JSON.
    pub(super) arguments_are_text: bool,
    /// A turn with calls and no text has no content instead of empty content.
    pub(super) silence_is_none: bool,
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The text of the conversation.
    Text(String),
    /// The template does not parse, or refuses the conversation.
    Failed(Failure),
}

impl From<Result<String, Failure>> for Answer {
    fn from(result: Result<String, Failure>) -> Self {
        result.map_or_else(Answer::Failed, Answer::Text)
    }
}

/// Where and why a template fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The template's line, counted from 1.
    pub line: Option<usize>,
    /// The cause of the failure, or the template's own message.
    pub reason: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "in line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}
