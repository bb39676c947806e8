//! Permissions: finds files and folders that other users can read, and makes them private.

use hone_files::make_tree_private;
use hone_models::data_folder;
use serde::Serialize;

/// Files and folders that other users could read.
#[derive(Debug, Default, Serialize)]
pub(super) struct Privacy {
    /// Their number; they are private now.
    pub(super) narrowed: u64,
    /// Why some may still be readable by others, if they are.
    pub(super) problem: Option<String>,
}

impl Privacy {
    /// Makes the data folder and everything in it private.
    pub(super) fn mend() -> Privacy {
        let Ok(folder) = data_folder() else { return Privacy::default() };
        match make_tree_private(&folder) {
            Ok(narrowed) => Privacy { narrowed, problem: None },
            Err(error) => {
                let problem = format!("{} holds files that cannot be made private: {error}", folder.display());
                Privacy { narrowed: 0, problem: Some(problem) }
            }
        }
    }
}
