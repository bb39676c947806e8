//! Files that are written under a temporary name and renamed to their final name once complete.
//!
//! A killed process leaves its temporary file behind. So such files have names of their own and are locked while they
//! are being written (the system releases the locks of a process that ends). Creating the next one in the same folder
//! removes those that are not locked.

use std::{
    fs::{self, File},
    io::{self, BufWriter, ErrorKind, Write},
    path::Path,
    time::{Duration, SystemTime},
};

use tempfile::NamedTempFile;

use crate::sync_folder;

/// The common prefix of temporary names; the purpose follows.
const PREFIX: &str = ".hone-";

/// A younger file may belong to a process that has created it but not locked it yet.
const YOUNG: Duration = Duration::from_secs(10);

/// Creates a file in `folder` that will be renamed there; only its owner can read it. `purpose` is a lower-case word
/// that is part of its temporary name. Files that killed processes left for the same purpose are removed.
///
/// # Errors
/// When it cannot be created.
pub fn staged_file(folder: &Path, purpose: &str) -> io::Result<NamedTempFile> {
    // The error for a missing folder should name the folder, not a temporary file in it.
    fs::metadata(folder)?;
    let prefix = format!("{PREFIX}{purpose}-");
    remove_leftovers(folder, &prefix);
    let file = tempfile::Builder::new().prefix(&prefix).tempfile_in(folder)?;
    // On a file system without locks, leftovers stay.
    if let Err(error) = file.as_file().try_lock() {
        tracing::debug!(%error, "a file that is being written cannot be locked");
    }
    Ok(file)
}

/// Durably writes a file, in place of an existing one of that name. `purpose` is as for [`staged_file`].
///
/// # Errors
/// When its folder is missing, `write` fails or the file cannot be written; an existing file then stays.
pub fn replace(
    path: &Path,
    purpose: &str,
    write: impl FnOnce(&mut BufWriter<&mut NamedTempFile>) -> io::Result<()>,
) -> io::Result<()> {
    let folder = folder_of(path);
    complete(folder, purpose, write)?.persist(path)?;
    sync_folder(folder)
}

/// Writes a file that does not exist yet. If it exists, it stays as it is, and the result is `false`.
///
/// # Errors
/// See [`replace`].
pub fn write_new(
    path: &Path,
    purpose: &str,
    write: impl FnOnce(&mut BufWriter<&mut NamedTempFile>) -> io::Result<()>,
) -> io::Result<bool> {
    let folder = folder_of(path);
    match complete(folder, purpose, write)?.persist_noclobber(path) {
        Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        persisted => {
            persisted?;
            sync_folder(folder).map(|()| true)
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A complete and durable temporary file in the folder of its destination.
fn complete(
    folder: &Path,
    purpose: &str,
    write: impl FnOnce(&mut BufWriter<&mut NamedTempFile>) -> io::Result<()>,
) -> io::Result<NamedTempFile> {
    let mut staged = staged_file(folder, purpose)?;
    let mut writer = BufWriter::new(&mut staged);
    write(&mut writer)?;
    writer.flush()?;
    drop(writer);
    staged.as_file().sync_all()?;
    Ok(staged)
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
