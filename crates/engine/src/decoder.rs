//! One transformer decoder, described by data.
//!
//! A [`DecoderSpec`] is read from a file's metadata and holds everything that a backend must know to run the model:
//! sizes, the placement of norms, and for each layer what mixes its positions (attention, or one of three kinds of
//! recurrence) and the contents of its feed-forward part (a dense one, experts, or both). A new architecture is a row
//! in the table of [`architecture`](self), not a new forward pass.
//!
//! Metadata keys and their meaning: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod architecture;
pub(crate) mod keys;
mod layers;
mod rope;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::gguf::{Gguf, GgufError};
use crate::kv_cache::KvFormat;
pub(crate) use hone_kernels::step::{Gating, RopePairs, StateShape};
pub(crate) use hone_kernels::{Activation, Window};
use keys::Keys;
pub(crate) use rope::RopeTable;

/// Why a file's metadata does not describe a decoder that can be run.
#[derive(Debug, Error)]
pub enum SpecError {
    /// A value is missing, has the wrong type, or is not supported.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A key that every model needs is missing.
    #[error("metadata key {0:?} is missing: the file is not a complete model")]
    Missing(String),
}

/// Placement of RMS norms around attention and feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormPlacement {
    /// Before each of the two.
    Before,
    /// Before each of the two, and after each before it is added to the residual stream.
    BeforeAndAfter,
    /// After each of the two, before it is added to the residual stream.
    After,
}

impl NormPlacement {
    /// Whether attention and feed-forward read the normed residual stream.
    pub(crate) fn is_before(self) -> bool {
        matches!(self, NormPlacement::Before | NormPlacement::BeforeAndAfter)
    }

    /// Whether the outputs of attention and feed-forward are normed.
    pub(crate) fn is_after(self) -> bool {
        matches!(self, NormPlacement::BeforeAndAfter | NormPlacement::After)
    }
}

/// How queries and keys are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// Per head, all with the same weights, before rotation.
    PerHead,
    /// All heads together, before rotation.
    Whole,
    /// Per head, without weights, after rotation.
    BareAfterRotation,
}

/// Queries are multiplied by 1 + rate · ln(1 + ⌊(position + offset) / interval⌋), so that attention stays sharp over
/// long contexts (<https://arxiv.org/abs/2501.19399>).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sharpening {
    /// How fast the factor grows.
    pub rate: f32,
    /// Positions over which the factor is constant.
    pub interval: usize,
    /// Added to the position.
    pub offset: usize,
}

/// Source of a layer's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysAndValues {
    /// The layer computes both.
    Own,
    /// The layer computes keys; values are the keys before they are normed and rotated.
    ValuesAreKeys,
    /// Both come from an earlier layer.
    OfLayer(usize),
}

/// The attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionSpec {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; `n_heads` is a multiple.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// The positions that a token sees; `None` means its own and all before it.
    pub window: Option<Window>,
    /// Index into [`DecoderSpec::ropes`]; `None` if positions are not rotated.
    pub rope: Option<usize>,
    /// Source of keys and values.
    pub keys_and_values: KeysAndValues,
    /// Norm of queries and keys, if any.
    pub qk_norm: Option<QkNorm>,
    /// Growth of queries with their position, if any.
    pub sharpening: Option<Sharpening>,
}

impl AttentionSpec {
    /// Total width of the queries.
    pub(crate) fn query_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Total width of the keys, and of the values.
    pub(crate) fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Whether the layer writes keys and values into the cache.
    pub(crate) fn has_cache(&self) -> bool {
        !matches!(self.keys_and_values, KeysAndValues::OfLayer(_))
    }
}

