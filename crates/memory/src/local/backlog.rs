//! The backlog in storage: a record for every engram with pending work, and the leases of the processes that work on
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use hone_protocol::{HolderId, QueryId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::opened::{Draft, Opened, now_of};
use crate::backlog::{BacklogEntry, Due, Lease, Wanted, is_in_force};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::judged::due_in;
use crate::records::{Numbered, from_json, keys_of_all, lease_key, sequence_of, to_json};
use crate::request::Update;
use crate::storage::Pair;

/// A record of the backlog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Filed {
    /// The engram.
    pub(super) id: QueryId,
    /// The number of failed attempts to judge it.
    failures: u32,
    /// The process that works on it, or did so when it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<HolderId>,
}

/// The process that works on an engram's pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    Free,
    By(Lease),
    AsBefore,
}

impl From<Option<Lease>> for Holding {
    fn from(lease: Option<Lease>) -> Self {
        lease.map_or(Holding::Free, Holding::By)
    }
}

/// The end of a lease, and its original length.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Term {
    until: Timestamp,
    milliseconds: u64,
}

impl Opened {
    /// All pending work, oldest answer first.
    pub(super) fn backlog(&self) -> Result<Vec<BacklogEntry>, MemoryError> {
        let mut leases = Leases::new(self)?;
        let read = |record: Pair| from_json::<Filed>("a record of the backlog", &record?.1);
        let filed = self.storage.range(keys_of_all(b'd')).map(read).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<QueryId> = filed.iter().map(|filed| filed.id).collect();
        let mut entries = Vec::new();
        for (filed, engram) in filed.into_iter().zip(self.get_all(&ids)?) {
            // Engrams removed in the meantime are left out.
            let Some(Engram { query_id, owner, at, due: Some(due), .. }) = engram else { continue };
            entries.push(BacklogEntry { query_id, owner, at, due, is_held: leases.hold(filed.holder)? });
        }
        Ok(entries)
    }

    /// Gives wanted answers that no process works on to the holder of this lease, and returns them.
    pub(super) fn claim(&self, lease: Lease, wanted: &Wanted) -> Result<Vec<Engram>, MemoryError> {
        self.write(|draft| {
            let mut leases = Leases::new(self)?;
            let mut free = Vec::new();
            for record in self.storage.range(keys_of_all(b'd')) {
                let (key, bytes) = record?;
                let filed: Filed = from_json("a record of the backlog", &bytes)?;
                let is_wanted = match wanted {
                    Wanted::These(ids) => ids.contains(&filed.id),
                    Wanted::Next(_) => true,
                };
                if is_wanted && !leases.hold(filed.holder)? {
                    free.push((filed.failures, key, filed));
                }
            }
            free.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
            let n_wanted = match wanted {
                Wanted::These(_) => free.len(),
                Wanted::Next(n) => *n,
            };
            let mut claimed = Vec::new();
            for (_, key, filed) in free {
                if claimed.len() == n_wanted {
                    break;
                }
                match self.get(filed.id)?.filter(|engram| engram.due.is_some()) {
                    Some(engram) => {
                        let filed = Filed { holder: Some(lease.holder), ..filed };
                        draft.batch.insert(key, to_json("a record of the backlog", &filed)?);
                        claimed.push(engram);
                    }
                    // An earlier version without a backlog has removed or graded it.
                    None => draft.batch.remove(key),
                }
            }
            if !claimed.is_empty() {
                draft.extend(lease)?;
            }
            Ok(claimed)
        })
    }

    /// Extends a lease with claims; returns the number of answers.
    pub(super) fn renew(&self, lease: Lease) -> Result<u64, MemoryError> {
        let n_held = self.held_by(lease.holder)?.len() as u64;
        if n_held > 0 {
            self.write(|draft| draft.extend(lease))?;
        }
        Ok(n_held)
    }

    /// Frees all claims of a holder and ends its lease; returns the number of answers.
    pub(super) fn release(&self, holder: HolderId) -> Result<u64, MemoryError> {
        self.write(|draft| {
            let held = self.held_by(holder)?;
            for (key, filed) in &held {
                let filed = Filed { holder: None, ..filed.clone() };
                draft.batch.insert(key.clone(), to_json("a record of the backlog", &filed)?);
            }
            if self.storage.get(&lease_key(holder))?.is_some() {
                draft.batch.remove(lease_key(holder));
            }
            Ok(held.len() as u64)
        })
    }

