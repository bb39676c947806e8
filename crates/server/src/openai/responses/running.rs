//! Responses in progress, for clients that view or cancel them meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_protocol::{OwnerId, QueryId};
use serde_json::Value;
use tokio::sync::Notify;

use super::draft::Draft;

/// A response in progress.
pub(super) struct Running {
    draft: Mutex<Draft>,
    /// Notified when the client no longer wants the response.
    pub(super) cancelled: Notify,
}

impl Running {
    /// The response in its current state.
    pub(super) fn draft(&self) -> MutexGuard<'_, Draft> {
        lock(&self.draft)
    }
}

/// A response and its owner.
pub(super) type OwnedId = (Option<OwnerId>, QueryId);

/// The responses in progress.
#[derive(Default)]
pub(crate) struct RunningResponses(Mutex<HashMap<OwnedId, Arc<Running>>>);

impl RunningResponses {
    /// Adds a response.
    pub(super) fn add(&self, id: OwnedId, draft: Draft) -> Arc<Running> {
        let running = Arc::new(Running { draft: Mutex::new(draft), cancelled: Notify::new() });
        lock(&self.0).insert(id, Arc::clone(&running));
        running
    }

    /// Removes a response.
    pub(super) fn remove(&self, id: OwnedId) {
        lock(&self.0).remove(&id);
    }

    /// A response in its current state.
    pub(super) fn object(&self, id: OwnedId) -> Option<Value> {
        self.get(id).map(|running| running.draft().object())
    }

    /// Cancels a response; returns it in its current state.
    pub(super) fn cancel(&self, id: OwnedId) -> Option<Value> {
        let running = self.get(id)?;
        let object = {
            let mut draft = running.draft();
            draft.cancel();
            draft.object()
        };
        running.cancelled.notify_one();
        Some(object)
    }

    fn get(&self, id: OwnedId) -> Option<Arc<Running>> {
        lock(&self.0).get(&id).cloned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
