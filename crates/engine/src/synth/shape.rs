//! The shapes of models.

mod known;

use super::SynthError;
use crate::decoder::RecurrentSpec;

/// The architecture of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Architecture {
    Llama,
    Llama4,
    Mistral3,
    SmolLm3,
    Granite,
    GraniteHybrid,
    Olmo2,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Qwen35,
    Qwen35Moe,
    Gemma2,
    Gemma3,
    Gemma4,
    Phi3,
    GptOss,
    Lfm2,
    Lfm2Moe,
}

impl Architecture {
    /// The name in `general.architecture`, which also starts the model's metadata keys.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Llama4 => "llama4",
            Architecture::Mistral3 => "mistral3",
            Architecture::SmolLm3 => "smollm3",
            Architecture::Granite => "granite",
            Architecture::GraniteHybrid => "granitehybrid",
            Architecture::Olmo2 => "olmo2",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
            Architecture::Qwen3Moe => "qwen3moe",
            Architecture::Qwen35 => "qwen35",
            Architecture::Qwen35Moe => "qwen35moe",
            Architecture::Gemma2 => "gemma2",
            Architecture::Gemma3 => "gemma3",
            Architecture::Gemma4 => "gemma4",
            Architecture::Phi3 => "phi3",
            Architecture::GptOss => "gpt-oss",
            Architecture::Lfm2 => "lfm2",
            Architecture::Lfm2Moe => "lfm2moe",
        }
    }

    pub(super) fn is_gemma(self) -> bool {
        matches!(self, Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Gemma4)
    }

    pub(super) fn has_norms_before(self) -> bool {
        self != Architecture::Olmo2
    }

    pub(super) fn has_norms_after(self) -> bool {
        self.is_gemma() || self == Architecture::Olmo2
    }

    /// Whether queries and keys are normed with weights, each head by itself.
    pub(super) fn has_qk_norm(self) -> bool {
        use Architecture::{Gemma3, Gemma4, Lfm2, Lfm2Moe, Qwen3, Qwen3Moe, Qwen35, Qwen35Moe};
        matches!(self, Qwen3 | Qwen3Moe | Qwen35 | Qwen35Moe | Gemma3 | Gemma4 | Lfm2 | Lfm2Moe)
    }

    /// Whether every head's query is followed by a gate.
    pub(super) fn has_output_gate(self) -> bool {
        matches!(self, Architecture::Qwen35 | Architecture::Qwen35Moe)
    }

    /// Whether files give the width of a head, which is otherwise the hidden size per query head.
    pub(super) fn names_head_dim(self) -> bool {
        use Architecture::{GptOss, Llama4, Mistral3, Qwen3, Qwen3Moe, Qwen35, Qwen35Moe, SmolLm3};
        self.is_gemma() || matches!(self, Qwen3 | Qwen3Moe | Qwen35 | Qwen35Moe | GptOss | SmolLm3 | Mistral3 | Llama4)
    }

    /// Whether files say how much of a head is rotated.
    pub(super) fn names_rotated_dim(self) -> bool {
        use Architecture::{
            Gemma4, Granite, GraniteHybrid, Llama, Llama4, Mistral3, Olmo2, Phi3, Qwen35, Qwen35Moe, SmolLm3,
        };
        matches!(self, Llama | Llama4 | Mistral3 | SmolLm3 | Granite | GraniteHybrid | Olmo2)
            || matches!(self, Phi3 | Qwen35 | Qwen35Moe | Gemma4)
    }

    /// The tensor with the norm before the feed-forward part.
    pub(super) fn ffn_norm(self) -> &'static str {
        match self {
            Architecture::Qwen35 | Architecture::Qwen35Moe | Architecture::GptOss => "post_attention_norm.weight",
            _ => "ffn_norm.weight",
        }
    }

    /// The tensor with the last norm.
    pub(super) fn output_norm(self) -> &'static str {
        match self {
            Architecture::Lfm2 | Architecture::Lfm2Moe => "token_embd_norm.weight",
            _ => "output_norm.weight",
        }
    }
}

