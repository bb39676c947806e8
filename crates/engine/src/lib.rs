//! Runs GGUF models in this process: file format, tokenizer, chat template, decoder, KV cache, sampling, constraints, and
//! the thread that owns them.

pub mod gguf;
pub mod quantized;
pub mod synth;
