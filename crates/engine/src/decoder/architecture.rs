//! The architectures that hone supports, one row each.

use super::{Activation, NormPlacement, RopePairs, SpecError};
use crate::gguf::{Gguf, GgufError};

/// What a file's metadata does not say, because its architecture implies it.
pub(super) struct ArchitectureRow {
    pub(super) name: &'static str,
    pub(super) rope_pairs: RopePairs,
    pub(super) activation: Activation,
    pub(super) norm_placement: NormPlacement,
    pub(super) qk_norm: bool,
    pub(super) fused_projections: bool,
    /// Embeddings are multiplied by the square root of the hidden size.
    pub(super) scaled_embeddings: bool,
    /// Attention scores and logits are soft-capped if the metadata gives a cap.
    pub(super) soft_caps: bool,
    /// Every n-th layer sees all positions, the others only a window.
    pub(super) window_pattern: Option<usize>,
    /// Base of the rotation in layers with a window, if it differs and the metadata does not give it.
    pub(super) local_rope_base: Option<f32>,
    /// The variant with this many layers scales attention by the hidden size per head instead of the head's width.
    pub(super) wide_scale_layers: Option<usize>,
}

const LLAMA: ArchitectureRow = ArchitectureRow {
    name: "llama",
    rope_pairs: RopePairs::Neighbours,
    activation: Activation::Silu,
    norm_placement: NormPlacement::Before,
    qk_norm: false,
    fused_projections: false,
    scaled_embeddings: false,
    soft_caps: false,
    window_pattern: None,
    local_rope_base: None,
    wide_scale_layers: None,
};

/// Llama 1 to 3, Mistral, SmolLM2 and Prometheus are all `llama`. Gemma's figures: <https://arxiv.org/abs/2408.00118>
/// (2) and <https://arxiv.org/abs/2503.19786> (3).
const ARCHITECTURES: [ArchitectureRow; 6] = [
    LLAMA,
    ArchitectureRow { name: "qwen2", rope_pairs: RopePairs::Halves, ..LLAMA },
    ArchitectureRow { name: "qwen3", rope_pairs: RopePairs::Halves, qk_norm: true, ..LLAMA },
    ArchitectureRow {
        name: "gemma2",
        rope_pairs: RopePairs::Halves,
        activation: Activation::GeluTanh,
        norm_placement: NormPlacement::BeforeAndAfter,
        scaled_embeddings: true,
        soft_caps: true,
        window_pattern: Some(2),
        wide_scale_layers: Some(46),
        ..LLAMA
    },
    ArchitectureRow {
        name: "gemma3",
        rope_pairs: RopePairs::Halves,
        activation: Activation::GeluTanh,
        norm_placement: NormPlacement::BeforeAndAfter,
        qk_norm: true,
        scaled_embeddings: true,
        soft_caps: true,
        window_pattern: Some(6),
        local_rope_base: Some(10_000.0),
        wide_scale_layers: Some(62),
        ..LLAMA
    },
    ArchitectureRow { name: "phi3", rope_pairs: RopePairs::Halves, fused_projections: true, ..LLAMA },
];

pub(super) fn lookup(gguf: &Gguf) -> Result<&'static ArchitectureRow, SpecError> {
    let key = "general.architecture";
    let name = gguf.string(key)?.ok_or_else(|| SpecError::Missing(key.into()))?;
    let row = ARCHITECTURES.iter().find(|row| row.name == name);
    row.ok_or_else(|| {
        SpecError::Gguf(GgufError::Unsupported {
            what: format!("architecture {name:?}"),
            supported: ARCHITECTURES.map(|row| row.name).join(", "),
        })
    })
}
