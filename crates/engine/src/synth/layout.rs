//! The contents of a model's file: its metadata, and its tensors with the spread of their weights.
//!
//! Keys and tensors are named as in `gguf-py/gguf/constants.py`; which keys an architecture has follows
//! `convert_hf_to_gguf` of the same project (<https://github.com/ggml-org/llama.cpp>). Two of its conventions do not
//! show in random weights: `llama` files store the rows of queries and keys permuted for interleaved rotation, and
//! Gemma's norm weights already include the 1 that the model adds to them.

mod feed_forward;
mod metadata;
mod mixers;

use super::quantization::MatrixRole;
use super::{Quantization, RopeScaling, Shape};
use crate::gguf::TensorType;
pub(super) use metadata::metadata;

/// Standard deviation of the logits.
const LOGIT_SPREAD: f32 = 3.0;
/// Standard deviation of query–key products before the softmax: enough for attention to favor some positions.
const SCORE_SPREAD: f32 = 1.5;
/// Root mean square of silu(x)·y and gelu(x)·y, where x and y are normally distributed.
const GATED_SPREAD: f32 = 0.6;
/// Ratio of the sum of all branches to the embedding that it is added to. If it were small, a model that uses one
/// matrix for embeddings and logits would find the last token in its hidden state and repeat it indefinitely.
const BRANCHES_TO_EMBEDDING: f32 = 12.0;
/// Relative standard deviation of norm weights and factors around their mean.
const RELATIVE_SPREAD: f32 = 0.1;
const BIAS_SPREAD: f32 = 0.3;

/// Mean and standard deviation of random weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Distribution {
    pub(super) mean: f32,
    pub(super) standard_deviation: f32,
}

/// The contents of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Random(Distribution),
    Values(Vec<f32>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedTensor {
    pub(super) name: String,
    pub(super) dimensions: Vec<usize>,
    pub(super) tensor_type: TensorType,
    pub(super) content: Content,
}

impl PlannedTensor {
    pub(super) fn n_elements(&self) -> usize {
        self.dimensions.iter().product()
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.n_elements() / self.tensor_type.block_elements() * self.tensor_type.block_bytes()
    }

    /// Number of trained weights, which excludes factors of the position encoding.
    pub(super) fn n_parameters(&self) -> u64 {
        if matches!(self.content, Content::Random(_)) { self.n_elements() as u64 } else { 0 }
    }
}

/// Every tensor of the model, in the order of the file.
pub(super) fn tensors(shape: &Shape, quantization: Quantization, vocab_size: usize) -> Vec<PlannedTensor> {
    let mut plan = LayoutPlan { shape, quantization, tensors: Vec::new() };
    let hidden_size = shape.hidden_size;
    let logit_weights = plan.logit_weights();
    let embedding_role = plan.embedding_role();
    plan.matrix("token_embd.weight", embedding_role, &[hidden_size, vocab_size], logit_weights);
    plan.rope_factors();
    plan.layer_inputs(vocab_size);
    for layer in 0..shape.n_blocks() {
        plan.mixer(layer);
        plan.feed_forward(layer);
        if layer >= shape.n_layers {
            plan.predicting(layer);
        }
    }
    plan.norm(shape.architecture.output_norm(), hidden_size, 1.0);
    if !shape.tied_embeddings {
        plan.matrix("output.weight", MatrixRole::Output, &[hidden_size, vocab_size], logit_weights);
    }
    plan.tensors
}

struct LayoutPlan<'a> {
    shape: &'a Shape,
    quantization: Quantization,
    tensors: Vec<PlannedTensor>,
}

