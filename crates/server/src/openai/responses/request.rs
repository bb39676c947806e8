//! A response request in OpenAI's format.

use hone_protocol::{AnswerOptions, Constraint, Message, Query, Role, SecondAnswer};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::items::{Input, turns};
use super::tools::{OfferedTools, full_name, is_known};
use crate::ServerParts;
use crate::answer_format::AnswerFormat;
use crate::conversation::Conversation;
use crate::effort::EffortName;
use crate::error::ApiError;
use crate::sampling::{Samplers, TokenLimit};
use crate::tool_choice::ToolChoice;

/// The request body. Unknown keys are ignored: clients send many.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiResponseRequest)]
pub(super) struct ResponseRequest {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    input: Option<Input>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    conversation: Option<Value>,
    #[serde(default)]
    prompt: Option<Value>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    text: Option<TextOptions>,
    #[serde(default)]
    reasoning: Option<Reasoning>,
    #[serde(default)]
    max_output_tokens: Option<TokenLimit>,
    #[serde(flatten)]
    samplers: Samplers,
    #[serde(default)]
    max_tool_calls: Option<usize>,
    #[serde(default)]
    safety_identifier: Option<String>,
    #[serde(default)]
    prompt_cache_key: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    store: Option<bool>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = OpenAiTextOptions)]
struct TextOptions {
    #[serde(default)]
    format: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = OpenAiReasoning)]
struct Reasoning {
    #[serde(default)]
    effort: Option<EffortName>,
}

/// How a response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    Whole,
    Streamed,
    /// The client asks for it later.
    Background,
}

/// The question of a request, and the handling of its response.
pub(super) struct AskedResponse {
    pub(super) query: Query,
    pub(super) sending: Sending,
    /// Whether the response is kept for later requests.
    pub(super) keeps: bool,
    /// The request fields that the response repeats.
    pub(super) head: Map<String, Value>,
    /// The items that it answers.
    pub(super) input: Vec<Value>,
    /// The maximum number of tool calls.
    pub(super) most_calls: usize,
    pub(super) tools: OfferedTools,
}

