//! Memory: how much it holds, and whether it can be read.

use std::path::Path;

use hone_app::config::MemoryConfig;
use hone_app::memory_options;
use hone_memory::{MemoryOptions, MemoryStore, Whose};
use hone_models::data_folder;
use serde::Serialize;

/// The state of memory.
#[derive(Debug, Default, Serialize)]
pub(super) struct Memory {
    pub(super) answers: u64,
    /// Facts that people have stated about themselves, which are remembered separately.
    pub(super) facts: u64,
    /// Answers and facts that cannot be found by their meaning.
    pub(super) without_vector: u64,
    /// The embedding model in use.
    pub(super) embedder: String,
    /// Why it cannot be read, if it cannot.
    pub(super) problem: Option<String>,
}

impl Memory {
    /// Collects the facts, if memory exists. A folder that cannot be determined is the store's problem.
    pub(super) fn look(config: &MemoryConfig) -> Memory {
        let memory = Memory { embedder: config.embedder.clone(), ..Memory::default() };
        match data_folder().map(|folder| folder.join("memory")) {
            Ok(folder) if folder.is_dir() || config.database().is_some() => {
                memory.count(&folder, memory_options(config))
            }
            _ => memory,
        }
    }

    fn count(self, folder: &Path, options: MemoryOptions) -> Memory {
        match MemoryStore::open(folder, options).and_then(|store| store.statistics(Whose::Everyones)) {
            Ok(statistics) => Memory {
                answers: statistics.all.engrams,
                facts: statistics.facts,
                without_vector: statistics.without_vector(&self.embedder),
                ..self
            },
            Err(error) => Memory { problem: Some(error.to_string()), ..self },
        }
    }
}
