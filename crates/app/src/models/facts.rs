//! The metadata of a GGUF file.

use std::collections::BTreeMap;

use hone_engine::DecoderSpec;
use hone_engine::gguf::{Gguf, GgufError, Value};
use hone_protocol::ModelFile;
use serde::Serialize;

/// The metadata of a GGUF file; `None` for missing values.
#[derive(Debug, Serialize)]
pub struct GgufFacts {
    /// The name of its architecture.
    pub architecture: Option<String>,
    /// The name given by its makers.
    pub title: Option<String>,
    /// The number of elements in its tensors.
    pub n_parameters: usize,
    /// The longest context it was trained for, in tokens.
    pub context_length: Option<u64>,
    /// The number of its decoder blocks.
    pub block_count: Option<u64>,
    /// Whether it has a head that predicts further tokens, for speculative decoding.
    pub has_head: bool,
    /// The number of its tokens.
    pub vocabulary_size: Option<usize>,
    /// The number of tensors of each type.
    pub tensor_types: BTreeMap<&'static str, usize>,
}

impl GgufFacts {
    /// Reads the header of `file`.
    ///
    /// # Errors
    /// When it is not a GGUF file, or is broken.
    pub fn read(file: &ModelFile) -> Result<GgufFacts, GgufError> {
        GgufFacts::of(&Gguf::open_region(file)?)
    }

    /// Reads the metadata of an open file.
    ///
    /// # Errors
    /// When a value is not of its type.
    pub fn of(gguf: &Gguf) -> Result<GgufFacts, GgufError> {
        let architecture = gguf.string("general.architecture")?.map(str::to_string);
        let of_architecture = |name: &str| match &architecture {
            Some(architecture) => gguf.unsigned(&format!("{architecture}.{name}")),
            None => Ok(None),
        };
        let vocabulary_size = match gguf.value("tokenizer.ggml.tokens") {
            Some(Value::Array(tokens)) => Some(tokens.len()),
            _ => None,
        };
        let mut tensor_types = BTreeMap::new();
        for tensor in gguf.tensors() {
            *tensor_types.entry(tensor.tensor_type.name()).or_default() += 1;
        }
        Ok(GgufFacts {
            title: gguf.string("general.name")?.map(str::to_string),
            n_parameters: gguf.tensors().map(|tensor| tensor.n_elements()).sum(),
            context_length: of_architecture("context_length")?,
            block_count: of_architecture("block_count")?,
            has_head: DecoderSpec::from_gguf(gguf, None).is_ok_and(|spec| spec.has_head()),
            architecture,
            vocabulary_size,
            tensor_types,
        })
    }
}
