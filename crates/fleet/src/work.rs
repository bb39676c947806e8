//! Work that is taken from the streams.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{AckKind, Message};
use crossbeam_channel::{Receiver, Sender, bounded};
use futures_util::StreamExt;
use hone_protocol::Envelope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::connection::{Fleet, RESULTS, Server, WORK, unusable};
use crate::dead;
use crate::error::FleetError;
use crate::requests::{ASKER, Asker, GIVEN_UP, PAUSE, REQUEST, Urgency, envelope_of};

/// How long the server is asked for urgent work before it is asked for other work, too.
const LOOK: Duration = Duration::from_millis(500);
/// How often a result is sent to a server that is connected and does not take it.
const MOST_DELIVERIES: usize = 10;
/// How often a lease is renewed within its length.
const RENEWALS: u32 = 3;
/// How many times as often as a worker may fail at work it may be lost or given back.
const LOST_PER_FAILED: u32 = 10;
/// How long the end waits for the server.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long work rests that a worker could not do.
const REST: Duration = Duration::from_secs(5);

/// The work of one role, as it comes.
pub struct Work {
    jobs: Receiver<Job>,
    /// True once no more is to be taken.
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    slots: Arc<Semaphore>,
    n_slots: u32,
    fleet: Fleet,
}

/// A piece of work. Until it is settled its lease is renewed; dropping it gives it back.
pub struct Job {
    /// The message that asks for it.
    pub envelope: Envelope,
    /// How often it was given to a worker, this time included.
    pub attempt: u32,
    settled: Option<oneshot::Sender<Settled>>,
}

/// The end of a piece of work.
enum Settled {
    Done(Box<Envelope>),
    /// Another worker may do it at once.
    GivenBack,
    /// It could not be done now.
    Failed(String),
}

impl Job {
    /// Sends what came of it to the home that asked. It is done once the server has that.
    pub fn finish(mut self, result: Envelope) {
        self.settle(Settled::Done(Box::new(result)));
    }

    /// Says that it could not be done; it is tried again later, and given up after too many attempts.
    pub fn fail(mut self, reason: impl Into<String>) {
        self.settle(Settled::Failed(reason.into()));
    }

    fn settle(&mut self, settled: Settled) {
        // The connection may have ended; then its lease runs out.
        if let Some(settle) = self.settled.take() {
            let _ = settle.send(settled);
        }
    }

    #[cfg(test)]
    fn for_test(envelope: Envelope) -> (Job, oneshot::Receiver<Settled>) {
        let (settle, settled) = oneshot::channel();
        (Job { envelope, attempt: 1, settled: Some(settle) }, settled)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.settle(Settled::GivenBack);
    }
}

impl Work {
    /// Begins to take work of a role, `slots` pieces at a time.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn begin(fleet: &Fleet, role: &'static str, slots: usize) -> Result<Work, FleetError> {
        let (found, jobs) = bounded(slots);
        let consumers = fleet.block_on(Consumers::of(&fleet.server, role))?;
        let (stop, stopping) = watch::channel(false);
        let n_slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let slots = Arc::new(Semaphore::new(slots));
        let taker = Taker { server: fleet.server.clone(), role, slots: Arc::clone(&slots), found, stopping };
        let task = fleet.handle().spawn(taker.run(consumers));
        Ok(Work { jobs, stop, task, slots, n_slots, fleet: fleet.clone() })
    }

    /// The pieces of work.
    pub fn jobs(&self) -> &Receiver<Job> {
        &self.jobs
    }

    /// Takes no more, gives back what nobody has begun, and waits until the server knows of all that was finished or given
    /// back, or cannot be reached for a few seconds.
    pub fn end(self) {
        let Work { jobs, stop, task, slots, n_slots, fleet } = self;
        stop.send_replace(true);
        let ended = fleet.block_on(async { tokio::time::timeout(LAST_WORDS, task).await });
        // Jobs that are still in the channel are given back as they are dropped.
        drop(jobs);
        let settled = fleet.block_on(async {
            let all = tokio::time::timeout(LAST_WORDS, slots.acquire_many(n_slots)).await;
            let flushed = tokio::time::timeout(LAST_WORDS, fleet.server.jetstream.client().flush()).await;
            all.is_ok() && flushed.is_ok()
        });
        if ended.is_err() || !settled {
            tracing::warn!("the NATS server does not hear what became of some work; it gives that out again later");
        }
    }
}

