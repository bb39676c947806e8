//! Errors for clients, in the format of their API.
//!
//! A handler returns an [`ApiError`]; the layer around all handlers ([`in_the_apis_form`]) writes it in the format of
//! the API that the request's path belongs to. The router's own refusals become errors of that API, too.

use std::fmt::Display;
use std::time::Duration;

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hone_app::conversations::ConversationError;
use hone_app::models::ModelError;
use hone_protocol::{EnvelopeId, GenerateError, InvalidSampling};
use serde_json::json;

/// The header with a request's id in Anthropic's API.
pub(crate) const REQUEST_ID: &str = "request-id";

/// JSON-RPC's codes for an invalid request and for an internal error.
const INVALID_REQUEST: i32 = -32600;
const INTERNAL_ERROR: i32 = -32603;

/// The APIs, each with its own error format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
    Hone,
    SystemOne,
    /// The Model Context Protocol.
    Mcp,
}

impl Dialect {
    /// The API that a path belongs to.
    pub(crate) fn of_path(path: &str) -> Dialect {
        match path {
            "/v1/messages" => Dialect::Anthropic,
            path if path.starts_with("/v1/messages/") => Dialect::Anthropic,
            path if path.starts_with("/api/") => Dialect::Ollama,
            path if path.starts_with("/hone/") => Dialect::Hone,
            "/mcp" => Dialect::Mcp,
            "/v1/systemone" => Dialect::SystemOne,
            _ => Dialect::OpenAi,
        }
    }
}