/// Some of a model's layers, which are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerSet {
    /// The last layer of every n.
    Every(usize),
    /// All layers from this one on.
    From(usize),
    /// These layers.
    These(&'static [usize]),
}

impl LayerSet {
    /// Whether the set contains the layer.
    pub fn contains(self, layer: usize) -> bool {
        match self {
            LayerSet::Every(n) => (layer + 1).is_multiple_of(n),
            LayerSet::From(first) => layer >= first,
            LayerSet::These(layers) => layers.contains(&layer),
        }
    }
}

/// Layers that keep a state instead of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// The kind of layer.
    pub layer: RecurrentSpec,
    /// The layers that are attention instead.
    pub attention: LayerSet,
}

/// Experts among which every token chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts of a layer.
    pub n_experts: usize,
    /// Experts that a token chooses.
    pub n_used: usize,
    /// Width of an expert.
    pub width: usize,
    /// Width of the expert that every token passes, if there is one.
    pub shared_width: Option<usize>,
    /// The layers with experts.
    pub layers: LayerSet,
    /// Whether gate and up are one tensor.
    pub is_merged: bool,
}

/// Granite's factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    /// Multiplies the embeddings.
    pub embedding: f32,
    /// Multiplies the output of each block.
    pub branch: f32,
    /// Multiplies query–key products.
    pub attention: f32,
    /// Divides the logits.
    pub logit_divisor: f32,
}

/// Gemma 4's additions to Gemma 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemma4Shape {
    /// Width of a head in layers with a window.
    pub local_head_dim: usize,
    /// Base of the rotary frequencies in layers with a window.
    pub local_rope_base: f32,
    /// Key and value heads of layers without a window, if they have fewer than the others; their values are then their
    /// keys.
    pub n_global_kv_heads: Option<usize>,
    /// Layers at the end that use keys and values of earlier ones.
    pub n_sharing_layers: usize,
    /// Width of the feed-forward part in the sharing layers.
    pub sharing_ffn_size: usize,
    /// Width of each layer's own input; 0 if layers have none of their own.
    pub layer_input_width: usize,
}

/// How rotary frequencies are stretched over a longer context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by this factor.
    Linear(f32),
    /// Low frequencies are divided, and sines and cosines multiplied, as in YaRN.
    Yarn {
        /// Divisor of the lowest frequencies.
        factor: f32,
        /// Positions before the context was extended.
        original_context: usize,
        /// How much of the factor on sines and cosines is undone, if the file says so.
        log_multiplier: Option<f32>,
    },
    /// Low frequencies are divided, by the tensor `rope_freqs.weight`, as in Llama 3.1 and 3.2.
    Llama3 {
        /// Divisor of the lowest frequencies.
        factor: f32,
        /// Frequencies that turn fewer times than this over the original context are divided.
        low_frequency_turns: f32,
        /// Frequencies that turn more often than this over the original context stay unchanged.
        high_frequency_turns: f32,
        /// Positions before the context was extended.
        original_context: usize,
    },
    /// Each is divided by its own factor, with one set for short and one for long contexts, as in Phi-3.5.
    LongRope {
        /// Positions before the context was extended: the short factors apply up to here, the long ones beyond.
        original_context: usize,
    },
}

