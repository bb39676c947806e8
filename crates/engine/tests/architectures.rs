//! The decoder against candle-transformers' own models of each architecture: the same small random weights in F32 in
//! both, comparing the log-probabilities of every token at every position.
//!
//! candle's models run one token at a time with their own caches, which is how they are used; ours runs the whole
//! sequence in one step. Ours keeps keys and values in half precision and theirs do not, so a small difference is
//! expected.
//!
//! Where candle departs from the definition (Hugging Face transformers, and llama.cpp, which agree with each other),
//! the test says so and compares what can be compared:
//! - A window of `n` positions: both definitions let a token see `n` positions, its own among them (`kv_idx > q_idx -
//!   sliding_window` in `masking_utils.py`, `p1 - p0 >= n_swa` is masked in `llama-hparams.h`). candle's masks let it
//!   see `n + 1`; its rotating cache of Gemma 3 keeps `n`, which is right one token at a time.
//! - Gemma 2: windows alternate, the first layer has one (`layer_types` in `configuration_gemma2.py`,
//!   `set_swa_pattern(2)` in llama.cpp). candle gives every layer one in a prompt and none afterwards.
//! - LongRoPE: the frequencies are divided by the factors, and sine and cosine are multiplied by a magnitude
//!   (`_compute_longrope_parameters` in `modeling_rope_utils.py`). candle multiplies by the factors, and leaves the
//!   magnitude out.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::{gemma2, gemma3, llama, phi3, qwen2, qwen3};
use hone_engine::backend::candle::CandleBackend;
use hone_engine::backend::{Backend, BatchEntry, DeviceChoice};
use hone_engine::decoder::{DecoderSpec, Window};
use hone_engine::gguf::dequantize;
use hone_engine::gguf::{Gguf, TensorType, WriteValue, Writer};
use hone_engine::kv_cache::{BlockPool, CachedSequence};
use hone_engine::logprobs::log_sum_exp;
use hone_engine::sampler::argmax;
use hone_engine::synth::{self, Architecture, Quantization, RopeScaling, Shape};

const VOCAB_SIZE: usize = 300;
const N_TOKENS: usize = 40;
/// The error allowed for half-precision keys and values, where logits have a standard deviation of 3. (With keys and
/// values in single precision the largest difference is 3e-5.)
const TOLERANCE: f32 = 2e-2;
/// The same as a root mean square over all tokens and positions.
const TOLERANCE_ON_AVERAGE: f32 = 2.5e-3;

/// Log-probabilities, a row per position.
type Rows = Vec<Vec<f32>>;

fn tokens() -> Vec<u32> {
    (0..N_TOKENS as u32).map(|index| (index * index * 31 + index * 7 + 3) % VOCAB_SIZE as u32).collect()
}

/// The epsilon of the norms is large enough to matter.
fn shape(name: &str) -> Shape {
    Shape { norm_epsilon: 0.05, ..Shape::named(name).unwrap() }
}

fn model(shape: &Shape) -> Gguf {
    Gguf::from_bytes(model_bytes(shape)).unwrap()
}

