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

mod hugging_face;

use crate::backend::candle::CandleBackend;
use crate::backend::native::{ComputeThreads, NativeBackend, NativeOptions};
use crate::backend::{ActivationBits, Backend, BatchEntry, DeviceChoice, LoadProgress, SequenceStates};
use crate::decoder::{DecoderSpec, Window};
use crate::gguf::dequantize;
use crate::gguf::{Gguf, TensorType, WriteValue, Writer};
use crate::kv_cache::{BlockPool, CachedSequence, StateAt};
use crate::logprobs::log_sum_exp;
use crate::sampler::argmax;
use crate::synth::{self, Quantization, RopeScaling, Shape};
use candle_core::{Device, Tensor};
use candle_transformers::models::{llama, phi3};

use self::hugging_face::HuggingFace;

const VOCAB_SIZE: usize = 300;
const N_TOKENS: usize = 40;
/// The error allowed for half-precision keys and values, where logits have a standard deviation of 3. (With keys and
/// values in single precision the largest difference is 3e-5.)
const TOLERANCE: f32 = 2e-2;
/// The root mean square error allowed over all tokens and positions.
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

/// On the native backend where layers keep a state, which the candle backend does not compute.
fn ours(gguf: &Gguf, context_length: Option<usize>) -> Rows {
    let spec = DecoderSpec::from_gguf(gguf, context_length).unwrap();
    let mut backend: Box<dyn Backend> = if spec.is_recurrent() {
        let threads = ComputeThreads::new(Some(2));
        let activation_bits = ActivationBits::Sixteen;
        let options = NativeOptions { activation_bits, n_loading: Some(2), ..NativeOptions::default() };
        Box::new(NativeBackend::load(gguf, &spec, options, threads, &LoadProgress::default()).unwrap())
    } else {
        Box::new(CandleBackend::load(gguf, &spec, DeviceChoice::Cpu, &LoadProgress::default()).unwrap())
    };
    let mut pool = BlockPool::with_room_for(N_TOKENS);
    let mut sequence = CachedSequence::default();
    pool.extend(&mut sequence, N_TOKENS).unwrap();
    let tokens = tokens();
    let written = [StateAt { position: N_TOKENS, state: 0 }];
    let states = spec.is_recurrent().then_some(SequenceStates { before: None, written: &written });
    let entry = BatchEntry { tokens: &tokens, position: 0, blocks: sequence.blocks(), logits: 0..N_TOKENS, states };
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

#[test]
fn qwen3_moe_agrees() {
    let shape = shape("tiny-qwen3moe");
    let gguf = model(&shape);
    let (ours, theirs) = (ours(&gguf, None), HuggingFace::new(&shape, &gguf));
    check_same(&ours, &theirs.qwen3_moe(true));
    check_same_before(0, &ours, &theirs.qwen3_moe(false));
}

#[test]
fn olmo2_agrees() {
    let shape = shape("tiny-olmo2");
    let gguf = model(&shape);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).olmo2());
}

#[test]
fn smollm3_agrees() {
    let shape = shape("tiny-smollm3");
    let gguf = model(&shape);
    let (ours, theirs) = (ours(&gguf, None), HuggingFace::new(&shape, &gguf));
    check_same(&ours, &theirs.smollm3(4));
    check_same_before(1, &ours, &theirs.smollm3(3));
}

#[test]
fn granite_agrees() {
    let shape = shape("tiny-granite");
    let multipliers = shape.multipliers.unwrap();
    let gguf = model(&shape);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).granite(multipliers));
}

#[test]
fn lfm2_agrees() {
    let shape = shape("tiny-lfm2");
    let gguf = model(&shape);
    check_same(&ours(&gguf, None), &HuggingFace::new(&shape, &gguf).lfm2());
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
