//! Runs GGUF models in this process, without any other program.
//!
//! Everything that other crates use is on this page:
//!
//! | purpose | items |
//! | --- | --- |
//! | answering requests | [`EngineHandle`], the handle to the thread that owns the device and all models; [`EngineOptions`]; [`EngineStatus`] reports its state |
//! | one model without an engine | [`Model`], [`ModelOptions`] and [`LoadOptions`]; [`check_file`] tells whether a file can be run; [`DecoderSpec`] describes its decoder |
//! | text | [`Tokenizer`] and [`ChatTemplate`]; templates of files run where [`TemplateHost`] says, in the process that [`template_worker`] serves |
//! | vectors, and scores of texts | [`Embedder`] and [`Reranker`] |
//! | measurements | [`perplexity()`] and [`SpeedTest`] |
//! | files | [`gguf`] reads and writes them, and [`synth`] makes models of any size |
//!
//! The path of a request: [`EngineHandle`] renders and tokenizes it on the caller's thread and sends it to the engine's
//! thread. There the scheduler, which knows neither tensors nor clocks, picks the requests of each step and the models
//! that may be in memory. A model looks up the cached part of the prompt, and its backend computes the rest: `native`
//! on the processor with `hone-kernels`, or `candle` on any device. Both run the decoder that the file's metadata
//! describes. Tokens are chosen by a sampler, within a constraint if the request has one, and returned as text.

mod backend;
mod constraint;
mod decoder;
mod embedder;
mod encoder;
mod engine;
pub mod gguf;
mod heads;
mod kv_cache;
mod lazy;
mod logprobs;
mod memory_bandwidth;
mod model;
mod perplexity;
mod pooled_decoder;
mod pooling;
mod repetition;
mod reranker;
mod reuse;
mod sampler;
mod scheduler;
mod speculation;
mod speed;
pub mod synth;
mod template;
mod text_stream;
mod tokenizer;

// The engine.
pub use engine::status::{EngineStatus, LaneStatus, ModelState, ModelStatus, QueuedStatus};
pub use engine::{EngineError, EngineHandle, EngineOptions};
pub use scheduler::SchedulerSettings;
pub use scheduler::metrics::{LaneCounts, LaneSummary, TimeSummary};

// Models.
pub use backend::{ActivationBits, BackendError, DeviceChoice, LoadProgress, Logits, Row};
pub use decoder::{DecoderSpec, SpecError};
pub use hone_kernels::platform::InstructionSet;
pub use kv_cache::{BLOCK_TOKENS, CacheFull, CachedSequence, KvFormat};
pub use memory_bandwidth::memory_bandwidth;
pub use model::{
    Advance, BackendChoice, CacheUsage, Card, FileUse, GpuLayers, LoadOptions, Model, ModelError, ModelOptions,
    ModelPurpose, Speculation, check_file, model_purpose,
};

// Text.
pub use constraint::ConstraintError;
pub use template::{Chat, ChatTemplate, Failure, TemplateError, TemplateHost, worker as template_worker};
pub use tokenizer::{EncodeOptions, Tokenizer, TokenizerError};

// Vectors and scores.
pub use embedder::{Embedder, Prefixes};
pub use lazy::Verify;
pub use reranker::Reranker;

// Measurements.
pub use perplexity::{Perplexity, PerplexityError, perplexity};
pub use speed::{SpeedTest, Work, bytes_per_token};

// Unit tests share the helpers of the integration tests, which name this crate.
#[cfg(test)]
use it::support;
#[cfg(test)]
extern crate self as hone_engine;
#[cfg(test)]
#[path = "../tests/it"]
mod it {
    #[allow(dead_code, reason = "some helpers serve the tests from outside only")]
    pub(crate) mod support;
}
