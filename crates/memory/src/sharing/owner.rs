//! The owner of a folder: the process that holds the lock on a file in it. A second file holds that process's id and
//! the address of its socket.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use hone_files::open_private;
use serde::{Deserialize, Serialize};

use crate::files::{Purpose, write_file};

/// The owner's note about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnerNote {
    /// Its process id.
    pub(super) process: u32,
    /// Its socket; `None` on systems without Unix sockets.
    pub(super) socket: Option<PathBuf>,
}

/// The lock that makes this process the owner of a folder, until it is dropped or the process ends.
pub(super) struct OwnerLock {
    folder: PathBuf,
    lock: File,
}

impl OwnerLock {
    /// Takes the lock; `None` if another process, or another part of this one, holds it.
    ///
    /// # Errors
    /// When the lock file cannot be created or locked.
    pub(super) fn try_acquire(folder: &Path) -> io::Result<Option<OwnerLock>> {
        let lock = open_private(&folder.join("owner.lock"), File::options().write(true).create(true).truncate(false))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(OwnerLock { folder: folder.to_owned(), lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Tells other processes where to reach the owner.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub(super) fn announce(&self, socket: Option<&Path>) -> io::Result<()> {
        let note = OwnerNote { process: process::id(), socket: socket.map(Path::to_owned) };
        write_file(&note_path(&self.folder), Purpose::Owner, &serde_json::to_vec(&note)?)
    }
}

impl Drop for OwnerLock {
    /// Closing the file is not enough: a process that is being started holds a copy of it, and with it the lock.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(folder = %self.folder.display(), %error, "the lock of memory cannot be released");
        }
    }
}

/// The note of the current owner, or, without an owner, of the last one.
pub(super) fn owner_of(folder: &Path) -> Option<OwnerNote> {
    serde_json::from_slice(&fs::read(note_path(folder)).ok()?).ok()
}

fn note_path(folder: &Path) -> PathBuf {
    folder.join("owner.json")
}
