//! The predictions of a model's head after the next token.

use super::{Model, ModelError};
use crate::backend::BatchEntry;
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorInfo};
use crate::kv_cache::CachedSequence;
use crate::sampler::argmax;

/// Maximum number of tokens that a sequence may lack before the one that a prediction starts from. The head then sees
/// its own last results for them.
const MOST_MISSING: usize = 16;

impl Model {
    /// Cost of a prediction by the head, in steps.
    pub(crate) fn head_cost(&self) -> f32 {
        self.head_cost
    }

    /// Appends up to `most` tokens to `predicted` that the head expects after `tokens`. Not all of these have to be in
    /// the sequence, but `hidden` must be the model's output for the second-to-last one. The sequence stays as it is.
    ///
    /// # Errors
    /// When the cache has no room or the device fails.
    pub(crate) fn predict(
        &mut self,
        sequence: &mut CachedSequence,
        tokens: &[u32],
        hidden: &[f32],
        most: usize,
        predicted: &mut Vec<u32>,
    ) -> Result<(), ModelError> {
        let (n_before, n_after) = (sequence.n_tokens(), tokens.len() + most);
        let is_near = tokens.len() <= n_before + MOST_MISSING;
        if hidden.is_empty() || most == 0 || !is_near || n_after > self.context_length() {
            return Ok(());
        }
        self.lengthen(sequence, n_after - n_before)?;
        let outcome = self.predict_after(sequence, tokens, hidden, most, predicted);
        self.cache.truncate(sequence, n_before);
        outcome
    }

    fn predict_after(
        &mut self,
        sequence: &CachedSequence,
        tokens: &[u32],
        hidden: &[f32],
        most: usize,
        predicted: &mut Vec<u32>,
    ) -> Result<(), ModelError> {
        let (Some(mut token), mut hidden) = (tokens.last().copied(), hidden.to_vec()) else { return Ok(()) };
        for position in (tokens.len() - 1..).take(most) {
            let blocks = sequence.blocks();
            let entry = BatchEntry { tokens: &[token], position, blocks, logits: 0..1, states: None };
            let Some(logits) = self.backend.predict(&entry, &hidden)? else { break };
            let Some(row) = logits.rows_with_states().next() else { break };
            token = argmax(&row.logits[..self.text.tokenizer().n_tokens()]);
            if self.text.tokenizer().is_end_of_generation(token) {
                break;
            }
            predicted.push(token);
            hidden.copy_from_slice(row.hidden);
        }
        Ok(())
    }
}

/// Cost of a prediction, in steps: in both, reading the weights takes the time.
pub(super) fn head_cost(gguf: &Gguf, spec: &DecoderSpec) -> f32 {
    if spec.head.is_none() {
        return 0.0;
    }
    let block = format!("blk.{}.", spec.layers.len());
    let read = |tensor: &TensorInfo| match (&spec.experts, tensor.name.contains("_exps.")) {
        (Some(experts), true) => tensor.n_bytes as f32 * experts.n_used as f32 / experts.n_experts as f32,
        _ => tensor.n_bytes as f32,
    };
    let output = if spec.tied_embeddings { "token_embd.weight" } else { "output.weight" };
    let (mut of_head, mut of_step) = (0.0, 0.0);
    for tensor in gguf.tensors() {
        let is_output = tensor.name == output;
        let is_of_head = tensor.name.starts_with(&block);
        of_head += if is_of_head || is_output { read(tensor) } else { 0.0 };
        of_step += if is_output || tensor.name.starts_with("blk.") && !is_of_head { read(tensor) } else { 0.0 };
    }
    of_head / of_step.max(1.0)
}
