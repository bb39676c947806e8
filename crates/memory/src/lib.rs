//! What is remembered: answers, their grades and vectors, and every event.
//!
//! sled is the truth and usearch an index over it that can be thrown away. A [`MemoryStore`] is memory as everybody sees
//! it: it can be cloned, used from any thread, and opened by several processes at once.
//!
//! # How it is kept
//!
//! In the folder, `store/` is sled's and `vectors.index` is usearch's. Every write is one batch of sled's that is on disk
//! when the call returns; writes that come at the same time share a flush. An update reads, merges and writes in one step,
//! and leaves alone what it does not know. The index is saved beside a checksum and the number of the last change that it
//! holds. When memory is opened the changes since then are added, and where checksum, model or numbers do not fit it is
//! built anew.
//!
//! # Who may open it
//!
//! Any number of processes of one person. The first owns the folder and serves the others over a Unix socket in it; when
//! it ends, the next request of another takes its place.

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
mod index;
mod local;
mod options;
mod records;
mod repair;
mod request;
mod salvage;
mod sharing;
mod statistics;
mod storage;
mod store;

pub use engram::{Engram, EngramKind};
pub use error::{MemoryError, TransferError};
pub use filters::{EventFilter, Filters};
pub use options::{MemoryOptions, Ranking};
pub use repair::{Repaired, repair};
pub use request::Update;
pub use salvage::Source;
#[cfg(unix)]
pub use sharing::socket_path;
pub use statistics::{Statistics, Tally, Verification};
pub use store::{EventFollower, Imported, MemoryStore};
