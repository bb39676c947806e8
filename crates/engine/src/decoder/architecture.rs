//! The architectures that hone supports, one row each.

use hone_kernels::step::Gating;

use super::{Activation, NormPlacement, QkNorm, RopePairs, SpecError};
use crate::gguf::{Gguf, GgufError};

/// The properties that an architecture implies, and a file's metadata omits.
pub(super) struct ArchitectureRow {
    pub(super) name: &'static str,
    pub(super) rope_pairs: RopePairs,
    pub(super) activation: Activation,
    pub(super) norm_placement: NormPlacement,
    /// Name of the tensor with the norm before the feed-forward part.
    pub(super) ffn_norm: &'static str,
    /// Name of the tensor with the last norm.
    pub(super) output_norm: &'static str,
    pub(super) qk_norm: Option<QkNorm>,
    /// Values are normed, without weights.
    pub(super) value_norm: bool,
    /// Every head's query is followed by a gate for the head's output.
    pub(super) output_gate: bool,
    pub(super) fused_projections: bool,
    /// Embeddings are multiplied by the square root of the hidden size.
    pub(super) scaled_embeddings: bool,
    /// Attention scores and logits are soft-capped if the metadata gives a cap.
    pub(super) soft_caps: bool,
    /// Attention scores are not scaled.
    pub(super) unscaled_attention: bool,
    /// The metadata gives factors for embeddings, branches, attention scores and logits, and says whether positions
    /// are rotated.
    pub(super) multipliers: bool,
    /// Which layers see a window, if the metadata does not say it per layer.
    pub(super) windows: Windows,
    /// Rotation in layers with a window.
    pub(super) local_rope: LocalRope,
    /// In every n-th layer positions are not rotated.
    pub(super) unrotated_period: Option<usize>,
    /// Layers without rotation multiply queries by a factor that grows with the position.
    pub(super) sharpened_unrotated: bool,
    /// The variant with this many layers scales attention by the hidden size per head instead of the head's width.
    pub(super) wide_scale_layers: Option<usize>,
    /// Layers that keep a state in place of a cache.
    pub(super) recurrence: Option<RecurrentLayers>,
    pub(super) experts: ExpertsRow,
}

/// Which layers see a window.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Windows {
    /// No layer.
    Never,
    /// If the metadata gives a window, all but every n-th layer.
    AllButEvery(usize),
    /// Rotated layers see chunks of this many positions.
    RotatedChunks(usize),
}

/// Which layers keep a state, and which kind of state it is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum RecurrentLayers {
    /// Layers without key and value heads are short convolutions.
    ShortConvolution,
    /// Layers without key and value heads are Mamba 2.
    Mamba2,
    /// All but every n-th layer are gated delta nets, unless the metadata says which.
    DeltaNet,
}

/// How experts are chosen if the metadata does not say.
#[derive(Clone, Copy)]
pub(super) struct ExpertsRow {
    pub(super) gating: Gating,
    pub(super) is_normalized: bool,
    /// An expert's weight multiplies its input instead of its output.
    pub(super) weighs_input: bool,
    /// Key of an expert's width.
    pub(super) width: &'static str,
}

/// How layers with a window rotate positions.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LocalRope {
    /// Like the other layers.
    Same,
    /// With the same base, but not stretched over longer contexts.
    Unstretched,
    /// With their own base and width, not stretched; this is the base if the metadata gives none.
    OwnBase(f32),
}

const EXPERTS: ExpertsRow = ExpertsRow {
    gating: Gating::Softmax,
    is_normalized: true,
    weighs_input: false,
    width: "expert_feed_forward_length",
};

const LLAMA: ArchitectureRow = ArchitectureRow {
    name: "llama",
    rope_pairs: RopePairs::Neighbours,
    activation: Activation::Silu,
    norm_placement: NormPlacement::Before,
    ffn_norm: "ffn_norm",
    output_norm: "output_norm",
    qk_norm: None,
    value_norm: false,
    output_gate: false,
    fused_projections: false,
    scaled_embeddings: false,
    soft_caps: false,
    unscaled_attention: false,
    multipliers: false,
    windows: Windows::Never,
    local_rope: LocalRope::Same,
    unrotated_period: None,
    sharpened_unrotated: false,
    wide_scale_layers: None,
    recurrence: None,
    experts: EXPERTS,
};

