//! The backlog: pending work, and the processes that do it.

use std::time::Duration;

use hone_protocol::{HolderId, QueryId};

use super::{MemoryStore, unexpected};
use crate::backlog::{BacklogEntry, Lease, Wanted};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::request::{Reply, Request, Update};

impl MemoryStore {
    /// The answers with pending work, oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn backlog(&self) -> Result<Vec<BacklogEntry>, MemoryError> {
        expect!(self.ask(Request::Backlog), Reply::Backlog(entries) => entries)
    }

    /// Makes the grades of answers without a score due.
    ///
    /// # Errors
    /// When they cannot be written; missing engrams are only reported as such.
    pub fn make_due(&self, ids: &[QueryId]) -> Result<Vec<Update>, MemoryError> {
        expect!(self.ask(Request::MakeDue { ids: ids.to_vec() }), Reply::Updates(updates) => updates)
    }

    /// The answer of respondent A to the question that `b` answers too; `None` if it does not exist, or is not
    /// comparable.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn other_answer(&self, b: &Engram) -> Result<Option<Engram>, MemoryError> {
        let a = self.get(b.correlation_id)?.filter(|a| a.query_id != b.query_id);
        Ok(a.filter(|a| a.finish_reason.is_some() && !a.answer.trim().is_empty()))
    }

    pub(crate) fn claim(&self, holder: HolderId, wanted: Wanted) -> Result<Vec<Engram>, MemoryError> {
        let lease = self.lease_of(holder);
        expect!(self.ask(Request::Claim { lease, wanted }), Reply::Engrams(engrams) => engrams)
    }

    pub(crate) fn renew(&self, holder: HolderId) -> Result<u64, MemoryError> {
        let lease = self.lease_of(holder);
        expect!(self.ask(Request::Renew { lease }), Reply::Number(n_held) => n_held)
    }

    pub(crate) fn release(&self, holder: HolderId) -> Result<u64, MemoryError> {
        expect!(self.ask(Request::Release { holder }), Reply::Number(n_held) => n_held)
    }

    /// How long a claim lasts without renewal.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn lease_of(&self, holder: HolderId) -> Lease {
        Lease::new(holder, self.lease)
    }
}
