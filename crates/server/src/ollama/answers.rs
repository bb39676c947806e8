//! `/api/chat` and `/api/generate`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response as HttpResponse};
use futures_util::stream::unfold;
use hone_protocol::{
    AnswerOptions, Constraint, Effort, Message, Query, Response, Role, SamplingOptions, SecondAnswer, ThinkingOptions,
    Timestamp, Timings, Tool, ToolCall,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::rfc3339;
use super::shapes::{OllamaChat, OllamaGeneration, OllamaRole};
use crate::answering::{Answering, Piece, was_cut};
use crate::clients::Client;
use crate::conversation::{CalledTool, Conversation, ToolSpec};
use crate::error::ApiError;
use crate::requests::{or_default, parsed};
use crate::tool_choice::check_sizes;
use crate::{Shared, streams};

/// The body of a request for an answer to a conversation.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaChatRequest)]
struct ChatRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    messages: Vec<Turn>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    tools: Vec<ToolSpec>,
    #[serde(flatten)]
    common: Common,
}

/// The body of a request for an answer to a prompt.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaGenerateRequest)]
struct GenerateBody {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    prompt: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    system: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    suffix: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    images: Vec<Value>,
    /// Whether the model continues the prompt as it stands.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    raw: bool,
    #[serde(flatten)]
    common: Common,
}

/// What both requests have.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaCommon)]
struct Common {
    /// Pieces come as they are written, unless this is false.
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    format: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    options: Options,
    #[serde(default)]
    think: Option<Value>,
    #[serde(default)]
    keep_alive: Option<Value>,
}

/// The options that change an answer. Others, which say how a model is run, are ignored: hone decides them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = OllamaOptions)]
struct Options {
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_k: Option<usize>,
    #[serde(default)]
    top_p: Option<f32>,
    #[serde(default)]
    min_p: Option<f32>,
    #[serde(default)]
    repeat_penalty: Option<f32>,
    #[serde(default)]
    presence_penalty: Option<f32>,
    #[serde(default)]
    frequency_penalty: Option<f32>,
    #[serde(default)]
    repeat_last_n: Option<i64>,
    #[serde(default)]
    seed: Option<i64>,
    #[serde(default)]
    num_predict: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    stop: Vec<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaMessage)]
