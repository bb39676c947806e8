//! Locations of model files, and the trait that finds them.

mod parts;

use std::path::PathBuf;

use thiserror::Error;

pub use parts::{PartError, PartName};

/// The bytes of one model: a whole file, a region of a file that holds several (a bundled executable), or several of
/// these if the model is split into parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelFile {
    /// The file to map.
    pub path: PathBuf,
    /// The offset of the model in it, in bytes; a multiple of the page size.
    pub offset: u64,
    /// The length of the model there, in bytes.
    pub length: u64,
    /// The parts that follow, in order, if the model is split; none of them has a `rest` of its own.
    pub rest: Vec<ModelFile>,
}

impl ModelFile {
    /// The `length` bytes from `offset` in the file at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, offset: u64, length: u64) -> Self {
        ModelFile { path: path.into(), offset, length, rest: Vec::new() }
    }

    /// Every part in order: this one and the rest.
    pub fn parts(&self) -> impl Iterator<Item = &ModelFile> {
        std::iter::once(self).chain(&self.rest)
    }

    /// The bytes of all parts together.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.parts().fold(0, |sum, part| sum.saturating_add(part.length))
    }

    /// Whether this part and `other` are the same bytes, regardless of the parts that follow.
    #[must_use]
    pub fn is_same_part(&self, other: &ModelFile) -> bool {
        (&self.path, self.offset, self.length) == (&other.path, other.offset, other.length)
    }
}

/// Finds a model's file by its name.
pub trait LocateModel: Send + Sync {
    /// The file behind `name`, which is a catalog name, the name of a pulled model, or a path.
    ///
    /// # Errors
    /// When the model is not installed; the message says how to get it.
    fn locate(&self, name: &str) -> Result<ModelFile, LocateError>;

    /// Checks every byte of a located file, with all its parts, against the record made when its model was installed; a
    /// file without a record passes. This takes as long as reading the file, and is best done while loading it.
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
