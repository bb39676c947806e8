//! Where the bytes of a model lie, and who knows it.

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

/// Finds the file of a model that somebody named.
pub trait LocateModel: Send + Sync {
    /// The file behind `name`, which is a catalog name, the name of a pulled model, or a path.
    ///
    /// # Errors
    /// When no such model is installed; the message says how to get it.
    fn locate(&self, name: &str) -> Result<ModelFile, LocateError>;

    /// Checks every byte of a file that was located against what was recorded when its model was installed; of a file of
    /// which nothing was recorded nothing is known. It takes as long as reading the file, and is best done alongside loading.
    ///
    /// # Errors
    /// When the file is damaged; the message names it and says what to do.
    fn verify(&self, file: &ModelFile) -> Result<(), LocateError> {
        let _ = file;
        Ok(())
    }
}

/// A model that was named could not be found.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct LocateError(pub String);
