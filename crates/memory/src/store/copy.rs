//! A copy of memory, for callers that can only read.

use std::path::Path;
use std::{fs, io};

use tempfile::TempDir;

use crate::files::STORAGE_FOLDER;

/// A copy of memory; `None` if there is nothing to copy, or no room for it.
pub(super) fn copy_of(folder: &Path) -> Option<TempDir> {
    let in_memory = Path::new("/dev/shm");
    let places = [std::env::temp_dir(), in_memory.to_owned()].into_iter().filter(|place| place.is_dir());
    places.filter_map(|place| tempfile::tempdir_in(place).ok()).find(|copy| {
        let copied = copy_files(folder, copy.path());
        copied.inspect_err(|error| tracing::debug!(%error, copy = %copy.path().display(), "no copy")).is_ok()
    })
}

fn copy_files(folder: &Path, copy: &Path) -> io::Result<()> {
    for inner in [STORAGE_FOLDER, &format!("{STORAGE_FOLDER}/blobs")] {
        fs::create_dir(copy.join(inner))?;
        for entry in fs::read_dir(folder.join(inner))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), copy.join(inner).join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}