fn model_bytes(shape: &Shape) -> Vec<u8> {
    let tokens: Vec<String> = (0..VOCAB_SIZE).map(|id| format!("token{id}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)).unwrap();
    let vocabulary = Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let mut bytes = Vec::new();
    synth::write_to(shape, Quantization::Uniform(TensorType::F32), &vocabulary, 11, &mut bytes, &mut |_| {}).unwrap();
    bytes
}

/// The model with these tensors filled with zeros.
fn model_without(shape: &Shape, tensors: &[String]) -> Gguf {
    let mut bytes = model_bytes(shape);
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    for name in tensors {
        let tensor = gguf.tensor(name).unwrap();
        bytes[tensor.offset..tensor.offset + tensor.n_bytes].fill(0);
    }
    Gguf::from_bytes(bytes).unwrap()
}

/// The model with another value under a metadata key that holds a u32.
fn model_with(shape: &Shape, key: &str, value: u32) -> Gguf {
    let mut bytes = model_bytes(shape);
    let start = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
    let value_start = start + key.len() + 4;
    bytes[value_start..value_start + 4].copy_from_slice(&value.to_le_bytes());
    Gguf::from_bytes(bytes).unwrap()
}

fn ours(gguf: &Gguf, context_length: Option<usize>) -> Rows {
    let spec = DecoderSpec::from_gguf(gguf, context_length).unwrap();
    let mut backend = CandleBackend::load(gguf, &spec, DeviceChoice::Cpu).unwrap();
    let mut pool = BlockPool::with_room_for(N_TOKENS);
    let mut sequence = CachedSequence::default();
    pool.extend(&mut sequence, N_TOKENS).unwrap();
    let tokens = tokens();
    let entry =
        BatchEntry { tokens: &tokens, position: 0, blocks: sequence.blocks(), logits: 0..N_TOKENS, states: None };
    backend.forward(&[entry]).unwrap().rows().map(log_softmax).collect()
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let sum = log_sum_exp(logits);
    logits.iter().map(|logit| logit - sum).collect()
}

/// Runs a model of candle's with its cache; `forward` takes one token and its position.
fn token_by_token(mut forward: impl FnMut(&Tensor, usize) -> candle_core::Result<Tensor>) -> Rows {
    let row = |(position, token): (usize, &u32)| {
        let input = Tensor::new(&[[*token]], &Device::Cpu).unwrap();
        last_row(&forward(&input, position).unwrap())
    };
    tokens().iter().enumerate().map(row).collect()
}

/// Runs every prefix of the sequence anew; `forward` takes all of its tokens.
fn beginning_by_beginning(mut forward: impl FnMut(&Tensor) -> candle_core::Result<Tensor>) -> Rows {
    let row = |length: usize| {
        let input = Tensor::new(&tokens()[..length], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        last_row(&forward(&input).unwrap())
    };
    (1..=N_TOKENS).map(row).collect()
}

fn last_row(logits: &Tensor) -> Vec<f32> {
    let logits = logits.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(logits.len(), VOCAB_SIZE);
    log_softmax(&logits)
}

/// The largest difference at any token of each position.
fn differences(ours: &Rows, theirs: &Rows) -> Vec<f32> {
    assert_eq!((ours.len(), theirs.len()), (N_TOKENS, N_TOKENS));
    let largest = |(ours, theirs): (&Vec<f32>, &Vec<f32>)| {
        ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max)
    };
    ours.iter().zip(theirs).map(largest).collect()
}

fn root_mean_square_difference(ours: &Rows, theirs: &Rows) -> f32 {
    let pairs = ours.iter().flatten().zip(theirs.iter().flatten());
    let sum: f32 = pairs.map(|(ours, theirs)| (ours - theirs).powi(2)).sum();
    (sum / (N_TOKENS * VOCAB_SIZE) as f32).sqrt()
}

#[track_caller]
fn check_same(ours: &Rows, theirs: &Rows) {
    let differences = differences(ours, theirs);
    assert!(differences.iter().all(|difference| *difference < TOLERANCE), "{differences:?}");
    let on_average = root_mean_square_difference(ours, theirs);
    assert!(on_average < TOLERANCE_ON_AVERAGE, "{on_average} on average");
}

/// Checks that they agree up to a position, and clearly differ from there on.
#[track_caller]
fn check_same_before(position: usize, ours: &Rows, theirs: &Rows) {
    let differences = differences(ours, theirs);
    let (before, after) = differences.split_at(position);
    assert!(before.iter().all(|difference| *difference < TOLERANCE), "{differences:?}");
    assert!(after.iter().all(|difference| *difference > 2.0 * TOLERANCE), "{differences:?}");
}

/// The model's weights under Hugging Face's names and in its conventions.
struct HuggingFace {
    shape: Shape,
    tensors: HashMap<String, Tensor>,
}

impl HuggingFace {
    fn new(shape: &Shape, gguf: &Gguf) -> Self {
        let mut tensors = HashMap::new();
        for tensor in gguf.tensors().filter(|tensor| !tensor.name.starts_with("rope_")) {
            let mut weights = vec![0.0; tensor.n_elements()];
            dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut weights);
            let rows_first: Vec<usize> = tensor.dimensions.iter().rev().copied().collect();
            let weights = Tensor::from_vec(weights, rows_first, &Device::Cpu).unwrap();
            tensors.insert(Self::name(shape, &tensor.name), Self::convention(shape, &tensor.name, weights));
        }
        HuggingFace { shape: shape.clone(), tensors }
    }

    fn name(shape: &Shape, gguf_name: &str) -> String {
        let is_gemma = matches!(shape.architecture, Architecture::Gemma2 | Architecture::Gemma3);
        let is_fused = shape.architecture == Architecture::Phi3;
        let (base, kind) = gguf_name.rsplit_once('.').unwrap();
        let Some((layer, part)) = base.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            let whole_model =
                [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];
            let (_, name) = whole_model.into_iter().find(|(gguf, _)| *gguf == base).unwrap();
            return format!("{name}.{kind}");
        };
        let name = match part {
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

    /// Undoes what conversion to GGUF did: Gemma's norm weights are stored without the 1, and Llama's queries and keys
    /// are not permuted.
    fn convention(shape: &Shape, gguf_name: &str, weights: Tensor) -> Tensor {
        match shape.architecture {
            Architecture::Gemma2 | Architecture::Gemma3 if gguf_name.ends_with("norm.weight") => {
                (weights - 1.0).unwrap()
            }
            Architecture::Llama if gguf_name.ends_with("attn_q.weight") => unpermuted(&weights, shape.n_heads),
            Architecture::Llama if gguf_name.ends_with("attn_k.weight") => unpermuted(&weights, shape.n_kv_heads),
            _ => weights,
        }
    }

    fn weights(&self) -> VarBuilder<'static> {
        VarBuilder::from_tensors(self.tensors.clone(), DType::F32, &Device::Cpu)
    }

    fn llama(&self, rope_scaling: Option<llama::Llama3RopeConfig>) -> Rows {
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

    fn qwen2(&self) -> Rows {
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

    fn qwen3(&self) -> Rows {
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
    fn gemma2_global(&self) -> Rows {
        let mut model = self.gemma2(None);
        token_by_token(|token, position| model.forward(token, position))
    }

    /// With the shape's window in every layer, which has to be passed to candle reduced by one.
    fn gemma2_local(&self) -> Rows {
        let mut model = self.gemma2(Some(self.shape.sliding_window.unwrap() - 1));
        beginning_by_beginning(|tokens| {
            model.clear_kv_cache();
            model.forward(tokens, 0)
        })
    }

    fn gemma3(&self, local_rope_base: f64, pattern: usize) -> Rows {
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

    fn phi3(&self, rope_scaling: Option<phi3::RopeScaling>, partial_rotary_factor: Option<f64>) -> Rows {
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
    fn with_queries_times(mut self, factor: f64) -> Self {
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

#[test]
fn llama_agrees() {
    let shape = shape("tiny-llama");
    let gguf = model(&shape);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).llama(None));
}

#[test]
fn llama_with_scaled_frequencies_agrees() {
    let shape = shape("tiny-llama3");
    let RopeScaling::Llama3 { factor, low_frequency_turns, high_frequency_turns, original_context } =
        shape.rope_scaling
    else {
        panic!("{shape:?} has other frequencies");
    };
    let gguf = model(&shape);
    let (ours, theirs) = (ours(&gguf, None), HuggingFace::new(&shape, &gguf));
    let scaling = llama::Llama3RopeConfig {
        factor,
        low_freq_factor: low_frequency_turns,
        high_freq_factor: high_frequency_turns,
        original_max_position_embeddings: original_context,
        rope_type: llama::Llama3RopeType::Llama3,
    };
    check_same(&ours, &theirs.llama(Some(scaling)));
    check_same_before(1, &ours, &theirs.llama(None));
}

/// candle has no linear scaling, but its Llama 3 scaling divides every frequency if the original context is so short
/// that all of them count as low.
#[test]
fn llama_with_linear_scaling_agrees() {
    let mut shape = shape("tiny-llama");
    shape.rope_scaling = RopeScaling::Linear(4.0);
    let gguf = model(&shape);
    let scaling = llama::Llama3RopeConfig {
        factor: 4.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 1,
        rope_type: llama::Llama3RopeType::Llama3,
    };
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).llama(Some(scaling)));
}

#[test]
fn qwen2_agrees() {
    let shape = shape("tiny-qwen2");
    let gguf = model(&shape);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).qwen2());
}

#[test]
fn qwen3_agrees() {
    let shape = shape("tiny-qwen3");
    let gguf = model(&shape);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).qwen3());
}

