//! The shapes that are known by name.

use super::{Architecture, Experts, Gemma4Shape, LayerSet, Multipliers, Recurrence, RecurrentSpec, RopeScaling, Shape};

/// Common base of the tiny shapes: small enough for tests, with rows of 256 so that every format fits.
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
    rotated_dim: None,
    is_rotated: true,
    global_layers: None,
    temperature_scale: None,
    recurrence: None,
    experts: None,
    multipliers: None,
    gemma4: None,
    n_predicting: 0,
};

/// Common base of the tiny shapes with wider heads.
const TINY_64: Shape = Shape { n_heads: 4, n_kv_heads: 1, head_dim: 64, norm_epsilon: 1e-6, ..TINY };

const TINY_EXPERTS: Experts =
    Experts { n_experts: 5, n_used: 2, width: 256, shared_width: None, layers: LayerSet::From(0), is_merged: false };

const TINY_MULTIPLIERS: Multipliers = Multipliers { embedding: 6.0, branch: 0.4, attention: 0.11, logit_divisor: 4.0 };

/// Recurrence of all Qwen3.5 sizes.
const QWEN35_RECURRENCE: Recurrence = Recurrence {
    layer: RecurrentSpec::DeltaNet { n_taps: 4, n_key_heads: 16, n_value_heads: 32, head_dim: 128 },
    attention: LayerSet::Every(4),
};

/// Common base of LFM2's sizes.
const LFM2: Shape = Shape {
    hidden_size: 2048,
    n_heads: 32,
    n_kv_heads: 8,
    head_dim: 64,
    context_length: 128_000,
    rope_base: 1e6,
    tied_embeddings: true,
    ..TINY
};

