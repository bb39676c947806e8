//! A decoder in a GGUF file that was trained for vectors, such as Qwen3-Embedding: the residual stream after the last layer,
//! normed as for the logits, of the last token or as the mean of all, as the file says (`pooling_type`).
//!
//! <https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h> (`llama_pooling_type`).

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use hone_kernels::dequantize;
use hone_protocol::{ModelFile, TextLength, with_causes};

use super::tokens::{self, MAX_TOKENS};
use super::vectors::{Vectors, normalized};
use crate::backend::DeviceChoice;
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, GgufError};
use crate::kv_cache::CachedSequence;
use crate::model::{Advance, LoadOptions, Model, ModelError, ModelOptions};

/// Tokens that are computed at once.
const PIECE_TOKENS: usize = 512;

/// Whose states make a text's vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderPooling {
    /// The mean of all tokens.
    Mean,
    /// The last token, which has seen all others.
    Last,
}

impl DecoderPooling {
    fn of(gguf: &Gguf) -> Result<DecoderPooling, String> {
        let failed = |error: GgufError| with_causes(&error);
        let text = |key: &str| gguf.string(key).map_err(failed).map(Option::unwrap_or_default);
        let architecture = text("general.architecture")?;
        let is_named_so = text("general.name")?.to_lowercase().contains("embed");
        match gguf.unsigned(&format!("{architecture}.pooling_type")).map_err(failed)? {
            Some(1) => Ok(DecoderPooling::Mean),
            Some(3) => Ok(DecoderPooling::Last),
            // Older files leave it to the program.
            None | Some(0) if is_named_so => Ok(DecoderPooling::Last),
            None | Some(0) => Err("it is a model that answers, and was not trained for vectors".to_owned()),
            Some(other) => {
                Err(format!("its pooling ({other}) is not supported: only the mean (1) and the last token (3) are"))
            }
        }
    }
}

/// The loaded model.
pub(super) struct Decoder {
    model: Mutex<Model>,
    pooling: DecoderPooling,
    /// By which normed states are multiplied.
    norm_weight: Vec<f32>,
    norm_epsilon: f32,
}

impl Decoder {
    /// Loads the model on the processor.
    ///
    /// # Errors
    /// When the file is broken, not supported, or not made for vectors.
    pub(super) fn load(file: &ModelFile) -> Result<Decoder, String> {
        let gguf = Gguf::open_region(file).map_err(|error| with_causes(&error))?;
        let pooling = DecoderPooling::of(&gguf)?;
        let options = ModelOptions {
            device: DeviceChoice::Cpu,
            context_length: Some(MAX_TOKENS),
            n_sequences: 1,
            ..ModelOptions::default()
        };
        let load = LoadOptions { states_of_last_layer: true, ..options.into() };
        let model = Model::load(file, load).map_err(|error| with_causes(&error))?;
        let norm_weight = norm_weight(&gguf, model.spec())?;
        let norm_epsilon = model.spec().norm_epsilon;
        Ok(Decoder { model: Mutex::new(model), pooling, norm_weight, norm_epsilon })
    }

    fn vector(&self, model: &mut Model, tokens: &[u32]) -> Result<Vec<f32>, String> {
        let mut sequence = CachedSequence::default();
        let pooled = self.pooled(model, &mut sequence, tokens);
        model.release(sequence);
        normalized(pooled.map_err(|error| with_causes(&error))?)
    }

    fn pooled(&self, model: &mut Model, sequence: &mut CachedSequence, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        let mut sum = vec![0.0; self.norm_weight.len()];
        let mut is_left = tokens.len();
        for piece in tokens.chunks(PIECE_TOKENS) {
            is_left -= piece.len();
            let logits = self.wanted(piece.len(), is_left == 0);
            let entry = Advance { sequence: &mut *sequence, tokens: piece, logits };
            for row in model.advance(&mut [entry])?.rows_with_states() {
                self.add_normed(row.state, &mut sum);
            }
        }
        Ok(sum)
    }

    /// The tokens of a piece whose states count.
    fn wanted(&self, n_tokens: usize, is_last: bool) -> Range<usize> {
        match self.pooling {
            DecoderPooling::Mean => 0..n_tokens,
            DecoderPooling::Last if is_last => n_tokens - 1..n_tokens,
            DecoderPooling::Last => n_tokens..n_tokens,
        }
    }

    /// Adds a state after RMS norm.
    fn add_normed(&self, state: &[f32], sum: &mut [f32]) {
        let mean_square = state.iter().map(|value| value * value).sum::<f32>() / state.len() as f32;
        let scale = (mean_square + self.norm_epsilon).sqrt().recip();
        for ((sum, value), weight) in sum.iter_mut().zip(state).zip(&self.norm_weight) {
            *sum += value * scale * weight;
        }
    }
}

fn norm_weight(gguf: &Gguf, spec: &DecoderSpec) -> Result<Vec<f32>, String> {
    let name = &format!("{}.weight", spec.output_norm);
    let tensor = gguf.tensor(name).ok_or_else(|| format!("the tensor {name} is missing"))?;
    if tensor.n_elements() != spec.hidden_size {
        return Err(format!("the tensor {name} has {} elements, not {}", tensor.n_elements(), spec.hidden_size));
    }
    let mut weights = vec![0.0; spec.hidden_size];
    dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut weights);
    Ok(weights)
}

impl Vectors for Decoder {
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, String> {
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        tokens::lengths(model.tokenizer(), model.context_length(), texts)
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let vector = |text: &&str| {
            let (tokens, _) = tokens::of_text(model.tokenizer(), model.context_length(), text)?;
            self.vector(&mut model, &tokens)
        };
        texts.iter().map(vector).collect()
    }
}
