//! Runs GGUF models in this process: file format, tokenizer, chat template, decoder, KV cache, sampling, constraints, and
//! the thread that owns them.

pub mod constraint;
pub mod gguf;
pub mod template;
pub mod text_stream;
pub mod tokenizer;