const QWEN3: ArchitectureRow =
    ArchitectureRow { name: "qwen3", rope_pairs: RopePairs::Halves, qk_norm: Some(QkNorm::PerHead), ..LLAMA };

const QWEN35: ArchitectureRow = ArchitectureRow {
    name: "qwen35",
    ffn_norm: "post_attention_norm",
    output_gate: true,
    recurrence: Some(RecurrentLayers::DeltaNet),
    ..QWEN3
};

const GEMMA3: ArchitectureRow = ArchitectureRow {
    name: "gemma3",
    rope_pairs: RopePairs::Halves,
    activation: Activation::GeluTanh,
    norm_placement: NormPlacement::BeforeAndAfter,
    qk_norm: Some(QkNorm::PerHead),
    scaled_embeddings: true,
    soft_caps: true,
    windows: Windows::AllButEvery(6),
    local_rope: LocalRope::OwnBase(10_000.0),
    wide_scale_layers: Some(62),
    ..LLAMA
};

const LFM2: ArchitectureRow = ArchitectureRow {
    name: "lfm2",
    output_norm: "token_embd_norm",
    recurrence: Some(RecurrentLayers::ShortConvolution),
    ..QWEN3
};

/// Llama 1 to 3, Mistral, SmolLM2 and Prometheus are all `llama`. Gemma's figures: <https://arxiv.org/abs/2408.00118>
/// (2) and <https://arxiv.org/abs/2503.19786> (3). OLMo 2: <https://arxiv.org/abs/2501.00656>. gpt-oss:
/// <https://arxiv.org/abs/2508.10925>.
const ARCHITECTURES: [ArchitectureRow; 19] = [
    LLAMA,
    ArchitectureRow { name: "qwen2", rope_pairs: RopePairs::Halves, ..LLAMA },
    QWEN3,
    ArchitectureRow { name: "qwen3moe", ..QWEN3 },
    QWEN35,
    ArchitectureRow { name: "qwen35moe", ..QWEN35 },
    ArchitectureRow {
        name: "gemma2",
        qk_norm: None,
        windows: Windows::AllButEvery(2),
        local_rope: LocalRope::Same,
        wide_scale_layers: Some(46),
        ..GEMMA3
    },
    GEMMA3,
    ArchitectureRow { name: "gemma4", value_norm: true, unscaled_attention: true, wide_scale_layers: None, ..GEMMA3 },
    ArchitectureRow { name: "phi3", rope_pairs: RopePairs::Halves, fused_projections: true, ..LLAMA },
    ArchitectureRow {
        name: "gpt-oss",
        rope_pairs: RopePairs::Halves,
        activation: Activation::ClampedSilu,
        ffn_norm: "post_attention_norm",
        windows: Windows::AllButEvery(2),
        experts: ExpertsRow { gating: Gating::SoftmaxOfChosen, is_normalized: false, ..EXPERTS },
        ..LLAMA
    },
    LFM2,
    ArchitectureRow { name: "lfm2moe", ..LFM2 },
    ArchitectureRow { name: "smollm3", unrotated_period: Some(4), ..LLAMA },
    ArchitectureRow { name: "granite", multipliers: true, ..LLAMA },
    ArchitectureRow {
        name: "granitehybrid",
        multipliers: true,
        recurrence: Some(RecurrentLayers::Mamba2),
        experts: ExpertsRow { width: "feed_forward_length", ..EXPERTS },
        ..LLAMA
    },
    // OLMo 3 is OLMo 2 with windows.
    ArchitectureRow {
        name: "olmo2",
        rope_pairs: RopePairs::Halves,
        norm_placement: NormPlacement::After,
        qk_norm: Some(QkNorm::Whole),
        windows: Windows::AllButEvery(4),
        local_rope: LocalRope::Unstretched,
        ..LLAMA
    },
    ArchitectureRow { name: "mistral3", ..LLAMA },
    ArchitectureRow {
        name: "llama4",
        qk_norm: Some(QkNorm::BareAfterRotation),
        windows: Windows::RotatedChunks(8192),
        unrotated_period: Some(4),
        sharpened_unrotated: true,
        experts: ExpertsRow { gating: Gating::Sigmoid, is_normalized: false, weighs_input: true, ..EXPERTS },
        ..LLAMA
    },
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