impl ResponseRequest {
    /// The response that it continues.
    pub(super) fn previous(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// The question, after the items of the conversation `before` it. The server's sampling options and default model
    /// apply where the request sets none.
    ///
    /// # Errors
    /// When a value is out of range, contradicts another, or needs a feature that hone does not have.
    pub(super) fn asked(mut self, parts: &ServerParts, before: Vec<Value>) -> Result<AskedResponse, ApiError> {
        self.refuse_unknown()?;
        let (sending, keeps) = (self.sending()?, self.store.unwrap_or(true));
        let most_calls = if self.parallel_tool_calls == Some(false) { 1 } else { usize::MAX };
        self.tools.get_or_insert_default().retain(is_known);
        let mut input = before;
        input.extend(self.input.take().map(Input::items).transpose()?.unwrap_or_default());
        let (query, tools) = self.query(parts, &input)?;
        let head = self.head(&query);
        Ok(AskedResponse { query, sending, keeps, head, input, most_calls, tools })
    }

    fn refuse_unknown(&self) -> Result<(), ApiError> {
        let unknown = [("conversation", &self.conversation), ("prompt", &self.prompt)];
        match unknown.iter().find(|(_, value)| value.is_some()) {
            Some((key, _)) => Err(ApiError::bad_request(format!("{key} is not supported")).about(*key)),
            None => Ok(()),
        }
    }

    fn sending(&self) -> Result<Sending, ApiError> {
        match (self.background.unwrap_or_default(), self.stream.unwrap_or_default()) {
            (true, true) => {
                Err(ApiError::bad_request("a response in the background cannot be streamed").about("stream"))
            }
            (true, false) if self.store == Some(false) => {
                Err(ApiError::bad_request("a response in the background must be stored").about("store"))
            }
            (true, false) => Ok(Sending::Background),
            (false, true) => Ok(Sending::Streamed),
            (false, false) => Ok(Sending::Whole),
        }
    }

    fn query(&self, parts: &ServerParts, input: &[Value]) -> Result<(Query, OfferedTools), ApiError> {
        let (tools, offered) = OfferedTools::read(self.tools.as_deref().unwrap_or_default())?;
        let (tools, forced) = self.tool_choice()?.of(tools)?;
        let constraint = match forced {
            Some(schema) => Some(Constraint::JsonSchema(schema)),
            None => self.constraint()?,
        };
        let instructions = self.instructions.iter().map(|text| Message::new(Role::System, text));
        let turns = instructions.chain(turns(input)?).collect();
        let Conversation { history, question, turns_after } = Conversation::of(turns)?;
        let effort = self.reasoning.and_then(|reasoning| reasoning.effort);
        let query = Query {
            query: question,
            history,
            model: self.model.clone().unwrap_or_else(|| parts.models.default_name()),
            sampling: self.samplers.options(&parts.sampling)?,
            max_tokens: self.max_output_tokens.and_then(TokenLimit::tokens),
            stop: Vec::new(),
            options: AnswerOptions {
                tools,
                constraint,
                is_of_client: true,
                turns_after,
                thinking: effort.map(EffortName::thinking).unwrap_or_default(),
                second: SecondAnswer::Unwanted,
                ..AnswerOptions::default()
            },
        };
        Ok((query, offered))
    }

    fn tool_choice(&self) -> Result<ToolChoice, ApiError> {
        let Some(choice) = &self.tool_choice else { return Ok(ToolChoice::Auto) };
        match (choice.as_str(), choice["type"].as_str(), chosen(choice)) {
            (Some("auto"), ..) => Ok(ToolChoice::Auto),
            (Some("none"), ..) => Ok(ToolChoice::None),
            (Some("required"), ..) => Ok(ToolChoice::Required),
            (None, Some("function" | "custom"), Some(name)) => Ok(ToolChoice::Named(name)),
            (None, Some("allowed_tools"), _) => Ok(allowed_tools(choice)),
            _ => Err(ApiError::bad_request(format!(
                "tool_choice is {choice}: it must be auto, none, required, a function, a custom tool or allowed_tools"
            ))
            .about("tool_choice")),
        }
    }

    fn constraint(&self) -> Result<Option<Constraint>, ApiError> {
        let Some(format) = self.text.as_ref().and_then(|text| text.format.as_ref()) else { return Ok(None) };
        let format = AnswerFormat::deserialize(format)
            .map_err(|error| ApiError::bad_request(format!("text.format is not valid: {error}")).about("text"))?;
        format.constraint("text.format")
    }

    /// The request fields that the response repeats, with the defaults for omitted ones.
    fn head(&self, query: &Query) -> Map<String, Value> {
        let format = self.text.as_ref().and_then(|text| text.format.clone());
        let thinking = &query.options.thinking;
        let fields = [
            ("background", json!(self.background.unwrap_or_default())),
            ("frequency_penalty", number(query.sampling.frequency_penalty)),
            ("instructions", json!(self.instructions)),
            ("max_output_tokens", json!(query.max_tokens)),
            ("max_tool_calls", json!(self.max_tool_calls)),
            ("metadata", json!(self.metadata.clone().unwrap_or_default())),
            ("model", json!(query.model)),
            ("parallel_tool_calls", json!(self.parallel_tool_calls.unwrap_or(true))),
            ("presence_penalty", number(query.sampling.presence_penalty)),
            ("previous_response_id", json!(self.previous_response_id)),
            ("prompt_cache_key", json!(self.prompt_cache_key)),
            ("reasoning", json!({"effort": thinking.effort, "summary": null})),
            ("safety_identifier", json!(self.safety_identifier)),
            ("service_tier", json!("default")),
            ("store", json!(self.store.unwrap_or(true))),
            ("temperature", number(query.sampling.temperature)),
            ("text", json!({"format": format.unwrap_or_else(|| json!({"type": "text"}))})),
            ("tool_choice", self.tool_choice.clone().unwrap_or_else(|| json!("auto"))),
            ("tools", self.tools.iter().flatten().map(whole_tool).collect()),
            ("top_logprobs", json!(0)),
            ("top_p", number(query.sampling.top_p)),
            ("truncation", json!("disabled")),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The choice among some of the tools.
fn allowed_tools(choice: &Value) -> ToolChoice {
    let names = choice["tools"].as_array().into_iter().flatten().filter_map(chosen);
    match choice["mode"].as_str() {
        Some("none") => ToolChoice::None,
        mode => ToolChoice::Allowed { names: names.collect(), is_required: mode == Some("required") },
    }
}

/// The name of a chosen tool.
fn chosen(tool: &Value) -> Option<String> {
    Some(full_name(tool["namespace"].as_str(), tool["name"].as_str()?))
}

/// A tool with every field that clients expect.
fn whole_tool(tool: &Value) -> Value {
    let mut tool = tool.clone();
    let is_function = tool["type"] == "function";
    if let Some(fields) = tool.as_object_mut().filter(|_| is_function) {
        for name in ["description", "parameters", "strict"] {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    tool
}

/// The number with its own shortest digits, instead of those of the nearest 64-bit number.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
