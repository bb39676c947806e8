//! The shapes of models.

use super::SynthError;

/// What the layers of a model are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
    Gemma2,
    Gemma3,
    Phi3,
}

impl Architecture {
    /// The name in `general.architecture`, which also starts the model's metadata keys.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
            Architecture::Gemma2 => "gemma2",
            Architecture::Gemma3 => "gemma3",
            Architecture::Phi3 => "phi3",
        }
    }

    pub(super) fn is_gemma(self) -> bool {
        matches!(self, Architecture::Gemma2 | Architecture::Gemma3)
    }

    pub(super) fn has_qk_norm(self) -> bool {
        matches!(self, Architecture::Qwen3 | Architecture::Gemma3)
    }
}

/// How rotary frequencies are stretched over a longer context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by this factor.
    Linear(f32),
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

/// Sizes of a model, and the other figures that its metadata needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The name by which it is requested.
    pub name: &'static str,
    /// What its layers are made of.
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
    /// Width of the feed-forward layer.
    pub ffn_size: usize,
    /// Positions.
    pub context_length: usize,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// How they are stretched.
    pub rope_scaling: RopeScaling,
    /// Added to the mean square in RMS norms.
    pub norm_epsilon: f32,
    /// Whether the embedding matrix also makes the logits.
    pub tied_embeddings: bool,
    /// Positions that a layer with a window sees.
    pub sliding_window: Option<usize>,
    /// Soft cap of the attention scores.
    pub attention_soft_cap: Option<f32>,
    /// Soft cap of the logits.
    pub logit_soft_cap: Option<f32>,
}

/// What the tiny shapes share: small enough for tests, with rows of 256 so that every format fits.
const TINY: Shape = Shape {
    name: "tiny-llama",
    architecture: Architecture::Llama,
    n_layers: 3,
    hidden_size: 256,
    n_heads: 8,
    n_kv_heads: 2,
    head_dim: 32,
    ffn_size: 512,
    context_length: 512,
    rope_base: 10_000.0,
    rope_scaling: RopeScaling::None,
    norm_epsilon: 1e-5,
    tied_embeddings: false,
    sliding_window: None,
    attention_soft_cap: None,
    logit_soft_cap: None,
};

/// The large ones follow the models' own `config.json`; Mistral 7B is v0.2, from which Prometheus 7B v2.0 was trained.
/// The tiny ones have short windows and contexts and low caps, so that short tests reach all of them.
const SHAPES: [Shape; 11] = [
    Shape {
        name: "mistral-7b",
        n_layers: 32,
        hidden_size: 4096,
        n_heads: 32,
        n_kv_heads: 8,
        head_dim: 128,
        ffn_size: 14_336,
        context_length: 32_768,
        rope_base: 1e6,
        ..TINY
    },
    Shape {
        name: "llama-1b",
        n_layers: 16,
        hidden_size: 2048,
        n_heads: 32,
        n_kv_heads: 8,
        head_dim: 64,
        ffn_size: 8192,
        context_length: 131_072,
        rope_base: 500_000.0,
        rope_scaling: RopeScaling::Llama3 {
            factor: 32.0,
            low_frequency_turns: 1.0,
            high_frequency_turns: 4.0,
            original_context: 8192,
        },
        tied_embeddings: true,
        ..TINY
    },
    Shape {
        name: "qwen3-4b",
        architecture: Architecture::Qwen3,
        n_layers: 36,
        hidden_size: 2560,
        n_heads: 32,
        n_kv_heads: 8,
        head_dim: 128,
        ffn_size: 9728,
        context_length: 40_960,
        rope_base: 1e6,
        norm_epsilon: 1e-6,
        tied_embeddings: true,
        ..TINY
    },
    TINY,
    Shape {
        name: "tiny-llama3",
        rope_base: 500_000.0,
        rope_scaling: RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_turns: 1.0,
            high_frequency_turns: 4.0,
            original_context: 64,
        },
        tied_embeddings: true,
        ..TINY
    },
    Shape { name: "tiny-qwen2", architecture: Architecture::Qwen2, norm_epsilon: 1e-6, ..TINY },
    Shape {
        name: "tiny-qwen3",
        architecture: Architecture::Qwen3,
        head_dim: 64,
        norm_epsilon: 1e-6,
        tied_embeddings: true,
        ..TINY
    },
    Shape {
        name: "tiny-gemma2",
        architecture: Architecture::Gemma2,
        head_dim: 64,
        norm_epsilon: 1e-6,
        tied_embeddings: true,
        sliding_window: Some(16),
        attention_soft_cap: Some(3.0),
        logit_soft_cap: Some(8.0),
        ..TINY
    },
    Shape {
        name: "tiny-gemma3",
        architecture: Architecture::Gemma3,
        n_layers: 7,
        head_dim: 64,
        rope_base: 1e6,
        norm_epsilon: 1e-6,
        tied_embeddings: true,
        sliding_window: Some(16),
        ..TINY
    },
    Shape { name: "tiny-phi3", architecture: Architecture::Phi3, ..TINY },
    Shape {
        name: "tiny-phi3-longrope",
        architecture: Architecture::Phi3,
        rope_scaling: RopeScaling::LongRope { original_context: 64 },
        ..TINY
    },
];

impl Shape {
    /// Every shape.
    pub fn all() -> &'static [Shape] {
        &SHAPES
    }

    /// The shape with this name.
    ///
    /// # Errors
    /// When it does not exist; the error lists the known ones.
    pub fn named(name: &str) -> Result<Self, SynthError> {
        let found = SHAPES.iter().find(|shape| shape.name == name);
        found.cloned().ok_or_else(|| SynthError::UnknownShape {
            name: name.to_owned(),
            known: SHAPES.each_ref().map(|shape| shape.name).join(", "),
        })
    }
}