/// A layer that keeps a state of all earlier tokens in place of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentSpec {
    /// A gated convolution of a few tokens (LFM2: <https://arxiv.org/abs/2511.23404>).
    ShortConvolution {
        /// Taps of the convolution.
        n_taps: usize,
    },
    /// A gated delta net: <https://arxiv.org/abs/2412.06464>.
    DeltaNet {
        /// Taps of the convolution.
        n_taps: usize,
        /// Heads of keys and queries.
        n_key_heads: usize,
        /// Heads of values; a multiple of `n_key_heads`.
        n_value_heads: usize,
        /// Width of a key, and of a value.
        head_dim: usize,
    },
    /// Mamba 2: <https://arxiv.org/abs/2405.21060>.
    Mamba2 {
        /// Taps of the convolution.
        n_taps: usize,
        /// Heads of the inner width.
        n_heads: usize,
        /// Groups that share B and C; `n_heads` is a multiple.
        n_groups: usize,
        /// Width of B and C.
        state_size: usize,
        /// Width of all heads.
        inner_size: usize,
    },
}

impl RecurrentSpec {
    /// Shape of the layer's state, in a model of this hidden size.
    pub(crate) fn state(&self, hidden_size: usize) -> StateShape {
        match *self {
            RecurrentSpec::ShortConvolution { n_taps } => {
                StateShape { n_channels: hidden_size, n_taps, n_heads: 0, key_dim: 0, value_dim: 0 }
            }
            RecurrentSpec::DeltaNet { n_taps, n_key_heads, n_value_heads, head_dim } => StateShape {
                n_channels: (2 * n_key_heads + n_value_heads) * head_dim,
                n_taps,
                n_heads: n_value_heads,
                key_dim: head_dim,
                value_dim: head_dim,
            },
            RecurrentSpec::Mamba2 { n_taps, n_heads, n_groups, state_size, inner_size } => StateShape {
                n_channels: inner_size + 2 * n_groups * state_size,
                n_taps,
                n_heads,
                key_dim: state_size,
                value_dim: inner_size / n_heads,
            },
        }
    }
}

/// The part of a layer that exchanges information between positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mixer {
    /// Attention over a cache of keys and values.
    Attention(AttentionSpec),
    /// A state that every token updates.
    Recurrent(RecurrentSpec),
}

/// The feed-forward part that every token passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DenseSpec {
    /// Width between its two products.
    pub width: usize,
    /// Whether it is the shared expert of a mixture, with tensors named accordingly.
    pub is_shared_expert: bool,
}

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerSpec {
    /// The part before feed-forward.
    pub mixer: Mixer,
    /// The dense feed-forward part, if there is one.
    pub dense: Option<DenseSpec>,
    /// Whether tokens choose experts ([`DecoderSpec::experts`]), alongside the dense part if there is one.
    pub has_experts: bool,
}

impl LayerSpec {
    /// The layer's attention, if it has one.
    pub(crate) fn attention(&self) -> Option<&AttentionSpec> {
        match &self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::Recurrent(_) => None,
        }
    }

    /// The layer's state, if it keeps one.
    pub(crate) fn recurrence(&self) -> Option<&RecurrentSpec> {
        match &self.mixer {
            Mixer::Attention(_) => None,
            Mixer::Recurrent(recurrent) => Some(recurrent),
        }
    }
}

/// The experts of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertsSpec {
    /// Experts of a layer.
    pub n_experts: usize,
    /// Experts that a token chooses.
    pub n_used: usize,
    /// Width between an expert's two products.
    pub width: usize,
    /// How scores become weights.
    pub gating: Gating,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub is_normalized: bool,
    /// Multiplies the weights.
    pub scale: f32,
    /// Whether an expert's weight multiplies its input instead of its output.
    pub weighs_input: bool,
}

