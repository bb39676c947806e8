//! Bus messages for clients that listen to the server: the latest ones, and those that follow. Pieces of answers are
//! omitted, and long texts are abridged, as in the event log.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hone_agents::Exchange;
use hone_bus::{Bus, Mailbox, Overload, Subscription};
use hone_memory::{EventFilter, MemoryStore};
use hone_protocol::{Envelope, OwnerId, QueryId, Subject};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::Shared;

/// The number of latest messages kept, and the number of messages that a client may leave unread.
const KEPT: usize = 1024;

/// How many messages may wait for the hub, which only abridges them.
const WAITING: usize = 16_384;

/// Decisions at the gates to long-term memory.
const CRITIC: [Subject; 5] = [
    Subject::CriticPassed,
    Subject::CriticBlocked,
    Subject::CriticAbstained,
    Subject::CriticReviewed,
    Subject::CriticOverridden,
];

/// Shutdown polling interval.
const LOOK: Duration = Duration::from_millis(500);

/// The latest messages of the bus.
pub(crate) struct Hub {
    state: Mutex<HubState>,
}

struct HubState {
    /// Oldest first.
    latest: VecDeque<Arc<Envelope>>,
    /// `None` once the server stops.
    sender: Option<broadcast::Sender<Arc<Envelope>>>,
}

impl HubState {
    fn latest_of(&self, owner: Option<OwnerId>) -> impl Iterator<Item = &Arc<Envelope>> {
        self.latest.iter().filter(move |envelope| envelope.owner == owner)
    }
}

/// The messages for a client: the latest ones, and those that follow without a gap.
pub(crate) struct Heard {
    /// The latest messages, oldest first.
    pub(crate) latest: Vec<Arc<Envelope>>,
    /// New messages; they end when the server stops, or if the client leaves too many unread.
    pub(crate) news: News,
}

/// New messages about an owner's questions.
pub(crate) struct News {
    owner: Option<OwnerId>,
    all: broadcast::Receiver<Arc<Envelope>>,
}

impl News {
    /// The next message.
    ///
    /// # Errors
    /// When the server stops, or messages were missed.
    pub(crate) async fn next(&mut self) -> Result<Arc<Envelope>, RecvError> {
        loop {
            let envelope = self.all.recv().await?;
            if envelope.owner == self.owner {
                return Ok(envelope);
            }
        }
    }
}

impl Hub {
    /// An empty hub.
    pub(crate) fn new() -> Hub {
        let sender = Some(broadcast::Sender::new(KEPT));
        Hub { state: Mutex::new(HubState { latest: VecDeque::new(), sender }) }
    }

    /// The mailbox that the hub listens to.
    pub(crate) fn mailbox(bus: &Bus) -> Mailbox {
        let subjects = Subject::ALL.iter().copied().filter(|subject| *subject != Subject::ResponseChunk).collect();
        let (name, overload) = ("hub".to_owned(), Overload::DropOldest);
        bus.subscribe(Subscription { name, subjects, sessions: None, capacity: WAITING, overload })
    }

    /// Listens until `stop` becomes true, which ends the clients' streams.
    pub(crate) async fn listen(&self, mailbox: Mailbox, mut stop: watch::Receiver<bool>) {
        let listening = async {
            while let Some(envelope) = poll_fn(|context| mailbox.poll_next(context)).await {
                self.take(Arc::new(envelope.abridged()));
            }
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            () = listening => {}
        }
        self.lock().sender = None;
    }

    /// The latest messages about an owner's questions, and those that follow; `None` once the server stops.
    pub(crate) fn hear(&self, owner: Option<OwnerId>) -> Option<Heard> {
        let state = self.lock();
        let news = state.sender.as_ref()?.subscribe();
        Some(Heard { latest: state.latest_of(owner).cloned().collect(), news: News { owner, all: news } })
    }

    /// The exchange about an owner's question, according to the latest messages.
    pub(crate) fn exchange(&self, owner: Option<OwnerId>, id: QueryId) -> Exchange {
        let mut exchange = Exchange::new(id);
        for envelope in self.lock().latest_of(owner) {
            exchange.take(envelope);
        }
        exchange
    }

    /// Tells clients about decisions at the gates to long-term memory, which separate processes write to memory's event
    /// log.
    pub(crate) fn follow_log(shared: Arc<Shared>, store: MemoryStore, stop: watch::Receiver<bool>) {
        let follow = move || {
            let filter = EventFilter { subjects: CRITIC.to_vec(), ..EventFilter::default() };
            let mut follower = None;
            while !*stop.borrow() {
                let following = match follower.take() {
                    Some(following) => Ok(following),
                    None => store.follow_events(&filter, None),
                };
                let heard = following.and_then(|mut following| Ok((following.next(LOOK)?, following)));
                match heard {
                    Ok((events, following)) => {
                        events.iter().for_each(|(_, envelope)| shared.hub.take(Arc::new(envelope.abridged())));
                        follower = Some(following);
                    }
                    // The process that owns the store may be gone; the next one answers.
                    Err(_) => thread::sleep(LOOK),
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("critic events".to_owned()).spawn(follow) {
            tracing::warn!(%error, "what the critic decides is not told to clients");
        }
    }

    fn take(&self, envelope: Arc<Envelope>) {
        let mut state = self.lock();
        if state.latest.len() == KEPT {
            state.latest.pop_front();
        }
        state.latest.push_back(Arc::clone(&envelope));
        // There may be no listeners.
        let _ = state.sender.as_ref().map(|sender| sender.send(envelope));
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
