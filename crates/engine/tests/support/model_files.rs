//! Finds the real files that tests read.

#![allow(dead_code, reason = "every test uses a part of it")]

use std::path::{Path, PathBuf};

use hone_engine::gguf::Gguf;
use hone_engine::tokenizer::Tokenizer;

/// The built-in model.
pub(crate) fn smollm2() -> Gguf {
    let folder = std::env::var("HONE_TEST_MODELS").unwrap_or_else(|_| {
        panic!("HONE_TEST_MODELS is not set: point it at the folder that holds SmolLM2-135M-Instruct.Q4_1.gguf")
    });
    open(&PathBuf::from(folder).join("SmolLM2-135M-Instruct.Q4_1.gguf"), "HONE_TEST_MODELS")
}

/// The vocabulary of Llama 2 and Mistral, without a model.
pub(crate) fn llama_vocabulary() -> Gguf {
    let beside_the_workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("HONE_TEST_REFERENCE").map_or(beside_the_workspace, PathBuf::from);
    open(&folder.join("vocab-llama-spm.gguf"), "HONE_TEST_REFERENCE")
}

/// The tokenizer in a file.
pub(crate) fn tokenizer(gguf: &Gguf) -> Tokenizer {
    Tokenizer::from_gguf(gguf).unwrap_or_else(|error| panic!("{error}"))
}

fn open(path: &Path, variable: &str) -> Gguf {
    Gguf::open(path).unwrap_or_else(|error| panic!("{error}: set {variable} to the folder that holds the file"))
}