/// All workers of a role share these: they know how far the server is with each kind of work.
struct Consumers {
    now: PullConsumer,
    later: PullConsumer,
    /// After this time the server gives out again what it has heard nothing of. Who made the consumers has said how long it is,
    /// and this process may be set otherwise.
    lease: Duration,
}

impl Consumers {
    async fn of(server: &Server, role: &str) -> Result<Consumers, FleetError> {
        server.prepare().await?;
        let failed = |error: &dyn std::error::Error| unusable(WORK, error);
        let stream = server.jetstream.get_stream(WORK).await.map_err(|error| failed(&error))?;
        let consumer = async |urgency: Urgency| {
            let name = format!("{role}-{}", urgency.as_str());
            let config = pull::Config {
                durable_name: Some(name.clone()),
                filter_subject: format!("hone.work.{role}.{}", urgency.as_str()),
                ack_policy: AckPolicy::Explicit,
                ack_wait: Duration::from_secs_f64(server.settings.lease),
                // Work that was tried too often is taken once more, and put with the dead.
                max_deliver: -1,
                ..pull::Config::default()
            };
            stream.get_or_create_consumer(&name, config).await.map_err(|error| failed(&error))
        };
        let (now, later) = (consumer(Urgency::Now).await?, consumer(Urgency::Later).await?);
        let lease = now.cached_info().config.ack_wait.min(later.cached_info().config.ack_wait);
        Ok(Consumers { now, later, lease })
    }

