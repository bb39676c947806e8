//! Locks that a panic elsewhere does not break.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a panic: the guarded data changes in one step, or storage is marked as broken.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
