//! The sessions of conversations that are held through the page: as in the terminal, a conversation is one session.
//!
//! An asker that is dropped closes its session, and with it what its answers wait for. So the askers of conversations
//! stay for a while, and only the one that was not used for longest goes when there are too many.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_agents::Asker;
use hone_protocol::{OwnerId, SessionId};
use serde_json::Value;
use tokio::sync::Notify;

use super::answer_log::AnswerLog;

/// Conversations whose sessions stay open.
const MOST_OPEN: usize = 32;

/// Answers that have ended and can still be followed.
const MOST_ENDED: usize = 16;

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
    /// What was told of the latest answers, for pages that lost the connection before the end; the latest at the end.
    ended: VecDeque<(Place, Arc<AnswerLog>)>,
}

/// What others do with an answer in progress.
struct Busy {
    /// Stops it.
    stop: Arc<Notify>,
    log: Arc<AnswerLog>,
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
    pub(super) log: Arc<AnswerLog>,
}

impl Sessions {
    /// The right to ask in a conversation, and its session if that is open; `None` if a question is being answered.
    pub(super) fn begin(self: &Arc<Self>, place: &Place) -> Option<(Turn, Option<Session>)> {
        let mut state = self.lock();
        if state.busy.contains_key(place) {
            return None;
        }
        let (stop, log) = (Arc::new(Notify::new()), AnswerLog::new());
        state.ended.retain(|(other, _)| other != place);
        state.busy.insert(place.clone(), Busy { stop: Arc::clone(&stop), log: Arc::clone(&log) });
        let index = state.idle.iter().position(|(other, _)| other == place);
        let session = index.and_then(|index| state.idle.remove(index)).map(|(_, session)| session);
        Some((Turn { sessions: Arc::clone(self), place: place.clone(), stop, log }, session))
    }

    /// Stops the answer in a conversation; returns whether there was one.
    pub(super) fn stop(&self, place: &Place) -> bool {
        let state = self.lock();
        state.busy.get(place).inspect(|busy| busy.stop.notify_one()).is_some()
    }

    /// Whether a question is being answered in a conversation.
    pub(super) fn is_answering(&self, place: &Place) -> bool {
        self.lock().busy.get(place).is_some_and(|busy| busy.log.has_begun())
    }

    /// What is told of the answer in progress in a conversation, or was told of its last one.
    pub(super) fn answer_log(&self, place: &Place) -> Option<Arc<AnswerLog>> {
        let state = self.lock();
        let busy = state.busy.get(place).map(|busy| &busy.log);
        let ended = || state.ended.iter().find(|(other, _)| other == place).map(|(_, log)| log);
        busy.or_else(ended).filter(|log| log.has_begun()).map(Arc::clone)
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

    /// Ends the answer: the next question may be asked, pages are told how it ended, and the session is kept for it.
    pub(super) fn end(self, told: Value, session: Session) {
        let mut state = self.sessions.lock();
        state.busy.remove(&self.place);
        state.ended.push_back((self.place.clone(), Arc::clone(&self.log)));
        if state.ended.len() > MOST_ENDED {
            state.ended.pop_front();
        }
        drop(state);
        self.log.tell(&told);
        self.log.end();
        self.keep(session);
    }

    /// Keeps the session for the next question.
    fn keep(self, session: Session) {
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
        let mut state = self.sessions.lock();
        // Once it has ended, the place may be another question's.
        if state.busy.get(&self.place).is_some_and(|busy| Arc::ptr_eq(&busy.log, &self.log)) {
            state.busy.remove(&self.place);
        }
        drop(state);
        self.log.end();
    }
}
