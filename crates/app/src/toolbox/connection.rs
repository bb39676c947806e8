//! An MCP server, in a process of its own or at an address, and the connection to it.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use hone_models::Messenger;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock, Implementation, JsonObject,
    ResourceContents, Tool,
};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService, ServiceError};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::configuration::Server;
use super::over_http::HttpLine;

/// How long a server may take to start, and to list its tools.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long a call may take.
const CALL_PATIENCE: Duration = Duration::from_secs(300);
/// How long a server may take to end after its stdin has.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// The longest text of a tool, in characters.
const MOST_CHARACTERS: usize = 20_000;

/// A server that has started.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    /// Killed when it is dropped; `None` if the server runs elsewhere.
    process: Option<Child>,
}

impl Connection {
    /// Starts a server and asks for its tools.
    ///
    /// # Errors
    /// When it cannot be started, does not speak the protocol, or takes too long; the message says which.
    pub(super) async fn open(name: &str, server: Server) -> Result<(Connection, Vec<Tool>), String> {
        let client =
            ClientConfig::new(ClientCapabilities::default(), Implementation::new("hone", env!("CARGO_PKG_VERSION")));
        let opening = async {
            let (service, process) = match server {
                Server::Process { command, args, env } => {
                    let (process, line) = start(name, &command, &args, &env)?;
                    (rmcp::serve_client(client, line).await, Some(process))
                }
                Server::Address { url, headers } => {
                    let line = HttpLine::new(Messenger::new(&url, CALL_PATIENCE)?, headers);
                    (rmcp::serve_client(client, line).await, None)
                }
            };
            let service = service.map_err(not_begun)?;
            let tools = service.list_all_tools().await.map_err(reason)?;
            Ok((Connection { service, process }, tools))
        };
        timeout(START_PATIENCE, opening)
            .await
            .unwrap_or_else(|_| Err(format!("it did not start within {} seconds", START_PATIENCE.as_secs())))
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// When the server has ended, refuses the call, answers something else, or takes too long; the message says which.
    pub(super) async fn call(&self, tool: String, arguments: JsonObject) -> Result<String, String> {
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = timeout(CALL_PATIENCE, self.service.call_tool(call))
            .await
            .map_err(|_| format!("there is no result after {} seconds", CALL_PATIENCE.as_secs()))?
            .map_err(reason)?;
        let text = shortened(text_of(&result));
        if result.is_error == Some(true) { Err(text) } else { Ok(text) }
    }

    /// Ends the server: by closing its stdin, and by killing it if that does not help.
    pub(super) async fn close(mut self) {
        // A server that has failed has also ended.
        let _ = self.service.close_with_timeout(END_PATIENCE).await;
        let Some(mut process) = self.process else { return };
        if timeout(END_PATIENCE, process.wait()).await.is_err() {
            let _ = process.kill().await;
        }
    }
}

/// Starts a server, and returns it with the connection to it.
fn start(
    name: &str,
    program: &str,
    args: &[String],
    env: &BTreeMap<String, String>,
) -> Result<(Child, (ChildStdout, ChildStdin)), String> {
    let mut command = Command::new(program);
    command.args(args).envs(env).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A Ctrl-C is meant for the call, not for the server.
    #[cfg(unix)]
    command.process_group(0);
    let mut process = command.spawn().map_err(|error| format!("cannot start {program:?}: {error}"))?;
    if let Some(stderr) = process.stderr.take() {
        tokio::spawn(log(name.to_owned(), stderr));
    }
    let line = process.stdout.take().zip(process.stdin.take());
    Ok((process, line.ok_or_else(|| format!("{program:?} has no stdin or stdout"))?))
}

/// Logs a server's stderr.
async fn log(name: String, stderr: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        tracing::debug!("MCP server {name}: {}", String::from_utf8_lossy(&line));
    }
}

/// The reason why a connection to a server was not established.
fn not_begun(error: ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it ended before it answered".to_owned(),
        ClientInitializeError::TransportError { error, .. } => format!("it cannot be asked: {}", error.error),
        other => other.to_string(),
    }
}

fn reason(error: ServiceError) -> String {
    match error {
        ServiceError::TransportClosed => "the server has ended".to_owned(),
        ServiceError::TransportSend(error) => format!("the server cannot be asked: {}", error.error),
        ServiceError::McpError(error) => error.message.into_owned(),
        other => other.to_string(),
    }
}

/// The text of a result, as a model reads it.
fn text_of(result: &CallToolResult) -> String {
    let parts: Vec<String> = result.content.iter().map(text_of_part).collect();
    match (&result.structured_content, parts.is_empty()) {
        (Some(value), true) => value.to_string(),
        _ => parts.join("\n"),
    }
}

fn text_of_part(part: &ContentBlock) -> String {
    let left_out = |what: &str| format!("[{what}, which cannot be read as text]");
    match part {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            _ => left_out("a file"),
        },
        ContentBlock::ResourceLink(link) => link.uri.clone(),
        ContentBlock::Image(_) => left_out("an image"),
        ContentBlock::Audio(_) => left_out("a recording"),
        _ => left_out("something"),
    }
}

/// Shortens a text that is too long, and says so in it.
fn shortened(text: String) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        None => text,
        Some((end, _)) => {
            let n_left_out = text[end..].chars().count();
            format!("{}\n[{n_left_out} more characters are left out]", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(result: serde_json::Value, expected: &str) {
        assert_eq!(text_of(&serde_json::from_value(result).unwrap()), expected);
    }

    #[test]
    fn a_result_is_read_as_text() {
        let text = json!({"type": "text", "text": "one"});
        check(json!({"content": [text, {"type": "text", "text": "two"}]}), "one\ntwo");
        check(json!({"content": [text], "structuredContent": {"a": 1}}), "one");
        check(json!({"content": [], "structuredContent": {"a": 1}}), "{\"a\":1}");
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        check(json!({"content": [image, text]}), "[an image, which cannot be read as text]\none");
        let file = json!({"type": "resource", "resource": {"uri": "file:///a", "text": "three"}});
        check(json!({"content": [file]}), "three");
    }

    #[test]
    fn a_long_result_says_how_much_of_it_is_left_out() {
        let long = "é".repeat(MOST_CHARACTERS);
        assert_eq!(shortened(long.clone()), long);
        assert_eq!(shortened(format!("{long}ab")), format!("{long}\n[2 more characters are left out]"));
    }
}
