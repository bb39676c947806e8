//! Whether others can read what hone keeps, and the end of it: permissions that are wider than the owner's are taken away.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use hone_models::{data_folder, make_private};
use serde::Serialize;

/// What was found of files and folders that others could read.
#[derive(Debug, Default, Serialize)]
pub(super) struct Privacy {
    /// How many there were; they are private now.
    pub(super) narrowed: u64,
    /// Why some may still be read, if they may.
    pub(super) problem: Option<String>,
}

impl Privacy {
    /// Makes the data folder and all that is in it private.
    pub(super) fn mend() -> Privacy {
        let mut privacy = Privacy::default();
        if let Ok(folder) = data_folder() {
            privacy.narrow(&folder);
        }
        privacy
    }

    fn narrow(&mut self, path: &Path) {
        if let Err(error) = self.narrow_all(path) {
            // What is removed meanwhile is read by nobody.
            if error.kind() != ErrorKind::NotFound {
                self.problem.get_or_insert(format!("{} cannot be made private: {error}", path.display()));
            }
        }
    }

    fn narrow_all(&mut self, path: &Path) -> io::Result<()> {
        self.narrowed += u64::from(make_private(path)?);
        if path.symlink_metadata()?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.narrow(&entry?.path());
            }
        }
        Ok(())
    }
}
