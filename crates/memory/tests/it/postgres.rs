//! The suite of memory in a PostgreSQL database, and the tests for databases only.

mod late_documents;
mod moving;
mod rate;
mod sharing;

// Like the tests for a folder, each with a database of its own.
#[allow(clippy::duplicate_mod)]
#[path = "store/suite.rs"]
mod store;

#[path = "../../../../tests/support/postgres.rs"]
mod server;

use hone_memory::{MemoryOptions, MemoryStore};
use tempfile::TempDir;

use server::PostgresServer;

/// Memory in a database of its own, and a folder for requests that the database cannot take.
pub(crate) struct Home {
    pub(crate) server: PostgresServer,
    pub(crate) folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { server: PostgresServer::start(), folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn open(&self) -> MemoryStore {
        self.open_with(MemoryOptions::default())
    }

    pub(crate) fn open_with(&self, options: MemoryOptions) -> MemoryStore {
        let options = MemoryOptions { url: self.url(), ..options };
        MemoryStore::open(self.folder.path(), options).unwrap()
    }

    pub(crate) fn url(&self) -> Option<String> {
        Some(self.server.own_url())
    }
}
