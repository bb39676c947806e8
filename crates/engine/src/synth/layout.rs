//! The contents of a model's file: its metadata, and its tensors with the spread of their weights.
//!
//! Names of keys and tensors are those of `gguf-py/gguf/constants.py`; which keys an architecture has follows
//! `convert_hf_to_gguf` of the same project (<https://github.com/ggml-org/llama.cpp>). Two of its conventions do not
//! show in random weights: `llama` files store the rows of queries and keys permuted for interleaved rotation, and
//! Gemma's norm weights already include the 1 that the model adds to them.

use crate::gguf::{TensorType, WriteError, WriteValue, Writer};

use super::quantization::Role;
use super::{Architecture, Quantization, RopeScaling, Shape};

/// Standard deviation of the logits.
const LOGIT_SPREAD: f32 = 3.0;
/// Standard deviation of query–key products before the softmax: enough for attention to favor some positions.
const SCORE_SPREAD: f32 = 1.5;
/// Root mean square of silu(x)·y and gelu(x)·y, where x and y are normally distributed.
const GATED_SPREAD: f32 = 0.6;
/// How much larger the sum of all branches is than the embedding that it is added to. Otherwise a model that uses one
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

/// What a tensor holds.
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

/// Adds the model's metadata, except the tokenizer's.
pub(super) fn metadata(
    shape: &Shape,
    quantization: Quantization,
    vocab_size: usize,
    writer: &mut Writer,
) -> Result<(), WriteError> {
    writer.metadata("general.architecture", WriteValue::String(shape.architecture.name()))?;
    writer.metadata("general.name", WriteValue::String(&format!("{}, random weights", shape.name)))?;
    writer.metadata("general.file_type", WriteValue::U32(quantization.file_type()))?;
    writer.metadata("general.quantization_version", WriteValue::U32(2))?;
    let mut keys = Keys { architecture: shape.architecture.name(), writer };
    keys.size("vocab_size", vocab_size)?;
    keys.size("context_length", shape.context_length)?;
    keys.size("embedding_length", shape.hidden_size)?;
    keys.size("block_count", shape.n_layers)?;
    keys.size("feed_forward_length", shape.ffn_size)?;
    keys.size("attention.head_count", shape.n_heads)?;
    keys.size("attention.head_count_kv", shape.n_kv_heads)?;
    keys.float("attention.layer_norm_rms_epsilon", Some(shape.norm_epsilon))?;
    keys.float("rope.freq_base", Some(shape.rope_base))?;
    match shape.architecture {
        Architecture::Llama | Architecture::Phi3 => keys.size("rope.dimension_count", shape.head_dim)?,
        Architecture::Qwen2 => {}
        Architecture::Qwen3 | Architecture::Gemma2 | Architecture::Gemma3 => {
            keys.size("attention.key_length", shape.head_dim)?;
            keys.size("attention.value_length", shape.head_dim)?;
        }
    }
    if let Some(window) = shape.sliding_window {
        keys.size("attention.sliding_window", window)?;
    }
    keys.float("attn_logit_softcapping", shape.attention_soft_cap)?;
    keys.float("final_logit_softcapping", shape.logit_soft_cap)?;
    rope_scaling_metadata(shape, &mut keys)
}

fn rope_scaling_metadata(shape: &Shape, keys: &mut Keys<'_>) -> Result<(), WriteError> {
    match shape.rope_scaling {
        RopeScaling::None | RopeScaling::Llama3 { .. } => Ok(()),
        RopeScaling::Linear(factor) => {
            keys.text("rope.scaling.type", "linear")?;
            keys.float("rope.scaling.factor", Some(factor))
        }
        RopeScaling::LongRope { original_context } => {
            keys.size("rope.scaling.original_context_length", original_context)?;
            let stretch = (shape.context_length as f32 / original_context as f32).max(1.0);
            let attention_factor = (1.0 + stretch.ln() / (original_context as f32).ln()).sqrt();
            keys.float("rope.scaling.attn_factor", Some(attention_factor))
        }
    }
}

/// Every tensor of the model, in the order of the file.
pub(super) fn tensors(shape: &Shape, quantization: Quantization, vocab_size: usize) -> Vec<PlannedTensor> {
    let mut plan = Plan { shape, quantization, tensors: Vec::new() };
    let hidden_size = shape.hidden_size;
    let embedding_role = if shape.tied_embeddings { Role::Output } else { Role::Plain };
    let logit_weights = LOGIT_SPREAD / (hidden_size as f32).sqrt();
    plan.matrix("token_embd.weight", embedding_role, [hidden_size, vocab_size], logit_weights);
    plan.rope_factors();
    for layer in 0..shape.n_layers {
        plan.attention(layer);
        plan.feed_forward(layer);
    }
    plan.norm("output_norm.weight", hidden_size, 1.0);
    if !shape.tied_embeddings {
        plan.matrix("output.weight", Role::Output, [hidden_size, vocab_size], logit_weights);
    }
    plan.tensors
}

/// The metadata keys of one architecture.
struct Keys<'a> {
    architecture: &'static str,
    writer: &'a mut Writer,
}

