//! The connection to an MCP server at an address: every message is an HTTP request, whose response holds the answer, in
//! JSON or as events.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_models::{Messenger, Posted};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// The maximum number of unread answers.
const UNREAD: usize = 64;
/// The longest answer, in bytes.
const LONGEST: u64 = 16 << 20;
/// The header that names the session, if a server has sessions.
const SESSION: &str = "mcp-session-id";
/// The header that names the version of the protocol, once it is agreed upon.
const VERSION: &str = "mcp-protocol-version";

/// A connection to a server.
pub(super) struct HttpLine {
    sender: Arc<Sender>,
    heard: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
}

/// Sends messages, and passes the answers on.
struct Sender {
    messenger: Messenger,
    /// The headers from the file.
    headers: BTreeMap<String, String>,
    /// The headers that the server has asked for.
    agreed: Mutex<BTreeMap<&'static str, String>>,
    hear: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
}

/// Why a message was not delivered.
#[derive(Debug)]
pub(super) struct Undelivered(String);

impl std::fmt::Display for Undelivered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Undelivered {}

impl HttpLine {
    /// A new connection, without any messages.
    pub(super) fn new(messenger: Messenger, headers: BTreeMap<String, String>) -> HttpLine {
        let (hear, heard) = mpsc::channel(UNREAD);
        HttpLine { sender: Arc::new(Sender { messenger, headers, agreed: Mutex::default(), hear }), heard }
    }
}

impl Transport<RoleClient> for HttpLine {
    type Error = Undelivered;

    fn name() -> Cow<'static, str> {
        "HTTP".into()
    }

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Undelivered>> + Send + 'static {
        let sender = Arc::clone(&self.sender);
        async move {
            let (done, sent) = oneshot::channel();
            // A separate thread: the server may take its time.
            let send = move || {
                let _ = done.send(sender.send(&message));
            };
            let started = std::thread::Builder::new().name("mcp".to_owned()).spawn(send);
            started.map_err(|error| Undelivered(error.to_string()))?;
            sent.await.map_err(|error| Undelivered(error.to_string()))?.map_err(Undelivered)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.heard.recv().await
    }

    async fn close(&mut self) -> Result<(), Undelivered> {
        self.heard.close();
        Ok(())
    }
}

impl Sender {
    /// Sends a message, and waits until the whole answer has been read.
    fn send(&self, message: &TxJsonRpcMessage<RoleClient>) -> Result<(), String> {
        let text = serde_json::to_string(message).map_err(|error| error.to_string())?;
        let reply = self.post(&text)?;
        if let Some(session) = reply.header(SESSION) {
            self.agreed().insert(SESSION, session.to_owned());
        }
        let is_stream = reply.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let status = reply.status;
        let mut body = reply.body.take(LONGEST);
        match (status, is_stream) {
            (202 | 204, _) => Ok(()),
            (200, true) => self.hear_events(BufReader::new(body)),
            _ => {
                let mut text = String::new();
                body.read_to_string(&mut text).map_err(|error| error.to_string())?;
                if status == 200 {
                    self.hear(&text)
                } else {
                    Err(format!("it answers with the status {status}: {text}"))
                }
            }
        }
    }

    fn post(&self, text: &str) -> Result<Posted, String> {
        let agreed = self.agreed().clone();
        let own = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
        let of_file = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let agreed = agreed.iter().map(|(name, value)| (*name, value.as_str()));
        self.messenger.post(own.into_iter().chain(of_file).chain(agreed), text)
    }

    fn hear_events(&self, body: impl BufRead) -> Result<(), String> {
        let mut data = String::new();
        for line in body.lines() {
            let line = line.map_err(|error| error.to_string())?;
            match line.strip_prefix("data:") {
                Some(more) => data.push_str(more.trim_start()),
                None if line.is_empty() && !data.is_empty() => self.hear(&std::mem::take(&mut data))?,
                None => {}
            }
        }
        Ok(())
    }

    fn hear(&self, text: &str) -> Result<(), String> {
        let not_understood = |error: serde_json::Error| format!("its answer cannot be understood: {error}");
        let answer: Value = serde_json::from_str(text).map_err(not_understood)?;
        if let Some(version) = answer["result"]["protocolVersion"].as_str() {
            self.agreed().insert(VERSION, version.to_owned());
        }
        let message = serde_json::from_value(answer).map_err(not_understood)?;
        // A closed connection has no receiver.
        let _ = self.hear.blocking_send(message);
        Ok(())
    }

    fn agreed(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
