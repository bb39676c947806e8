//! The Model Context Protocol, through its official SDK: hone's abilities as tools for other programs' models.
//!
//! Over HTTP, requests are independent: a client is identified by its key, and no state is kept between its requests.
//! So there are no sessions and no streams, and a request has one JSON response.

mod tools;

use std::fmt::Display;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use hone_app::judging::ServedJudges;
use hone_app::{App, ServedMemory};
use hone_protocol::Generate;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::io::{AsyncRead, AsyncWrite};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::tools::HoneTools;
use crate::Shared;
use crate::clients::Client;
use crate::decisions::TerminalDecider;
use crate::error::ApiError;
use crate::hone::Abilities;
use crate::shapes::{documented, one_of, open};

/// Maximum number of pending verdicts for a client of the terminal's server.
const MOST_VERDICTS: usize = 16;

/// The API's route.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default().routes(routes!(converse))
}

documented! {
    /// A JSON-RPC message.
    McpMessage = open([("jsonrpc", one_of(&["2.0"]))]);
}

/// hone's abilities as tools for a model: one request of the Model Context Protocol (streamable HTTP, without
/// sessions).
#[utoipa::path(
    post,
    path = "/mcp",
    tag = "MCP",
    request_body = McpMessage,
    responses(
        (status = OK, body = McpMessage),
        (status = ACCEPTED),
        (status = NOT_FOUND),
        (status = NOT_ACCEPTABLE)
    )
)]
async fn converse(State(shared): State<Arc<Shared>>, client: Client, request: Request) -> Result<Response, ApiError> {
    shared.check_serving()?;
    let tools = HoneTools::new(Abilities::of_client(&shared, client), shared.parts.version);
    // The request has passed the guard and the limit on bodies.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .with_max_request_body_bytes(usize::MAX);
    let service = StreamableHttpService::new(move || Ok(tools.clone()), Arc::<NeverSessionManager>::default(), config);
    checked(service.handle(request).await.map(Body::new)).await
}

/// Turns a plain-text refusal by the SDK into an error of this server.
async fn checked(response: Response) -> Result<Response, ApiError> {
    let status = response.status();
    if status.is_success() || response.headers().contains_key(header::CONTENT_TYPE) {
        return Ok(response);
    }
    let text = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
    // The body's type was checked before: its contents are not supported.
    let status = if status == StatusCode::UNSUPPORTED_MEDIA_TYPE { StatusCode::BAD_REQUEST } else { status };
    Err(ApiError::new(status, String::from_utf8_lossy(&text)))
}

/// Serves hone's abilities to the program at the other end of two streams, until it closes them. The program acts for
/// the terminal user, whose memory it sees.
///
/// # Errors
/// When the first message is not a request of the protocol; the error says so.
pub async fn serve_mcp(
    parts: McpParts,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), String> {
    let McpParts { app, generator, judges, memory, version } = parts;
    let decider = TerminalDecider::new(app, generator);
    let tools = HoneTools::new(Abilities::of_terminal(judges, memory, decider, MOST_VERDICTS), version);
    let failed = |error: &dyn Display| format!("the client does not speak the Model Context Protocol: {error}");
    let service = rmcp::serve_server(tools, (input, output)).await.map_err(|error| failed(&error))?;
    service.waiting().await.map(drop).map_err(|error| failed(&error))
}

/// The parts of an MCP server at the terminal.
pub struct McpParts {
    /// The configuration and the installed models.
    pub app: App,
    /// The generator for decisions.
    pub generator: Arc<dyn Generate>,
    /// The judges that grade and compare.
    pub judges: Arc<ServedJudges>,
    /// The memory, if answers are remembered.
    pub memory: Option<ServedMemory>,
    /// The version of the program.
    pub version: &'static str,
}
