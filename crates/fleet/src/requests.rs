//! Work for others, and what comes of it.

use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::message::PublishMessage;
use crossbeam_channel::{Receiver, Sender, bounded};
use futures_util::StreamExt;
use hone_protocol::{Envelope, QueryId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection::{Fleet, RESULTS, Server, WORK, unusable};
use crate::error::FleetError;
use crate::settings::HomeId;

/// The header that names the home which asked.
pub(crate) const HOME: &str = "Hone-Home";
/// How long after a failure the server is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How many results may wait to be read.
const UNREAD: usize = 1024;

/// The most bytes of a message: less than the 1 MiB that a server takes if nobody has told it otherwise, so that a result,
/// which holds the question and the answer, too, has room for the reasons.
pub const LONGEST: usize = 768 << 10;

/// How soon work is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits for it.
    Now,
    /// Whenever there is time.
    Later,
}

impl Urgency {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Urgency::Now => "now",
            Urgency::Later => "later",
        }
    }
}

/// Work of one kind that this process has others do. Dropping it ends the reading of results; what was asked stays asked.
pub struct Requests {
    role: &'static str,
    unsent: UnboundedSender<Request>,
    results: Receiver<Envelope>,
    tasks: [AbortHandle; 2],
    fleet: Fleet,
}

struct Request {
    subject: String,
    /// What the server knows it by.
    id: String,
    content: Vec<u8>,
}

impl Requests {
    /// Begins to send work of a role, and to read the results of a home: those of earlier processes, too, as far as the
    /// server has them.
    pub fn begin(fleet: &Fleet, role: &'static str, home: &HomeId) -> Requests {
        let (unsent, to_send) = unbounded_channel();
        let (found, results) = bounded(UNREAD);
        let sending = fleet.handle().spawn(send_all(fleet.server.clone(), home.clone(), to_send)).abort_handle();
        let reading = fleet.handle().spawn(read_all(fleet.server.clone(), home.clone(), found)).abort_handle();
        Requests { role, unsent, results, tasks: [sending, reading], fleet: fleet.clone() }
    }

    /// Asks for work on a message, which names the question that it is about; the same again is no more work. It is sent
    /// as soon as the server can be reached. Returns false, and asks for nothing, if the message is longer than [`LONGEST`].
    pub fn ask(&self, about: QueryId, message: &Envelope, urgency: Urgency) -> bool {
        let content = serde_json::to_vec(message).unwrap_or_default();
        if content.is_empty() || content.len() > LONGEST {
            return false;
        }
        let subject = format!("hone.work.{}.{}", self.role, urgency.as_str());
        let request = Request { subject, id: format!("{}-{about}", self.role), content };
        self.unsent.send(request).is_ok()
    }

    /// What has come of it, each at least once.
    pub fn results(&self) -> &Receiver<Envelope> {
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
async fn send_all(server: Server, home: HomeId, mut unsent: UnboundedReceiver<Request>) {
    while let Some(request) = unsent.recv().await {
        while let Err(error) = send(&server, &home, &request).await {
            tracing::debug!("work is not sent yet: {error}");
            if let Err(error) = server.prepare().await {
                tracing::debug!("{error}");
            }
            sleep(PAUSE).await;
        }
    }
}

async fn send(server: &Server, home: &HomeId, request: &Request) -> Result<(), FleetError> {
    let message = PublishMessage::build()
        .payload(request.content.clone().into())
        .message_id(&request.id)
        .header(HOME, home.to_string().as_str());
    let failed = |error: &dyn std::error::Error| unusable(WORK, error);
    let sent = server.jetstream.send_publish(request.subject.clone(), message).await.map_err(|error| failed(&error))?;
    sent.await.map(drop).map_err(|error| failed(&error))
}

/// Reads results until nobody takes them any more.
async fn read_all(server: Server, home: HomeId, found: Sender<Envelope>) {
    let mut next = 1;
    loop {
        if let Err(error) = read(&server, &home, &found, &mut next).await {
            tracing::debug!("results are not read: {error}");
        }
        sleep(PAUSE).await;
    }
}

/// Reads results from the number `next` on, until the server gives no more.
async fn read(server: &Server, home: &HomeId, found: &Sender<Envelope>, next: &mut u64) -> Result<(), FleetError> {
    server.prepare().await?;
    let failed = |error: &dyn std::error::Error| unusable(RESULTS, error);
    let stream = server.jetstream.get_stream(RESULTS).await.map_err(|error| failed(&error))?;
    let config = OrderedConfig {
        filter_subject: format!("hone.results.{home}"),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *next },
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(|error| failed(&error))?;
    let mut messages = consumer.messages().await.map_err(|error| failed(&error))?;
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| failed(&error))?;
        if let Ok(info) = message.info() {
            *next = info.stream_sequence + 1;
        }
        let Some(envelope) = envelope_of(&message.payload) else { continue };
        let mut envelope = Some(envelope);
        // The channel blocks threads, and this is a task.
        while let Some(unread) = envelope.take() {
            match found.try_send(unread) {
                Ok(()) => {}
                Err(crossbeam_channel::TrySendError::Full(back)) => {
                    envelope = Some(back);
                    sleep(Duration::from_millis(20)).await;
                }
                Err(crossbeam_channel::TrySendError::Disconnected(_)) => return Ok(()),
            }
        }
    }
    Ok(())
}

/// The envelope in a message; `None` for what this version cannot read.
pub(crate) fn envelope_of(content: &[u8]) -> Option<Envelope> {
    serde_json::from_slice(content)
        .inspect_err(|error| tracing::warn!("a message of another version of hone is passed over: {error}"))
        .ok()
}