/// Up to the window's end all layers see everything, as candle's do one token at a time; from there on they differ.
#[test]
fn gemma2_agrees_within_the_window() {
    let shape = shape("tiny-gemma2");
    let gguf = model(&shape);
    let theirs = HuggingFace::new(&shape, &gguf);
    check_same_before(shape.sliding_window.unwrap(), &ours(&gguf, None), &theirs.gemma2_global());
}

/// Attention of the layers with a window is silenced by zero weights in the norm after it: the remaining layers see
/// everything.
#[test]
fn gemma2_agrees_where_only_layers_without_a_window_attend() {
    let shape = shape("tiny-gemma2");
    let gguf =
        model_without(&shape, &["blk.0.post_attention_norm.weight".into(), "blk.2.post_attention_norm.weight".into()]);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).gemma2_global());
}

#[test]
fn gemma2_agrees_where_only_layers_with_a_window_attend() {
    let shape = shape("tiny-gemma2");
    let gguf = model_without(&shape, &["blk.1.post_attention_norm.weight".into()]);
    let (ours, theirs) = (ours(&gguf, None), HuggingFace::new(&shape, &gguf));
    check_same(&ours, &theirs.gemma2_local());
    check_same_before(shape.sliding_window.unwrap(), &ours, &theirs.gemma2_global());
}