impl Keys<'_> {
    fn add(&mut self, key: &str, value: WriteValue<'_>) -> Result<(), WriteError> {
        self.writer.metadata(&format!("{}.{key}", self.architecture), value).map(drop)
    }

    fn size(&mut self, key: &str, size: usize) -> Result<(), WriteError> {
        self.add(key, WriteValue::U32(size as u32))
    }

    fn float(&mut self, key: &str, number: Option<f32>) -> Result<(), WriteError> {
        number.map_or(Ok(()), |number| self.add(key, WriteValue::F32(number)))
    }

    fn text(&mut self, key: &str, text: &str) -> Result<(), WriteError> {
        self.add(key, WriteValue::String(text))
    }
}

struct Plan<'a> {
    shape: &'a Shape,
    quantization: Quantization,
    tensors: Vec<PlannedTensor>,
}

impl Plan<'_> {
    fn attention(&mut self, layer: usize) {
        let Shape { architecture, hidden_size, n_heads, n_kv_heads, head_dim, .. } = *self.shape;
        let (queries, keys) = (n_heads * head_dim, n_kv_heads * head_dim);
        let from_hidden = (hidden_size as f32).sqrt().recip();
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        self.norm(&name("attn_norm.weight"), hidden_size, 1.0);
        if architecture == Architecture::Phi3 {
            // Scores are products of queries and keys, so each contributes the square root of the spread.
            let spread = from_hidden * SCORE_SPREAD.sqrt();
            self.matrix(&name("attn_qkv.weight"), Role::FusedAttention, [hidden_size, queries + 2 * keys], spread);
        } else {
            self.matrix(&name("attn_q.weight"), Role::Plain, [hidden_size, queries], from_hidden * SCORE_SPREAD);
            self.matrix(&name("attn_k.weight"), Role::Plain, [hidden_size, keys], from_hidden);
            self.matrix(&name("attn_v.weight"), Role::Sensitive { layer }, [hidden_size, keys], from_hidden);
        }
        if architecture == Architecture::Qwen2 {
            self.vector(&name("attn_q.bias"), queries, 0.0, BIAS_SPREAD);
            self.vector(&name("attn_k.bias"), keys, 0.0, BIAS_SPREAD);
            self.vector(&name("attn_v.bias"), keys, 0.0, BIAS_SPREAD);
        }
        if architecture.has_qk_norm() {
            self.norm(&name("attn_q_norm.weight"), head_dim, SCORE_SPREAD);
            self.norm(&name("attn_k_norm.weight"), head_dim, 1.0);
        }
        let back = self.branch_spread() / (queries as f32).sqrt();
        self.matrix(&name("attn_output.weight"), Role::Plain, [queries, hidden_size], back);
        if architecture.is_gemma() {
            self.norm(&name("post_attention_norm.weight"), hidden_size, self.branch_spread());
        }
    }

    fn feed_forward(&mut self, layer: usize) {
        let Shape { architecture, hidden_size, ffn_size, .. } = *self.shape;
        let from_hidden = (hidden_size as f32).sqrt().recip();
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        self.norm(&name("ffn_norm.weight"), hidden_size, 1.0);
        if architecture == Architecture::Phi3 {
            self.matrix(&name("ffn_up.weight"), Role::Plain, [hidden_size, 2 * ffn_size], from_hidden);
        } else {
            self.matrix(&name("ffn_gate.weight"), Role::Plain, [hidden_size, ffn_size], from_hidden);
            self.matrix(&name("ffn_up.weight"), Role::Plain, [hidden_size, ffn_size], from_hidden);
        }
        let back = self.branch_spread() / GATED_SPREAD / (ffn_size as f32).sqrt();
        self.matrix(&name("ffn_down.weight"), Role::Sensitive { layer }, [ffn_size, hidden_size], back);
        if architecture.is_gemma() {
            self.norm(&name("post_ffw_norm.weight"), hidden_size, self.branch_spread());
        }
    }

    /// Standard deviation of what attention and feed-forward each add to the residual stream: over all layers they sum
    /// to a multiple of the embedding, and to at least 1.
    fn branch_spread(&self) -> f32 {
        let embedding_scale =
            if self.shape.architecture.is_gemma() { (self.shape.hidden_size as f32).sqrt() } else { 1.0 };
        let embedding = embedding_scale * LOGIT_SPREAD / (self.shape.hidden_size as f32).sqrt();
        (BRANCHES_TO_EMBEDDING * embedding).max(1.0) / (2.0 * self.shape.n_layers as f32).sqrt()
    }

    fn rope_factors(&mut self) {
        let n_pairs = self.shape.head_dim / 2;
        match self.shape.rope_scaling {
            RopeScaling::None | RopeScaling::Linear(_) => {}
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

    fn matrix(&mut self, name: &str, role: Role, dimensions: [usize; 2], standard_deviation: f32) {
        let tensor_type = self.quantization.tensor_type(role, dimensions[0], self.shape.n_layers);
        let content = Content::Random(Distribution { mean: 0.0, standard_deviation });
        self.tensors.push(PlannedTensor { name: name.into(), dimensions: dimensions.to_vec(), tensor_type, content });
    }

    fn norm(&mut self, name: &str, len: usize, mean: f32) {
        self.vector(name, len, mean, RELATIVE_SPREAD * mean);
    }

    fn vector(&mut self, name: &str, len: usize, mean: f32, standard_deviation: f32) {
        let content = Content::Random(Distribution { mean, standard_deviation });
        self.tensors.push(PlannedTensor {
            name: name.into(),
            dimensions: vec![len],
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
    }
}
