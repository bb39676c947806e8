//! The head of a reward model: one number for a conversation that ends with an answer.

use super::norm::OutputNorm;
use super::scores::Head;
use crate::decoder::DecoderSpec;
use crate::encoder::HeadActivation;
use crate::gguf::Gguf;

/// The norm after the last layer, and the head.
pub(crate) struct RewardHead {
    norm: OutputNorm,
    head: Head,
}

impl RewardHead {
    /// Reads the head of a decoder.
    ///
    /// # Errors
    /// When it does not fit the decoder.
    pub(crate) fn read(gguf: &Gguf, spec: &DecoderSpec) -> Result<RewardHead, String> {
        let norm = OutputNorm::read(gguf, spec)?;
        let head = Head::read(gguf, norm.width(), norm.epsilon(), HeadActivation::Tanh)?;
        Ok(RewardHead { norm, head })
    }

    /// The reward, from the last layer's state at the last token.
    ///
    /// # Errors
    /// When it is not a number.
    pub(crate) fn reward(&self, state: &[f32]) -> Result<f32, String> {
        let mut normed = vec![0.0; self.norm.width()];
        self.norm.add_normed(state, &mut normed);
        let outputs = self.head.outputs(&[normed])?;
        Ok(outputs.first().map_or(0.0, |outputs| self.head.score(outputs)))
    }
}
