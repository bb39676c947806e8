//! The sessions that a mailbox receives.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use hone_protocol::SessionId;

/// Called with each session of a set; returns whether it wants to hear of more.
pub(crate) type Listener = Box<dyn Fn(SessionId) -> bool + Send + Sync>;

/// The sessions that a mailbox receives. Clones share the set, so its owner can add to it at any time.
#[derive(Clone, Default)]
pub struct SessionSet {
    set: Arc<RwLock<Set>>,
}

#[derive(Default)]
struct Set {
    ids: HashSet<SessionId>,
    listeners: Vec<Listener>,
}

impl SessionSet {
    /// Adds a session, which may already be in the set.
    pub fn insert(&self, session: SessionId) {
        let mut set = self.set.write().unwrap_or_else(PoisonError::into_inner);
        if set.ids.insert(session) {
            set.listeners.retain(|listener| listener(session));
        }
    }

    /// All sessions, in any order.
    pub fn all(&self) -> Vec<SessionId> {
        self.set.read().unwrap_or_else(PoisonError::into_inner).ids.iter().copied().collect()
    }

    /// Tells a listener of all sessions, including those added later.
    pub(crate) fn listen(&self, listener: Listener) {
        let mut set = self.set.write().unwrap_or_else(PoisonError::into_inner);
        if set.ids.iter().all(|session| listener(*session)) {
            set.listeners.push(listener);
        }
    }
}

impl fmt::Debug for SessionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all()).finish()
    }
}
