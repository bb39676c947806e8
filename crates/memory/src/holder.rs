//! A process's claims on the backlog, for as long as it lives.

use std::convert::Infallible;
use std::io;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use hone_protocol::{HolderId, QueryId};

use crate::backlog::Wanted;
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::store::MemoryStore;

/// The number of renewals within a lease.
const RENEWALS_PER_LEASE: u32 = 3;

/// A process's claims on the backlog. Dropping it frees all of them.
pub struct Holder {
    id: HolderId,
    store: MemoryStore,
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    /// Creates a holder without claims.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn new(store: &MemoryStore) -> io::Result<Holder> {
        let (id, renewing) = (HolderId::fresh(), store.clone());
        let (stop, stopped) = bounded::<Infallible>(0);
        let rest = store.lease() / RENEWALS_PER_LEASE;
        let renew = move || {
            while stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = renewing.renew(id) {
                    tracing::debug!(%error, "the lease on due answers is not renewed");
                }
            }
        };
        let thread = thread::Builder::new().name("memory-lease".to_owned()).spawn(renew)?;
        Ok(Holder { id, store: store.clone(), stop: Some(stop), thread: Some(thread) })
    }

    /// Its name.
    pub fn id(&self) -> HolderId {
        self.id
    }

    /// Claims the pending ones among these answers that no process works on.
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub fn claim(&self, ids: Vec<QueryId>) -> Result<Vec<Engram>, MemoryError> {
        self.store.claim(self.id, Wanted::These(ids))
    }

    /// Claims the next answer: among the free ones that with the fewest failures, the oldest first.
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub fn claim_next(&self) -> Result<Option<Engram>, MemoryError> {
        Ok(self.claim_up_to(1)?.pop())
    }

    /// Claims the next answers, at most this many, in the order of [`Holder::claim_next`].
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub fn claim_up_to(&self, n: usize) -> Result<Vec<Engram>, MemoryError> {
        self.store.claim(self.id, Wanted::Next(n))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
        if let Err(error) = self.store.release(self.id) {
            tracing::debug!(%error, "due answers are free once the lease on them has run out");
        }
    }
}
