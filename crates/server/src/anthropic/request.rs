//! A message request in Anthropic's format.

use hone_protocol::{AnswerOptions, Constraint, Query, SecondAnswer, ThinkingOptions, Tool};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::blocks::{Content, Turn, messages, referenced_tools};
use crate::ServerParts;
use crate::conversation::{Conversation, parameters_of};
use crate::effort::EffortName;
use crate::error::ApiError;
use crate::requests::or_default;
use crate::sampling::{Samplers, Stop, TokenLimit};
use crate::tool_choice::ToolChoice;

/// The request body. Unknown keys are ignored: clients send many.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicMessagesRequest)]
pub(super) struct MessagesRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    messages: Vec<Turn>,
    #[serde(default)]
    system: Option<Content>,
    #[serde(default)]
    max_tokens: Option<TokenLimit>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stop_sequences: Option<Stop>,
    #[serde(flatten)]
    samplers: Samplers,
    #[serde(default)]
    tools: Option<Vec<ToolSpec>>,
    #[serde(default)]
    tool_choice: Option<Choice>,
    #[serde(default)]
    thinking: Option<Thinking>,
    #[serde(default)]
    output_config: Option<OutputConfig>,
}

/// A tool. Tools that Anthropic hosts or defines have their own `type`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicTool)]
struct ToolSpec {
    name: String,
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    description: String,
    #[serde(default)]
    input_schema: Value,
    /// Whether the tool is shown to the model only once a result refers to it.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    defer_loading: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schema(as = AnthropicToolChoice)]
enum Choice {
    None,
    Auto {
        #[serde(default, deserialize_with = "or_default")]
        #[schema(nullable)]
        disable_parallel_tool_use: bool,
    },
    Any {
        #[serde(default, deserialize_with = "or_default")]
        #[schema(nullable)]
        disable_parallel_tool_use: bool,
    },
    Tool {
        name: String,
        #[serde(default, deserialize_with = "or_default")]
        #[schema(nullable)]
        disable_parallel_tool_use: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schema(as = AnthropicThinking)]
enum Thinking {
    Enabled {
        #[serde(default)]
        budget_tokens: Option<usize>,
    },
    Disabled,
    /// The model decides.
    Adaptive,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = AnthropicOutputConfig)]
struct OutputConfig {
    #[serde(default)]
    effort: Option<EffortName>,
    #[serde(default)]
    format: Option<Format>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicFormat)]
enum Format {
    JsonSchema { schema: Value },
}

/// The question of a request, and how its answer is sent.
pub(super) struct AskedMessages {
    pub(super) query: Query,
    pub(super) stream: bool,
    /// The maximum number of tool calls in one answer.
    pub(super) most_calls: usize,
}

impl MessagesRequest {
    /// The question. The server's sampling options and default model apply where the request sets none.
    ///
    /// # Errors
    /// When a value is out of range or contradicts another.
    pub(super) fn asked(self, parts: &ServerParts) -> Result<AskedMessages, ApiError> {
        match self.max_tokens.map(TokenLimit::tokens) {
            None => return Err(ApiError::bad_request("max_tokens is missing").about("max_tokens")),
            Some(Some(0)) => {
                return Err(ApiError::bad_request("max_tokens is 0: it must be 1 or more").about("max_tokens"));
            }
            Some(_) => {}
        }
        let stream = self.stream.unwrap_or_default();
        let is_single = self.tool_choice.as_ref().is_some_and(Choice::is_single);
        let most_calls = if is_single { 1 } else { usize::MAX };
        Ok(AskedMessages { query: self.counted(parts)?, stream, most_calls })
    }

    /// The question for counting tokens; it needs no `max_tokens`.
    ///
    /// # Errors
    /// As [`asked`](Self::asked).
    pub(super) fn counted(self, parts: &ServerParts) -> Result<Query, ApiError> {
        let sampling = self.samplers.options(&parts.sampling)?;
        let OutputConfig { effort, format } = self.output_config.unwrap_or_default();
        let tools = tools(self.tools.unwrap_or_default(), &self.messages)?;
        let (tools, forced) = self.tool_choice.map_or(ToolChoice::Auto, ToolChoice::from).of(tools)?;
        let asked_for = format.map(|Format::JsonSchema { schema }| schema);
        let constraint = forced.or(asked_for).map(Constraint::JsonSchema);
        let Conversation { history, question, turns_after } = Conversation::of(messages(self.system, self.messages)?)?;
        Ok(Query {
            query: question,
            history,
            model: if self.model.is_empty() { parts.models.default_name() } else { self.model },
            sampling,
            max_tokens: self.max_tokens.and_then(TokenLimit::tokens),
            stop: self.stop_sequences.map(Stop::texts).unwrap_or_default(),
            options: AnswerOptions {
                tools,
                constraint,
                is_of_client: true,
                turns_after,
                thinking: thinking(self.thinking, effort),
                second: SecondAnswer::Unwanted,
                ..AnswerOptions::default()
            },
        })
    }
}

/// The tools shown to the model. Tools with deferred loading come last, so that the computation of the others can be
/// reused.
fn tools(specs: Vec<ToolSpec>, turns: &[Turn]) -> Result<Vec<Tool>, ApiError> {
    let (deferred, mut loaded): (Vec<ToolSpec>, Vec<ToolSpec>) = specs.into_iter().partition(|spec| spec.defer_loading);
    if !deferred.is_empty() {
        let referenced = referenced_tools(turns);
        loaded.extend(deferred.into_iter().filter(|spec| referenced.contains(&spec.name)));
    }
    loaded.into_iter().map(tool).collect()
}

/// A tool that the client runs. Other tools are refused: the model would invent their results.
fn tool(spec: ToolSpec) -> Result<Tool, ApiError> {
    match spec.kind.as_deref() {
        None | Some("custom") => {
            let parameters = parameters_of(Some(spec.input_schema));
            Ok(Tool { name: spec.name, description: spec.description, parameters })
        }
        Some(kind) => Err(ApiError::bad_request(format!(
            "the tool {:?} is of the type {kind:?}: only tools with an input_schema are known",
            spec.name
        ))),
    }
}

fn thinking(thinking: Option<Thinking>, effort: Option<EffortName>) -> ThinkingOptions {
    let effort = effort.and_then(EffortName::effort);
    let (is_on, budget) = match thinking {
        None | Some(Thinking::Adaptive) => (None, None),
        Some(Thinking::Enabled { budget_tokens }) => (Some(true), budget_tokens),
        Some(Thinking::Disabled) => (Some(false), None),
    };
    ThinkingOptions { is_on, effort, budget }
}

impl Choice {
    /// Whether an answer may have at most one call.
    fn is_single(&self) -> bool {
        match self {
            Choice::None => false,
            Choice::Auto { disable_parallel_tool_use: is_single }
            | Choice::Any { disable_parallel_tool_use: is_single }
            | Choice::Tool { disable_parallel_tool_use: is_single, .. } => *is_single,
        }
    }
}

impl From<Choice> for ToolChoice {
    fn from(choice: Choice) -> ToolChoice {
        match choice {
            Choice::None => ToolChoice::None,
            Choice::Auto { .. } => ToolChoice::Auto,
            Choice::Any { .. } => ToolChoice::Required,
            Choice::Tool { name, .. } => ToolChoice::Named(name),
        }
    }
}
