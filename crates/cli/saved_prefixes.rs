//! What the engine saved of conversations, so that they resume without being computed again: how much room it takes, and
//! how to free it. The engine does without whatever is gone, also in processes that run.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The saved prefixes of a folder, as `--json` prints them.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SavedPrefixes {
    /// How many there are.
    pub(crate) files: usize,
    /// What they take.
    pub(crate) bytes: u64,
}

impl SavedPrefixes {
    /// Looks what is in the folder, which need not exist.
    pub(crate) fn in_folder(folder: &Path) -> SavedPrefixes {
        let sizes = files(folder).map(|(_, size)| size);
        sizes
            .fold(SavedPrefixes::default(), |sum, size| SavedPrefixes { files: sum.files + 1, bytes: sum.bytes + size })
    }

    /// Removes what is in the folder, and says what that was.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub(crate) fn remove(folder: &Path) -> io::Result<SavedPrefixes> {
        let mut removed = SavedPrefixes::default();
        for (path, size) in files(folder) {
            match fs::remove_file(&path) {
                // The engine of another process replaced it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                result => result?,
            }
            removed = SavedPrefixes { files: removed.files + 1, bytes: removed.bytes + size };
        }
        Ok(removed)
    }
}

/// The files that hold prefixes, whole ones and such as are being written, with their sizes.
fn files(folder: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_prefix = |path: &Path| path.extension().is_some_and(|extension| extension == "kv" || extension == "part");
    entries
        .filter(move |entry| is_prefix(&entry.path()))
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len())))
}
