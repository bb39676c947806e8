//! candle-transformers' models with the weights of ours.

use std::collections::HashMap;

use crate::decoder::RecurrentSpec;
use crate::gguf::{Gguf, dequantize};
use crate::synth::{Architecture, Multipliers, Shape};
use candle_core::{DType, Device, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::smol::smollm3;
use candle_transformers::models::{
    gemma2, gemma3, granitemoehybrid, lfm2, llama, olmo2, phi3, qwen2, qwen3, qwen3_moe,
};

use super::{Rows, VOCAB_SIZE, beginning_by_beginning, token_by_token};

/// The model's weights under Hugging Face's names and in its conventions.
pub(crate) struct HuggingFace {
    shape: Shape,
    tensors: HashMap<String, Tensor>,
}

impl HuggingFace {
    pub(crate) fn new(shape: &Shape, gguf: &Gguf) -> Self {
        let mut tensors = HashMap::new();
        for tensor in gguf.tensors().filter(|tensor| !tensor.name.starts_with("rope_")) {
            let mut weights = vec![0.0; tensor.n_elements()];
            dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut weights);
            let rows_first: Vec<usize> = tensor.dimensions.iter().rev().copied().collect();
            let weights = Tensor::from_vec(weights, rows_first, &Device::Cpu).unwrap();
            let name = Self::name(shape, &tensor.name);
            if name.contains("experts.") {
                for expert in 0..weights.dim(0).unwrap() {
                    let name = name.replace("experts.", &format!("experts.{expert}."));
                    tensors.insert(name, weights.get(expert).unwrap());
                }
            } else {
                tensors.insert(name, Self::convention(shape, &tensor.name, weights));
            }
        }
        HuggingFace { shape: shape.clone(), tensors }
    }

    fn name(shape: &Shape, gguf_name: &str) -> String {
        let is_gemma = matches!(shape.architecture, Architecture::Gemma2 | Architecture::Gemma3);
        let is_fused = shape.architecture == Architecture::Phi3;
        let is_lfm2 = shape.architecture == Architecture::Lfm2;
        let (base, kind) = gguf_name.rsplit_once('.').unwrap();
        let Some((layer, part)) = base.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            let whole_model = [
                ("token_embd", "model.embed_tokens"),
                ("output_norm", "model.norm"),
                ("output", "lm_head"),
                ("token_embd_norm", "model.embedding_norm"),
            ];
            let (_, name) = whole_model.into_iter().find(|(gguf, _)| *gguf == base).unwrap();
            return format!("{name}.{kind}");
        };
        let name = match part {
            "attn_norm" if is_lfm2 => "operator_norm",
            "attn_output" if is_lfm2 => "self_attn.out_proj",
            "attn_q_norm" if is_lfm2 => "self_attn.q_layernorm",
            "attn_k_norm" if is_lfm2 => "self_attn.k_layernorm",
            "ffn_norm" if is_lfm2 => "ffn_norm",
            "ffn_gate" if is_lfm2 => "feed_forward.w1",
            "ffn_up" if is_lfm2 => "feed_forward.w3",
            "ffn_down" if is_lfm2 => "feed_forward.w2",
            "shortconv.conv" => "conv.conv",
            "shortconv.in_proj" => "conv.in_proj",
            "shortconv.out_proj" => "conv.out_proj",
            "ffn_gate_inp" => "mlp.gate",
            "ffn_gate_exps" => "mlp.experts.gate_proj",
            "ffn_up_exps" => "mlp.experts.up_proj",
            "ffn_down_exps" => "mlp.experts.down_proj",
            "attn_norm" => "input_layernorm",
            "attn_q" => "self_attn.q_proj",
            "attn_k" => "self_attn.k_proj",
            "attn_v" => "self_attn.v_proj",
            "attn_qkv" => "self_attn.qkv_proj",
            "attn_output" => "self_attn.o_proj",
            "attn_q_norm" => "self_attn.q_norm",
            "attn_k_norm" => "self_attn.k_norm",
            "post_attention_norm" => "post_attention_layernorm",
            "ffn_norm" if is_gemma => "pre_feedforward_layernorm",
            "ffn_norm" => "post_attention_layernorm",
            "post_ffw_norm" => "post_feedforward_layernorm",
            "ffn_gate" => "mlp.gate_proj",
            "ffn_up" if is_fused => "mlp.gate_up_proj",
            "ffn_up" => "mlp.up_proj",
            "ffn_down" => "mlp.down_proj",
            other => panic!("{other} is no part of a layer"),
        };
        format!("model.layers.{layer}.{name}.{kind}")
    }

    /// Undoes the conversion to GGUF: Gemma's norm weights are stored without the 1, and queries and keys whose
    /// neighbours turn are not permuted.
    fn convention(shape: &Shape, gguf_name: &str, weights: Tensor) -> Tensor {
        use Architecture::{Gemma2, Gemma3, Granite, Llama, SmolLm3};
        match shape.architecture {
            Gemma2 | Gemma3 if gguf_name.ends_with("norm.weight") => (weights - 1.0).unwrap(),
            Llama | SmolLm3 | Granite if gguf_name.ends_with("attn_q.weight") => unpermuted(&weights, shape.n_heads),
            Llama | SmolLm3 | Granite if gguf_name.ends_with("attn_k.weight") => unpermuted(&weights, shape.n_kv_heads),
            _ if gguf_name.ends_with("shortconv.conv.weight") => weights.unsqueeze(1).unwrap(),
            _ => weights,
        }
    }

    fn weights(&self) -> VarBuilder<'static> {
        VarBuilder::from_tensors(self.tensors.clone(), DType::F32, &Device::Cpu)
    }

    pub(crate) fn llama(&self, rope_scaling: Option<llama::Llama3RopeConfig>) -> Rows {
        let shape = &self.shape;
        let config = llama::Config {
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            vocab_size: VOCAB_SIZE,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            num_key_value_heads: shape.n_kv_heads,
            use_flash_attn: false,
            rms_norm_eps: f64::from(shape.norm_epsilon),
            rope_theta: shape.rope_base,
            bos_token_id: None,
            eos_token_id: None,
            rope_scaling,
            max_position_embeddings: shape.context_length,
            tie_word_embeddings: shape.tied_embeddings,
        };
        let model = llama::Llama::load(self.weights(), &config).unwrap();
        let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
        token_by_token(|token, position| model.forward(token, position, &mut cache))
    }

    pub(crate) fn qwen2(&self) -> Rows {
        let shape = &self.shape;
        let config = qwen2::Config {
            vocab_size: VOCAB_SIZE,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            num_key_value_heads: shape.n_kv_heads,
            max_position_embeddings: shape.context_length,
            sliding_window: shape.context_length,
            max_window_layers: shape.n_layers,
            tie_word_embeddings: shape.tied_embeddings,
            rope_theta: f64::from(shape.rope_base),
            rms_norm_eps: f64::from(shape.norm_epsilon),
            use_sliding_window: false,
            hidden_act: Activation::Silu,
        };
        let mut model = qwen2::ModelForCausalLM::new(&config, self.weights()).unwrap();
        token_by_token(|token, position| model.forward(token, position))
    }

    pub(crate) fn qwen3(&self) -> Rows {
        let shape = &self.shape;
        let config = qwen3::Config {
            vocab_size: VOCAB_SIZE,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            head_dim: shape.head_dim,
            attention_bias: false,
            num_key_value_heads: shape.n_kv_heads,
            max_position_embeddings: shape.context_length,
            sliding_window: None,
            max_window_layers: shape.n_layers,
            tie_word_embeddings: shape.tied_embeddings,
            rope_theta: f64::from(shape.rope_base),
            rms_norm_eps: f64::from(shape.norm_epsilon),
            use_sliding_window: false,
            hidden_act: Activation::Silu,
        };
        let mut model = qwen3::ModelForCausalLM::new(&config, self.weights()).unwrap();
        token_by_token(|token, position| model.forward(token, position))
    }

    pub(crate) fn qwen3_moe(&self, norm_topk_prob: bool) -> Rows {
        let shape = &self.shape;
        let experts = shape.experts.unwrap();
        let config = qwen3_moe::Config {
            vocab_size: VOCAB_SIZE,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            head_dim: shape.head_dim,
            attention_bias: false,
            num_key_value_heads: shape.n_kv_heads,
            max_position_embeddings: shape.context_length,
            sliding_window: None,
            max_window_layers: shape.n_layers,
            tie_word_embeddings: shape.tied_embeddings,
            rope_theta: f64::from(shape.rope_base),
            rms_norm_eps: f64::from(shape.norm_epsilon),
            use_sliding_window: false,
            hidden_act: Activation::Silu,
            decoder_sparse_step: 1,
            moe_intermediate_size: experts.width,
            num_experts_per_tok: experts.n_used,
            num_experts: experts.n_experts,
            norm_topk_prob,
        };
        let mut model = qwen3_moe::ModelForCausalLM::new(&config, self.weights()).unwrap();
        token_by_token(|token, position| model.forward(token, position))
    }

    pub(crate) fn olmo2(&self) -> Rows {
        let shape = &self.shape;
        let config = olmo2::Config {
            vocab_size: VOCAB_SIZE,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            attention_bias: false,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            num_key_value_heads: shape.n_kv_heads,
            rms_norm_eps: f64::from(shape.norm_epsilon),
            hidden_act: Activation::Silu,
            max_position_embeddings: shape.context_length,
            rope_theta: f64::from(shape.rope_base),
            tie_word_embeddings: shape.tied_embeddings,
            clip_qkv: None,
        };
        let mut model = olmo2::Model::new(&config, self.weights()).unwrap();
        token_by_token(|token, position| model.forward(token, position))
    }

    /// In every `interval`-th layer positions are not rotated.
    pub(crate) fn smollm3(&self, interval: usize) -> Rows {
        let shape = &self.shape;
        let config = smollm3::Config {
            vocab_size: VOCAB_SIZE,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            num_key_value_heads: shape.n_kv_heads,
            max_position_embeddings: shape.context_length,
            tie_word_embeddings: shape.tied_embeddings,
            rope_theta: f64::from(shape.rope_base),
            rms_norm_eps: f64::from(shape.norm_epsilon),
            hidden_act: Activation::Silu,
            attention_bias: None,
            attention_dropout: None,
            mlp_bias: None,
            sliding_window: None,
            use_sliding_window: None,
            rope_scaling: None,
            bos_token_id: None,
            eos_token_id: None,
            pad_token_id: None,
            max_window_layers: None,
            no_rope_layers: None,
            no_rope_layer_interval: Some(interval),
        };
        let mut model = smollm3::ModelForCausalLM::new(&config, self.weights()).unwrap();
        token_by_token(|token, position| model.forward(token, position))
    }

    /// candle's own Granite has none of its factors, but its hybrid one, of attention alone, is Granite.
    pub(crate) fn granite(mut self, multipliers: Multipliers) -> Rows {
        for layer in 0..self.shape.n_layers {
            let mut take =
                |part: &str| self.tensors.remove(&format!("model.layers.{layer}.mlp.{part}.weight")).unwrap();
            let (gate, up, down) = (take("gate_proj"), take("up_proj"), take("down_proj"));
            let mut put = |part: &str, weights: Tensor| {
                self.tensors.insert(format!("model.layers.{layer}.shared_mlp.{part}.weight"), weights)
            };
            put("input_linear", Tensor::cat(&[gate, up], 0).unwrap());
            put("output_linear", down);
        }
        let shape = &self.shape;
        let config = granitemoehybrid::GraniteMoeHybridInternalConfig {
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            shared_intermediate_size: shape.ffn_size,
            vocab_size: VOCAB_SIZE,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            num_key_value_heads: shape.n_kv_heads,
            use_flash_attn: false,
            rms_norm_eps: f64::from(shape.norm_epsilon),
            rope_theta: shape.rope_base,
            bos_token_id: None,
            eos_token_id: None,
            rope_scaling: None,
            max_position_embeddings: shape.context_length,
            layer_types: vec![granitemoehybrid::GraniteMoeHybridLayerType::Attention; shape.n_layers],
            attention_multiplier: multipliers.attention,
            embedding_multiplier: multipliers.embedding,
            residual_multiplier: multipliers.branch,
            logits_scaling: multipliers.logit_divisor,
        };
        let model = granitemoehybrid::GraniteMoeHybrid::load(self.weights(), &config).unwrap();
        let mut cache = granitemoehybrid::GraniteMoeHybridCache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
        token_by_token(|token, position| model.forward(token, position, &mut cache))
    }

    pub(crate) fn lfm2(&self) -> Rows {
        let shape = &self.shape;
        let recurrence = shape.recurrence.unwrap();
        let RecurrentSpec::ShortConvolution { n_taps } = recurrence.layer else { panic!("{shape:?}") };
        let kind = |layer| match recurrence.attention.contains(layer) {
            true => lfm2::LayerType::FullAttention,
            false => lfm2::LayerType::Conv,
        };
        let config = lfm2::Config {
            vocab_size: VOCAB_SIZE,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            num_key_value_heads: shape.n_kv_heads,
            norm_eps: f64::from(shape.norm_epsilon),
            rope_theta: shape.rope_base,
            max_position_embeddings: shape.context_length,
            conv_l_cache: n_taps,
            conv_bias: false,
            layer_types: (0..shape.n_layers).map(kind).collect(),
            tie_embedding: shape.tied_embeddings,
            bos_token_id: None,
            eos_token_id: None,
            use_flash_attn: false,
        };
        let model = lfm2::Model::new(&config, self.weights()).unwrap();
        let mut cache = lfm2::Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
        token_by_token(|token, position| model.forward(token, position, &mut cache))
    }

    fn gemma2(&self, sliding_window: Option<usize>) -> gemma2::Model {
        let shape = &self.shape;
        let config = gemma2::Config {
            attention_bias: false,
            head_dim: shape.head_dim,
            hidden_activation: Activation::GeluPytorchTanh,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_attention_heads: shape.n_heads,
            num_hidden_layers: shape.n_layers,
            num_key_value_heads: shape.n_kv_heads,
            rms_norm_eps: f64::from(shape.norm_epsilon),
            rope_theta: f64::from(shape.rope_base),
            vocab_size: VOCAB_SIZE,
            final_logit_softcapping: shape.logit_soft_cap.map(f64::from),
            attn_logit_softcapping: shape.attention_soft_cap.map(f64::from),
            query_pre_attn_scalar: shape.head_dim,
            sliding_window,
            max_position_embeddings: shape.context_length,
        };
        gemma2::Model::new(false, &config, self.weights()).unwrap()
    }

    /// Without windows.
    pub(crate) fn gemma2_global(&self) -> Rows {
        let mut model = self.gemma2(None);
        token_by_token(|token, position| model.forward(token, position))
    }

    /// With the shape's window in every layer, which has to be passed to candle reduced by one.
    pub(crate) fn gemma2_local(&self) -> Rows {
        let mut model = self.gemma2(Some(self.shape.sliding_window.unwrap() - 1));
        beginning_by_beginning(|tokens| {
            model.clear_kv_cache();
            model.forward(tokens, 0)
        })
    }

    pub(crate) fn gemma3(&self, local_rope_base: f64, pattern: usize) -> Rows {
        let shape = &self.shape;
        let config = gemma3::Config {
            attention_bias: false,
            head_dim: shape.head_dim,
            hidden_activation: Activation::GeluPytorchTanh,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_attention_heads: shape.n_heads,
            num_hidden_layers: shape.n_layers,
            num_key_value_heads: shape.n_kv_heads,
            rms_norm_eps: f64::from(shape.norm_epsilon),
            rope_theta: f64::from(shape.rope_base),
            rope_local_base_freq: local_rope_base,
            vocab_size: VOCAB_SIZE,
            final_logit_softcapping: None,
            attn_logit_softcapping: None,
            query_pre_attn_scalar: shape.head_dim,
            sliding_window: shape.sliding_window.unwrap(),
            sliding_window_pattern: pattern,
            max_position_embeddings: shape.context_length,
        };
        let mut model = gemma3::Model::new(false, &config, self.weights()).unwrap();
        token_by_token(|token, position| model.forward(token, position))
    }

    pub(crate) fn phi3(&self, rope_scaling: Option<phi3::RopeScaling>, partial_rotary_factor: Option<f64>) -> Rows {
        let shape = &self.shape;
        let config = phi3::Config {
            vocab_size: VOCAB_SIZE,
            hidden_act: Activation::Silu,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.ffn_size,
            num_hidden_layers: shape.n_layers,
            num_attention_heads: shape.n_heads,
            num_key_value_heads: shape.n_kv_heads,
            rms_norm_eps: f64::from(shape.norm_epsilon),
            rope_theta: f64::from(shape.rope_base),
            bos_token_id: None,
            eos_token_id: None,
            rope_scaling,
            max_position_embeddings: shape.context_length,
            original_max_position_embeddings: None,
            partial_rotary_factor,
            tie_word_embeddings: shape.tied_embeddings,
        };
        let mut model = phi3::Model::new(&config, self.weights()).unwrap();
        token_by_token(|token, position| model.forward(token, position))
    }

    /// Multiplies the queries of fused projections by a factor.
    pub(crate) fn with_queries_times(mut self, factor: f64) -> Self {
        let query_width = self.shape.n_heads * self.shape.head_dim;
        for (_, weights) in self.tensors.iter_mut().filter(|(name, _)| name.ends_with("qkv_proj.weight")) {
            let queries = (weights.narrow(0, 0, query_width).unwrap() * factor).unwrap();
            let rest = weights.narrow(0, query_width, weights.dim(0).unwrap() - query_width).unwrap();
            *weights = Tensor::cat(&[queries, rest], 0).unwrap();
        }
        self
    }
}

/// Moves the rows of a head from interleaved pairs to one half after the other: (0, n/2), (1, n/2 + 1), ….
fn unpermuted(weights: &Tensor, n_heads: usize) -> Tensor {
    let (n_rows, row) = weights.dims2().unwrap();
    let pairs = weights.reshape((n_heads, n_rows / n_heads / 2, 2, row)).unwrap();
    pairs.transpose(1, 2).unwrap().reshape((n_rows, row)).unwrap()
}
