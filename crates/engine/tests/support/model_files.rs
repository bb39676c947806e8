//! Finds the real files that tests read.

#![allow(dead_code, reason = "every test uses a part of it")]

use std::path::{Path, PathBuf};

use hone_engine::gguf::Gguf;
use hone_engine::tokenizer::Tokenizer;

/// The built-in model.
pub(crate) fn smollm2() -> Gguf {
    Gguf::open(&crate::support::smollm2()).unwrap_or_else(|error| panic!("{error}"))
}

/// The vocabulary of Llama 2 and Mistral, without a model.
pub(crate) fn llama_vocabulary() -> Gguf {
    let beside_the_workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("HONE_TEST_REFERENCE").map_or(beside_the_workspace, PathBuf::from);
    let path = folder.join("vocab-llama-spm.gguf");
    Gguf::open(&path).unwrap_or_else(|error| {
        panic!("{error}: set HONE_TEST_REFERENCE to the folder that holds vocab-llama-spm.gguf")
    })
}

/// The tokenizer in a file.
pub(crate) fn tokenizer(gguf: &Gguf) -> Tokenizer {
    Tokenizer::from_gguf(gguf).unwrap_or_else(|error| panic!("{error}"))
}