/// Everything that a backend must know to run a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Name of the architecture, as in `general.architecture`.
    pub(crate) architecture: &'static str,
    /// One entry per layer.
    pub(crate) layers: Vec<LayerSpec>,
    /// The head that predicts the token after the next one, if the file has one: an attention block that reads the
    /// model's output for a position together with the following token.
    pub(crate) head: Option<LayerSpec>,
    /// Width of the residual stream.
    pub(crate) hidden_size: usize,
    /// Tokens of the vocabulary.
    pub(crate) vocab_size: usize,
    /// Positions that the model was trained for.
    pub(crate) context_length: usize,
    /// Added to the mean square in RMS norms.
    pub(crate) norm_epsilon: f32,
    /// Where norms are placed.
    pub(crate) norm_placement: NormPlacement,
    /// Name of the tensors with the norms before feed-forward parts.
    pub(crate) ffn_norm: &'static str,
    /// Name of the tensor with the last norm.
    pub(crate) output_norm: &'static str,
    /// Whether values are normed, without weights.
    pub(crate) value_norm: bool,
    /// Whether every head's query is followed by a gate for the head's output.
    pub(crate) output_gate: bool,
    /// Whether query, key and value weights are one tensor, in this order, and gate and up weights another.
    pub(crate) fused_projections: bool,
    /// Activation of the gate.
    pub(crate) activation: Activation,
    /// The experts, if there are layers with experts.
    pub(crate) experts: Option<ExpertsSpec>,
    /// Position encodings; layers refer to them by index.
    pub(crate) ropes: Vec<RopeTable>,
    /// Multiplies query–key products before the softmax.
    pub(crate) attention_scale: f32,
    /// Attention scores x become cap · tanh(x / cap).
    pub(crate) attention_soft_cap: Option<f32>,
    /// Logits x become cap · tanh(x / cap).
    pub(crate) logit_soft_cap: Option<f32>,
    /// Multiplies the embeddings.
    pub(crate) embedding_scale: Option<f32>,
    /// Width of each layer's own input besides the residual stream, if layers have one.
    pub(crate) layer_input_width: Option<usize>,
    /// Multiplies the outputs of attention and feed-forward before they are added to the residual stream.
    pub(crate) branch_scale: Option<f32>,
    /// Multiplies the logits.
    pub(crate) logit_scale: Option<f32>,
    /// Whether the embedding matrix also computes the logits.
    pub(crate) tied_embeddings: bool,
    /// The index of the layer after which the residual stream is a position's state; by default, two thirds of the way
    /// through the model.
    pub(crate) state_layer: usize,
}

impl DecoderSpec {
    /// The last layer that stores something for every token: keys and values, or a state. Later tokens see nothing of
    /// the layers after it.
    pub(crate) fn last_kept_layer(&self) -> usize {
        let keeps = |layer: &LayerSpec| layer.attention().is_none_or(AttentionSpec::has_cache);
        self.layers.iter().rposition(keeps).unwrap_or(0)
    }

    /// The numbers of first layers after which the decoder can be cut in two, ascending: no layer behind a cut reads
    /// keys and values of one before it.
    pub(crate) fn cuts(&self) -> std::ops::Range<usize> {
        let source = |layer: &LayerSpec| match layer.attention()?.keys_and_values {
            KeysAndValues::OfLayer(source) => Some(source),
            _ => None,
        };
        let first_source = self.layers.iter().filter_map(source).min();
        1..first_source.map_or(self.layers.len(), |source| source + 1)
    }

    /// The largest number of layers, up to `n_layers`, after which the decoder can be cut: 0 if it cannot be cut there;
    /// `None` if it has no more than `n_layers`.
    pub(crate) fn cut_at(&self, n_layers: usize) -> Option<usize> {
        (n_layers < self.layers.len()).then(|| self.cuts().rfind(|cut| *cut <= n_layers).unwrap_or(0))
    }

    /// The decoder's first layers, without what follows them.
    pub(crate) fn beginning(&self, n_layers: usize) -> DecoderSpec {
        DecoderSpec { layers: self.layers[..n_layers].to_vec(), head: None, ..self.clone() }
    }

    /// Bytes per position in the KV cache: a key and a value in every layer that computes them and in the head, rounded
    /// up to `alignment` per attention head.
    pub(crate) fn kv_bytes_per_position(&self, format: KvFormat, alignment: usize) -> u64 {
        let attentions = self.layers.iter().chain(&self.head).filter_map(LayerSpec::attention);
        let cached = attentions.filter(|attention| attention.has_cache());
        cached
            .map(|attention| {
                (2 * attention.n_kv_heads * format.n_bytes(attention.head_dim).next_multiple_of(alignment)) as u64
            })
            .sum()
    }

