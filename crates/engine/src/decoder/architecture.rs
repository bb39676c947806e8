//! The architectures that hone supports, one row each.

use super::{Activation, NormPlacement, QkNorm, RopePairs, SpecError};
use crate::gguf::{Gguf, GgufError};

/// What a file's metadata does not say, because its architecture implies it.
pub(super) struct ArchitectureRow {
    pub(super) name: &'static str,
    pub(super) rope_pairs: RopePairs,
    pub(super) activation: Activation,
    pub(super) norm_placement: NormPlacement,
    pub(super) qk_norm: Option<QkNorm>,
    pub(super) fused_projections: bool,
    /// Embeddings are multiplied by the square root of the hidden size.
    pub(super) scaled_embeddings: bool,
    /// Attention scores and logits are soft-capped if the metadata gives a cap.
    pub(super) soft_caps: bool,
    /// The metadata gives factors for embeddings, branches, attention scores and logits, and says whether positions
    /// are rotated.
    pub(super) multipliers: bool,
    /// If the metadata gives a window, every n-th layer sees all positions and the others the window, unless the
    /// metadata says which do.
    pub(super) window_period: Option<usize>,
    /// How layers with a window rotate.
    pub(super) local_rope: LocalRope,
    /// In every n-th layer positions are not rotated.
    pub(super) unrotated_period: Option<usize>,
    /// The variant with this many layers scales attention by the hidden size per head instead of the head's width.
    pub(super) wide_scale_layers: Option<usize>,
}

/// How layers with a window rotate positions.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LocalRope {
    /// As the others.
    Same,
    /// With the same base, but not stretched over longer contexts.
    Unstretched,
    /// With a base of its own, which is this one if the metadata gives none, and not stretched.
    OwnBase(f32),
}

const LLAMA: ArchitectureRow = ArchitectureRow {
    name: "llama",
    rope_pairs: RopePairs::Neighbours,
    activation: Activation::Silu,
    norm_placement: NormPlacement::Before,
    qk_norm: None,
    fused_projections: false,
    scaled_embeddings: false,
    soft_caps: false,
    multipliers: false,
    window_period: None,
    local_rope: LocalRope::Same,
    unrotated_period: None,
    wide_scale_layers: None,
};

/// Llama 1 to 3, Mistral, SmolLM2 and Prometheus are all `llama`. Gemma's figures: <https://arxiv.org/abs/2408.00118>
/// (2) and <https://arxiv.org/abs/2503.19786> (3). OLMo 2: <https://arxiv.org/abs/2501.00656>.
const ARCHITECTURES: [ArchitectureRow; 10] = [
    LLAMA,
    ArchitectureRow { name: "qwen2", rope_pairs: RopePairs::Halves, ..LLAMA },
    ArchitectureRow { name: "qwen3", rope_pairs: RopePairs::Halves, qk_norm: Some(QkNorm::PerHead), ..LLAMA },
    ArchitectureRow {
        name: "gemma2",
        rope_pairs: RopePairs::Halves,
        activation: Activation::GeluTanh,
        norm_placement: NormPlacement::BeforeAndAfter,
        scaled_embeddings: true,
        soft_caps: true,
        window_period: Some(2),
        wide_scale_layers: Some(46),
        ..LLAMA
    },
    ArchitectureRow {
        name: "gemma3",
        rope_pairs: RopePairs::Halves,
        activation: Activation::GeluTanh,
        norm_placement: NormPlacement::BeforeAndAfter,
        qk_norm: Some(QkNorm::PerHead),
        scaled_embeddings: true,
        soft_caps: true,
        window_period: Some(6),
        local_rope: LocalRope::OwnBase(10_000.0),
        wide_scale_layers: Some(62),
        ..LLAMA
    },
    ArchitectureRow { name: "phi3", rope_pairs: RopePairs::Halves, fused_projections: true, ..LLAMA },
    ArchitectureRow { name: "smollm3", unrotated_period: Some(4), ..LLAMA },
    ArchitectureRow { name: "granite", multipliers: true, ..LLAMA },
    // OLMo 3 is OLMo 2 with windows.
    ArchitectureRow {
        name: "olmo2",
        rope_pairs: RopePairs::Halves,
        norm_placement: NormPlacement::After,
        qk_norm: Some(QkNorm::Whole),
        window_period: Some(4),
        local_rope: LocalRope::Unstretched,
        ..LLAMA
    },
    ArchitectureRow { name: "mistral3", ..LLAMA },
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
