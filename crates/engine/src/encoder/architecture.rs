//! The encoders that hone supports, one row each.

use crate::pooling::Pooling;

/// The properties that a file's metadata does not say, because its architecture implies them.
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
    /// Whose state a head reads, if the metadata does not say it.
    pub(crate) pooled_by_head: Pooling,
    /// The activation between the two products of a head.
    pub(crate) head_activation: HeadActivation,
}

/// How states are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Less the mean, over the standard deviation.
    Layer {
        /// Whether every norm has a bias.
        has_bias: bool,
    },
    /// Over the root of the mean square.
    Rms,
}

/// Where norms stand around attention and feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormPlacement {
    /// After what they compute was added.
    After,
    /// Before each, and once more at the end; the first layer's attention reads what is normed already.
    Before,
    /// Before each, and before what they compute is added, and once more at the end.
    Around,
}

/// How a token's position is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PositionKind {
    /// An embedding of each.
    Learned,
    /// Queries and keys are rotated, in halves.
    Rotated,
}

/// The gate that multiplies the inner states of feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing.
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

/// Of so many layers one sees the whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncoderWindows {
    /// Every layer does.
    Never,
    /// The first of each group, if the metadata does not say how many are a group.
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
    /// The encoder with this name of an architecture.
    pub(crate) fn named(architecture: &str) -> Option<&'static EncoderRow> {
        static ROWS: [EncoderRow; 5] = ENCODERS;
        ROWS.iter().find(|row| row.name == architecture)
    }
}
