//! Runs GGUF models in this process: file format, tokenizer, chat template, decoder, KV cache, sampling, constraints, and
//! the thread that owns them.

pub mod backend;
pub mod decoder;
pub mod gguf;
pub mod kv_cache;
