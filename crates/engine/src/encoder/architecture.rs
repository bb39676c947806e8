//! The encoders that hone supports, one row each.

use crate::pooling::Pooling;

/// The properties that the architecture implies, and a file's metadata omits.
#[derive(Debug)]
pub(crate) struct EncoderRow {
    pub(crate) name: &'static str,
    pub(super) norms: Norms,
    pub(super) placement: NormPlacement,
    /// Whether row 0 of `token_types` is added to every embedding.
    pub(super) has_types: bool,
    /// Whether embeddings are normed.
    pub(super) norms_embeddings: bool,
    /// Whether embeddings are multiplied by the square root of their width.
    pub(super) scales_embeddings: bool,
    pub(super) positions: PositionKind,
    /// Whether products have biases.
    pub(super) has_biases: bool,
    /// Whether every head's queries and keys are normed.
    pub(super) norms_heads: bool,
    pub(super) gate: Gate,
    pub(super) activation: EncoderActivation,
    /// Which layers see a window.
    pub(super) windows: EncoderWindows,
    /// The pooling of the states that a head reads, if the metadata does not give it.
    pub(crate) pooled_by_head: Pooling,
    /// The activation between the two products of a head.
    pub(crate) head_activation: HeadActivation,
}

/// How states are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Layer norm: minus the mean, divided by the standard deviation.
    Layer {
        /// Whether every norm has a bias.
        has_bias: bool,
    },
    /// RMS norm: divided by the root mean square.
    Rms,
}

/// Placement of norms around attention and feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormPlacement {
    /// After their output is added.
    After,
    /// Before each, and once more at the end; the input of the first layer's attention is already normed.
    Before,
    /// Before each, before their output is added, and once more at the end.
    Around,
}

/// The encoding of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PositionKind {
    /// A learned embedding per position.
    Learned,
    /// Queries and keys are rotated, in halves.
    Rotated,
}

/// The gate that multiplies the inner states of feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// No gate.
    None,
    /// `ffn_gate`, through the activation.
    Separate,
    /// The first half of `ffn_up`, through the activation.
    Fused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncoderActivation {
    /// <https://arxiv.org/abs/1606.08415>, by the error function.
    Gelu,
    /// Approximated by tanh.
    GeluTanh,
    Silu,
}

/// The activation between the two products of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadActivation {
    Tanh,
    Gelu,
}

/// Which layers see the whole text; the others see a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncoderWindows {
    /// Every layer.
    Never,
    /// The first of each group of this size, unless the metadata gives the size.
    AllButFirstOf(usize),
    /// The last of each group.
    AllButLastOf(usize),
}

const BERT: EncoderRow = EncoderRow {
    name: "bert",
    norms: Norms::Layer { has_bias: true },
    placement: NormPlacement::After,
    has_types: true,
    norms_embeddings: true,
    scales_embeddings: false,
    positions: PositionKind::Learned,
    has_biases: true,
    norms_heads: false,
    gate: Gate::None,
    activation: EncoderActivation::Gelu,
    windows: EncoderWindows::Never,
    pooled_by_head: Pooling::First,
    head_activation: HeadActivation::Tanh,
};

const ENCODERS: [EncoderRow; 5] = [
    // BERT: https://arxiv.org/abs/1810.04805; XLM-RoBERTa: https://arxiv.org/abs/1911.02116
    BERT,
    // Jina embeddings v3, without its adapters: https://arxiv.org/abs/2409.10173
    EncoderRow { name: "jina-bert-v3", positions: PositionKind::Rotated, ..BERT },
    // Nomic Embed: https://arxiv.org/abs/2402.01613
    EncoderRow {
        name: "nomic-bert",
        positions: PositionKind::Rotated,
        has_biases: false,
        gate: Gate::Separate,
        activation: EncoderActivation::Silu,
        ..BERT
    },
    // ModernBERT: https://arxiv.org/abs/2412.13663
    EncoderRow {
        name: "modern-bert",
        norms: Norms::Layer { has_bias: false },
        placement: NormPlacement::Before,
        has_types: false,
        positions: PositionKind::Rotated,
        has_biases: false,
        gate: Gate::Fused,
        windows: EncoderWindows::AllButFirstOf(3),
        pooled_by_head: Pooling::Mean,
        head_activation: HeadActivation::Gelu,
        ..BERT
    },
    // EmbeddingGemma: https://arxiv.org/abs/2509.20354
    EncoderRow {
        name: "gemma-embedding",
        norms: Norms::Rms,
        placement: NormPlacement::Around,
        has_types: false,
        norms_embeddings: false,
        scales_embeddings: true,
        positions: PositionKind::Rotated,
        has_biases: false,
        norms_heads: true,
        gate: Gate::Separate,
        activation: EncoderActivation::GeluTanh,
        windows: EncoderWindows::AllButLastOf(6),
        ..BERT
    },
];

impl EncoderRow {
    /// The encoder of the architecture with this name.
    pub(crate) fn named(architecture: &str) -> Option<&'static EncoderRow> {
        static ROWS: [EncoderRow; 5] = ENCODERS;
        ROWS.iter().find(|row| row.name == architecture)
    }
}
