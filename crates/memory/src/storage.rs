//! Storage of records: ordered keys and values, in a folder or in a database that several machines share.

mod damage;
pub(crate) mod log;
mod on_disk;
mod postgres;

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::ops::{Bound, RangeBounds};
use std::path::Path;

use hone_protocol::{EnvelopeId, QueryId, Timestamp};

use crate::error::MemoryError;
use crate::index::Neighbour;
use crate::records::{Head, Numbered, keys_of_all};
use crate::request::Vector;
use crate::words::WordMatch;

pub(crate) use on_disk::DiskStorage;
pub(crate) use postgres::{PostgresStorage, folder_name};

/// A key and its value, or the reason why they could not be read.
pub(crate) type Pair = Result<(Vec<u8>, Vec<u8>), MemoryError>;

/// A key and its new value; `None` to remove it.
type KeyChange = (Vec<u8>, Option<Vec<u8>>);

/// The pairs of a range. After an error the iterator ends.
pub(crate) type Pairs<'a> = Box<dyn Iterator<Item = Pair> + 'a>;

/// Records by their keys; [`crate::records`] lists their kinds.
pub(crate) trait Storage: Send + Sync {
    /// The value at `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MemoryError>;

    /// The values at keys of one kind, in their order.
    fn get_all(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, MemoryError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// The pairs of a range of keys of one kind.
    fn pairs(&self, range: KeyRange) -> Pairs<'_>;

    /// The events that name one of these answers; other events may be included.
    fn events_about(&self, ids: &[QueryId]) -> Pairs<'_> {
        pairs_with(self.pairs(KeyRange::of(keys_of_all(Numbered::Event.kind()))), ids.iter().map(QueryId::to_string))
    }

    /// The engrams that were made from others; other engrams may be included.
    fn notes(&self) -> Pairs<'_> {
        pairs_with(self.pairs(KeyRange::of(keys_of_all(b'e'))), ["\"sources\"".to_owned()])
    }

    /// Begins a write. No other write begins in any process before this one is applied or dropped.
    fn begin(&self) -> Result<Box<dyn Write + '_>, MemoryError>;

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// When it could not be written. Writes since the last flush may then be lost.
    fn flush(&self) -> Result<(), MemoryError>;

    /// Whether it has failed: its contents may differ from its replies, and it has to be reopened.
    fn is_broken(&self) -> bool;

    /// Marks it as failed, for failures that it does not notice itself.
    fn mark_broken(&self);

    /// Its size in bytes.
    fn n_bytes(&self) -> Result<u64, MemoryError>;

    /// Refuses a write of `n_bytes` that would leave less than the reserved space.
    ///
    /// # Errors
    /// When there is not enough room.
    fn check_room(&self, n_bytes: u64) -> Result<(), MemoryError>;

    /// Its additional abilities, if it is a database.
    fn database(&self) -> Option<&dyn Database> {
        None
    }
}

/// A listener, called with the number of an event; returns whether it wants to hear of more.
pub(crate) type Heard = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// A storage that other processes, on other machines, read and write at the same time.
pub(crate) trait Database: Send + Sync {
    /// The time of its clock, which all processes share.
    fn now(&self) -> Result<Timestamp, MemoryError>;

    /// The number of the event with this id.
    fn number_of_event(&self, id: EnvelopeId) -> Result<Option<u64>, MemoryError>;

    /// The ids among these under which events exist.
    fn known_events(&self, ids: &[String]) -> Result<HashSet<String>, MemoryError>;

    /// Durably appends an event as JSON and returns its number; an existing event keeps its number.
    fn append_event(&self, id: EnvelopeId, event: &[u8]) -> Result<u64, MemoryError>;

    /// The `n` nearest vectors of its model, nearest first; `None` if the database cannot compare vectors.
    fn nearest(&self, vector: &Vector, n: usize) -> Result<Option<Vec<Neighbour>>, MemoryError>;

    /// The `n` texts that match the question best, best first.
    fn best_by_words(&self, question: &str, n: usize) -> Result<Vec<WordMatch>, MemoryError>;

