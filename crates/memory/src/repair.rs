//! Repair: rebuilds a damaged store from everything that can still be read.
//!
//! The old files are only read. The recoverable data is written into a new store next to them. Once that is complete,
//! the old store is moved aside under a dated name and the new one takes its place. An interrupted repair has either
//! changed nothing or is finished when memory is next opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hone_protocol::QueryId;
use serde::Serialize;

use crate::backup;
use crate::due::DueList;
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::files::STORAGE_FOLDER;
use crate::fresh_store;
use crate::local::Local;
use crate::options::MemoryOptions;
use crate::salvage::{Salvage, Source};
use crate::sharing::while_alone;
use crate::storage::log;

/// The result of a repair.
#[derive(Debug, Serialize)]
pub struct Repaired {
    /// Whether memory was undamaged, so that nothing was changed.
    pub was_whole: bool,
    /// Answers in memory now.
    pub answers: u64,
    /// The number of answers from each source.
    pub sources: BTreeMap<Source, u64>,
    /// Vectors that were saved; missing ones are computed again over time.
    pub vectors: u64,
    /// Events in the log now.
    pub events: u64,
    /// Answers that were in memory once and could not be saved.
    pub lost: Vec<QueryId>,
    /// Places in the old store that could not be read.
    pub damaged_places: u64,
    /// Backups that could not be read.
    pub bad_backups: u64,
    /// Requests on the due list, which are applied when memory is next opened.
    pub due: u64,
    /// The path of the old store now.
    pub old_store: Option<PathBuf>,
}

/// Repairs the memory in `folder`. `elsewhere` holds the caller's own copies of answers that may be missing.
///
/// # Errors
/// [`MemoryError::Held`] if a process has memory open; otherwise when the new store cannot be written.
pub fn repair(folder: &Path, options: &MemoryOptions, elsewhere: &[Engram]) -> Result<Repaired, MemoryError> {
    while_alone(folder, || {
        fresh_store::finish_interrupted(folder)?;
        let due = DueList::new(folder).files().map_or(0, |files| files.len() as u64);
        let (salvage, lost, damaged_places, bad_backups) = collect(folder, elsewhere);
        if damaged_places == 0
            && salvage.is_all_stored()
            && let Some(whole) = look_at_whole(folder, options)
        {
            return Ok(Repaired { due, bad_backups, ..whole });
        }
        let vectors = write_fresh(folder, options, &salvage).map_err(|error| in_folder(folder, error))?;
        let old_store = fresh_store::put_in_place(folder)?;
        let mut sources = BTreeMap::new();
        salvage.engrams.values().for_each(|(source, _)| *sources.entry(*source).or_default() += 1);
        let (answers, events) = (salvage.engrams.len() as u64, salvage.events.len() as u64);
        let was_whole = false;
        Ok(Repaired { was_whole, answers, sources, vectors, events, lost, damaged_places, bad_backups, due, old_store })
    })
}

/// Opens a memory whose log is intact, and returns its contents if they are consistent.
fn look_at_whole(folder: &Path, options: &MemoryOptions) -> Option<Repaired> {
    let local = Local::closed(folder, options.clone());
    let (statistics, verification) = local.look().ok()?;
    verification.problems.is_empty().then(|| Repaired {
        was_whole: true,
        answers: verification.engrams,
        sources: BTreeMap::from([(Source::Storage, verification.engrams)]),
        vectors: verification.vectors,
        events: statistics.events,
        lost: Vec::new(),
        damaged_places: 0,
        bad_backups: 0,
        due: 0,
        old_store: None,
    })
}

/// The recoverable data, the lost answers, and the numbers of unreadable places in the old log and unreadable backups.
fn collect(folder: &Path, elsewhere: &[Engram]) -> (Salvage, Vec<QueryId>, u64, u64) {
    let (mut salvage, mut n_bad) = (Salvage::default(), 0);
    let log = log::read(&folder.join(STORAGE_FOLDER));
    // A log that cannot be read at all counts as one place.
    let (is_log_lost, n_damaged) = (log.is_err(), log.as_ref().map_or(1, |content| content.n_damaged));
    log.into_iter().for_each(|content| salvage.add_log(content));
    for file in backup::files(folder).unwrap_or_default() {
        match backup::read(&file) {
            Ok(backup) => salvage.add_backup(backup),
            Err(reason) => {
                tracing::warn!(file = %file.display(), reason, "a backup was skipped");
                n_bad += 1;
            }
        }
    }
    salvage.add_what_events_say();
    // Not every answer was meant to be remembered.
    let is_wanted = |engram: &&Engram| is_log_lost || salvage.knows(engram.query_id);
    let wanted: Vec<&Engram> = elsewhere.iter().filter(is_wanted).collect();
    wanted.into_iter().for_each(|engram| salvage.add_from_elsewhere(engram));
    let lost = salvage.settle();
    (salvage, lost, n_damaged, n_bad)
}

/// Writes the new store; returns the number of its vectors.
fn write_fresh(folder: &Path, options: &MemoryOptions, salvage: &Salvage) -> Result<u64, MemoryError> {
    let fresh = fresh_store::begin(folder)?;
    let vectors = Local::closed(&fresh, options.clone()).restore(salvage)?;
    fresh_store::complete(folder)?;
    Ok(vectors)
}

/// Reports an error in the new store's folder as one in memory's folder.
fn in_folder(folder: &Path, error: MemoryError) -> MemoryError {
    match error {
        MemoryError::DiskFull { reason, .. } => MemoryError::DiskFull { folder: folder.to_owned(), reason },
        other => other,
    }
}
