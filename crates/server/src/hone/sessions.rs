//! The sessions of conversations that are held through the page: as in the terminal, a conversation is one session.
//!
//! An asker that is dropped closes its session, and with it what its answers wait for. So the askers of conversations
//! stay for a while, and only the one that was not used for longest goes when there are too many.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_agents::Asker;
use hone_protocol::{OwnerId, SessionId};
use tokio::sync::Notify;

use super::progress::Progress;

/// Conversations whose sessions stay open.
const MOST_OPEN: usize = 32;

/// A conversation: whose it is, and its name.
pub(super) type Place = (Option<OwnerId>, String);

/// The sessions, by their conversations.
#[derive(Default)]
pub(crate) struct Sessions {
    state: Mutex<SessionsState>,
}

#[derive(Default)]
struct SessionsState {
    /// Those in which nothing is being asked, the one used last at the end.
    idle: VecDeque<(Place, Session)>,
    /// Those in which a question is being answered.
    busy: HashMap<Place, Busy>,
}

/// What others do with an answer in progress.
struct Busy {
    /// Stops it.
    stop: Arc<Notify>,
    progress: Arc<Progress>,
}

/// A session and the client that asks in it.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) asker: Asker,
}

/// The right to ask in a conversation, which one question has at a time. Dropping it lets the next one ask.
pub(super) struct Turn {
    sessions: Arc<Sessions>,
    place: Place,
    /// Notified if the answer should stop.
    pub(super) stop: Arc<Notify>,
    /// What pages are told of the answer.
    pub(super) progress: Arc<Progress>,
}

impl Sessions {
    /// The right to ask in a conversation, and its session if that is open; `None` if a question is being answered.
    pub(super) fn begin(self: &Arc<Self>, place: &Place) -> Option<(Turn, Option<Session>)> {
        let mut state = self.lock();
        if state.busy.contains_key(place) {
            return None;
        }
        let (stop, progress) = (Arc::new(Notify::new()), Progress::new());
        state.busy.insert(place.clone(), Busy { stop: Arc::clone(&stop), progress: Arc::clone(&progress) });
        let index = state.idle.iter().position(|(other, _)| other == place);
        let session = index.and_then(|index| state.idle.remove(index)).map(|(_, session)| session);
        Some((Turn { sessions: Arc::clone(self), place: place.clone(), stop, progress }, session))
    }

    /// Stops the answer in a conversation; returns whether there was one.
    pub(super) fn stop(&self, place: &Place) -> bool {
        let state = self.lock();
        state.busy.get(place).inspect(|busy| busy.stop.notify_one()).is_some()
    }

    /// The answer in progress in a conversation.
    pub(super) fn progress(&self, place: &Place) -> Option<Arc<Progress>> {
        self.lock().busy.get(place).map(|busy| Arc::clone(&busy.progress))
    }

    /// Stops the answers in all conversations.
    pub(crate) fn stop_all(&self) {
        self.lock().busy.values().for_each(|busy| busy.stop.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, SessionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The conversation.
    pub(super) fn name(&self) -> &str {
        &self.place.1
    }

    /// Keeps the session for the next question.
    pub(super) fn keep(self, session: Session) {
        let mut state = self.sessions.lock();
        state.idle.push_back((self.place.clone(), session));
        let closed = if state.idle.len() > MOST_OPEN { state.idle.pop_front() } else { None };
        // Closing a session publishes, which must not happen under the lock.
        drop(state);
        drop(closed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.sessions.lock().busy.remove(&self.place);
        self.progress.end();
    }
}
