//! The norm after a decoder's last layer, applied to states that a head or an embedding reads.

use hone_kernels::dequantize;

use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;

/// The RMS norm before the logits.
pub(crate) struct OutputNorm {
    weight: Vec<f32>,
    epsilon: f32,
}

impl OutputNorm {
    /// Reads the norm of a decoder.
    ///
    /// # Errors
    /// When it is missing, or has another size than the states.
    pub(crate) fn read(gguf: &Gguf, spec: &DecoderSpec) -> Result<OutputNorm, String> {
        let name = &format!("{}.weight", spec.output_norm);
        let tensor = gguf.tensor(name).ok_or_else(|| format!("the tensor {name} is missing"))?;
        if tensor.n_elements() != spec.hidden_size {
            return Err(format!("the tensor {name} has {} elements, not {}", tensor.n_elements(), spec.hidden_size));
        }
        let mut weight = vec![0.0; spec.hidden_size];
        dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut weight);
        Ok(OutputNorm { weight, epsilon: spec.norm_epsilon })
    }

    /// Width of a state.
    pub(crate) fn width(&self) -> usize {
        self.weight.len()
    }

    /// Added to the mean square.
    pub(crate) fn epsilon(&self) -> f32 {
        self.epsilon
    }

    /// Adds a state to a sum, normed.
    pub(crate) fn add_normed(&self, state: &[f32], sum: &mut [f32]) {
        let mean_square = state.iter().map(|value| value * value).sum::<f32>() / state.len() as f32;
        let scale = (mean_square + self.epsilon).sqrt().recip();
        for ((sum, value), weight) in sum.iter_mut().zip(state).zip(&self.weight) {
            *sum += value * scale * weight;
        }
    }
}