/// Sizes of a model, and the other figures in its metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The name by which it is requested.
    pub name: &'static str,
    /// The architecture of its layers.
    pub architecture: Architecture,
    /// Number of layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer; 0 if all layers have experts and files give no width except theirs.
    pub ffn_size: usize,
    /// Context length in positions.
    pub context_length: usize,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Scaling of the rotary frequencies.
    pub rope_scaling: RopeScaling,
    /// Added to the mean square in RMS norms.
    pub norm_epsilon: f32,
    /// Whether the embedding matrix also computes the logits.
    pub tied_embeddings: bool,
    /// Positions that a layer with a window sees.
    pub sliding_window: Option<usize>,
    /// Soft cap of the attention scores.
    pub attention_soft_cap: Option<f32>,
    /// Soft cap of the logits.
    pub logit_soft_cap: Option<f32>,
    /// Width of the rotated part of a head; `None` if all of it is rotated.
    pub rotated_dim: Option<usize>,
    /// Whether positions are rotated, where files say so.
    pub is_rotated: bool,
    /// The layers without a window, where files name them.
    pub global_layers: Option<LayerSet>,
    /// How fast queries grow with their position.
    pub temperature_scale: Option<f32>,
    /// The layers that keep a state.
    pub recurrence: Option<Recurrence>,
    /// The experts.
    pub experts: Option<Experts>,
    /// Granite's factors.
    pub multipliers: Option<Multipliers>,
    /// Gemma 4's additions.
    pub gemma4: Option<Gemma4Shape>,
    /// Blocks after the last layer that predict further tokens.
    pub n_predicting: usize,
}

impl Shape {
    /// Every shape.
    pub fn all() -> &'static [Shape] {
        &known::SHAPES
    }

    /// The shape with this name.
    ///
    /// # Errors
    /// When it does not exist; the error lists the known ones.
    pub fn named(name: &str) -> Result<Self, SynthError> {
        let found = known::SHAPES.iter().find(|shape| shape.name == name);
        found.cloned().ok_or_else(|| SynthError::UnknownShape {
            name: name.to_owned(),
            known: known::SHAPES.each_ref().map(|shape| shape.name).join(", "),
        })
    }

    /// Layers, and the blocks after them that predict further tokens.
    pub(super) fn n_blocks(&self) -> usize {
        self.n_layers + self.n_predicting
    }

    /// The recurrence of a layer, unless it is attention.
    pub(super) fn recurrence_of(&self, layer: usize) -> Option<RecurrentSpec> {
        let recurrence = self.recurrence.filter(|recurrence| !recurrence.attention.contains(layer));
        recurrence.filter(|_| layer < self.n_layers).map(|recurrence| recurrence.layer)
    }

    /// The experts of a layer, if it has any. Blocks that predict further tokens are made like layers.
    pub(super) fn experts_of(&self, layer: usize) -> Option<Experts> {
        self.experts.filter(|experts| experts.layers.contains(layer))
    }

    /// Whether a layer sees all positions in a model whose other layers have a window.
    pub(super) fn is_global(&self, layer: usize) -> bool {
        self.global_layers.is_some_and(|layers| layers.contains(layer))
    }

    pub(super) fn rotated_dim(&self) -> usize {
        self.rotated_dim.unwrap_or(self.head_dim)
    }

    pub(super) fn head_dim_of(&self, layer: usize) -> usize {
        self.gemma4.filter(|_| !self.is_global(layer)).map_or(self.head_dim, |gemma| gemma.local_head_dim)
    }

    /// Key and value heads of a layer; 0 if it keeps a state.
    pub(super) fn n_kv_heads_of(&self, layer: usize) -> usize {
        let n_global = self.gemma4.filter(|_| self.is_global(layer)).and_then(|gemma| gemma.n_global_kv_heads);
        if self.recurrence_of(layer).is_some() { 0 } else { n_global.unwrap_or(self.n_kv_heads) }
    }

    /// Whether a layer uses keys and values of an earlier one.
    pub(super) fn is_sharing(&self, layer: usize) -> bool {
        self.gemma4.is_some_and(|gemma| layer >= self.n_layers - gemma.n_sharing_layers)
    }

    pub(super) fn ffn_size_of(&self, layer: usize) -> usize {
        self.gemma4.filter(|_| self.is_sharing(layer)).map_or(self.ffn_size, |gemma| gemma.sharing_ffn_size)
    }

    /// Whether a layer computes values, and not only keys.
    pub(super) fn has_values(&self, layer: usize) -> bool {
        let values_are_keys = self.gemma4.is_some_and(|gemma| gemma.n_global_kv_heads.is_some());
        !(self.is_sharing(layer) || values_are_keys && self.is_global(layer))
    }
}
