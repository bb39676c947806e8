//! What the engine is doing: models, memory, lanes, queue.

use hone_protocol::Lane;
use serde::{Deserialize, Serialize};

use crate::model::CacheUsage;
use crate::scheduler::ModelMemory;
use crate::scheduler::metrics::LaneSummary;

/// What the engine is doing at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Bytes that all models together may take; nothing bounds them without it.
    pub memory_budget: Option<u64>,
    /// The models in memory, those that are being loaded, and those that wait for memory.
    pub models: Vec<ModelStatus>,
    /// What every lane's requests are doing and have gone through, the most urgent first.
    pub lanes: Vec<LaneStatus>,
    /// Requests that wait for a place in a KV cache, in the order in which they will get one.
    pub queue: Vec<QueuedStatus>,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// The name that it was first asked for by.
    pub name: String,
    /// Whether it can run.
    pub state: ModelState,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// Bytes of its KV cache when it is full.
    pub kv_cache_bytes: u64,
    /// Blocks of its KV cache.
    pub cache: CacheUsage,
    /// Blocks that are reserved for requests.
    pub reserved_blocks: usize,
    /// Requests that wait or run.
    pub requests: usize,
    /// Seconds since its last request; `None` while it has some.
    pub idle_seconds: Option<f64>,
}

impl ModelStatus {
    /// A model that is not in memory, and for which so many requests wait.
    pub(super) fn awaited(name: &str, state: ModelState, memory: ModelMemory, requests: usize) -> Self {
        ModelStatus {
            name: name.to_owned(),
            state,
            weight_bytes: memory.weights,
            kv_cache_bytes: memory.kv_cache,
            cache: CacheUsage::default(),
            reserved_blocks: 0,
            requests,
            idle_seconds: None,
        }
    }
}

/// Whether a model can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelState {
    /// It waits until others leave memory.
    Waiting,
    /// It is being loaded.
    Loading,
    /// It can run.
    Ready,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// Requests that wait for a place in a KV cache.
    pub queued: usize,
    /// Requests that have one.
    pub running: usize,
    /// What its requests have gone through.
    #[serde(flatten)]
    pub metrics: LaneSummary,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedStatus {
    /// The name of its model.
    pub model: String,
    /// Its lane.
    pub lane: Lane,
    /// Its place among those of its lane, from 1.
    pub position: usize,
    /// Seconds that it is expected to wait yet.
    pub wait_seconds: f64,
}
