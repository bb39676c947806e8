//! The sessions of the page's conversations: as in the terminal, a conversation is one session.
//!
//! Dropping an asker closes its session, and cancels everything that its answers still wait for. So the askers of
//! conversations are kept for a while; if there are too many, the least recently used one is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hone_agents::Asker;
use hone_protocol::{OwnerId, SessionId};
use serde_json::Value;
use tokio::sync::Notify;

use super::answer_log::AnswerLog;

/// Maximum number of conversations with an open session.
const MOST_OPEN: usize = 32;

/// Maximum number of finished answers that can still be followed.
const MOST_ENDED: usize = 16;

/// How long the end of a stopped answer is waited for.
const LONGEST_STOP: Duration = Duration::from_secs(5);

/// A conversation: its owner and its name.
pub(super) type Place = (Option<OwnerId>, String);

/// The sessions, by conversation.
#[derive(Default)]
pub(crate) struct Sessions {
    state: Mutex<SessionsState>,
}

#[derive(Default)]
struct SessionsState {
    /// Sessions without a question in progress, the most recently used one last.
    idle: VecDeque<(Place, Session)>,
    /// Sessions in which a question is being answered.
    busy: HashMap<Place, Busy>,
    /// The events of the latest answers, for pages that lost the connection before the end; the latest answer is last.
    ended: VecDeque<(Place, Arc<AnswerLog>)>,
}

/// Access to an answer in progress.
struct Busy {
    /// Stops the answer.
    stop: Arc<Notify>,
    log: Arc<AnswerLog>,
}

/// A session and the client that asks in it.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) asker: Asker,
}

/// The right to ask in a conversation, held by one question at a time. Dropping it lets the next one ask.
pub(super) struct Turn {
    sessions: Arc<Sessions>,
    place: Place,
    /// Notified if the answer should stop.
    pub(super) stop: Arc<Notify>,
    /// The answer's events for pages.
    pub(super) log: Arc<AnswerLog>,
}

impl Sessions {
    /// The right to ask in a conversation, and its open session, if any; `None` if a question is being answered.
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

    /// Stops the answer in a conversation, and waits for its end, for a while.
    pub(super) async fn end(&self, place: &Place) {
        let stopped = self.lock().busy.get(place).map(|busy| {
            busy.stop.notify_one();
            Arc::clone(&busy.log)
        });
        if let Some(log) = stopped {
            // If it does not end in time, the conversation is still busy.
            let _ = tokio::time::timeout(LONGEST_STOP, log.ended()).await;
        }
    }

    /// Whether a question is being answered in a conversation.
    pub(super) fn is_answering(&self, place: &Place) -> bool {
        self.lock().busy.get(place).is_some_and(|busy| busy.log.has_begun())
    }

    /// The events of the answer in progress in a conversation, or of its last one.
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
    /// The conversation's name.
    pub(super) fn name(&self) -> &str {
        &self.place.1
    }

    /// Ends the answer: the next question may be asked, pages get the last event, and the session is kept.
    pub(super) fn end(self, told: Value, session: Session) {
        let mut state = self.sessions.lock();
        state.busy.remove(&self.place);
        state.ended.push_back((self.place.clone(), Arc::clone(&self.log)));
        if state.ended.len() > MOST_ENDED {
            state.ended.pop_front();
        }
        drop(state);
        self.keep(session);
        self.log.tell(&told);
        self.log.end();
    }

    /// Keeps the session for the next question.
    fn keep(&self, session: Session) {
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
        // After the end, the place may be another question's.
        if state.busy.get(&self.place).is_some_and(|busy| Arc::ptr_eq(&busy.log, &self.log)) {
            state.busy.remove(&self.place);
        }
        drop(state);
        self.log.end();
    }
}