impl LayoutPlan<'_> {
    /// Standard deviation of a matrix that gives 1 per element for an input of 1 per element.
    fn spread_from_hidden(&self) -> f32 {
        (self.shape.hidden_size as f32).sqrt().recip()
    }

    /// Standard deviation of the weights that make the logits.
    fn logit_weights(&self) -> f32 {
        let divisor = self.shape.multipliers.map_or(1.0, |multipliers| multipliers.logit_divisor);
        divisor * LOGIT_SPREAD / (self.shape.hidden_size as f32).sqrt()
    }

    fn embedding_role(&self) -> MatrixRole {
        if self.shape.tied_embeddings { MatrixRole::Output } else { MatrixRole::Plain }
    }

    /// Standard deviation of the outputs that attention and feed-forward each add to the residual stream: over all
    /// layers they sum to a multiple of the embedding, and to at least 1.
    fn branch_spread(&self) -> f32 {
        let embedding_scale = match self.shape.multipliers {
            Some(multipliers) => multipliers.embedding / multipliers.branch,
            None if self.shape.architecture.is_gemma() => (self.shape.hidden_size as f32).sqrt(),
            None => 1.0,
        };
        let embedding = embedding_scale * self.logit_weights();
        (BRANCHES_TO_EMBEDDING * embedding).max(1.0) / (2.0 * self.shape.n_layers as f32).sqrt()
    }

    fn rope_factors(&mut self) {
        let n_pairs = self.shape.head_dim / 2;
        if self.shape.gemma4.is_some() {
            // Layers that see everything rotate a quarter of the pairs, and the others so slowly that they stand still.
            let divisor = |pair: usize| if pair < n_pairs / 4 { 1.0 } else { 1e30 };
            self.values("rope_freqs.weight", (0..n_pairs).map(divisor).collect());
        }
        match self.shape.rope_scaling {
            RopeScaling::None | RopeScaling::Linear(_) | RopeScaling::Yarn { .. } => {}
            RopeScaling::Llama3 { .. } => self.values("rope_freqs.weight", llama3_divisors(self.shape)),
            RopeScaling::LongRope { original_context } => {
                let stretch = self.shape.context_length as f32 / original_context as f32;
                let rising = |last: f32| {
                    (0..n_pairs).map(|pair| 1.0 + (last - 1.0) * pair as f32 / n_pairs as f32).collect::<Vec<_>>()
                };
                self.values("rope_factors_long.weight", rising(2.0 * stretch));
                self.values("rope_factors_short.weight", rising(1.5));
            }
        }
    }

    fn matrix(&mut self, name: &str, role: MatrixRole, dimensions: &[usize], standard_deviation: f32) {
        let tensor_type = self.quantization.tensor_type(role, dimensions[0]);
        let content = Content::Random(Distribution { mean: 0.0, standard_deviation });
        self.tensors.push(PlannedTensor { name: name.into(), dimensions: dimensions.to_vec(), tensor_type, content });
    }

    fn norm(&mut self, name: &str, len: usize, mean: f32) {
        self.vector(name, len, mean, RELATIVE_SPREAD * mean);
    }

    fn vector(&mut self, name: &str, len: usize, mean: f32, standard_deviation: f32) {
        self.floats(name, &[len], mean, standard_deviation);
    }

    /// Weights that are never quantized.
    fn floats(&mut self, name: &str, dimensions: &[usize], mean: f32, standard_deviation: f32) {
        let content = Content::Random(Distribution { mean, standard_deviation });
        self.tensors.push(PlannedTensor {
            name: name.into(),
            dimensions: dimensions.to_vec(),
            tensor_type: TensorType::F32,
            content,
        });
    }

    fn values(&mut self, name: &str, values: Vec<f32>) {
        self.tensors.push(PlannedTensor {
            name: name.into(),
            dimensions: vec![values.len()],
            tensor_type: TensorType::F32,
            content: Content::Values(values),
        });
    }
}

/// Divisors of the rotary frequencies as in Llama 3.1 (`LlamaModel.generate_extra_tensors` of `convert_hf_to_gguf`,
/// `_compute_llama3_parameters` of transformers): 1 for high frequencies, the factor for low ones, and a smooth
/// transition between them.
fn llama3_divisors(shape: &Shape) -> Vec<f32> {
    let RopeScaling::Llama3 { factor, low_frequency_turns, high_frequency_turns, original_context } =
        shape.rope_scaling
    else {
        return Vec::new();
    };
    let divisor = |pair: usize| {
        let frequency = shape.rope_base.powf(-2.0 * pair as f32 / shape.head_dim as f32);
        let turns = original_context as f32 * frequency / (2.0 * std::f32::consts::PI);
        let kept = (turns - low_frequency_turns) / (high_frequency_turns - low_frequency_turns);
        let kept = kept.clamp(0.0, 1.0);
        ((1.0 - kept) / factor + kept).recip()
    };
    (0..shape.head_dim / 2).map(divisor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tensor `rope_freqs.weight` of the Llama 3.2 1B files: 1 for the first pairs, 32 for the last.
    #[test]
    fn llama3_divides_low_frequencies_only() {
        let divisors = llama3_divisors(&Shape::named("llama-1b").unwrap());
        assert_eq!(divisors.len(), 32);
        assert_eq!(divisors[..15], [1.0; 15]);
        assert!(divisors[15..18].windows(2).all(|pair| pair[0] < pair[1]), "{divisors:?}");
        assert_eq!(divisors[18..], [32.0; 14]);
    }

    #[test]
    fn parameters_add_up_to_those_of_the_models() {
        let check = |name: &str, vocab_size: usize, expected: u64| {
            let shape = Shape::named(name).unwrap();
            let tensors = tensors(&shape, Quantization::Q4_K_M, vocab_size);
            assert_eq!(tensors.iter().map(PlannedTensor::n_parameters).sum::<u64>(), expected, "{name}");
        };
        check("mistral-7b", 32_000, 7_241_732_096);
        check("llama-1b", 128_256, 1_235_814_400);
        check("qwen3-4b", 151_936, 4_022_468_096);
        check("qwen3-30b-a3b", 151_936, 30_532_122_624);
        check("gpt-oss-20b", 201_088, 20_914_757_184);
        check("lfm2-1.2b", 65_536, 1_170_340_608);
        // Biases of the choice of experts are not counted among the parameters.
        check("lfm2-8b-a1b", 65_536, 8_339_929_856 + 22 * 32);
    }
}
