//! Temporary folders of commands. A process that is killed leaves its folder behind, and the next one removes it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// The prefix of these folders' names.
const PREFIX: &str = "hone-command-";

/// The age from which an unlocked folder counts as left over: a new one may not be locked yet.
const LEFT_OVER: Duration = Duration::from_secs(60);

/// A folder that is removed when it is dropped, and is locked until then.
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// A new folder in the system's folder for temporary files. The first call removes the folders that killed
    /// processes have left there.
    pub(crate) fn new() -> io::Result<Scratch> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| remove_left_over(&std::env::temp_dir(), SystemTime::now()));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = File::open(folder.path())?;
        // Where nothing can be locked, nothing counts as left over either.
        lock.lock().ok();
        Ok(Scratch { folder, _lock: lock })
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of processes that are gone. One that cannot be removed, such as another user's, stays.
fn remove_left_over(folder: &Path, now: SystemTime) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        if is_left_over(&entry, now).unwrap_or(false) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

fn is_left_over(entry: &std::fs::DirEntry, now: SystemTime) -> io::Result<bool> {
    // The metadata of the entry itself: a link leads elsewhere.
    let metadata = entry.metadata()?;
    let age = now.duration_since(metadata.modified()?).unwrap_or_default();
    Ok(metadata.is_dir() && age >= LEFT_OVER && File::open(entry.path())?.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_whose_process_is_gone_are_removed() {
        let place = TempDir::new().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.join("private")).unwrap();
            path
        };
        let (gone, at_work, other) = (folder("hone-command-a"), folder("hone-command-b"), folder("other"));
        let lock = File::open(&at_work).unwrap();
        lock.lock().unwrap();
        remove_left_over(place.path(), SystemTime::now());
        assert!(gone.exists(), "it may not be locked yet");
        remove_left_over(place.path(), SystemTime::now() + LEFT_OVER);
        assert_eq!([&gone, &at_work, &other].map(|path| path.exists()), [false, true, true]);
        drop(lock);
        remove_left_over(place.path(), SystemTime::now() + LEFT_OVER);
        assert!(!at_work.exists());
    }
}