    /// Calls the listener that `heard` makes with the number of every event that a process appends, from another
    /// thread, until it returns `false`; does nothing if there is a listener already.
    fn on_events(&self, heard: &dyn Fn() -> Heard);
}

/// A write that has begun. Dropping it leaves everything as it was.
pub(crate) trait Write {
    /// The current head; `None` if only this process writes, which therefore knows it.
    fn head(&self) -> Option<Head>;

    /// Applies a batch; it is durable after the next [`Storage::flush`]. `texts` are the added and removed ones, by the
    /// sequence numbers of their engrams.
    ///
    /// # Errors
    /// When it cannot be written.
    fn apply(self: Box<Self>, batch: Batch, texts: &[(u64, Option<String>)]) -> Result<(), MemoryError>;
}

/// The pairs whose values contain one of these texts. Few do, and most need not be parsed to find out.
fn pairs_with<'a>(pairs: Pairs<'a>, texts: impl IntoIterator<Item = String>) -> Pairs<'a> {
    let texts: Vec<String> = texts.into_iter().collect();
    let has_one =
        move |value: &[u8]| std::str::from_utf8(value).is_ok_and(|value| texts.iter().any(|text| value.contains(text)));
    Box::new(pairs.filter(move |pair| pair.as_ref().map_or(true, |(_, value)| has_one(value))))
}

impl dyn Storage + '_ {
    /// The pairs of a range of keys of one kind, in order.
    pub(crate) fn range(&self, range: impl RangeBounds<Vec<u8>>) -> Pairs<'_> {
        self.pairs(KeyRange::of(range))
    }

    /// The pairs of a range of keys of one kind, in reverse order.
    pub(crate) fn range_back(&self, range: impl RangeBounds<Vec<u8>>) -> Pairs<'_> {
        self.pairs(KeyRange { is_reversed: true, ..KeyRange::of(range) })
    }

    /// The first pair of a range.
    pub(crate) fn first(&self, range: impl RangeBounds<Vec<u8>>) -> Option<Pair> {
        self.pairs(KeyRange { at_most: 1, ..KeyRange::of(range) }).next()
    }

    /// The last pair of a range.
    pub(crate) fn last(&self, range: impl RangeBounds<Vec<u8>>) -> Option<Pair> {
        self.pairs(KeyRange { at_most: 1, is_reversed: true, ..KeyRange::of(range) }).next()
    }
}

/// A range of keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub(crate) low: Bound<Vec<u8>>,
    pub(crate) high: Bound<Vec<u8>>,
    pub(crate) is_reversed: bool,
    pub(crate) at_most: usize,
}

impl KeyRange {
    fn of(range: impl RangeBounds<Vec<u8>>) -> KeyRange {
        let (low, high) = (range.start_bound().cloned(), range.end_bound().cloned());
        KeyRange { low, high, is_reversed: false, at_most: usize::MAX }
    }
}

/// Writes that are applied together or not at all. The last of several writes to one key counts.
#[derive(Default)]
pub(crate) struct Batch {
    writes: Vec<KeyChange>,
}

impl Batch {
    /// Sets the value at `key`.
    pub(crate) fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.writes.push((key, Some(value)));
    }

    /// Removes the value at `key`.
    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.writes.push((key, None));
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn n_bytes(&self) -> u64 {
        let bytes = |(key, value): &KeyChange| key.len() + value.as_ref().map_or(0, Vec::len);
        self.writes.iter().map(bytes).sum::<usize>() as u64
    }

    fn into_writes(self) -> Vec<KeyChange> {
        self.writes
    }
}

/// The error for a failed read or write in `folder`.
pub(crate) fn of_io(folder: &Path, error: &io::Error) -> MemoryError {
    let (folder, reason) = (folder.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            MemoryError::DiskFull { folder, reason }
        }
        _ => MemoryError::Storage { folder, reason },
    }
}

/// The error for files in `folder`, inside memory's folder, that cannot be parsed.
fn corrupted(folder: &Path, reason: &str) -> MemoryError {
    let folder = folder.parent().unwrap_or(folder).to_owned();
    MemoryError::Corrupted { folder, reason: reason.to_owned() }
}
