//! The KV caches of conversations that the engine saved, so that they resume without recomputation: their size, and how
//! to remove them. Running processes tolerate their removal.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The saved prefixes of a folder, as `--json` prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SavedPrefixes {
    /// The number of files.
    pub files: usize,
    /// Their size in bytes.
    pub bytes: u64,
}

impl SavedPrefixes {
    /// Counts the saved prefixes in the folder, which need not exist.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn in_folder(folder: &Path) -> io::Result<SavedPrefixes> {
        let sizes = files(folder)?.into_iter().map(|(_, bytes)| bytes);
        Ok(sizes.fold(SavedPrefixes::default(), SavedPrefixes::with))
    }

    /// Removes the saved prefixes in the folder, and returns their number and size.
    ///
    /// # Errors
    /// When the folder cannot be read or a file cannot be removed.
    pub fn remove(folder: &Path) -> io::Result<SavedPrefixes> {
        let mut removed = SavedPrefixes::default();
        for (path, bytes) in files(folder)? {
            match fs::remove_file(&path) {
                // Another process's engine has replaced it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => removed = result.map(|()| removed.with(bytes))?,
            }
        }
        Ok(removed)
    }

    fn with(self, bytes: u64) -> SavedPrefixes {
        SavedPrefixes { files: self.files + 1, bytes: self.bytes + bytes }
    }
}

/// The files that hold prefixes, complete or being written, with their sizes.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let is_prefix = |path: &Path| path.extension().is_some_and(|extension| extension == "kv" || extension == "part");
    let files = entries.flatten().filter(|entry| is_prefix(&entry.path()));
    Ok(files.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len()))).collect())
}
