//! Finds the real files that tests read.

use hone_engine::Tokenizer;
use hone_engine::gguf::Gguf;

/// The built-in model.
pub(crate) fn smollm2() -> Gguf {
    Gguf::open(&crate::support::smollm2()).unwrap_or_else(|error| panic!("{error}"))
}

/// A vocabulary without a model, by the name that llama.cpp has for it.
pub(crate) fn vocabulary(name: &str) -> Gguf {
    Gguf::open(&crate::support::test_model(&format!("vocab-{name}.gguf"))).unwrap_or_else(|error| panic!("{error}"))
}

/// The vocabulary of Llama 2 and Mistral, without a model.
pub(crate) fn llama_vocabulary() -> Gguf {
    vocabulary("llama-spm")
}

/// The tokenizer in a file.
pub(crate) fn tokenizer(gguf: &Gguf) -> Tokenizer {
    Tokenizer::from_gguf(gguf).unwrap_or_else(|error| panic!("{error}"))
}
