//! Files that are written beside their final place and appear there when they are whole.
//!
//! A process that is killed leaves its file behind. So such files have names of their own, are locked as long as somebody
//! writes them (the system unlocks those of a process that is gone), and the next one that is made in the same folder removes
//! those that nobody has locked.

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use tempfile::NamedTempFile;

/// How the names of all such files start; what they are for follows.
const PREFIX: &str = ".hone-";

/// A file that is younger may have been made a moment ago by a process that has not locked it yet.
const YOUNG: Duration = Duration::from_secs(10);

/// Makes a file in `folder` that is to get another name there; its owner alone can read it. `purpose` is a word in lower case
/// that becomes part of its name until then. What a killed process left for the same purpose is removed.
///
/// # Errors
/// When it cannot be made.
pub fn staged_file(folder: &Path, purpose: &str) -> io::Result<NamedTempFile> {
    // A folder that does not exist is said to be so, and not that a file of another name could not be made in it.
    fs::metadata(folder)?;
    let prefix = format!("{PREFIX}{purpose}-");
    remove_leftovers(folder, &prefix);
    let file = tempfile::Builder::new().prefix(&prefix).tempfile_in(folder)?;
    // Where the file system knows no locks, leftovers stay.
    if let Err(error) = file.as_file().try_lock() {
        tracing::debug!(%error, "a file that is being written cannot be locked");
    }
    Ok(file)
}

fn remove_leftovers(folder: &Path, prefix: &str) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        let is_old = entry.metadata().is_ok_and(|metadata| metadata.is_file() && is_older(metadata.modified(), YOUNG));
        // Closing the file unlocks it.
        let is_left =
            is_old && File::options().write(true).open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
        if is_left && let Err(error) = fs::remove_file(entry.path()) {
            tracing::debug!(%error, path = %entry.path().display(), "what a killed process left cannot be removed");
        }
    }
}

fn is_older(modified: io::Result<SystemTime>, age: Duration) -> bool {
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|elapsed| elapsed > age))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::TempDir::new().unwrap();
        let old = SystemTime::now() - 2 * YOUNG;
        let aged = |name: &str| {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(old).unwrap();
            file
        };
        let (_, _, _) = (aged(".hone-bundle-left"), aged(".hone-export-other"), aged("mine"));
        let locked = aged(".hone-bundle-locked");
        locked.try_lock().unwrap();
        fs::write(folder.path().join(".hone-bundle-young"), "").unwrap();
        let first = staged_file(folder.path(), "bundle").unwrap();
        first.as_file().set_modified(old).unwrap();
        let second = staged_file(folder.path(), "bundle").unwrap();
        assert!(first.path().exists() && second.path().exists());
        let is_there = |name: &str| folder.path().join(name).exists();
        assert!(!is_there(".hone-bundle-left"));
        assert!([".hone-export-other", "mine", ".hone-bundle-locked", ".hone-bundle-young"].into_iter().all(is_there));
        first.persist(folder.path().join("done")).unwrap();
        drop(second);
        assert!(is_there("done"));
    }
}
