//! Files in memory's folder: written whole or not at all, and readable by nobody else.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use hone_files::sync_folder;
use tempfile::NamedTempFile;

/// The folder of storage, inside memory's.
pub(crate) const STORAGE_FOLDER: &str = "store";

/// The file of the index, inside memory's folder.
pub(crate) const INDEX_FILE: &str = "vectors.index";

/// What the name of a file begins with while it is being written.
const UNFINISHED: &str = ".unfinished-";

/// What a file is for. Files of different purposes have different names while they are being written, so that nobody
/// cleans up what somebody else is about to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Who owns the folder.
    Owner,
    /// The index of vectors.
    Index,
    /// A request that is to be answered later.
    Due,
    /// A copy of what is remembered.
    Backup,
}

impl Purpose {
    /// What the name of such a file begins with while it is being written.
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

/// Writes a file, durably, in place of what is there.
///
/// # Errors
/// When there is no room, or the file cannot be written; then the old one stays.
pub(crate) fn write_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<()> {
    begin_file(file, purpose, bytes)?.persist(file)?;
    sync_folder(file.parent().unwrap_or(file))
}

/// Writes a file, durably, where there is no file of that name.
///
/// # Errors
/// When there is no room, the file cannot be written, or its name is taken.
pub(crate) fn write_new_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<()> {
    begin_file(file, purpose, bytes)?.persist_noclobber(file)?;
    sync_folder(file.parent().unwrap_or(file))
}

/// A file that is about to be called `file`, with its bytes on disk. It is removed where it is dropped before.
fn begin_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut fresh = unfinished_file(file, purpose)?;
    fresh.write_all(bytes)?;
    fresh.as_file().sync_all()?;
    Ok(fresh)
}

/// An empty file that is about to be called `file`. It is removed where it is dropped before.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn unfinished_file(file: &Path, purpose: Purpose) -> io::Result<NamedTempFile> {
    NamedTempFile::with_prefix_in(purpose.prefix(), file.parent().unwrap_or(file))
}

/// Removes files of that purpose which were being written when their process was killed. Nobody may be writing one.
pub(crate) fn remove_unfinished(folder: &Path, purpose: Purpose) {
    let prefix = purpose.prefix();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // It takes room and does no other harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Takes everybody else's rights to a folder and all that is in it. Where that is impossible, a warning says so: a folder
/// of somebody else's can be read all the same. Elsewhere than on Unix folders inherit the rights of the user's own.
pub(crate) fn make_private(folder: &Path) {
    if let Err(error) = hone_files::make_tree_private(folder) {
        tracing::warn!(folder = %folder.display(), %error, "others may be able to read what is remembered");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Memory that was opened beside an owner which was about to announce itself once removed the announcement.
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
