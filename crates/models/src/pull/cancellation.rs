//! Cancellation of a pull that is no longer wanted.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::TransferError;

/// The polling interval for cancellation during a wait.
const LOOK: Duration = Duration::from_millis(50);

/// Ends a pull from another thread. Clones share it. Downloaded bytes stay, and the next pull resumes.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl PartialEq for Cancellation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cancellation {}

impl From<Arc<AtomicBool>> for Cancellation {
    /// The pull ends once the flag is set.
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

impl Cancellation {
    /// Ends the pull.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once it is cancelled.
    pub(crate) fn check(&self) -> Result<(), TransferError> {
        if self.is_cancelled() { Err(TransferError::Cancelled) } else { Ok(()) }
    }

    /// Sleeps for `time`, or until it is cancelled.
    pub(crate) fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_cancelled() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

/// Reads until it is cancelled.
pub(crate) struct CancellableReader<'a, R> {
    pub(crate) reader: R,
    pub(crate) cancellation: &'a Cancellation,
}

impl<R: Read> Read for CancellableReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.cancellation.is_cancelled() {
            true => Err(io::Error::other("the download was cancelled")),
            false => self.reader.read(buffer),
        }
    }
}
