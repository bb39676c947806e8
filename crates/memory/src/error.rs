//! What can go wrong with memory. Errors cross from the process that owns a folder to those that ask it, so they are plain
//! data.

use std::io;
use std::path::PathBuf;

use hone_protocol::QueryId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why an export or an import did not come to its end.
#[derive(Debug, Error)]
pub enum TransferError {
    /// Memory could not do its part.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The other side of it could not be read or written.
    #[error("cannot read or write engrams as lines: {0}")]
    Lines(#[from] io::Error),
}

/// Why memory could not do what was asked. Nothing was written, unless the variant says otherwise.
#[derive(Clone, Debug, Error, PartialEq, Serialize, Deserialize)]
pub enum MemoryError {
    /// There is no room left for what was to be written.
    #[error("the disk that holds {folder} is full ({reason}): free some space and try again")]
    DiskFull {
        /// Memory's folder.
        folder: PathBuf,
        /// What was seen.
        reason: String,
    },
    /// The files of memory could not be read or written. What was being written may be there or not, but never in part.
    #[error("memory in {folder} cannot be used: {reason}")]
    Storage {
        /// Memory's folder.
        folder: PathBuf,
        /// What was seen.
        reason: String,
    },
    /// The files of memory are not what was written.
    #[error(
        "the files of memory in {folder} are damaged ({reason}): run `hone memory repair`, which saves what can be read"
    )]
    Corrupted {
        /// Memory's folder.
        folder: PathBuf,
        /// What was seen.
        reason: String,
    },
    /// A record says what no version of hone that this one knows has written.
    #[error("{record} cannot be read: {reason}")]
    Damaged {
        /// The record.
        record: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder was written by a later hone.
    #[error("memory in {folder} has format {format}, this hone reads format {known}: use the hone that wrote it")]
    LaterFormat {
        /// Memory's folder.
        folder: PathBuf,
        /// Its format.
        format: u64,
        /// The newest format that is read.
        known: u64,
    },
    /// Something else is remembered under the same id.
    #[error("engram {id} is remembered already, with another content")]
    Conflict {
        /// The id.
        id: QueryId,
    },
    /// A vector that cannot be compared with the others.
    #[error("a vector of {model:?} {reason}")]
    Vector {
        /// The embedding model.
        model: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An abbreviated id that is none.
    #[error("{text:?} is no engram's id: {reason}")]
    Id {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Pieces of answers are not kept in the event log.
    #[error("a chunk of an answer is not kept in the event log")]
    Chunk,
    /// Lines that cannot be imported.
    #[error("nothing was imported: {}", .problems.join("; "))]
    Import {
        /// What is wrong, a line number each.
        problems: Vec<String>,
    },
    /// Another process holds the folder and cannot be talked to.
    #[error(
        "memory in {folder} is in use by process {process}, which does not answer: {reason}; end it or wait for it"
    )]
    Held {
        /// Memory's folder.
        folder: PathBuf,
        /// The process that holds it, as far as it is known.
        process: String,
        /// Why it cannot be talked to.
        reason: String,
    },
    /// Memory could not be reached, and what was to be written could not be kept for later either.
    #[error("{cause}; and it cannot be kept for later in {folder} either: {reason}")]
    NotKept {
        /// Why it could not be written.
        cause: Box<MemoryError>,
        /// Where what is due is kept.
        folder: PathBuf,
        /// Why it could not be kept.
        reason: String,
    },
}

impl MemoryError {
    /// Whether the same may succeed later, when the disk has room, the owner answers, or the files are repaired.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            MemoryError::DiskFull { .. }
            | MemoryError::Storage { .. }
            | MemoryError::Corrupted { .. }
            | MemoryError::LaterFormat { .. }
            | MemoryError::Held { .. } => true,
            MemoryError::Damaged { .. }
            | MemoryError::Conflict { .. }
            | MemoryError::Vector { .. }
            | MemoryError::Id { .. }
            | MemoryError::Chunk
            | MemoryError::Import { .. }
            | MemoryError::NotKept { .. } => false,
        }
    }
}
