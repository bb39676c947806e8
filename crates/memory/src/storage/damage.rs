//! Finds damage before sled sees it.
//!
//! sled refuses a database whose settings or snapshot are damaged, although it needs neither: its log holds everything.
//! And if the log itself is damaged after the last snapshot, sled takes the damage for the end of the log and
//! overwrites the rest. So the settings, the snapshot, and the part of the log that sled is about to read are checked
//! first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::log::count_damage;
use super::{corrupted, of_io};
use crate::error::MemoryError;

/// Removes damaged settings and snapshots if the log is intact. sled writes them again.
///
/// # Errors
/// [`MemoryError::Corrupted`] if sled would lose data by opening the database.
pub(super) fn check(folder: &Path) -> Result<(), MemoryError> {
    let found = find(folder).map_err(|error| of_io(folder, &error))?;
    if found.n_damaged > 0 {
        let reason = format!("{} places in the log are damaged", found.n_damaged);
        return Err(corrupted(folder, &reason));
    }
    for file in found.dispensable {
        tracing::warn!(file = %file.display(), "a damaged file of memory is rewritten from the log, which is intact");
        fs::remove_file(&file).map_err(|error| of_io(folder, &error))?;
    }
    Ok(())
}

struct Found {
    /// Damaged files that sled can do without.
    dispensable: Vec<PathBuf>,
    /// Damaged places in the part of the log that sled is about to read.
    n_damaged: u64,
}

fn find(folder: &Path) -> io::Result<Found> {
    let mut dispensable = Vec::new();
    let conf = folder.join("conf");
    if conf.exists() && !is_whole_conf(&fs::read(&conf)?) {
        dispensable.push(conf);
    }
    let (mut snapshots, mut read_from) = (snapshots(folder)?, 0);
    // sled reads the latest one.
    while let Some((position, snapshot)) = snapshots.pop() {
        if is_whole_snapshot(&fs::read(&snapshot)?) {
            read_from = position;
            break;
        }
        dispensable.push(snapshot);
    }
    // Nothing may be rebuilt from a log with any damage.
    let from = if dispensable.is_empty() { read_from } else { 0 };
    let n_damaged = if folder.join("db").exists() { count_damage(folder, from)? } else { 0 };
    Ok(Found { dispensable, n_damaged })
}

/// The snapshots, each with the position of the log up to which it is valid.
fn snapshots(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut snapshots = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("snap."));
        if let Some(position) = name.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            snapshots.push((position, path));
        }
    }
    snapshots.sort();
    Ok(snapshots)
}

/// Settings end with their checksum. sled itself rewrites some truncated ones.
fn is_whole_conf(bytes: &[u8]) -> bool {
    bytes.len() <= 8 || bytes.split_last_chunk::<4>().is_some_and(|(rest, sum)| has_sum(rest, *sum))
}

/// Snapshots end with their uncompressed length, if they are compressed, and their checksum.
fn is_whole_snapshot(bytes: &[u8]) -> bool {
    let parts = bytes.split_last_chunk::<4>();
    let parts = parts.and_then(|(rest, sum)| Some((rest.split_last_chunk::<8>()?.0, *sum)));
    parts.is_some_and(|(content, sum)| !content.is_empty() && has_sum(content, sum))
}

fn has_sum(bytes: &[u8], sum: [u8; 4]) -> bool {
    crc32fast::hash(bytes) == u32::from_le_bytes(sum)
}
