//! Folders for the time of a command. A process that is killed leaves its folder behind, which the next one removes.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// What the names of these folders begin with.
const PREFIX: &str = "hone-command-";

/// The age from which a folder that nobody has locked is left over: one that was just made may not be locked yet.
const LEFT_OVER: Duration = Duration::from_secs(60);

/// A folder that is removed when it is dropped, and is locked until then.
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// A new folder in the system's folder for temporary files. What killed processes have left there goes, the first time.
    pub(crate) fn new() -> io::Result<Scratch> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| remove_left_over(&std::env::temp_dir(), SystemTime::now()));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = File::open(folder.path())?;
        // Where nothing can be locked, nothing is taken for left over either.
        lock.lock().ok();
        Ok(Scratch { folder, _lock: lock })
    }

    /// Where it is.
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
    // Of the entry itself: a link leads elsewhere.
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
