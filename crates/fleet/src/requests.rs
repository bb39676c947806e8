//! Requests for work by others, and their results.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::message::PublishMessage;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use futures_util::StreamExt;
use hone_protocol::{Envelope, EnvelopeId, WorkResult};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection::{Fleet, RESULTS, Server, WORK, unusable};
use crate::error::FleetError;
use crate::route::{Route, Urgency};

/// The header that names the requesting process.
pub(crate) const ASKER: &str = "Hone-Asker";
/// The header of a job and of its result with the id of the request.
pub(crate) const REQUEST: &str = "Hone-Request";
/// The header of a missing result with the reason.
pub(crate) const GIVEN_UP: &str = "Hone-Given-Up";
/// The pause after a failure before the server is asked again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// The number of attempts to send a message to a server that is connected and does not take it.
const MOST_ATTEMPTS: usize = 10;
/// The capacity for messages to be sent, and for results to be read.
const WAITING: usize = 1024;

/// The longest message in bytes: less than a server's default limit of 1 MiB, so that a result, which also holds the
/// question and the answer, has room for the reasons.
pub const LONGEST: usize = 768 << 10;

/// The server's identifier of a requesting process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asker(EnvelopeId);

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Asker {
    /// The process that an untrusted message names; `None` if the name is not valid.
    pub(crate) fn of(message: &Message) -> Option<Asker> {
        let named = message.headers.as_ref()?.get(ASKER)?;
        EnvelopeId::from_str(named.as_str()).ok().map(Asker)
    }

    /// The subject of its results.
    pub(crate) fn subject(&self) -> String {
        format!("hone.results.{self}")
    }
}

/// The reason why a request is not sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unsent {
    /// The message is longer than [`LONGEST`].
    #[error("the message is too long")]
    TooLong,
    /// Too many others wait to be sent.
    #[error("too many messages wait to be sent")]
    NoRoom,
}

/// Requests for one kind of work. Dropping it ends the reading of results; requests already sent remain.
pub struct Requests {
    route: Route,
    unsent: mpsc::Sender<Request>,
    results: Receiver<WorkResult>,
    tasks: [AbortHandle; 2],
    fleet: Fleet,
}

struct Request {
    subject: String,
    id: EnvelopeId,
    content: Vec<u8>,
}

impl Requests {
    /// Starts sending jobs of a kind and reading their results.
    pub fn begin(fleet: &Fleet, route: Route) -> Requests {
        let asker = Asker(EnvelopeId::fresh());
        let (unsent, to_send) = mpsc::channel(WAITING);
        let (found, results) = bounded(WAITING);
        let sending = send_all(fleet.server.clone(), asker.clone(), to_send, found.clone());
        let reading = Reader { server: fleet.server.clone(), asker, found, next: None }.run();
        let tasks = [fleet.handle().spawn(sending), fleet.handle().spawn(reading)].map(|task| task.abort_handle());
        Requests { route, unsent, results, tasks, fleet: fleet.clone() }
    }

    /// Requests work on a message; the result names that message. The request is sent as soon as the server is
    /// reachable.
    ///
    /// # Errors
    /// When it is not sent.
    pub fn ask(&self, message: &Envelope, urgency: Urgency) -> Result<(), Unsent> {
        let content = serde_json::to_vec(message).unwrap_or_default();
        if content.is_empty() || content.len() > LONGEST {
            return Err(Unsent::TooLong);
        }
        let subject = self.route.subject(urgency);
        self.unsent.try_send(Request { subject, id: message.id, content }).map_err(|_| Unsent::NoRoom)
    }

    /// The results, each at least once.
    pub fn results(&self) -> &Receiver<WorkResult> {
        &self.results
    }

