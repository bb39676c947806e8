//! Locations of model files, and the trait that finds them.

use std::path::PathBuf;

use thiserror::Error;

/// The bytes of one model: a whole file, or a region of a file that holds several (a bundled executable).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelFile {
    /// The file to map.
    pub path: PathBuf,
    /// Where the model starts in it, in bytes; a multiple of the page size.
    pub offset: u64,
    /// How many bytes the model has.
    pub length: u64,
}

/// Finds a model's file by its name.
pub trait LocateModel: Send + Sync {
    /// The file behind `name`, which is a catalog name, the name of a pulled model, or a path.
    ///
    /// # Errors
    /// When the model is not installed; the message says how to get it.
    fn locate(&self, name: &str) -> Result<ModelFile, LocateError>;

    /// Checks every byte of a located file against what was recorded when its model was installed; a file without a
    /// record passes. This takes as long as reading the file, and is best done while loading it.
    ///
    /// # Errors
    /// When the file is damaged; the message names it and says what to do.
    fn verify(&self, file: &ModelFile) -> Result<(), LocateError> {
        let _ = file;
        Ok(())
    }
}

/// The named model could not be found.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct LocateError(pub String);