struct Turn {
    #[schema(value_type = OllamaRole)]
    role: Role,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    content: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    images: Vec<Value>,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    tool_calls: Vec<CalledTool>,
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/api/chat",
    tag = "Ollama",
    request_body = ChatRequest,
    responses(
        (status = OK, content((OllamaChat = "application/json"), (String = "application/x-ndjson"))),
        (status = NOT_FOUND),
        (status = CONFLICT),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn chat(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: ChatRequest = parsed(&body)?;
    if request.messages.is_empty() {
        return load(&shared, request.model, &request.common, Form::Chat).await;
    }
    let turns: Vec<Message> = request.messages.into_iter().map(turn).collect::<Result<_, _>>()?;
    let tools: Vec<Tool> = request.tools.into_iter().map(Tool::from).collect();
    check_sizes(&tools)?;
    let mut query = query(&shared, request.model, Conversation::of(turns)?, &request.common)?;
    query.options.tools = tools;
    answer(&shared, client, query, &request.common, Form::Chat).await
}

/// Answers a prompt.
#[utoipa::path(
    post,
    path = "/api/generate",
    tag = "Ollama",
    request_body = GenerateBody,
    responses(
        (status = OK, content((OllamaGeneration = "application/json"), (String = "application/x-ndjson"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn generate(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: GenerateBody = parsed(&body)?;
    let refused = [("suffix", !request.suffix.is_empty()), ("images", !request.images.is_empty())];
    if let Some((key, _)) = refused.iter().find(|(_, is_given)| *is_given) {
        return Err(ApiError::bad_request(format!("{key} is not supported")).about(*key));
    }
    if request.prompt.is_empty() {
        return load(&shared, request.model, &request.common, Form::Generate).await;
    }
    let system = Some(request.system).filter(|text| !text.is_empty() && !request.raw);
    let system = system.map(|text| Message::new(Role::System, text));
    let turns = system.into_iter().chain([Message::new(Role::User, request.prompt)]).collect();
    let mut query = query(&shared, request.model, Conversation::of(turns)?, &request.common)?;
    query.options.is_raw = request.raw;
    answer(&shared, client, query, &request.common, Form::Generate).await
}

/// Loads the model of a request that asks nothing, or unloads it.
async fn load(shared: &Shared, model: String, common: &Common, form: Form) -> Result<HttpResponse, ApiError> {
    let model = shared.named_or_default(model);
    shared.check_model(&model)?;
    let (name, unloads) = (model.clone(), common.unloads());
    if unloads {
        shared.on_models(move |models| models.unload(&name)).await?;
    } else {
        let _room = shared.take_room()?;
        shared.on_models(move |models| models.load(&name)).await?;
    }
    let mut done = said(&model, form, "", "", true);
    done["done_reason"] = json!(if unloads { "unload" } else { "load" });
    Ok(Json(done).into_response())
}

fn turn(turn: Turn) -> Result<Message, ApiError> {
    if !turn.images.is_empty() {
        return Err(ApiError::bad_request("images are not supported").about("messages"));
    }
    let tool_calls = turn.tool_calls.into_iter().map(CalledTool::call).collect::<Result<_, _>>()?;
    Ok(Message { role: turn.role, content: turn.content, tool_calls })
}

fn query(shared: &Shared, model: String, conversation: Conversation, common: &Common) -> Result<Query, ApiError> {
    let Conversation { history, question, turns_after } = conversation;
    let sampling = common.options.sampling(&shared.parts.sampling);
    sampling.check()?;
    Ok(Query {
        query: question,
        history,
        model: shared.named_or_default(model),
        sampling,
        max_tokens: common.options.num_predict.and_then(|n| usize::try_from(n).ok()),
        stop: common.options.stop.clone(),
        options: AnswerOptions {
            constraint: constraint(common.format.as_ref())?,
            recalls: false,
            is_of_client: true,
            turns_after,
            thinking: thinking(common.think.as_ref())?,
            second: SecondAnswer::Unwanted,
            ..AnswerOptions::default()
        },
    })
}

impl Common {
    /// Whether the model is to leave memory, after the answer to a question: `keep_alive` is 0, as a number or a text such as `0s`.
    fn unloads(&self) -> bool {
        match &self.keep_alive {
            Some(Value::Number(number)) => number.as_f64() == Some(0.0),
            Some(Value::String(text)) => text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic()) == "0",
            _ => false,
        }
    }
}

/// Whether and how thoroughly a model reasons.
fn thinking(think: Option<&Value>) -> Result<ThinkingOptions, ApiError> {
    let invalid = |value: &Value| {
        ApiError::bad_request(format!("think is {value}: it must be true, false, \"low\", \"medium\" or \"high\""))
            .about("think")
    };
    let (is_on, effort) = match think {
        None | Some(Value::Null) => (None, None),
        Some(Value::Bool(is_on)) => (Some(*is_on), None),
        Some(value) => (Some(true), Some(Effort::deserialize(value).map_err(|_| invalid(value))?)),
    };
    Ok(ThinkingOptions { is_on, effort, budget: None })
}

fn constraint(format: Option<&Value>) -> Result<Option<Constraint>, ApiError> {
    match format {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name)) if name == "json" => Ok(Some(Constraint::JsonSchema(json!({"type": "object"})))),
        Some(schema @ Value::Object(_)) => Ok(Some(Constraint::JsonSchema(schema.clone()))),
        Some(other) => {
            Err(ApiError::bad_request(format!("format is {other}: it must be \"json\" or a JSON schema"))
                .about("format"))
        }
    }
}

impl Options {
    fn sampling(&self, defaults: &SamplingOptions) -> SamplingOptions {
        let window = self.repeat_last_n.and_then(|n| usize::try_from(n).ok());
        SamplingOptions {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(defaults.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            penalty_window: window.unwrap_or(defaults.penalty_window),
            seed: self.seed.map(i64::cast_unsigned).or(defaults.seed),
            ..defaults.clone()
        }
    }
}

/// How pieces are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Chat,
    Generate,
}

async fn answer(
    shared: &Shared,
    client: Client,
    query: Query,
    common: &Common,
    form: Form,
) -> Result<HttpResponse, ApiError> {
    let model = query.model.clone();
    let slot = common.stream.unwrap_or(true).then(|| shared.streams.take(client)).transpose()?;
    let mut answering = Answering::ask(shared, client, query)?;
    let header = [("x-hone-query-id", answering.id().to_string())];
    // The first piece tells whether there will be an answer, and with it the status.
    let first = answering.next().await;
    if let Piece::Failed(error) = first {
        return Err(error);
    }
    if common.unloads() {
        unload_after_answer(shared, model.clone()).await;
    }
    if let Some(slot) = slot {
        let (waiting, is_over) = (VecDeque::from([first]), false);
        let lines = Lines { answering, model, form, waiting, is_over };
        let stream = unfold(lines, async |mut lines| Some((lines.next().await?, lines)));
        return Ok((header, streams::lines(slot, stream)).into_response());
    }
    let response = match first {
        Piece::Answered(response) => *response,
        _ => answering.whole().await?.response,
    };
    Ok((header, Json(last(&model, form, &response, &response.answer, &response.thinking))).into_response())
}

/// Makes a model that answers leave memory afterwards. One that is to stay answers all the same.
async fn unload_after_answer(shared: &Shared, model: String) {
    if let Err(ApiError { message, .. }) = shared.on_models(move |models| models.unload(&model)).await {
        tracing::info!("a model stays in memory: {message}");
    }
}

/// An answer while it is sent.
struct Lines {
    answering: Answering,
    model: String,
    form: Form,
    waiting: VecDeque<Piece>,
    is_over: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<Value> {
        while !self.is_over {
            let piece = match self.waiting.pop_front() {
                Some(piece) => piece,
                None => self.answering.next().await,
            };
            self.is_over = matches!(piece, Piece::Answered(_) | Piece::Failed(_));
            return Some(match piece {
                Piece::Text(text) => said(&self.model, self.form, &text, "", false),
                Piece::Thinking(text) => said(&self.model, self.form, "", &text, false),
                Piece::Answered(response) => last(&self.model, self.form, &response, "", ""),
                Piece::Failed(error) => error.to_ollama(),
                Piece::Logprobs(_) => continue,
            });
        }
        None
    }
}

fn said(model: &str, form: Form, text: &str, thinking: &str, is_done: bool) -> Value {
    let mut object = json!({"model": model, "created_at": rfc3339(Timestamp::now().0 / 1000), "done": is_done});
    match form {
        Form::Chat => {
            object["message"] = json!({"role": "assistant", "content": text});
            if !thinking.is_empty() {
                object["message"]["thinking"] = json!(thinking);
            }
        }
        Form::Generate => {
            object["response"] = json!(text);
            if !thinking.is_empty() {
                object["thinking"] = json!(thinking);
            }
        }
    }
    object
}

fn last(model: &str, form: Form, response: &Response, text: &str, thinking: &str) -> Value {
    let mut object = said(model, form, text, thinking, true);
    if !response.tool_calls.is_empty() && form == Form::Chat {
        let call = |call: &ToolCall| json!({"function": {"name": call.name, "arguments": call.arguments}});
        object["message"]["tool_calls"] = response.tool_calls.iter().map(call).collect();
    }
    object["done_reason"] = json!(if was_cut(response.finish_reason) { "length" } else { "stop" });
    let fields: Map<String, Value> = durations(&response.timings);
    object.as_object_mut().into_iter().for_each(|object| object.extend(fields.clone()));
    object
}

/// Durations in nanoseconds.
fn durations(timings: &Timings) -> Map<String, Value> {
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    let total = timings.queue_seconds + timings.prompt_seconds + timings.generation_seconds;
    let fields = [
        ("total_duration", nanoseconds(total)),
        ("load_duration", nanoseconds(timings.queue_seconds)),
        ("prompt_eval_count", timings.prompt_tokens as u64),
        ("prompt_eval_duration", nanoseconds(timings.prompt_seconds)),
        ("eval_count", timings.generation_tokens as u64),
        ("eval_duration", nanoseconds(timings.generation_seconds)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}