/// The large ones follow the models' own `config.json`; Mistral 7B is v0.2, from which Prometheus 7B v2.0 was trained.
/// Qwen3.5 follows `Qwen/Qwen3.5-4B` and `Qwen/Qwen3.5-35B-A3B` without the block that predicts further tokens, which
/// most files lack; Gemma 4 follows `google/gemma-4-E4B-it`, gpt-oss `openai/gpt-oss-20b`, and LFM2
/// `LiquidAI/LFM2-1.2B` and `LiquidAI/LFM2-8B-A1B`.
///
/// The tiny ones have short windows and contexts and low caps, so that short tests reach all of them, and every kind of
/// layer that their architecture has.
pub(super) const SHAPES: [Shape; 33] = [
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
    Shape {
        name: "qwen3-30b-a3b",
        architecture: Architecture::Qwen3Moe,
        n_layers: 48,
        hidden_size: 2048,
        n_heads: 32,
        n_kv_heads: 4,
        head_dim: 128,
        ffn_size: 6144,
        context_length: 40_960,
        rope_base: 1e6,
        norm_epsilon: 1e-6,
        experts: Some(Experts { n_experts: 128, n_used: 8, width: 768, ..TINY_EXPERTS }),
        ..TINY
    },
    Shape {
        name: "qwen35-4b",
        architecture: Architecture::Qwen35,
        n_layers: 32,
        hidden_size: 2560,
        n_heads: 16,
        n_kv_heads: 4,
        head_dim: 256,
        rotated_dim: Some(64),
        ffn_size: 9216,
        context_length: 262_144,
        rope_base: 1e7,
        norm_epsilon: 1e-6,
        tied_embeddings: true,
        recurrence: Some(QWEN35_RECURRENCE),
        ..TINY
    },
    Shape {
        name: "qwen35-35b-a3b",
        architecture: Architecture::Qwen35Moe,
        n_layers: 40,
        hidden_size: 2048,
        n_heads: 16,
        n_kv_heads: 2,
        head_dim: 256,
        rotated_dim: Some(64),
        ffn_size: 0,
        context_length: 262_144,
        rope_base: 1e7,
        norm_epsilon: 1e-6,
        recurrence: Some(QWEN35_RECURRENCE),
        experts: Some(Experts { n_experts: 256, n_used: 8, width: 512, shared_width: Some(512), ..TINY_EXPERTS }),
        ..TINY
    },
    Shape {
        name: "gemma4-e4b",
        architecture: Architecture::Gemma4,
        n_layers: 42,
        hidden_size: 2560,
        n_heads: 8,
        n_kv_heads: 2,
        head_dim: 512,
        ffn_size: 10_240,
        context_length: 131_072,
        rope_base: 1e6,
        norm_epsilon: 1e-6,
        tied_embeddings: true,
        sliding_window: Some(512),
        global_layers: Some(LayerSet::Every(6)),
        logit_soft_cap: Some(30.0),
        gemma4: Some(Gemma4Shape {
            local_head_dim: 256,
            local_rope_base: 10_000.0,
            n_global_kv_heads: None,
            n_sharing_layers: 18,
            sharing_ffn_size: 10_240,
            layer_input_width: 256,
        }),
        ..TINY
    },
    Shape {
        name: "gpt-oss-20b",
        architecture: Architecture::GptOss,
        n_layers: 24,
        hidden_size: 2880,
        n_heads: 64,
        n_kv_heads: 8,
        head_dim: 64,
        ffn_size: 2880,
        context_length: 131_072,
        rope_base: 150_000.0,
        rope_scaling: RopeScaling::Yarn { factor: 32.0, original_context: 4096, log_multiplier: None },
        sliding_window: Some(128),
        experts: Some(Experts { n_experts: 32, n_used: 4, width: 2880, ..TINY_EXPERTS }),
        ..TINY
    },
    Shape {
        name: "lfm2-1.2b",
        architecture: Architecture::Lfm2,
        n_layers: 16,
        ffn_size: 8192,
        recurrence: Some(Recurrence {
            layer: RecurrentSpec::ShortConvolution { n_taps: 3 },
            attention: LayerSet::These(&[2, 5, 8, 10, 12, 14]),
        }),
        ..LFM2
    },
    Shape {
        name: "lfm2-8b-a1b",
        architecture: Architecture::Lfm2Moe,
        n_layers: 24,
        ffn_size: 7168,
        recurrence: Some(Recurrence {
            layer: RecurrentSpec::ShortConvolution { n_taps: 3 },
            attention: LayerSet::These(&[2, 6, 10, 14, 18, 21]),
        }),
        experts: Some(Experts { n_experts: 32, n_used: 4, width: 1792, layers: LayerSet::From(2), ..TINY_EXPERTS }),
        ..LFM2
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
    Shape {
        name: "tiny-qwen3moe",
        architecture: Architecture::Qwen3Moe,
        n_layers: 2,
        experts: Some(Experts { n_used: 3, ..TINY_EXPERTS }),
        ..TINY_64
    },
    Shape {
        name: "tiny-qwen35",
        architecture: Architecture::Qwen35,
        n_layers: 4,
        n_kv_heads: 2,
        rotated_dim: Some(16),
        ffn_size: 256,
        tied_embeddings: true,
        recurrence: Some(Recurrence {
            layer: RecurrentSpec::DeltaNet { n_taps: 4, n_key_heads: 2, n_value_heads: 4, head_dim: 64 },
            attention: LayerSet::Every(3),
        }),
        n_predicting: 1,
        ..TINY_64
    },
    Shape {
        name: "tiny-qwen35moe",
        architecture: Architecture::Qwen35Moe,
        rotated_dim: Some(32),
        ffn_size: 0,
        recurrence: Some(Recurrence {
            layer: RecurrentSpec::DeltaNet { n_taps: 3, n_key_heads: 4, n_value_heads: 8, head_dim: 32 },
            attention: LayerSet::These(&[1]),
        }),
        experts: Some(Experts { shared_width: Some(512), ..TINY_EXPERTS }),
        n_predicting: 1,
        ..TINY_64
    },
    Shape {
        name: "tiny-gemma4",
        architecture: Architecture::Gemma4,
        n_layers: 6,
        head_dim: 128,
        ffn_size: 256,
        rope_base: 1e6,
        tied_embeddings: true,
        sliding_window: Some(16),
        global_layers: Some(LayerSet::Every(2)),
        logit_soft_cap: Some(8.0),
        gemma4: Some(Gemma4Shape {
            local_head_dim: 64,
            local_rope_base: 10_000.0,
            n_global_kv_heads: None,
            n_sharing_layers: 2,
            sharing_ffn_size: 512,
            layer_input_width: 32,
        }),
        ..TINY_64
    },
    Shape {
        name: "tiny-gemma4moe",
        architecture: Architecture::Gemma4,
        n_kv_heads: 2,
        head_dim: 128,
        ffn_size: 256,
        rope_base: 1e6,
        tied_embeddings: true,
        sliding_window: Some(12),
        global_layers: Some(LayerSet::Every(3)),
        logit_soft_cap: Some(8.0),
        gemma4: Some(Gemma4Shape {
            local_head_dim: 64,
            local_rope_base: 10_000.0,
            n_global_kv_heads: Some(1),
            n_sharing_layers: 0,
            sharing_ffn_size: 256,
            layer_input_width: 0,
        }),
        experts: Some(Experts { is_merged: true, ..TINY_EXPERTS }),
        ..TINY_64
    },
    Shape {
        name: "tiny-gpt-oss",
        architecture: Architecture::GptOss,
        n_kv_heads: 2,
        ffn_size: 256,
        rope_base: 150_000.0,
        rope_scaling: RopeScaling::Yarn { factor: 8.0, original_context: 64, log_multiplier: None },
        sliding_window: Some(16),
        experts: Some(TINY_EXPERTS),
        ..TINY_64
    },
    Shape {
        name: "tiny-lfm2",
        architecture: Architecture::Lfm2,
        n_layers: 4,
        ffn_size: 256,
        tied_embeddings: true,
        recurrence: Some(Recurrence {
            layer: RecurrentSpec::ShortConvolution { n_taps: 3 },
            attention: LayerSet::These(&[1, 3]),
        }),
        ..TINY_64
    },
    Shape {
        name: "tiny-lfm2moe",
        architecture: Architecture::Lfm2Moe,
        n_layers: 4,
        n_kv_heads: 2,
        ffn_size: 256,
        tied_embeddings: true,
        recurrence: Some(Recurrence {
            layer: RecurrentSpec::ShortConvolution { n_taps: 4 },
            attention: LayerSet::These(&[2]),
        }),
        experts: Some(Experts { layers: LayerSet::From(1), ..TINY_EXPERTS }),
        ..TINY_64
    },
    Shape {
        name: "tiny-smollm3",
        architecture: Architecture::SmolLm3,
        n_layers: 5,
        ffn_size: 256,
        tied_embeddings: true,
        ..TINY_64
    },
    Shape {
        name: "tiny-granite",
        architecture: Architecture::Granite,
        tied_embeddings: true,
        multipliers: Some(TINY_MULTIPLIERS),
        ..TINY_64
    },
    Shape {
        name: "tiny-granitehybrid",
        architecture: Architecture::GraniteHybrid,
        ffn_size: 256,
        is_rotated: false,
        tied_embeddings: true,
        recurrence: Some(Recurrence {
            layer: RecurrentSpec::Mamba2 { n_taps: 4, n_heads: 8, n_groups: 2, state_size: 32, inner_size: 512 },
            attention: LayerSet::These(&[1]),
        }),
        experts: Some(Experts { shared_width: Some(512), ..TINY_EXPERTS }),
        multipliers: Some(TINY_MULTIPLIERS),
        ..TINY_64
    },
    Shape { name: "tiny-olmo2", architecture: Architecture::Olmo2, n_kv_heads: 4, ..TINY_64 },
    Shape {
        name: "tiny-olmo3",
        architecture: Architecture::Olmo2,
        n_layers: 4,
        n_kv_heads: 2,
        ffn_size: 256,
        rope_base: 500_000.0,
        rope_scaling: RopeScaling::Yarn { factor: 8.0, original_context: 64, log_multiplier: None },
        sliding_window: Some(16),
        global_layers: Some(LayerSet::Every(4)),
        ..TINY_64
    },
    Shape {
        name: "tiny-mistral3",
        architecture: Architecture::Mistral3,
        rope_base: 1e6,
        rope_scaling: RopeScaling::Yarn { factor: 8.0, original_context: 32, log_multiplier: Some(0.5) },
        temperature_scale: Some(0.1),
        ..TINY_64
    },
    Shape {
        name: "tiny-llama4",
        architecture: Architecture::Llama4,
        n_layers: 4,
        n_kv_heads: 2,
        ffn_size: 512,
        experts: Some(Experts { n_used: 1, shared_width: Some(256), layers: LayerSet::Every(2), ..TINY_EXPERTS }),
        ..TINY_64
    },
];
