//! Memory's options.

use hone_memory::{MemoryOptions, Ranking};

use crate::config::MemoryConfig;
use crate::conversations;

/// The options according to the configuration.
pub fn memory_options(memory: &MemoryConfig) -> MemoryOptions {
    MemoryOptions {
        embedding_model: memory.embedder.clone(),
        ranking: Ranking {
            person_weight: memory.person_weight,
            comparison_weight: memory.comparison_weight,
            score_weight: memory.score_weight,
            self_score_weight: memory.self_score_weight,
        },
        backups: memory.backups,
        url: memory.database(),
        merge_documents: conversations::merge_versions,
        ..MemoryOptions::default()
    }
}
