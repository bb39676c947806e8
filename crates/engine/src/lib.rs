//! Runs GGUF models in this process: file format, tokenizer, chat template, decoder, KV cache, sampling, constraints,
//! and the thread that owns them.

pub mod backend;
pub mod constraint;
pub mod decoder;
pub mod embedder;
pub mod engine;
pub mod gguf;
pub mod kv_cache;
pub mod logprobs;
pub mod model;
pub mod perplexity;
mod repetition;
mod reuse;
pub mod sampler;
pub mod scheduler;
mod speculation;
pub mod speed;
pub mod synth;
pub mod template;
pub mod text_stream;
pub mod tokenizer;
