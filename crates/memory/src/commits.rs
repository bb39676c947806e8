//! Group commit: concurrent writes share one flush.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::MemoryError;

/// The durability of writes.
#[derive(Default)]
pub(crate) struct Commits {
    state: Mutex<CommitState>,
    changed: Condvar,
}

#[derive(Default)]
struct CommitState {
    applied: u64,
    durable: u64,
    is_flushing: bool,
    failure: Option<MemoryError>,
}

impl Commits {
    /// Records that a write was applied; returns its number for [`Commits::wait`].
    pub(crate) fn applied(&self) -> u64 {
        let mut state = self.lock();
        state.applied += 1;
        state.applied
    }

    /// Waits until that write is durable. Flushes, unless another thread is flushing; writes that arrive during a flush
    /// share the next one.
    ///
    /// # Errors
    /// When a flush failed; nothing more becomes durable until storage is opened again.
    pub(crate) fn wait(&self, write: u64, flush: impl Fn() -> Result<(), MemoryError>) -> Result<(), MemoryError> {
        let mut state = self.lock();
        loop {
            if state.durable >= write {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.is_flushing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_flushing = true;
            let applied = state.applied;
            drop(state);
            let flushed = flush();
            state = self.lock();
            state.is_flushing = false;
            match flushed {
                Ok(()) => state.durable = state.durable.max(applied),
                Err(failure) => state.failure = Some(failure),
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
