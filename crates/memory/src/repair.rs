//! Repair: a store that is damaged is put together anew, from all that can still be read of it.
//!
//! The old files are only read. What was saved is written into a fresh store beside them; when that is whole, the old one is
//! moved aside under a dated name and the fresh one takes its place. A repair that is interrupted has changed nothing, or is
//! finished when memory is next opened.

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

/// What a repair has come to.
#[derive(Debug, Serialize)]
pub struct Repaired {
    /// Whether nothing was damaged, and nothing was changed.
    pub was_whole: bool,
    /// Answers that are remembered now.
    pub answers: u64,
    /// How many of them were found where.
    pub sources: BTreeMap<Source, u64>,
    /// Vectors that were saved; the others are made again by and by.
    pub vectors: u64,
    /// Events that are in the log now.
    pub events: u64,
    /// Answers that were remembered once and could not be saved.
    pub lost: Vec<QueryId>,
    /// Places in the old store that could not be read.
    pub damaged_places: u64,
    /// Backups that could not be read.
    pub bad_backups: u64,
    /// Requests that are due, and taken in when memory is next opened.
    pub due: u64,
    /// Where the old store was moved to.
    pub old_store: Option<PathBuf>,
}

/// Repairs the memory in `folder`. `elsewhere` is what the caller knows of answers that may be missing.
///
/// # Errors
/// [`MemoryError::Held`] where a process has the folder open; otherwise when the fresh store cannot be written.
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

/// Opens memory whose log is whole, and says what is in it if that agrees with itself.
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

/// What can be saved, what cannot, in how many places the old log cannot be read, and how many backups cannot.
fn collect(folder: &Path, elsewhere: &[Engram]) -> (Salvage, Vec<QueryId>, u64, u64) {
    let (mut salvage, mut n_bad) = (Salvage::default(), 0);
    let log = log::read(&folder.join(STORAGE_FOLDER));
    // A log that cannot be read at all is one place.
    let (is_log_lost, n_damaged) = (log.is_err(), log.as_ref().map_or(1, |content| content.n_damaged));
    log.into_iter().for_each(|content| salvage.add_log(content));
    for file in backup::files(folder).unwrap_or_default() {
        match backup::read(&file) {
            Ok(backup) => salvage.add_backup(backup),
            Err(reason) => {
                tracing::warn!(file = %file.display(), reason, "a backup is left out");
                n_bad += 1;
            }
        }
    }
    salvage.add_what_events_say();
    // Not all that was said was to be remembered.
    let is_wanted = |engram: &&Engram| is_log_lost || salvage.knows(engram.query_id);
    let wanted: Vec<&Engram> = elsewhere.iter().filter(is_wanted).collect();
    wanted.into_iter().for_each(|engram| salvage.add_from_elsewhere(engram));
    let lost = salvage.settle();
    (salvage, lost, n_damaged, n_bad)
}

/// Writes the fresh store; gives the number of its vectors.
fn write_fresh(folder: &Path, options: &MemoryOptions, salvage: &Salvage) -> Result<u64, MemoryError> {
    let fresh = fresh_store::begin(folder)?;
    let vectors = Local::closed(&fresh, options.clone()).restore(salvage)?;
    fresh_store::complete(folder)?;
    Ok(vectors)
}

/// What went wrong in the folder of the fresh store went wrong in memory's.
fn in_folder(folder: &Path, error: MemoryError) -> MemoryError {
    match error {
        MemoryError::DiskFull { reason, .. } => MemoryError::DiskFull { folder: folder.to_owned(), reason },
        other => other,
    }
}
