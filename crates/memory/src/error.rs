//! Errors of memory. They are plain data, because they cross from the owner's process to its clients.

use std::io;
use std::path::PathBuf;

use hone_protocol::QueryId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The reason why an export or an import failed.
#[derive(Debug, Error)]
pub enum TransferError {
    /// Memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The exported or imported lines could not be read or written.
    #[error("cannot read or write the exported lines: {0}")]
    Lines(#[from] io::Error),
}

/// The reason why a request to memory failed. Nothing was written, unless the variant says otherwise.
#[derive(Clone, Debug, Error, PartialEq, Serialize, Deserialize)]
pub enum MemoryError {
    /// There is not enough disk space for the write.
    #[error("the disk that holds {folder} is full ({reason}): free some space and try again")]
    DiskFull {
        /// Memory's folder.
        folder: PathBuf,
        /// The details.
        reason: String,
    },
    /// The files of memory could not be read or written. The failed write may or may not have taken effect, but never
    /// in part.
    #[error("memory in {folder} cannot be used: {reason}")]
    Storage {
        /// Memory's folder.
        folder: PathBuf,
        /// The details.
        reason: String,
    },
    /// The database that holds memory could not be reached, or refused to do its work. A write may or may not have
    /// taken effect, but never in part.
    #[error("memory in the database {database} cannot be used: {reason}")]
    Database {
        /// Its host and name, without a password.
        database: String,
        /// The details.
        reason: String,
    },
    /// The files of memory are damaged.
    #[error(
        "the files of memory in {folder} are damaged ({reason}): run `hone memory repair`, which recovers everything readable"
    )]
    Corrupted {
        /// Memory's folder.
        folder: PathBuf,
        /// The details.
        reason: String,
    },
    /// A record has content that no version of hone known to this one writes.
    #[error("{record} cannot be read: {reason}")]
    Damaged {
        /// The record.
        record: String,
        /// The reason.
        reason: String,
    },
    /// The folder was written by a later version of hone.
    #[error("memory in {folder} has format {format}, this hone reads format {known}: use the hone that wrote it")]
    LaterFormat {
        /// Memory's folder.
        folder: PathBuf,
        /// Its format.
        format: u64,
        /// The newest format that is read.
        known: u64,
    },
    /// Another engram is remembered under the same id.
    #[error("engram {id} already exists with different content")]
    Conflict {
        /// The id.
        id: QueryId,
    },
    /// A vector that cannot be compared with the others.
    #[error("a vector of {model:?} {reason}")]
    Vector {
        /// The embedding model.
        model: String,
        /// The reason.
        reason: String,
    },
    /// An abbreviated id that is not valid.
    #[error("{text:?} is not the id of an engram: {reason}")]
    Id {
        /// The given text.
        text: String,
        /// The reason.
        reason: String,
    },
    /// Other processes kept writing a document that was to be edited. Nothing was written.
    #[error("other processes keep writing {document}: try again")]
    Busy {
        /// The document's path.
        document: String,
    },
    /// A document could not be written in time, and another process has written one of this name since.
    #[error("another process has written {document} since, and the two versions cannot be merged")]
    Unmerged {
        /// The document's path.
        document: String,
    },
    /// Pieces of answers are not kept in the event log.
    #[error("a chunk of an answer is not kept in the event log")]
    Chunk,
    /// An import with invalid lines.
    #[error("nothing was imported: {}", .problems.join("; "))]
    Import {
        /// The problems, each with a line number.
        problems: Vec<String>,
    },
    /// Another process owns the folder but cannot be reached.
    #[error(
        "memory in {folder} is in use by process {process} and cannot be shared: {reason}; end that process or wait for it"
    )]
    Held {
        /// Memory's folder.
        folder: PathBuf,
        /// The process id of the owner, as far as it is known.
        process: String,
        /// The reason why the owner cannot be reached.
        reason: String,
    },
    /// Memory could not be reached, and the request could not be kept for later either.
    #[error("{cause}; it could not be kept for later in {folder} either: {reason}")]
    NotKept {
        /// The reason why memory could not be reached.
        cause: Box<MemoryError>,
        /// The folder of the due list.
        folder: PathBuf,
        /// The reason why the request could not be kept.
        reason: String,
    },
}

impl MemoryError {
    /// Whether the same request may succeed later: once the disk has room, the owner responds, or the files are
    /// repaired.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            MemoryError::DiskFull { .. }
            | MemoryError::Storage { .. }
            | MemoryError::Database { .. }
            | MemoryError::Corrupted { .. }
            | MemoryError::LaterFormat { .. }
            | MemoryError::Busy { .. }
            | MemoryError::Held { .. } => true,
            MemoryError::Damaged { .. }
            | MemoryError::Conflict { .. }
            | MemoryError::Vector { .. }
            | MemoryError::Id { .. }
            | MemoryError::Unmerged { .. }
            | MemoryError::Chunk
            | MemoryError::Import { .. }
            | MemoryError::NotKept { .. } => false,
        }
    }
}
