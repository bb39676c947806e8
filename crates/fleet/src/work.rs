//! Work taken from the streams.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{AckKind, Message};
use crossbeam_channel::{Receiver, Sender, bounded};
use futures_util::StreamExt;
use hone_protocol::Envelope;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::caller::{Caller, Gone, give_up, inbox_of};
use crate::connection::{Fleet, RESULTS, Server, WORK, unusable};
use crate::dead;
use crate::error::FleetError;
use crate::requests::{ASKER, Asker, GIVEN_UP, PAUSE, REQUEST, content_of};
use crate::route::{Route, Urgency};

/// How long the server is asked for urgent work before it is asked for other work as well.
const LOOK: Duration = Duration::from_millis(500);
/// The most requests for work that may wait at the server, from all workers of one kind together.
const MOST_WAITING: i64 = 65_536;
/// The number of attempts to send a result to a server that is connected and does not take it.
const MOST_DELIVERIES: usize = 10;
/// The number of renewals within a lease.
const RENEWALS: u32 = 3;
/// Work may be lost or given back this many times as often as it may fail.
const LOST_PER_FAILED: u32 = 10;
/// The longest wait for the server at the end.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long work rests after a worker failed at it: a caller waits for an answer, and another worker may have room for
/// it now.
const REST: Duration = Duration::from_secs(5);
const REST_OF_CALLS: Duration = Duration::from_secs(1);
/// How long only other workers can have the work after that; doubled after each further failure, up to the longest.
const SHORTEST_BREAK: Duration = Duration::from_secs(1);
const LONGEST_BREAK: Duration = Duration::from_secs(30);
const LONGEST_BREAK_OF_CALLS: Duration = Duration::from_secs(4);

/// Incoming work of one kind; `T` is the content of its messages.
pub struct Work<T = Envelope> {
    jobs: Receiver<Job<T>>,
    /// True once no more work is to be taken.
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    slots: Arc<Semaphore>,
    n_slots: u32,
    fleet: Fleet,
}

/// A job. Its lease is renewed until it is settled; dropping it gives it back.
pub struct Job<T = Envelope> {
    /// The message that requests it.
    pub content: T,
    /// The number of times that it was given to a worker, including this one.
    pub attempt: u32,
    /// The process that waits for pieces of the result, if any.
    pub caller: Option<Caller>,
    settled: Option<oneshot::Sender<Settled>>,
}

/// The end of a job.
enum Settled {
    /// Done, with the result for the requesting process; for a call, it has been sent already.
    Done(Vec<u8>),
    /// Another worker may do it at once.
    GivenBack,
    /// It failed for now.
    Failed(String),
}

impl Job {
    /// Sends the result to the requesting home. The job is done once the server has it.
    pub fn finish(mut self, result: &Envelope) {
        self.settle(Settled::Done(serde_json::to_vec(result).unwrap_or_default()));
    }
}

impl<T> Job<T> {
    /// Ends a call: its pieces have been sent, or the caller is gone.
    pub fn end(mut self) {
        self.settle(Settled::Done(Vec::new()));
    }

    /// Reports a failure; the job is retried later, and given up after too many attempts.
    pub fn fail(mut self, reason: impl Into<String>) {
        self.settle(Settled::Failed(reason.into()));
    }

    fn settle(&mut self, settled: Settled) {
        // The connection may have ended; then the lease runs out.
        if let Some(settle) = self.settled.take() {
            let _ = settle.send(settled);
        }
    }

    #[cfg(test)]
    fn for_test(content: T) -> (Job<T>, oneshot::Receiver<Settled>) {
        let (settle, settled) = oneshot::channel();
        (Job { content, attempt: 1, caller: None, settled: Some(settle) }, settled)
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        // Work that panics would do so again at once.
        let panics = std::thread::panicking();
        self.settle(if panics { Settled::Failed("the worker panicked".to_owned()) } else { Settled::GivenBack });
    }
}

