//! Work for others, and what comes of it.

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

/// The header that names the process that asked.
pub(crate) const ASKER: &str = "Hone-Asker";
/// The header of work and of its result with the id of the message that asked.
pub(crate) const REQUEST: &str = "Hone-Request";
/// The header of a result that says why there is none.
pub(crate) const GIVEN_UP: &str = "Hone-Given-Up";
/// How long after a failure the server is asked again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// How often a message is sent to a server that is connected and does not take it.
const MOST_ATTEMPTS: usize = 10;
/// How many messages may wait to be sent, and how many results to be read.
const WAITING: usize = 1024;

/// The most bytes of a message: less than the 1 MiB that a server takes if nobody has told it otherwise, so that a result,
/// which holds the question and the answer, too, has room for the reasons.
pub const LONGEST: usize = 768 << 10;

/// A process that asks, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asker(EnvelopeId);

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Asker {
    /// The process that a message names, which may come from anybody; `None` if that is none.
    pub(crate) fn of(message: &Message) -> Option<Asker> {
        let named = message.headers.as_ref()?.get(ASKER)?;
        EnvelopeId::from_str(named.as_str()).ok().map(Asker)
    }

    /// The subject of its results.
    pub(crate) fn subject(&self) -> String {
        format!("hone.results.{self}")
    }
}

/// Why work is not asked for.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unsent {
    /// The message is longer than [`LONGEST`].
    #[error("the message is too long")]
    TooLong,
    /// Too many others wait to be sent.
    #[error("too many messages wait to be sent")]
    NoRoom,
}

/// Work of one kind that this process has others do. Dropping it ends the reading of results; what was asked stays asked.
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
    /// Begins to send work of a kind, and to read its results.
    pub fn begin(fleet: &Fleet, route: Route) -> Requests {
        let asker = Asker(EnvelopeId::fresh());
        let (unsent, to_send) = mpsc::channel(WAITING);
        let (found, results) = bounded(WAITING);
        let sending = send_all(fleet.server.clone(), asker.clone(), to_send, found.clone());
        let reading = Reader { server: fleet.server.clone(), asker, found, next: None }.run();
        let tasks = [fleet.handle().spawn(sending), fleet.handle().spawn(reading)].map(|task| task.abort_handle());
        Requests { route, unsent, results, tasks, fleet: fleet.clone() }
    }

    /// Asks for work on a message; the result names that message. It is sent as soon as the server can be reached.
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

/// Sends everything, one after the other, and each until the server has it.
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
            // The server may be a new one.
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
        // Sent again because its acknowledgement was lost, it is kept once.
        .message_id(request.id.to_string())
        .header(REQUEST, request.id.to_string().as_str())
        .header(ASKER, asker.to_string().as_str());
    let failed = |error: &dyn std::error::Error| unusable(WORK, error);
    let sent = server.jetstream.send_publish(request.subject.clone(), message).await.map_err(|error| failed(&error))?;
    sent.await.map(drop).map_err(|error| failed(&error))
}

/// Gives a result to a thread, whose channel must not block this one.
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
    /// When the stream was made, and the number of the next message in it.
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

    /// Reads until the server gives no more.
    async fn read(&mut self) -> Result<(), FleetError> {
        self.server.prepare().await?;
        let failed = |error: &dyn std::error::Error| unusable(RESULTS, error);
        let stream = self.server.jetstream.get_stream(RESULTS).await.map_err(|error| failed(&error))?;
        let created = stream.cached_info().created.unix_timestamp_nanos();
        // A stream that was made anew begins with the number 1.
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
                // The consumer makes itself anew where it was, which is wrong in a stream that was made anew.
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

/// The result in a message; `None` for what this version cannot read.
fn result_of(message: &Message) -> Option<WorkResult> {
    let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
    let request = EnvelopeId::from_str(header(REQUEST)?.as_str()).ok()?;
    let outcome = match header(GIVEN_UP) {
        Some(reason) => Err(reason.to_string()),
        None => Ok(Box::new(content_of(&message.payload)?)),
    };
    Some(WorkResult { request, outcome })
}

/// The content of a message; `None` for what this version cannot read.
pub(crate) fn content_of<T: DeserializeOwned>(content: &[u8]) -> Option<T> {
    serde_json::from_slice(content)
        .inspect_err(|error| tracing::warn!("a message of another version of hone is passed over: {error}"))
        .ok()
}
