//! A new store is written next to the damaged one, and replaces it once it is complete.
//!
//! If the process is killed meanwhile, either nothing has changed, or the next process that opens memory finishes the
//! exchange.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hone_files::{create_private_folder, sync_folder};
use hone_protocol::Timestamp;
use time::OffsetDateTime;

use crate::error::MemoryError;
use crate::files::{INDEX_FILE, Purpose, STORAGE_FOLDER, write_file};
use crate::storage::of_io;

/// The folder of the new store while it is being written, inside memory's folder.
const FRESH_FOLDER: &str = "repairing";

/// The file that marks a new store as complete.
const COMPLETE: &str = "complete";

/// Creates the folder of a new store and returns it; removes the leftovers of an interrupted repair.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn begin(folder: &Path) -> Result<PathBuf, MemoryError> {
    let fresh = folder.join(FRESH_FOLDER);
    let removed = if fresh.exists() { fs::remove_dir_all(&fresh) } else { Ok(()) };
    removed.and_then(|()| create_private_folder(&fresh)).map_err(|error| of_io(folder, &error))?;
    Ok(fresh)
}

/// Marks the new store as complete.
///
/// # Errors
/// When the mark cannot be written.
pub(crate) fn complete(folder: &Path) -> Result<(), MemoryError> {
    let note = folder.join(FRESH_FOLDER).join(COMPLETE);
    write_file(&note, Purpose::Owner, b"").map_err(|error| of_io(folder, &error))
}

/// Moves the old store aside and the new one into its place; returns the old one's path.
///
/// # Errors
/// When a file cannot be moved.
pub(crate) fn put_in_place(folder: &Path) -> Result<Option<PathBuf>, MemoryError> {
    exchange(folder).map_err(|error| of_io(folder, &error))
}

fn exchange(folder: &Path) -> io::Result<Option<PathBuf>> {
    let store = folder.join(STORAGE_FOLDER);
    let old = store.exists().then(|| folder.join(dated_name(Timestamp::now())));
    if let Some(old) = &old {
        fs::rename(&store, old)?;
        sync_folder(folder)?;
    }
    finish_fresh(folder)?;
    Ok(old)
}

/// Finishes a repair whose process was killed after it moved the old store aside.
///
/// # Errors
/// When a file cannot be moved.
pub(crate) fn finish_interrupted(folder: &Path) -> Result<(), MemoryError> {
    let is_complete = folder.join(FRESH_FOLDER).join(COMPLETE).exists();
    if is_complete && !folder.join(STORAGE_FOLDER).exists() {
        finish_fresh(folder).map_err(|error| of_io(folder, &error))?;
    }
    Ok(())
}

fn finish_fresh(folder: &Path) -> io::Result<()> {
    let fresh = folder.join(FRESH_FOLDER);
    // The index belongs to the old store, and is rebuilt if the new one is missing.
    for result in
        [fs::remove_file(folder.join(INDEX_FILE)), fs::rename(fresh.join(INDEX_FILE), folder.join(INDEX_FILE))]
    {
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(fresh.join(STORAGE_FOLDER), folder.join(STORAGE_FOLDER))?;
    sync_folder(folder)?;
    fs::remove_dir_all(fresh)
}

/// A name with the time at which the old store was moved aside.
fn dated_name(now: Timestamp) -> String {
    let moment =
        OffsetDateTime::from_unix_timestamp((now.0 / 1_000).cast_signed()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = moment.to_calendar_date();
    let (hour, minute, second) = moment.to_hms();
    let milliseconds = now.0 % 1_000;
    format!("damaged-{year:04}-{:02}-{day:02}T{hour:02}{minute:02}{second:02}.{milliseconds:03}Z", u8::from(month))
}