impl<T: DeserializeOwned + Send + 'static> Work<T> {
    /// Starts taking work of a kind, up to `slots` jobs at a time.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn begin(fleet: &Fleet, route: Route, slots: usize) -> Result<Work<T>, FleetError> {
        let (found, jobs) = bounded(slots);
        let consumers = fleet.block_on(Consumers::of(&fleet.server, &route))?;
        let (stop, stopping) = watch::channel(false);
        let n_slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let slots = Arc::new(Semaphore::new(slots));
        let (server, slots_of_taker) = (fleet.server.clone(), Arc::clone(&slots));
        let taker = Taker { server, route, slots: slots_of_taker, found, stopping, pause: Arc::default() };
        let task = fleet.handle().spawn(taker.run(consumers));
        Ok(Work { jobs, stop, task, slots, n_slots, fleet: fleet.clone() })
    }
}

impl<T> Work<T> {
    /// The jobs.
    pub fn jobs(&self) -> &Receiver<Job<T>> {
        &self.jobs
    }

    /// Stops taking work.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops taking work, gives back jobs that were not begun, and waits until the server knows of all finished and
    /// returned jobs, or is unreachable for a few seconds.
    pub fn end(self) {
        let Work { jobs, stop, task, slots, n_slots, fleet } = self;
        stop.send_replace(true);
        let ended = fleet.block_on(async { tokio::time::timeout(LAST_WORDS, task).await });
        // Jobs still in the channel are given back when they are dropped.
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

/// Shared by all workers for a kind of work: the server's progress in each kind.
struct Consumers {
    now: PullConsumer,
    later: PullConsumer,
    /// The time after which the server redelivers unacknowledged work. The process that created the consumers has set
    /// it, and this process's settings may differ.
    lease: Duration,
}

impl Consumers {
    async fn of(server: &Server, route: &Route) -> Result<Consumers, FleetError> {
        server.prepare().await?;
        let failed = |error: &dyn std::error::Error| unusable(WORK, error);
        let stream = server.jetstream.get_stream(WORK).await.map_err(|error| failed(&error))?;
        let consumer = async |urgency: Urgency| {
            let name = route.consumer(urgency);
            let config = pull::Config {
                durable_name: Some(name.clone()),
                filter_subject: route.subject(urgency),
                ack_policy: AckPolicy::Explicit,
                ack_wait: Duration::from_secs_f64(server.settings.lease),
                // Work that was tried too often is taken once more, and put with the dead.
                max_deliver: -1,
                // By default, the server limits all workers together to 1000 jobs in progress and 512 waiting requests.
                max_ack_pending: -1,
                max_waiting: MOST_WAITING,
                ..pull::Config::default()
            };
            stream.get_or_create_consumer(&name, config).await.map_err(|error| failed(&error))
        };
        let (now, later) = (consumer(Urgency::Now).await?, consumer(Urgency::Later).await?);
        let lease = now.cached_info().config.ack_wait.min(later.cached_info().config.ack_wait);
        Ok(Consumers { now, later, lease })
    }

    /// The next job, urgent ones first.
    async fn next(&self) -> Result<Option<Message>, FleetError> {
        for (consumer, wait) in [(&self.now, None), (&self.later, None), (&self.now, Some(LOOK))] {
            if let Some(message) = one(consumer, wait).await? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}

/// The next message of a consumer; `None` if there is none, or none arrives in time.
async fn one(consumer: &PullConsumer, wait: Option<Duration>) -> Result<Option<Message>, FleetError> {
    let failed = |error: &dyn std::error::Error| unusable(WORK, error);
    let batch = match wait {
        None => consumer.fetch().max_messages(1).messages().await,
        Some(wait) => consumer.batch().max_messages(1).expires(wait).messages().await,
    };
    let mut batch = batch.map_err(|error| failed(&error))?;
    // A request on a connection that breaks is never answered.
    let next = timeout(LAST_WORDS + wait.unwrap_or_default(), batch.next()).await.map_err(|error| failed(&error))?;
    next.transpose().map_err(|error| failed(&*error))
}

/// Takes work while there are slots.
struct Taker<T> {
    server: Server,
    route: Route,
    slots: Arc<Semaphore>,
    found: Sender<Job<T>>,
    stopping: watch::Receiver<bool>,
    pause: Arc<Pause>,
}

impl<T: DeserializeOwned + Send + 'static> Taker<T> {
    async fn run(mut self, mut consumers: Consumers) {
        loop {
            let free = async {
                let slot = Arc::clone(&self.slots).acquire_owned().await;
                self.pause.over().await;
                slot
            };
            let slot = tokio::select! {
                slot = free => slot,
                _ = self.stopping.changed() => return,
            };
            let Ok(slot) = slot else { return };
            match consumers.next().await {
                Ok(Some(message)) if *self.stopping.borrow() => note(message.ack_with(AckKind::Nak(None)).await),
                Ok(Some(message)) => {
                    let (server, found, lease) = (self.server.clone(), self.found.clone(), consumers.lease);
                    let work = Taken { server, role: self.route.role(), message, pause: Arc::clone(&self.pause) };
                    tokio::spawn(async move {
                        work.follow(lease, found).await;
                        drop(slot);
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!("no work is taken: {error}");
                    sleep(PAUSE).await;
                    // The server may have been replaced by an empty one.
                    if let Ok(fresh) = Consumers::of(&self.server, &self.route).await {
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

/// The time without new work after a failure: a failing worker would otherwise take most of the work.
#[derive(Default)]
struct Pause(Mutex<Option<(Duration, Instant)>>);

impl Pause {
    /// Begins a pause that is longer after each failure. Simultaneous failures count as one.
    fn begin(&self, rest: Duration, longest: Duration) {
        let (mut pause, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let length = match *pause {
            Some((_, until)) if until > now => return,
            Some((last, _)) => (2 * last).min(longest),
            None => SHORTEST_BREAK,
        };
        *pause = Some((length, now + rest + length));
    }

    /// Forgets the failures.
    fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits until it is over, which may be earlier than planned at its start.
    async fn over(&self) {
        while let Some(until) = self.until().filter(|until| *until > Instant::now()) {
            sleep_until(until.min(Instant::now() + LOOK)).await;
        }
    }

    fn until(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|(_, until)| until)
    }
}

/// A job that this process has taken.
struct Taken {
    server: Server,
    role: &'static str,
    message: Message,
    pause: Arc<Pause>,
}

impl Taken {
    /// Follows the job to its end.
    async fn follow<T: DeserializeOwned>(&self, lease: Duration, found: Sender<Job<T>>) {
        let (server, message) = (&self.server, &self.message);
        let attempt = message.info().map_or(1, |info| u32::try_from(info.delivered).unwrap_or(u32::MAX));
        let Some(content) = content_of(&message.payload) else {
            return self.end("it is not a message that this version of hone can read").await;
        };
        if attempt > server.settings.attempts.saturating_mul(LOST_PER_FAILED) {
            let reason = format!("it was given to workers {} times, and none has finished it", attempt - 1);
            return self.end(&reason).await;
        }
        let caller = match Caller::of(server, message, attempt).await.transpose() {
            Ok(caller) => caller,
            Err(Gone) => return note(message.double_ack().await),
        };
        let (settle, settled) = oneshot::channel();
        // The channel has room for each slot.
        let _ = found.try_send(Job { content, attempt, caller, settled: Some(settle) });
        match self.renew(lease, settled).await {
            Settled::Done(result) => {
                self.pause.end();
                self.deliver(&result).await;
            }
            Settled::GivenBack => note(message.ack_with(AckKind::Nak(None)).await),
            Settled::Failed(reason) => {
                let (rest, longest) = match inbox_of(message) {
                    Some(_) => (REST_OF_CALLS, LONGEST_BREAK_OF_CALLS),
                    None => (REST, LONGEST_BREAK),
                };
                self.pause.begin(rest, longest);
                if attempt >= server.settings.attempts {
                    return self.end(&reason).await;
                }
                note(message.ack_with(AckKind::Nak(Some(rest))).await);
            }
        }
    }

    /// Renews the lease until the work is settled.
    async fn renew(&self, lease: Duration, mut settled: oneshot::Receiver<Settled>) -> Settled {
        let mut renewing = interval(lease / RENEWALS);
        renewing.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                settled = &mut settled => return settled.unwrap_or(Settled::GivenBack),
                _ = renewing.tick() => note(self.message.ack_with(AckKind::Progress).await),
            }
        }
    }

    /// Sends a result until the server has it; then the work is done.
    async fn deliver(&self, result: &[u8]) {
        for _ in 0..MOST_DELIVERIES {
            self.server.connected().await;
            match self.send_result(result.to_vec(), None).await {
                Ok(()) => return note(self.message.double_ack().await),
                Err(error) => tracing::debug!("a result is not sent yet: {error}"),
            }
            note(self.message.ack_with(AckKind::Progress).await);
            sleep(PAUSE).await;
        }
        self.end("the server does not take its result").await;
    }

    /// Sends a result, or the reason for its absence, to the requesting process; does nothing if the message names
    /// none.
    async fn send_result(&self, content: Vec<u8>, given_up: Option<&str>) -> Result<(), FleetError> {
        let header = |name: &str| self.message.headers.as_ref().and_then(|headers| headers.get(name));
        let (Some(asker), Some(request), Some(id)) = (Asker::of(&self.message), header(REQUEST), header("Nats-Msg-Id"))
        else {
            return Ok(());
        };
        let mut publish = PublishMessage::build()
            .payload(content.into())
            // The server keeps one of two equal results.
            .message_id(format!("{id}-done"))
            .header(ASKER, asker.to_string().as_str())
            .header(REQUEST, request.clone());
        if let Some(reason) = given_up {
            publish = publish.header(GIVEN_UP, dead::one_line(reason).as_str());
        }
        let failed = |error: &dyn std::error::Error| unusable(RESULTS, error);
        let sent = self.server.jetstream.send_publish(asker.subject(), publish).await;
        sent.map_err(|error| failed(&error))?.await.map(drop).map_err(|error| failed(&error))
    }

    /// Moves the work to the dead, and tells the requesting process. A call is useful only to the present caller.
    async fn end(&self, reason: &str) {
        let ended = async {
            match inbox_of(&self.message) {
                Some(inbox) => give_up(&self.server, inbox, &dead::one_line(reason)).await,
                None => {
                    dead::bury(&self.server, self.role, &self.message, reason).await?;
                    self.send_result(Vec::new(), Some(reason)).await?;
                }
            }
            Ok::<(), FleetError>(())
        };
        match ended.await {
            Ok(()) => note(self.message.double_ack_with(AckKind::Term).await),
            Err(error) => tracing::warn!("work cannot be put with the dead: {error}"),
        }
    }
}

/// Logs that the server missed an acknowledgement: it redelivers that work.
fn note(acknowledged: Result<(), async_nats::Error>) {
    if let Err(error) = acknowledged {
        tracing::debug!("the NATS server was not told how far work is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Nothing, Payload, SessionId};

    use super::*;
    use crate::calls::SILENCE;

    fn envelope() -> Envelope {
        Envelope::new("tester", SessionId::fresh(), Payload::SessionClosed(Nothing {}))
    }

    /// The caller hears of the next attempt before it considers the worker lost.
    const _: () = assert!(
        REST_OF_CALLS.as_millis() + LONGEST_BREAK_OF_CALLS.as_millis() + 2 * LOOK.as_millis() < SILENCE.as_millis()
    );

    #[test]
    fn failures_at_the_same_time_are_one_and_a_success_ends_the_pause() {
        let pause = Pause::default();
        let length = |pause: &Pause| pause.0.lock().unwrap().map(|(length, _)| length);
        [(); 5].iter().for_each(|()| pause.begin(REST, LONGEST_BREAK));
        assert_eq!(length(&pause), Some(SHORTEST_BREAK));
        assert!(pause.until().unwrap() > Instant::now() + REST);
        *pause.0.lock().unwrap() = Some((LONGEST_BREAK, Instant::now()));
        pause.begin(REST, LONGEST_BREAK);
        assert_eq!(length(&pause), Some(LONGEST_BREAK));
        pause.end();
        assert_eq!(pause.until(), None);
    }

    #[test]
    fn a_job_is_settled_once_and_given_back_if_it_is_dropped() {
        let (job, mut settled) = Job::for_test(envelope());
        drop(job);
        assert!(matches!(settled.try_recv(), Ok(Settled::GivenBack)));
        let (job, mut settled) = Job::for_test(envelope());
        job.finish(&envelope());
        assert!(matches!(settled.try_recv(), Ok(Settled::Done(_))));
        let (job, mut settled) = Job::for_test(envelope());
        job.fail("no judge");
        assert!(matches!(settled.try_recv(), Ok(Settled::Failed(reason)) if reason == "no judge"));
        let (job, mut settled) = Job::for_test(envelope());
        let panicked = std::thread::spawn(move || {
            let _job = job;
            panic!("a judge that panics");
        });
        assert!(panicked.join().is_err());
        assert!(matches!(settled.try_recv(), Ok(Settled::Failed(_))));
    }
}
