//! Position encodings.

use std::ops::Range;

use candle_core::{Device, Result as CandleResult, Tensor};
use candle_nn::rotary_emb::rope;

/// The rotations of a text's positions; without a base nothing is rotated.
pub(super) struct Positions {
    /// Cosines and sines.
    angles: Option<(Tensor, Tensor)>,
}

impl Positions {
    pub(super) fn new(n_tokens: usize, head_dim: usize, base: Option<f32>) -> CandleResult<Positions> {
        let Some(base) = base else { return Ok(Positions { angles: None }) };
        let n_pairs = head_dim / 2;
        let frequencies: Vec<f32> =
            (0..n_pairs).map(|pair| base.powf(-((2 * pair) as f32) / head_dim as f32)).collect();
        let angles = (0..n_tokens).flat_map(|position| frequencies.iter().map(move |step| position as f32 * step));
        let angles = Tensor::from_iter(angles, &Device::Cpu)?.reshape((n_tokens, n_pairs))?;
        Ok(Positions { angles: Some((angles.cos()?, angles.sin()?)) })
    }

    /// Heads of `[texts, heads, tokens, head_dim]`, turned in halves.
    pub(super) fn turned(&self, heads: Tensor) -> CandleResult<Tensor> {
        match &self.angles {
            Some((cosines, sines)) => rope(&heads, cosines, sines),
            None => Ok(heads),
        }
    }
}

/// A mask added to the scores of these queries and keys, so that nothing farther away than `reach` is seen.
pub(super) fn mask(queries: Range<usize>, keys: Range<usize>, reach: usize) -> CandleResult<Tensor> {
    let shape = (1, 1, queries.len(), keys.len());
    let pairs = queries.flat_map(|query| keys.clone().map(move |key| query.abs_diff(key)));
    let scores = pairs.map(|distance| if distance > reach { f32::NEG_INFINITY } else { 0.0 });
    Tensor::from_iter(scores, &Device::Cpu)?.reshape(shape)
}
