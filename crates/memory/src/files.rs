//! Files in memory's folder: written completely or not at all, and readable by their owner alone.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use hone_files::sync_folder;
use tempfile::NamedTempFile;

/// The folder of storage, inside memory's folder.
pub(crate) const STORAGE_FOLDER: &str = "store";

/// The file of the index, inside memory's folder.
pub(crate) const INDEX_FILE: &str = "vectors.index";

/// The prefix of the name of a file that is being written.
const UNFINISHED: &str = ".unfinished-";

/// The purpose of a file. While they are being written, files of different purposes have different names, so that
/// cleaning up one kind never removes a file that another writer is about to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The note about the folder's owner.
    Owner,
    /// The index of vectors.
    Index,
    /// A request on the due list.
    Due,
    /// A backup.
    Backup,
}

impl Purpose {
    /// The prefix of the name of such a file while it is being written.
    fn prefix(self) -> String {
        let name = match self {
            Purpose::Owner => "owner",
            Purpose::Index => "index",
            Purpose::Due => "due",
            Purpose::Backup => "backup",
        };
        format!("{UNFINISHED}{name}-")
    }
}

/// Writes a file durably, replacing an existing one.
///
/// # Errors
/// When there is no room or the file cannot be written; the old one then stays.
pub(crate) fn write_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<()> {
    begin_file(file, purpose, bytes)?.persist(file)?;
    sync_folder(file.parent().unwrap_or(file))
}

/// Writes a file durably, if no file of that name exists.
///
/// # Errors
/// When there is no room, the file cannot be written, or its name is taken.
pub(crate) fn write_new_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<()> {
    begin_file(file, purpose, bytes)?.persist_noclobber(file)?;
    sync_folder(file.parent().unwrap_or(file))
}

/// A file that will be renamed to `file`, with its bytes on disk. Dropping it first removes it.
fn begin_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut fresh = unfinished_file(file, purpose)?;
    fresh.write_all(bytes)?;
    fresh.as_file().sync_all()?;
    Ok(fresh)
}

/// An empty file that will be renamed to `file`. Dropping it first removes it.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn unfinished_file(file: &Path, purpose: Purpose) -> io::Result<NamedTempFile> {
    NamedTempFile::with_prefix_in(purpose.prefix(), file.parent().unwrap_or(file))
}

/// Removes files of this purpose that killed processes left unfinished. No process may be writing one.
pub(crate) fn remove_unfinished(folder: &Path, purpose: Purpose) {
    let prefix = purpose.prefix();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // A leftover takes up space, but does no other harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes all permissions of other users from a folder and everything in it. A failure is only logged: a folder that
/// belongs to another user can still be read. On systems other than Unix, folders inherit the permissions of the user's
/// home folder.
pub(crate) fn make_private(folder: &Path) {
    if let Err(error) = hone_files::make_tree_private(folder) {
        tracing::warn!(folder = %folder.display(), %error, "other users may be able to read memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Memory that was opened alongside an owner about to announce itself once removed the announcement.
    #[test]
    fn a_file_is_cleaned_up_for_its_own_purpose_only() {
        let folder = tempfile::tempdir().unwrap();
        let announcement = begin_file(&folder.path().join("owner.json"), Purpose::Owner, b"{}").unwrap();
        let _index = begin_file(&folder.path().join("vectors.index"), Purpose::Index, b"").unwrap();
        remove_unfinished(folder.path(), Purpose::Index);
        assert_eq!(names(folder.path()).len(), 1);
        announcement.persist(folder.path().join("owner.json")).unwrap();
        assert_eq!(names(folder.path()), ["owner.json"]);
    }

    #[test]
    fn a_file_that_exists_is_not_replaced_by_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        write_new_file(&file, Purpose::Due, b"first").unwrap();
        let error = write_new_file(&file, Purpose::Due, b"second").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        write_file(&file, Purpose::Due, b"third").unwrap();
        assert_eq!((fs::read(&file).unwrap(), names(folder.path())), (b"third".to_vec(), vec!["a".to_owned()]));
    }
}