    /// Makes the grades of these answers due, unless they have one.
    pub(super) fn make_due(&self, ids: &[QueryId]) -> Result<Vec<Update>, MemoryError> {
        self.write(|draft| ids.iter().map(|id| draft.make_due(*id)).collect())
    }

    /// Whether an engram's pending work is filed.
    pub(super) fn is_filed(&self, engram: &Engram) -> Result<bool, MemoryError> {
        if engram.due.is_none() {
            return Ok(true);
        }
        let bytes = self.storage.get(&Numbered::Due.key(engram.sequence))?;
        let filed: Option<Filed> = bytes.map(|bytes| from_json("a record of the backlog", &bytes)).transpose()?;
        Ok(filed.is_some_and(|filed| filed.id == engram.query_id))
    }

    /// The records that a process holds, or held.
    fn held_by(&self, holder: HolderId) -> Result<Vec<(Vec<u8>, Filed)>, MemoryError> {
        let mut held = Vec::new();
        for record in self.storage.range(keys_of_all(b'd')) {
            let (key, bytes) = record?;
            let filed: Filed = from_json("a record of the backlog", &bytes)?;
            held.extend(Some((key, filed)).filter(|(_, filed)| filed.holder == Some(holder)));
        }
        Ok(held)
    }
}

impl Draft<'_> {
    /// Files the pending work in an engram's fields; removes the record if none is left.
    pub(super) fn file(
        &mut self,
        id: QueryId,
        fields: &Map<String, Value>,
        holding: Holding,
    ) -> Result<(), MemoryError> {
        let key = Numbered::Due.key(sequence_of(fields)?);
        let before = self.storage.get(&key)?;
        let Some(Due { failures, .. }) = due_in(fields) else {
            before.is_some().then(|| self.batch.remove(key));
            return Ok(());
        };
        let holder = match (holding, before) {
            (Holding::By(lease), _) => {
                self.extend(lease)?;
                Some(lease.holder)
            }
            (Holding::AsBefore, Some(bytes)) => from_json::<Filed>("a record of the backlog", &bytes)?.holder,
            (Holding::AsBefore, None) | (Holding::Free, _) => None,
        };
        self.batch.insert(key, to_json("a record of the backlog", &Filed { id, failures, holder })?);
        Ok(())
    }

    fn make_due(&mut self, id: QueryId) -> Result<Update, MemoryError> {
        let Some(mut stored) = self.fields(id)? else { return Ok(Update::Missing) };
        let due = due_in(&stored).unwrap_or_default();
        let is_scored = stored.get("critic_score").is_some_and(|score| !score.is_null());
        if !is_scored && !due.grade {
            stored.extend(Due { grade: true, comparison: due.comparison, ..Due::default() }.into_fields());
            self.put(id, &stored)?;
            self.file(id, &stored, Holding::Free)?;
        }
        Ok(Update::Merged)
    }

    fn extend(&mut self, lease: Lease) -> Result<(), MemoryError> {
        let Lease { holder, milliseconds } = lease;
        let until = Timestamp(now_of(self.storage)?.0.saturating_add(milliseconds));
        self.batch.insert(lease_key(holder), to_json("a lease", &Term { until, milliseconds })?);
        Ok(())
    }
}

/// The leases in force, each looked up once.
struct Leases<'a> {
    opened: &'a Opened,
    now: Timestamp,
    known: BTreeMap<HolderId, bool>,
}

impl Leases<'_> {
    fn new(opened: &Opened) -> Result<Leases<'_>, MemoryError> {
        Ok(Leases { opened, now: opened.now()?, known: BTreeMap::new() })
    }

    /// Whether there is a holder whose lease is in force.
    fn hold(&mut self, holder: Option<HolderId>) -> Result<bool, MemoryError> {
        let Some(holder) = holder else { return Ok(false) };
        if let Some(known) = self.known.get(&holder) {
            return Ok(*known);
        }
        let bytes = self.opened.storage.get(&lease_key(holder))?;
        let term: Option<Term> = bytes.map(|bytes| from_json("a lease", &bytes)).transpose()?;
        let is_alive =
            term.is_some_and(|term| is_in_force(term.until, Duration::from_millis(term.milliseconds), self.now));
        self.known.insert(holder, is_alive);
        Ok(is_alive)
    }
}
