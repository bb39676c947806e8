//! Writes that come at the same time share one flush.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::MemoryError;

/// Which writes are durable.
#[derive(Default)]
pub(crate) struct Commits {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    applied: u64,
    durable: u64,
    somebody_flushes: bool,
    failure: Option<MemoryError>,
}

impl Commits {
    /// Notes that a write was applied; the number is what to wait for.
    pub(crate) fn applied(&self) -> u64 {
        let mut state = self.lock();
        state.applied += 1;
        state.applied
    }

    /// Waits until that write is durable: flushes, unless somebody does and it may be waited for. While one flush runs, the
    /// writes that come wait for the next one, which is theirs together.
    ///
    /// # Errors
    /// When a flush failed; then nothing is durable any more until storage is opened again.
    pub(crate) fn wait(&self, write: u64, flush: impl Fn() -> Result<(), MemoryError>) -> Result<(), MemoryError> {
        let mut state = self.lock();
        loop {
            if state.durable >= write {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.somebody_flushes {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.somebody_flushes = true;
            let applied = state.applied;
            drop(state);
            let flushed = flush();
            state = self.lock();
            state.somebody_flushes = false;
            match flushed {
                Ok(()) => state.durable = state.durable.max(applied),
                Err(failure) => state.failure = Some(failure),
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
