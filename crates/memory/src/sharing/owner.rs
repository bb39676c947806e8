//! Who owns a folder: whoever holds the lock on a file in it. Another file says which process that is, and where it is
//! to be reached.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use hone_files::open_private;
use serde::{Deserialize, Serialize};

use crate::files::{Purpose, write_file};

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
        let lock = open_private(&folder.join("owner.lock"), File::options().write(true).create(true).truncate(false))?;
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
        write_file(&note_path(&self.folder), Purpose::Owner, &serde_json::to_vec(&note)?)
    }
}

/// What the owner says about itself, or the last one that there was.
pub(super) fn owner_of(folder: &Path) -> Option<OwnerNote> {
    serde_json::from_slice(&fs::read(note_path(folder)).ok()?).ok()
}

fn note_path(folder: &Path) -> PathBuf {
    folder.join("owner.json")
}