    /// Whether the file has a head that predicts further tokens.
    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Whether any layer keeps a state of all earlier tokens.
    pub fn is_recurrent(&self) -> bool {
        self.layers.iter().any(|layer| layer.recurrence().is_some())
    }

    /// Shape of the head's state: the model's output for the last token.
    pub(crate) fn head_state(&self) -> Option<StateShape> {
        let shape = StateShape { n_channels: self.hidden_size, n_taps: 2, n_heads: 0, key_dim: 0, value_dim: 0 };
        self.head.map(|_| shape)
    }

    /// Bytes of one state, summed over the layers that keep one and the head.
    pub(crate) fn state_bytes(&self) -> u64 {
        let shapes = self.layers.iter().filter_map(LayerSpec::recurrence).map(|layer| layer.state(self.hidden_size));
        shapes.chain(self.head_state()).map(|shape| (shape.n_floats() * size_of::<f32>()) as u64).sum()
    }

    /// Reads a model's metadata. `context_length` is the number of positions to be used (`None`: the training length);
    /// some position encodings depend on it.
    ///
    /// # Errors
    /// When the architecture is not supported, or a value is missing, of the wrong type or out of range.
    pub fn from_gguf(gguf: &Gguf, context_length: Option<usize>) -> Result<Self, SpecError> {
        let row = architecture::lookup(gguf)?;
        let keys = Keys { gguf, architecture: row.name };
        let hidden_size = keys.size("embedding_length", 1..=1 << 20)?;
        let trained_context = keys.size("context_length", 1..=1 << 28)?;
        let context = context_length.unwrap_or(trained_context).min(trained_context);
        let experts = layers::experts(&keys, row)?;
        let read = layers::read(&keys, row, hidden_size, experts.as_ref(), context)?;
        let multiplier = |key: &str| if row.multipliers { keys.multiplier(key) } else { Ok(None) };
        let soft_cap = |key: &str| if row.soft_caps { keys.positive_float(key) } else { Ok(None) };
        let state_layer = read.layers.len() * 2 / 3;
        Ok(DecoderSpec {
            architecture: row.name,
            experts: experts.filter(|_| read.layers.iter().any(|layer| layer.has_experts)),
            layers: read.layers,
            head: read.head,
            hidden_size,
            vocab_size: vocab_size(gguf)?,
            context_length: trained_context,
            norm_epsilon: keys.required_positive_float("attention.layer_norm_rms_epsilon")?,
            norm_placement: row.norm_placement,
            ffn_norm: row.ffn_norm,
            output_norm: row.output_norm,
            value_norm: row.value_norm,
            output_gate: row.output_gate,
            fused_projections: row.fused_projections,
            activation: row.activation,
            ropes: read.ropes,
            attention_scale: multiplier("attention.scale")?.unwrap_or(read.attention_scale),
            attention_soft_cap: soft_cap("attn_logit_softcapping")?,
            logit_soft_cap: soft_cap("final_logit_softcapping")?,
            embedding_scale: match row.scaled_embeddings {
                true => Some((hidden_size as f32).sqrt()),
                false => multiplier("embedding_scale")?,
            },
            layer_input_width: keys
                .optional_size("embedding_length_per_layer_input", 0..=1 << 16)?
                .filter(|width| *width > 0),
            branch_scale: multiplier("residual_scale")?,
            logit_scale: multiplier("logit_scale")?.map(f32::recip),
            tied_embeddings: gguf.tensor("output.weight").is_none(),
            state_layer,
        })
    }
}

fn vocab_size(gguf: &Gguf) -> Result<usize, SpecError> {
    let embeddings = gguf.tensor("token_embd.weight").ok_or_else(|| {
        SpecError::Gguf(GgufError::invalid(
            "tensor \"token_embd.weight\"",
            "is missing: the file holds no model, perhaps only a vocabulary",
        ))
    })?;
    embeddings.dimensions.get(1).copied().ok_or_else(|| {
        SpecError::Gguf(GgufError::invalid("tensor \"token_embd.weight\"", "has one dimension where two are expected"))
    })
}
