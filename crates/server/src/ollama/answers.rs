//! `/api/chat` and `/api/generate`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response as HttpResponse};
use futures_util::stream::unfold;
use hone_protocol::{
    AnswerOptions, Constraint, Effort, Message, Query, QueryId, Response, Role, SecondAnswer, ThinkingOptions,
    Timestamp, Timings, ToolCall,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use utoipa::ToSchema;

use super::rfc3339;
use super::shapes::{OllamaChat, OllamaGeneration, OllamaRole};
use crate::answering::{Answered, Answering, Piece, kept_header, note_kept, was_cut};
use crate::clients::{Caller, RecallHeader};
use crate::conversation::{CalledTool, Conversation, ToolSpec, in_order_of_calls, left_out, tools};
use crate::error::ApiError;
use crate::requests::{or_default, parsed};
use crate::sampling::{Samplers, Stop, TokenLimit};
use crate::streams::first_piece;
use crate::tool_choice::check_sizes;
use crate::{Shared, streams};

/// The request body of `/api/chat`.
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

/// The request body of `/api/generate`.
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
    /// Whether the model continues the prompt as is.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    raw: bool,
    #[serde(flatten)]
    common: Common,
}

/// The fields that both requests share.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaCommon)]
struct Common {
    /// Whether the answer is streamed; true by default.
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

/// The options that affect an answer. Options for running a model are ignored: hone decides them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = OllamaOptions)]
struct Options {
    #[serde(flatten)]
    samplers: Samplers,
    #[serde(default)]
    num_predict: Option<TokenLimit>,
    #[serde(default)]
    stop: Option<Stop>,
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
    /// The model's reasoning before the answer.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    thinking: String,
    #[serde(default)]
    tool_call_id: Option<String>,
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/api/chat",
    tag = "Ollama",
    params(RecallHeader),
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
    caller: Caller,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: ChatRequest = parsed(body).await?;
    if request.messages.is_empty() {
        return load(&shared, request.model, &request.common, Form::Chat).await;
    }
    let turns: Vec<Message> = request.messages.into_iter().map(turn).collect::<Result<_, _>>()?;
    let tools = tools(request.tools)?;
    check_sizes(&tools)?;
    let conversation = Conversation::of(in_order_of_calls(turns))?;
    let mut query = query(&shared, request.model, conversation, &request.common)?;
    query.options.tools = tools;
    answer(&shared, caller, query, &request.common, Form::Chat).await
}

/// Answers a prompt.
#[utoipa::path(
    post,
    path = "/api/generate",
    tag = "Ollama",
    params(RecallHeader),
    request_body = GenerateBody,
    responses(
        (status = OK, content((OllamaGeneration = "application/json"), (String = "application/x-ndjson"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn generate(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Bytes,
) -> Result<HttpResponse, ApiError> {
    let request: GenerateBody = parsed(body).await?;
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
    answer(&shared, caller, query, &request.common, Form::Generate).await
}

/// Loads or unloads the model of a request without a question.
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
    let mut content = turn.content;
    if !turn.images.is_empty() {
        if turn.role != Role::Tool {
            return Err(ApiError::bad_request("images are not supported").about("messages"));
        }
        content.push_str(&left_out("image"));
    }
    let tool_calls = turn.tool_calls.into_iter().map(ToolCall::from).collect();
    Ok(Message { role: turn.role, content, reasoning: turn.thinking, tool_calls, result_of: turn.tool_call_id })
}

fn query(shared: &Shared, model: String, conversation: Conversation, common: &Common) -> Result<Query, ApiError> {
    let Conversation { history, question, turns_after } = conversation;
    let sampling = common.options.samplers.options(&shared.parts.sampling)?;
    Ok(Query {
        query: question,
        history,
        model: shared.named_or_default(model),
        sampling,
        max_tokens: common.options.num_predict.and_then(TokenLimit::tokens),
        stop: common.options.stop.clone().map(Stop::texts).unwrap_or_default(),
        options: AnswerOptions {
            constraint: constraint(common.format.as_ref())?,
            is_of_client: true,
            turns_after,
            thinking: thinking(common.think.as_ref())?,
            second: SecondAnswer::Unwanted,
            ..AnswerOptions::default()
        },
    })
}

impl Common {
    /// Whether the model is to be unloaded, after the answer if there is a question: `keep_alive` is 0, as a number or
    /// a string such as `0s`.
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

/// The format of the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Chat,
    Generate,
}

async fn answer(
    shared: &Shared,
    caller: Caller,
    query: Query,
    common: &Common,
    form: Form,
) -> Result<HttpResponse, ApiError> {
    let model = query.model.clone();
    let slot = common.stream.unwrap_or(true).then(|| shared.streams.take(caller.client)).transpose()?;
    let mut answering = Answering::ask(shared, caller, query)?;
    let header = [("x-hone-query-id", answering.id().to_string())];
    // The first piece shows whether the answer has failed, and so determines the HTTP status.
    let first = first_piece(&mut answering).await?;
    if common.unloads() {
        unload_after_answer(shared, model.clone()).await;
    }
    if let Some(slot) = slot {
        let lines = Lines { answering, model, form, first, last: None, is_over: false };
        let stream = unfold(lines, async |mut lines| Some((lines.next().await?, lines)));
        return Ok((header, streams::lines(slot, stream)).into_response());
    }
    let Answered { response, is_kept } = match first {
        Some(Piece::Answered(answered)) => *answered,
        _ => answering.whole().await?.answered,
    };
    let mut whole = last(&model, form, &response, &response.answer, &response.thinking);
    note_kept(&mut whole, is_kept);
    let calls = calls(&response);
    if !calls.is_empty() && form == Form::Chat {
        whole["message"]["tool_calls"] = calls.into();
    }
    Ok((header, kept_header(is_kept), Json(whole)).into_response())
}

/// Unloads a model after its answer. A model that must stay in memory answers all the same.
async fn unload_after_answer(shared: &Shared, model: String) {
    if let Err(ApiError { message, .. }) = shared.on_models(move |models| models.unload(&model)).await {
        tracing::info!("a model stays in memory: {message}");
    }
}

/// An answer being streamed.
struct Lines {
    answering: Answering,
    model: String,
    form: Form,
    /// The first piece, if it has arrived.
    first: Option<Piece>,
    /// The last line, if it is next.
    last: Option<Value>,
    is_over: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<Value> {
        if let Some(last) = self.last.take() {
            self.is_over = true;
            return Some(last);
        }
        while !self.is_over {
            let piece = match self.first.take() {
                Some(piece) => piece,
                None => match timeout(streams::SILENCE, self.answering.next()).await {
                    Ok(piece) => piece,
                    // A line without text shows that the answer is still in progress.
                    Err(_) => return Some(said(&self.model, self.form, "", "", false)),
                },
            };
            return Some(match piece {
                Piece::Text(text) => said(&self.model, self.form, &text, "", false),
                Piece::Thinking(text) => said(&self.model, self.form, "", &text, false),
                Piece::Answered(answered) => self.end(&answered),
                Piece::Failed(error) => {
                    self.is_over = true;
                    error.to_ollama()
                }
                Piece::Logprobs(_) => continue,
            });
        }
        None
    }

    /// The last line, or the line with the tool calls before it.
    fn end(&mut self, Answered { response, is_kept }: &Answered) -> Value {
        let mut last = last(&self.model, self.form, response, "", "");
        note_kept(&mut last, *is_kept);
        let calls = calls(response);
        if calls.is_empty() || self.form != Form::Chat {
            self.is_over = true;
            return last;
        }
        self.last = Some(last);
        let mut line = said(&self.model, self.form, "", "", false);
        line["message"]["tool_calls"] = calls.into();
        line
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
    object["done_reason"] = json!(if was_cut(response.finish_reason) { "length" } else { "stop" });
    let fields: Map<String, Value> = durations(&response.timings);
    object.as_object_mut().into_iter().for_each(|object| object.extend(fields.clone()));
    object
}

/// The tool calls in an answer.
fn calls(response: &Response) -> Vec<Value> {
    let call = |(index, call): (usize, &ToolCall)| {
        json!({
            "id": format!("call_{}", QueryId::fresh()),
            "function": {"index": index, "name": call.name, "arguments": call.arguments},
        })
    };
    response.tool_calls.iter().enumerate().map(call).collect()
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