    /// Whether the server is connected now.
    pub fn is_connected(&self) -> bool {
        self.fleet.is_connected()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Sends all requests in order, retrying each until the server has it.
async fn send_all(server: Server, asker: Asker, mut unsent: mpsc::Receiver<Request>, found: Sender<WorkResult>) {
    while let Some(request) = unsent.recv().await {
        let mut n_attempts = 0;
        while let Err(error) = send(&server, &asker, &request).await {
            n_attempts += usize::from(server.is_connected());
            if n_attempts == MOST_ATTEMPTS {
                tracing::warn!("work is not sent: {error}");
                tell(&found, WorkResult { request: request.id, outcome: Err(error.to_string()) }).await;
                break;
            }
            // The server may have been replaced.
            if server.is_connected()
                && let Err(error) = server.prepare().await
            {
                tracing::debug!("{error}");
            }
            sleep(PAUSE).await;
        }
    }
}

async fn send(server: &Server, asker: &Asker, request: &Request) -> Result<(), FleetError> {
    server.connected().await;
    let message = PublishMessage::build()
        .payload(request.content.clone().into())
        // The server keeps one copy, even if it is sent again after a lost acknowledgement.
        .message_id(request.id.to_string())
        .header(REQUEST, request.id.to_string().as_str())
        .header(ASKER, asker.to_string().as_str());
    let failed = |error: &dyn std::error::Error| unusable(WORK, error);
    let sent = server.jetstream.send_publish(request.subject.clone(), message).await.map_err(|error| failed(&error))?;
    sent.await.map(drop).map_err(|error| failed(&error))
}

/// Passes a result to a thread, whose channel must not block this one.
async fn tell(found: &Sender<WorkResult>, result: WorkResult) {
    let mut untold = Some(result);
    while let Some(result) = untold.take() {
        if let Err(TrySendError::Full(result)) = found.try_send(result) {
            untold = Some(result);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Reads results.
struct Reader {
    server: Server,
    asker: Asker,
    found: Sender<WorkResult>,
    /// The stream's creation time, and the number of the next message in it.
    next: Option<(i128, u64)>,
}

impl Reader {
    /// Reads until the task is aborted.
    async fn run(mut self) {
        loop {
            self.server.connected().await;
            if let Err(error) = self.read().await {
                tracing::debug!("results are not read: {error}");
            }
            sleep(PAUSE).await;
        }
    }

    /// Reads until the server ends the stream.
    async fn read(&mut self) -> Result<(), FleetError> {
        self.server.prepare().await?;
        let failed = |error: &dyn std::error::Error| unusable(RESULTS, error);
        let stream = self.server.jetstream.get_stream(RESULTS).await.map_err(|error| failed(&error))?;
        let created = stream.cached_info().created.unix_timestamp_nanos();
        // A recreated stream begins with the number 1.
        let next = self.next.filter(|(of, _)| *of == created).map_or(1, |(_, next)| next);
        let config = OrderedConfig {
            filter_subject: self.asker.subject(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: next },
            ..OrderedConfig::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| failed(&error))?;
        let mut messages = consumer.messages().await.map_err(|error| failed(&error))?;
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                // The consumer reconnects at its old position, which is wrong in a recreated stream.
                () = self.server.disconnected() => return Ok(()),
            };
            let Some(message) = message else { return Ok(()) };
            let message = message.map_err(|error| failed(&error))?;
            if let Ok(info) = message.info() {
                self.next = Some((created, info.stream_sequence + 1));
            }
            if let Some(result) = result_of(&message) {
                tell(&self.found, result).await;
            }
        }
    }
}

/// The result in a message; `None` if this version cannot read it.
fn result_of(message: &Message) -> Option<WorkResult> {
    let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
    let request = EnvelopeId::from_str(header(REQUEST)?.as_str()).ok()?;
    let outcome = match header(GIVEN_UP) {
        Some(reason) => Err(reason.to_string()),
        None => Ok(Box::new(content_of(&message.payload)?)),
    };
    Some(WorkResult { request, outcome })
}

/// The content of a message; `None` if this version cannot read it.
pub(crate) fn content_of<T: DeserializeOwned>(content: &[u8]) -> Option<T> {
    serde_json::from_slice(content)
        .inspect_err(|error| tracing::warn!("a message of another version of hone is passed over: {error}"))
        .ok()
}
