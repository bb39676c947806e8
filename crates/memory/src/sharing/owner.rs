//! Who owns a folder: whoever holds the lock on a file in it. Another file says which process that is, and where it is
//! to be reached.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use serde::{Deserialize, Serialize};

use crate::index::write_file;

/// What the owner says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnerNote {
    /// Its process id.
    pub(super) process: u32,
    /// Its socket; `None` where there are no sockets.
    pub(super) socket: Option<PathBuf>,
}

/// The ownership of a folder, until this is dropped or the process ends.
pub(super) struct Ownership {
    folder: PathBuf,
    _lock: File,
}

impl Ownership {
    /// `None` where another process, or this one elsewhere, owns the folder.
    ///
    /// # Errors
    /// When the lock's file cannot be written.
    pub(super) fn take(folder: &Path) -> io::Result<Option<Ownership>> {
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("owner.lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Ownership { folder: folder.to_owned(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Tells the others where the owner is to be reached.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn announce(&self, socket: Option<&Path>) -> io::Result<()> {
        let note = OwnerNote { process: process::id(), socket: socket.map(Path::to_owned) };
        write_file(&note_path(&self.folder), &serde_json::to_vec(&note)?)
    }
}

/// What the owner says about itself, or the last one that there was.
pub(super) fn owner_of(folder: &Path) -> Option<OwnerNote> {
    serde_json::from_slice(&fs::read(note_path(folder)).ok()?).ok()
}

fn note_path(folder: &Path) -> PathBuf {
    folder.join("owner.json")
}

/// Creates a folder, where it is missing, that only its owner can look into.
///
/// # Errors
/// When it cannot be created.
pub(super) fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