/// Why a request is not served.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// A code for programs, as OpenAI's API has them.
    code: Option<&'static str>,
    /// The request field that the error is about.
    field: Option<String>,
    /// How long to wait before trying again.
    retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), code: None, field: None, retry_after: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// Adds a code for programs.
    pub(crate) fn with_code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// Adds the request field that the error is about.
    pub(crate) fn about(self, field: impl Into<String>) -> ApiError {
        ApiError { field: Some(field.into()), ..self }
    }

    /// The model that a request names does not exist, or cannot serve the request.
    pub(crate) fn no_such_model(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, message).with_code("model_not_found").about("model")
    }

    /// There is no room for another question.
    pub(crate) fn busy(retry_after: Duration) -> ApiError {
        ApiError::overloaded("too many questions are being answered: try again later", retry_after)
    }

    /// There is no room for a client's request.
    pub(crate) fn overloaded(message: &str, retry_after: Duration) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).retried_after(retry_after)
    }

    /// Adds the time after which the client may try again.
    pub(crate) fn retried_after(self, retry_after: Duration) -> ApiError {
        ApiError { retry_after: Some(retry_after), ..self }
    }

    /// The error in OpenAI's format.
    pub(crate) fn to_openai(&self) -> serde_json::Value {
        json!({"error": {"message": self.message, "type": self.kind(), "param": self.field, "code": self.code}})
    }

    /// The error in the format of hone's own API.
    pub(crate) fn to_hone(&self) -> serde_json::Value {
        let mut error = json!({"message": self.message, "type": self.kind()});
        if let Some(code) = self.code {
            error["code"] = json!(code);
        }
        json!({"error": error})
    }

    /// The type of the error.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 | 503 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// The error in Anthropic's format.
    pub(crate) fn to_anthropic(&self, request_id: &str) -> serde_json::Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            408 | 504 => "timeout_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": self.message}, "request_id": request_id})
    }

    /// The error in Ollama's format.
    pub(crate) fn to_ollama(&self) -> serde_json::Value {
        json!({"error": self.message})
    }

    /// The error in the System One API's format: an invalid request has a list of details.
    fn to_system_one(&self) -> (StatusCode, serde_json::Value) {
        if self.status != StatusCode::BAD_REQUEST {
            return (self.status, json!({"detail": self.message}));
        }
        let place: Vec<&str> = std::iter::once("body").chain(self.field.as_deref()).collect();
        let detail = json!([{"loc": place, "msg": self.message, "type": "value_error"}]);
        (StatusCode::UNPROCESSABLE_ENTITY, json!({"detail": detail}))
    }

    /// The error in JSON-RPC's format, for a request that was not read.
    fn to_json_rpc(&self) -> serde_json::Value {
        let code = if self.status.is_client_error() { INVALID_REQUEST } else { INTERNAL_ERROR };
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": self.message}})
    }

    /// The response in one API's format.
    fn in_dialect(&self, dialect: Dialect) -> Response {
        let mut response = match dialect {
            Dialect::OpenAi => (self.status, Json(self.to_openai())).into_response(),
            Dialect::Anthropic => {
                let id = request_id(EnvelopeId::fresh());
                (self.status, [(REQUEST_ID, id.clone())], Json(self.to_anthropic(&id))).into_response()
            }
            Dialect::Ollama => (self.status, Json(self.to_ollama())).into_response(),
            Dialect::Hone => (self.status, Json(self.to_hone())).into_response(),
            Dialect::SystemOne => {
                let (status, body) = self.to_system_one();
                (status, Json(body)).into_response()
            }
            Dialect::Mcp => (self.status, Json(self.to_json_rpc())).into_response(),
        };
        if let Some(after) = self.retry_after {
            let seconds = HeaderValue::from(after.as_secs_f64().ceil().max(1.0) as u64);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// A request id in Anthropic's format.
pub(crate) fn request_id(id: impl Display) -> String {
    format!("req_{id}")
}

impl IntoResponse for ApiError {
    /// Carries the error to [`in_the_apis_form`].
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes errors in the format of the API that the request's path belongs to.
pub(crate) async fn in_the_apis_form(request: Request, next: Next) -> Response {
    let dialect = Dialect::of_path(request.uri().path());
    let place = format!("{} {}", request.method(), request.uri().path());
    let mut response = next.run(request).await;
    let status = response.status();
    match response.extensions_mut().remove::<ApiError>() {
        Some(error) => error.in_dialect(dialect),
        None if is_refusal_of_router(&response) => {
            let allowed = response.headers_mut().remove(header::ALLOW);
            let mut refused = ApiError::new(status, refusal(status, &place)).in_dialect(dialect);
            refused.headers_mut().extend(allowed.map(|methods| (header::ALLOW, methods)));
            refused
        }
        None => response,
    }
}

/// Whether the router refused the request, rather than a handler.
fn is_refusal_of_router(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    is_error && kind.is_none_or(|kind| kind.starts_with("text/plain"))
}

fn refusal(status: StatusCode, place: &str) -> String {
    match status {
        StatusCode::NOT_FOUND => format!("{place}: there is nothing at this path"),
        StatusCode::METHOD_NOT_ALLOWED => format!("{place}: this path does not take this method"),
        _ => format!("{place}: {status}"),
    }
}

impl From<ModelError> for ApiError {
    fn from(error: ModelError) -> ApiError {
        let status = match &error {
            ModelError::Missing(reason) => return ApiError::no_such_model(reason),
            ModelError::Invalid(_) => StatusCode::BAD_REQUEST,
            ModelError::InUse(_) => StatusCode::CONFLICT,
            ModelError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, error.to_string())
    }
}

impl From<GenerateError> for ApiError {
    fn from(error: GenerateError) -> ApiError {
        let message = error.to_string();
        match error {
            GenerateError::Model { .. } => ApiError::no_such_model(message),
            GenerateError::Request(_) => ApiError::bad_request(message),
            GenerateError::NoTools { .. } => ApiError::bad_request(message).about("tools"),
            GenerateError::ContextOverflow { prompt_tokens, context_tokens } => too_long(prompt_tokens, context_tokens),
            GenerateError::Busy { retry_after, .. } => ApiError::busy(retry_after),
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

/// The prompt leaves no room for an answer. LiteLLM and others recognize the error by its wording, which is OpenAI's.
fn too_long(prompt_tokens: usize, context_tokens: usize) -> ApiError {
    let excess = (prompt_tokens + 1).saturating_sub(context_tokens);
    let limit = format!("this model's maximum context length is {context_tokens} tokens");
    let reason = format!("{limit}, and the prompt has {prompt_tokens}: shorten it by {excess} or more");
    ApiError::bad_request(reason).with_code("context_length_exceeded")
}

impl From<InvalidSampling> for ApiError {
    fn from(invalid: InvalidSampling) -> ApiError {
        // A token's bias is part of a field.
        let field = if invalid.option.contains("logit_bias") { "logit_bias" } else { &invalid.option };
        ApiError::bad_request(invalid.to_string()).about(field)
    }
}
impl From<ConversationError> for ApiError {
    fn from(error: ConversationError) -> ApiError {
        let status = match error {
            ConversationError::Missing(_) => {
                return ApiError::new(StatusCode::NOT_FOUND, error.to_string()).with_code("conversation_not_found");
            }
            ConversationError::Branch { .. } => StatusCode::NOT_FOUND,
            ConversationError::Taken(_) => StatusCode::CONFLICT,
            ConversationError::Name(_) => StatusCode::BAD_REQUEST,
            ConversationError::Storage(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, error.to_string())
    }
}