/// The sixth of its seven layers is global.
#[test]
fn gemma3_agrees() {
    let shape = shape("tiny-gemma3");
    let gguf = model(&shape);
    let (ours, theirs) = (ours(&gguf, None), HuggingFace::new(&shape, &gguf));
    check_same(&ours, &theirs.gemma3(10_000.0, 6));
    check_same_before(1, &ours, &theirs.gemma3(1e6, 6));
    check_same_before(1, &ours, &theirs.gemma3(10_000.0, 7));
}

/// The larger Gemma 3 models stretch positions by 8, in global layers only; candle does not support that.
#[test]
fn gemma3_scales_positions_in_global_layers_only() {
    let mut shape = shape("tiny-gemma3");
    shape.rope_scaling = RopeScaling::Linear(8.0);
    let spec = DecoderSpec::from_gguf(&model(&shape), None).unwrap();
    let frequency = |base: f32, pair: usize| base.powf(-2.0 * pair as f32 / shape.head_dim as f32);
    for (index, layer) in spec.layers.iter().enumerate() {
        let is_global = index == 5;
        let attention = layer.attention().unwrap();
        assert_eq!(attention.window, (!is_global).then_some(Window::Sliding(16)), "layer {index}");
        let expected = if is_global { frequency(1e6, 3) / 8.0 } else { frequency(10_000.0, 3) };
        let found = spec.ropes[attention.rope.unwrap()].inverse_frequencies[3];
        assert!((found / expected - 1.0).abs() < 1e-5, "layer {index}: {found} and not {expected}");
    }
}

#[test]
fn phi3_agrees() {
    let shape = shape("tiny-phi3");
    let gguf = model(&shape);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).phi3(None, None));
}

/// Phi-4 mini rotates a part of each head.
#[test]
fn phi3_with_a_part_of_each_head_rotated_agrees() {
    let shape = shape("tiny-phi3");
    let gguf = model_with(&shape, "phi3.rope.dimension_count", 16);
    let (ours, theirs) = (ours(&gguf, None), HuggingFace::new(&shape, &gguf));
    check_same(&ours, &theirs.phi3(None, Some(0.5)));
    check_same_before(1, &ours, &theirs.phi3(None, None));
}

/// The length of the context decides which factors apply, as in llama.cpp. candle is given their reciprocals, and the
/// magnitude of queries and keys goes into the weights of its queries, squared.
#[test]
fn phi3_with_longrope_agrees() {
    let shape = shape("tiny-phi3-longrope");
    let gguf = model(&shape);
    let magnitude = f64::from(gguf.float("phi3.rope.scaling.attn_factor").unwrap().unwrap());
    let theirs = HuggingFace::new(&shape, &gguf).with_queries_times(magnitude * magnitude);
    let with_factors = |tensor: &str| {
        let tensor = gguf.tensor(tensor).unwrap();
        let mut factors = vec![0.0; tensor.n_elements()];
        dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut factors);
        let reciprocals: Vec<f32> = factors.into_iter().map(f32::recip).collect();
        let scaling = phi3::RopeScaling {
            short_factor: reciprocals.clone(),
            long_factor: reciprocals,
            type_: phi3::RopeScalingType::LongRope,
        };
        theirs.phi3(Some(scaling), None)
    };
    let (short, long) = (with_factors("rope_factors_short.weight"), with_factors("rope_factors_long.weight"));
    check_same(&ours(&gguf, Some(64)), &short);
    check_same(&ours(&gguf, Some(65)), &long);
    check_same_before(1, &ours(&gguf, None), &short);
}

/// The purpose of a synthesized model: logits that spread like a trained model's, at every position, rather than one
/// token that always wins.
#[test]
fn synthesized_models_have_logits_like_trained_ones() {
    for shape in Shape::all().iter().filter(|shape| shape.name.starts_with("tiny-")) {
        let rows = ours(&model(shape), None);
        let mut likeliest = Vec::new();
        for (position, row) in rows.iter().enumerate() {
            let mean = row.iter().sum::<f32>() / VOCAB_SIZE as f32;
            let variance = row.iter().map(|logit| (logit - mean).powi(2)).sum::<f32>() / VOCAB_SIZE as f32;
            let spread = variance.sqrt();
            assert!((1.5..4.0).contains(&spread), "{} at {position}: spread {spread}", shape.name);
            likeliest.push(argmax(row));
        }
        let repeats = likeliest.iter().zip(tokens()).filter(|(likeliest, token)| **likeliest == *token).count();
        assert!(repeats < N_TOKENS / 2, "{} repeats {repeats} of {N_TOKENS} tokens", shape.name);
        likeliest.sort();
        likeliest.dedup();
        assert!(likeliest.len() > N_TOKENS / 4, "{} predicts {likeliest:?} only", shape.name);
    }
}