    /// The next piece: urgent ones come first.
    async fn next(&self) -> Result<Option<Message>, FleetError> {
        for (consumer, wait) in [(&self.now, None), (&self.later, None), (&self.now, Some(LOOK))] {
            if let Some(message) = one(consumer, wait).await? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}

/// The next message of a consumer; `None` if there is none, or none comes in time.
async fn one(consumer: &PullConsumer, wait: Option<Duration>) -> Result<Option<Message>, FleetError> {
    let failed = |error: &dyn std::error::Error| unusable(WORK, error);
    let batch = match wait {
        None => consumer.fetch().max_messages(1).messages().await,
        Some(wait) => consumer.batch().max_messages(1).expires(wait).messages().await,
    };
    let mut batch = batch.map_err(|error| failed(&error))?;
    // A request that went into a connection that breaks is never answered.
    let next = timeout(LAST_WORDS + wait.unwrap_or_default(), batch.next()).await.map_err(|error| failed(&error))?;
    next.transpose().map_err(|error| failed(&*error))
}

/// Takes work while there are slots.
struct Taker {
    server: Server,
    role: &'static str,
    slots: Arc<Semaphore>,
    found: Sender<Job>,
    stopping: watch::Receiver<bool>,
}

impl Taker {
    async fn run(mut self, mut consumers: Consumers) {
        loop {
            let slot = tokio::select! {
                slot = Arc::clone(&self.slots).acquire_owned() => slot,
                _ = self.stopping.changed() => return,
            };
            let Ok(slot) = slot else { return };
            match consumers.next().await {
                Ok(Some(message)) if *self.stopping.borrow() => note(message.ack_with(AckKind::Nak(None)).await),
                Ok(Some(message)) => {
                    let (server, found, lease) = (self.server.clone(), self.found.clone(), consumers.lease);
                    tokio::spawn(follow(server, self.role, message, lease, found, slot));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!("no work is taken: {error}");
                    sleep(PAUSE).await;
                    // The server may have been replaced by one that knows nothing.
                    if let Ok(fresh) = Consumers::of(&self.server, self.role).await {
                        consumers = fresh;
                    }
                }
            }
            if *self.stopping.borrow() {
                return;
            }
        }
    }
}

/// Follows one piece of work to its end.
async fn follow(
    server: Server,
    role: &str,
    message: Message,
    lease: Duration,
    found: Sender<Job>,
    _slot: OwnedSemaphorePermit,
) {
    let attempt = message.info().map_or(1, |info| u32::try_from(info.delivered).unwrap_or(u32::MAX));
    let Some(envelope) = envelope_of(&message.payload) else {
        return end(&server, role, &message, "it is not a message that this version of hone can read").await;
    };
    if attempt > server.settings.attempts.saturating_mul(LOST_PER_FAILED) {
        let reason = format!("it was given to workers {} times, and none has finished it", attempt - 1);
        return end(&server, role, &message, &reason).await;
    }
    let (settle, mut settled) = oneshot::channel();
    // A slot is a place in the channel.
    let _ = found.try_send(Job { envelope, attempt, settled: Some(settle) });
    let mut renewing = interval(lease / RENEWALS);
    renewing.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let settled = loop {
        tokio::select! {
            settled = &mut settled => break settled.unwrap_or(Settled::GivenBack),
            _ = renewing.tick() => note(message.ack_with(AckKind::Progress).await),
        }
    };
    match settled {
        Settled::Done(result) => deliver(&server, role, &message, &result).await,
        Settled::GivenBack => note(message.ack_with(AckKind::Nak(None)).await),
        Settled::Failed(reason) if attempt >= server.settings.attempts => end(&server, role, &message, &reason).await,
        Settled::Failed(_) => note(message.ack_with(AckKind::Nak(Some(REST))).await),
    }
}

/// Sends a result until the server has it; then the work is done.
async fn deliver(server: &Server, role: &str, message: &Message, result: &Envelope) {
    let content = serde_json::to_vec(result).unwrap_or_default();
    for _ in 0..MOST_DELIVERIES {
        server.connected().await;
        match send_result(server, message, content.clone(), None).await {
            Ok(()) => return note(message.double_ack().await),
            Err(error) => tracing::debug!("a result is not sent yet: {error}"),
        }
        note(message.ack_with(AckKind::Progress).await);
        sleep(PAUSE).await;
    }
    end(server, role, message, "the server does not take its result").await;
}

/// Sends a result, or the reason why there is none, to the process that asked; to nobody if the message names none.
async fn send_result(
    server: &Server,
    message: &Message,
    content: Vec<u8>,
    given_up: Option<&str>,
) -> Result<(), FleetError> {
    let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
    let (Some(asker), Some(request), Some(id)) = (Asker::of(message), header(REQUEST), header("Nats-Msg-Id")) else {
        return Ok(());
    };
    let mut publish = PublishMessage::build()
        .payload(content.into())
        // What is done twice is told once.
        .message_id(format!("{id}-done"))
        .header(ASKER, asker.to_string().as_str())
        .header(REQUEST, request.clone());
    if let Some(reason) = given_up {
        publish = publish.header(GIVEN_UP, dead::one_line(reason).as_str());
    }
    let failed = |error: &dyn std::error::Error| unusable(RESULTS, error);
    let sent = server.jetstream.send_publish(asker.subject(), publish).await.map_err(|error| failed(&error))?;
    sent.await.map(drop).map_err(|error| failed(&error))
}

/// Puts work with the dead, and tells the process that asked.
async fn end(server: &Server, role: &str, message: &Message, reason: &str) {
    let ended = async {
        dead::bury(server, role, message, reason).await?;
        send_result(server, message, Vec::new(), Some(reason)).await
    };
    match ended.await {
        Ok(()) => note(message.double_ack_with(AckKind::Term).await),
        Err(error) => tracing::warn!("work cannot be put with the dead: {error}"),
    }
}

/// Takes note that the server was not told something: it gives that work out again.
fn note(acknowledged: Result<(), async_nats::Error>) {
    if let Err(error) = acknowledged {
        tracing::debug!("the NATS server was not told how far work is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Nothing, Payload, SessionId};

    use super::*;

    fn envelope() -> Envelope {
        Envelope::new("tester", SessionId::fresh(), Payload::SessionClosed(Nothing {}))
    }

    #[test]
    fn a_job_is_settled_once_and_given_back_if_it_is_dropped() {
        let (job, mut settled) = Job::for_test(envelope());
        drop(job);
        assert!(matches!(settled.try_recv(), Ok(Settled::GivenBack)));
        let (job, mut settled) = Job::for_test(envelope());
        job.finish(envelope());
        assert!(matches!(settled.try_recv(), Ok(Settled::Done(_))));
        let (job, mut settled) = Job::for_test(envelope());
        job.fail("no judge");
        assert!(matches!(settled.try_recv(), Ok(Settled::Failed(reason)) if reason == "no judge"));
    }
}
