//! The engine's status: models, memory, lanes, queue.

use hone_protocol::Lane;
use serde::{Deserialize, Serialize};

use crate::model::CacheUsage;
use crate::scheduler::ModelMemory;
use crate::scheduler::metrics::LaneSummary;

/// A snapshot of the engine's status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Bytes that all models together may take; `None` means unlimited.
    pub memory_budget: Option<u64>,
    /// The models in memory, those being loaded, and those waiting for memory.
    pub models: Vec<ModelStatus>,
    /// The requests and statistics of every lane, the most urgent first.
    pub lanes: Vec<LaneStatus>,
    /// Requests waiting for a place in a KV cache, in the order in which they will get one.
    pub queue: Vec<QueuedStatus>,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// The name under which it was first requested.
    pub name: String,
    /// Whether it is ready to run.
    pub state: ModelState,
    /// The device that it runs on; empty while it is not in memory.
    #[serde(default)]
    pub device: String,
    /// Bytes of its weights on that device; of a model on a GPU and the processor, on the GPU.
    pub weight_bytes: u64,
    /// Bytes of its KV cache when it is full.
    pub kv_cache_bytes: u64,
    /// Blocks of its KV cache.
    pub cache: CacheUsage,
    /// Blocks reserved for requests.
    pub reserved_blocks: usize,
    /// Requests that are waiting or running.
    pub requests: usize,
    /// Seconds since its last request; `None` while it has requests.
    pub idle_seconds: Option<f64>,
}

impl ModelStatus {
    /// A model that is not in memory, with the number of requests waiting for it.
    pub(super) fn awaited(name: &str, state: ModelState, memory: ModelMemory, requests: usize) -> Self {
        ModelStatus {
            name: name.to_owned(),
            state,
            device: String::new(),
            weight_bytes: memory.weights,
            kv_cache_bytes: memory.kv_cache,
            cache: CacheUsage::default(),
            reserved_blocks: 0,
            requests,
            idle_seconds: None,
        }
    }
}

/// Whether a model is ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelState {
    /// It waits for other models to leave memory.
    Waiting,
    /// It is being loaded.
    Loading,
    /// It is ready to run.
    Ready,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// Requests waiting for a place in a KV cache.
    pub queued: usize,
    /// Requests that have one.
    pub running: usize,
    /// Statistics of its requests.
    #[serde(flatten)]
    pub metrics: LaneSummary,
}

/// A queued request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedStatus {
    /// The name of its model.
    pub model: String,
    /// Its lane.
    pub lane: Lane,
    /// Its position among the queued requests of its lane, from 1.
    pub position: usize,
    /// Expected remaining wait in seconds.
    pub wait_seconds: f64,
}
