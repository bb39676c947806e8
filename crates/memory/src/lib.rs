//! hone's memory: answers, their grades and vectors, and every event.
//!
//! sled is the source of truth; usearch is an index over it that can be discarded. A [`MemoryStore`] can be cloned,
//! used from any thread, and opened by several processes at once.
//!
//! # Storage
//!
//! In memory's folder, `store/` belongs to sled and `vectors.index` to usearch. Every write is one sled batch, which is
//! durable when the call returns; concurrent writes share a flush. An update reads, merges and writes in one step, and
//! keeps fields that it does not know. The index is saved together with a checksum and the number of the last change
//! that it includes. When memory is opened, later changes are added to the index; if its checksum, model or numbers do
//! not match, it is rebuilt.
//!
//! With [`MemoryOptions::url`], the same records are rows of a PostgreSQL database that several machines share. The
//! folder then holds only requests that the database could not take.
//!
//! # Backlog
//!
//! An answer whose grade is due says so on its engram, from the write that adds it to the write that grades it; see
//! [`Due`]. A [`Holder`] claims such answers, so that no two processes grade the same one.
//!
//! # Quarantine
//!
//! An engram counts as long-term memory once a critic has passed it; see [`Vetting`].
//!
//! # Processes
//!
//! Any number of processes of one user can open a memory. The first owns the folder and serves the others over a Unix
//! socket in it. When it exits, another process becomes the owner with its next request.

mod attempts;
mod backlog;
mod backup;
mod commits;
mod due;
mod engram;
mod error;
mod files;
mod filters;
mod fresh_store;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod holder;
mod index;
mod judged;
mod local;
mod lock;
mod options;
mod outline;
mod question_type;
mod records;
mod repair;
mod request;
mod salvage;
mod sharing;
mod statistics;
mod storage;
mod store;
mod vetting;
pub mod words;

pub use backlog::{BacklogEntry, Due};
pub use engram::{Compared, Engram, EngramKind};
pub use error::{MemoryError, TransferError};
pub use filters::{EventFilter, Filters, Whose, WithinScope, is_within_scope};
pub use holder::Holder;
pub use options::{Matching, MemoryOptions, MergeDocuments, Ranking};
pub use outline::{ComparedOutline, GradeOutline, Outline};
pub use question_type::QuestionType;
pub use repair::{Repaired, repair};
pub use request::Update;
pub use salvage::Source;
pub use statistics::{ComparisonTally, JudgeTally, Scores, Statistics, Tally, Verification};
pub use store::{
    Documents, EventFollower, Fact, Imported, MemoryStore, MoveProgress, Moved, RecallQuestion, WithVector,
};
pub use vetting::{Criticized, CritiqueRecord, Ruling, Vetting};
