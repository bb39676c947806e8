//! A chat request in OpenAI's format.

use std::collections::BTreeMap;

use hone_protocol::{AnswerOptions, Constraint, Query, ThinkingOptions};
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::common::{Common, Defaults, several};
use super::logprobs::MOST_TOP;
use super::messages::{ChatMessage, messages};
use crate::answer_format::AnswerFormat;
use crate::conversation::{Conversation, ToolSpec, tools};
use crate::effort::EffortName;
use crate::error::ApiError;
use crate::sampling::TokenLimit;
use crate::tool_choice;

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiChatRequest)]
pub(crate) struct ChatRequest {
    messages: Vec<ChatMessage>,
    #[serde(default)]
    max_completion_tokens: Option<TokenLimit>,
    #[serde(default)]
    logprobs: Option<bool>,
    #[serde(default)]
    top_logprobs: Option<usize>,
    #[serde(default)]
    response_format: Option<AnswerFormat>,
    #[serde(default)]
    tools: Option<Vec<ToolSpec>>,
    #[serde(default)]
    tool_choice: Option<ToolChoice>,
    #[serde(default)]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(default)]
    reasoning_effort: Option<EffortName>,
    #[serde(default)]
    reasoning: Option<Reasoning>,
    #[serde(default)]
    chat_template_kwargs: Option<TemplateArguments>,
    #[serde(flatten)]
    pub(super) common: Common,
}

/// Reasoning options of OpenRouter's clients.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[schema(as = OpenRouterReasoning)]
struct Reasoning {
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    effort: Option<EffortName>,
    #[serde(default)]
    max_tokens: Option<usize>,
}

/// Reasoning options of vLLM's and llama.cpp's clients. Template arguments that hone does not pass on are refused.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = OpenAiTemplateArguments)]
struct TemplateArguments {
    #[serde(default)]
    enable_thinking: Option<bool>,
    /// The name of `enable_thinking` in other templates.
    #[serde(default)]
    thinking: Option<bool>,
    #[serde(default)]
    reasoning_effort: Option<EffortName>,
    #[serde(flatten)]
    #[schema(ignore)]
    others: BTreeMap<String, IgnoredAny>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenAiToolChoice)]
enum ToolChoice {
    Mode(ToolMode),
    Named { function: FunctionName },
    Allowed { allowed_tools: AllowedTools },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = OpenAiToolMode)]
enum ToolMode {
    None,
    Auto,
    Required,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiFunctionName)]
struct FunctionName {
    name: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiAllowedTools)]
struct AllowedTools {
    mode: ToolMode,
    tools: Vec<AllowedTool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiAllowedTool)]
struct AllowedTool {
    #[serde(default)]
    function: Option<FunctionName>,
}

impl ChatRequest {
    /// The questions: one for each choice.
    ///
    /// # Errors
    /// When a value is out of range or contradicts another.
    pub(super) fn queries(self, defaults: Defaults<'_>) -> Result<Vec<Query>, ApiError> {
        let n = self.common.n_choices()?;
        let (thinking, logprobs) = (self.thinking()?, self.logprobs()?);
        let tools = tools(self.tools.unwrap_or_default())?;
        let choice = self.tool_choice.map_or(tool_choice::ToolChoice::Auto, Into::into);
        let (tools, forced) = choice.of(tools)?;
        let constraint = match forced {
            Some(schema) => Some(Constraint::JsonSchema(schema)),
            None => self.response_format.map(|format| format.constraint("response_format")).transpose()?.flatten(),
        };
        let Conversation { history, question, turns_after } = Conversation::of(messages(self.messages)?)?;
        let max_tokens = self.max_completion_tokens.or(self.common.max_tokens).and_then(TokenLimit::tokens);
        let query = self.common.query(defaults)?;
        let options = AnswerOptions { tools, constraint, turns_after, logprobs, thinking, ..query.options };
        let query = Query { query: question, history, max_tokens, options, ..query };
        Ok(several(&query, n).collect())
    }

    /// The number of likeliest tokens to list for each token; `None` for no log-probabilities.
    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (_, Some(top)) if top > MOST_TOP => {
                Err(ApiError::bad_request(format!("top_logprobs is {top}: it must be 0 to {MOST_TOP}"))
                    .about("top_logprobs"))
            }
            (false, Some(1..)) => {
                Err(ApiError::bad_request("top_logprobs needs logprobs to be true").about("top_logprobs"))
            }
            (is_wanted, top) => Ok(is_wanted.then(|| top.unwrap_or(0))),
        }
    }

    fn thinking(&self) -> Result<ThinkingOptions, ApiError> {
        let Reasoning { enabled, effort, max_tokens } = self.reasoning.unwrap_or_default();
        let arguments = self.chat_template_kwargs.clone().unwrap_or_default();
        if let Some(name) = arguments.others.keys().next() {
            let reason = format!("chat_template_kwargs has {name:?}, which is not passed on to templates");
            return Err(ApiError::bad_request(reason).about("chat_template_kwargs"));
        }
        let effort = effort.or(self.reasoning_effort).or(arguments.reasoning_effort);
        let asked = effort.map(EffortName::thinking).unwrap_or_default();
        let is_on = enabled.or(arguments.enable_thinking).or(arguments.thinking).or(asked.is_on);
        Ok(ThinkingOptions { is_on, budget: max_tokens, ..asked })
    }
}

impl From<ToolChoice> for tool_choice::ToolChoice {
    fn from(choice: ToolChoice) -> Self {
        match choice {
            ToolChoice::Mode(ToolMode::None) => Self::None,
            ToolChoice::Mode(ToolMode::Auto) => Self::Auto,
            ToolChoice::Mode(ToolMode::Required) => Self::Required,
            ToolChoice::Named { function } => Self::Named(function.name),
            ToolChoice::Allowed { allowed_tools: AllowedTools { mode: ToolMode::None, .. } } => Self::None,
            ToolChoice::Allowed { allowed_tools: AllowedTools { mode, tools } } => Self::Allowed {
                names: tools.into_iter().filter_map(|tool| Some(tool.function?.name)).collect(),
                is_required: mode == ToolMode::Required,
            },
        }
    }
}
