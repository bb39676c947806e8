//! The kernels of the GPU, emulated, against the native backend: tiny models of every architecture, in the formats of
//! real files, with prompts, single tokens and sequences side by side.

use hone_kernels::KvFormat;
use hone_kernels_cuda::SharedDevice;

use crate::backend::cuda::CudaBackend;
use crate::backend::divided::DividedBackend;
use crate::backend::native::{ComputeThreads, NativeBackend, NativeOptions};
use crate::backend::{ActivationBits, Backend, BatchEntry, LoadProgress, SequenceStates};
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorType, WriteValue, Writer};
use crate::kv_cache::StateAt;
use crate::logprobs::log_sum_exp;
use crate::synth::{self, Quantization, Shape};

mod recorded;

const VOCAB_SIZE: usize = 300;

fn tokens(seed: u32, n: usize) -> Vec<u32> {
    (0..n as u32).map(|index| (index * index * 31 + index * 7 + seed * 13 + 3) % VOCAB_SIZE as u32).collect()
}

fn model(shape: &Shape, quantization: Quantization) -> Gguf {
    let tokens: Vec<String> = (0..VOCAB_SIZE).map(|id| format!("token{id}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)).unwrap();
    let vocabulary = Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let mut bytes = Vec::new();
    synth::write_to(shape, quantization, &vocabulary, 11, &mut bytes, &mut |_| {}).unwrap();
    Gguf::from_bytes(bytes).unwrap()
}

fn native(gguf: &Gguf, spec: &DecoderSpec, kv_cache: KvFormat) -> Box<dyn Backend> {
    let options = NativeOptions {
        kv_cache,
        activation_bits: ActivationBits::Sixteen,
        n_loading: Some(2),
        ..NativeOptions::default()
    };
    let threads = ComputeThreads::new(Some(2));
    Box::new(NativeBackend::load(gguf, spec, options, threads, &LoadProgress::default()).unwrap())
}

fn emulated(gguf: &Gguf, spec: &DecoderSpec, kv_cache: KvFormat) -> Box<dyn Backend> {
    let device = SharedDevice::host();
    Box::new(CudaBackend::load(gguf, spec, kv_cache, &device, &LoadProgress::default()).unwrap())
}

/// The first layers emulated, and the others on the processor.
fn divided(gguf: &Gguf, spec: &DecoderSpec, n_layers: usize, kv_cache: KvFormat) -> Box<dyn Backend> {
    let (device, options) = (SharedDevice::host(), NativeOptions { kv_cache, ..NativeOptions::default() });
    let processor = (NativeOptions { n_loading: Some(2), ..options }, ComputeThreads::new(Some(2)));
    Box::new(DividedBackend::load(gguf, spec, n_layers, &device, processor, &LoadProgress::default()).unwrap())
}

/// A sequence with blocks and states of its own, as the layers above would give it.
struct Growing {
    tokens: Vec<u32>,
    blocks: Vec<u32>,
    first_state: u32,
    n_done: usize,
    n_steps: u32,
}

impl Growing {
    fn new(number: u32, tokens: Vec<u32>) -> Self {
        // Blocks lie in any order.
        let blocks = (0..8).map(|index| (index * 5 + 3) % 8 + 8 * number).collect();
        Growing { tokens, blocks, first_state: 100 * number, n_done: 0, n_steps: 0 }
    }
}

/// Advances every sequence by its number of tokens, in one step, and returns the log-probabilities at all of them.
fn step(backend: &mut dyn Backend, is_recurrent: bool, sequences: &mut [(&mut Growing, usize)]) -> Vec<Vec<f32>> {
    let written: Vec<[StateAt; 1]> = sequences
        .iter()
        .map(|(growing, n)| {
            [StateAt { position: growing.n_done + n, state: growing.first_state + growing.n_steps % 2 }]
        })
        .collect();
    let entries: Vec<BatchEntry<'_>> = std::iter::zip(&*sequences, &written)
        .map(|((growing, n), written)| BatchEntry {
            tokens: &growing.tokens[growing.n_done..growing.n_done + n],
            position: growing.n_done,
            blocks: &growing.blocks,
            logits: 0..*n,
            states: is_recurrent.then(|| SequenceStates {
                before: (growing.n_done > 0).then(|| growing.first_state + (growing.n_steps + 1) % 2),
                written,
            }),
        })
        .collect();
    let rows = backend.forward(&entries).unwrap().rows().map(log_softmax).collect();
    for (growing, n) in sequences {
        growing.n_done += *n;
        growing.n_steps += 1;
    }
    rows
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let sum = log_sum_exp(logits);
    logits.iter().map(|logit| logit - sum).collect()
}

/// A prompt that uses the tensor cores, single tokens after it, and another sequence that joins.
fn run(backend: &mut dyn Backend, is_recurrent: bool) -> Vec<Vec<f32>> {
    let (mut first, mut second) = (Growing::new(0, tokens(1, 60)), Growing::new(1, tokens(2, 60)));
    let mut rows = step(backend, is_recurrent, &mut [(&mut first, 40)]);
    rows.extend(step(backend, is_recurrent, &mut [(&mut first, 1)]));
    rows.extend(step(backend, is_recurrent, &mut [(&mut first, 3), (&mut second, 35)]));
    rows.extend(step(backend, is_recurrent, &mut [(&mut first, 1), (&mut second, 1)]));
    rows.extend(step(backend, is_recurrent, &mut [(&mut first, 5), (&mut second, 6)]));
    rows
}

/// Differences of log-probabilities: the largest of all, and the root of the mean square at the median position.
fn differences(ours: &[Vec<f32>], theirs: &[Vec<f32>]) -> (f32, f32) {
    let mut largest = 0.0f32;
    let mut roots: Vec<f32> = std::iter::zip(ours, theirs)
        .map(|(ours, theirs)| {
            let gaps = ours.iter().zip(theirs).map(|(one, other)| (one - other).abs());
            largest = gaps.clone().fold(largest, f32::max);
            (gaps.map(|gap| gap * gap).sum::<f32>() / ours.len() as f32).sqrt()
        })
        .collect();
    assert!(roots.iter().all(|root| root.is_finite()), "every logit is a number");
    roots.sort_by(f32::total_cmp);
    (largest, roots[roots.len() / 2])
}

/// The GPU rounds a product's input to bfloat16 or 8 bits, where the native backend keeps 16 bits; logits have a
/// standard deviation of 3.
const LARGEST: f32 = 0.8;
const USUAL: f32 = 0.12;

#[track_caller]
fn check(shape: &Shape, quantization: Quantization, kv_cache: KvFormat) {
    let gguf = model(shape, quantization);
    let spec = DecoderSpec::from_gguf(&gguf, None).unwrap();
    let expected = run(&mut *native(&gguf, &spec, kv_cache), spec.is_recurrent());
    let ours = run(&mut *emulated(&gguf, &spec, kv_cache), spec.is_recurrent());
    let (largest, usual) = differences(&ours, &expected);
    // A token's experts may differ where two of them are nearly as good, and so may their output.
    let most = if spec.experts.is_some() { f32::INFINITY } else { LARGEST };
    let what = format!("{} in {quantization:?} with a cache in {kv_cache:?}", shape.name);
    assert!(largest < most && usual < USUAL, "{what}: differs by up to {largest}, usually by {usual}");
}

#[test]
fn every_architecture_gives_what_the_native_backend_gives() {
    for shape in Shape::all().iter().filter(|shape| shape.name.starts_with("tiny-")) {
        check(shape, Quantization::Uniform(TensorType::F32), KvFormat::F16);
    }
}

/// A decoder gives the same wherever it is cut.
#[test]
fn every_architecture_can_be_divided() {
    for shape in Shape::all().iter().filter(|shape| shape.name.starts_with("tiny-")) {
        let gguf = model(shape, Quantization::Uniform(TensorType::Q8_0));
        let spec = DecoderSpec::from_gguf(&gguf, None).unwrap();
        let whole = run(&mut *emulated(&gguf, &spec, KvFormat::F16), spec.is_recurrent());
        let cuts: Vec<usize> = spec.cuts().collect();
        assert!(!cuts.is_empty(), "{} cannot be divided", shape.name);
        for n_layers in cuts {
            let ours = run(&mut *divided(&gguf, &spec, n_layers, KvFormat::F16), spec.is_recurrent());
            let (largest, usual) = differences(&ours, &whole);
            let most = if spec.experts.is_some() { f32::INFINITY } else { LARGEST };
            let what = format!("{} after {n_layers} of {} layers", shape.name, spec.layers.len());
            assert!(largest < most && usual < USUAL, "{what}: differs by up to {largest}, usually by {usual}");
        }
    }
}

#[test]
fn every_tensor_type_gives_what_the_native_backend_gives() {
    let shape = Shape::named("tiny-llama").unwrap();
    for tensor_type in TensorType::ALL {
        check(&shape, Quantization::Uniform(tensor_type), KvFormat::F16);
    }
    check(&Shape::named("tiny-qwen3moe").unwrap(), Quantization::Q4_K_M, KvFormat::F16);
}

#[test]
fn a_cache_in_8_bits_gives_what_the_native_backend_gives() {
    for shape in ["tiny-llama", "tiny-gemma3", "tiny-gpt-oss"] {
        check(&Shape::named(shape).unwrap(), Quantization::Uniform(TensorType::Q8_0), KvFormat::Q8_0);
    }
}

/// A fork copies blocks, and a saved prefix takes them out of the device and back.
#[test]
fn blocks_are_copied_and_restored() {
    let gguf = model(&Shape::named("tiny-llama").unwrap(), Quantization::Uniform(TensorType::Q8_0));
    let spec = DecoderSpec::from_gguf(&gguf, None).unwrap();
    check_blocks(&mut *emulated(&gguf, &spec, KvFormat::F16));
    check_blocks(&mut *divided(&gguf, &spec, 1, KvFormat::F16));
}

fn check_blocks(backend: &mut dyn Backend) {
    let mut first = Growing::new(0, tokens(1, 60));
    step(backend, false, &mut [(&mut first, 30)]);
    let mut copied = Growing::new(1, first.tokens.clone());
    let mut restored = Growing::new(2, first.tokens.clone());
    backend.copy_block(first.blocks[0], copied.blocks[0]).unwrap();
    let mut content = Vec::new();
    backend.read_block(first.blocks[0], &mut content).unwrap();
    assert_eq!(content.len(), backend.block_bytes());
    backend.write_block(restored.blocks[0], &content).unwrap();
    (copied.n_done, restored.n_done) = (30, 30);
    let rows = step(backend, false, &mut [(&mut first, 1), (&mut copied, 1), (&mut restored, 1)]);
    assert!(rows[0] == rows[1] && rows[0] == rows[2], "the same beginning gives the same logits");
}

/// Data written before an abandoned step is still there after it.
#[test]
fn a_step_is_suspended_and_resumed() {
    let gguf = model(&Shape::named("tiny-llama").unwrap(), Quantization::Uniform(TensorType::Q8_0));
    let spec = DecoderSpec::from_gguf(&gguf, None).unwrap();
    check_suspension(&mut *emulated(&gguf, &spec, KvFormat::F16));
    check_suspension(&mut *divided(&gguf, &spec, 1, KvFormat::F16));
}

fn check_suspension(backend: &mut dyn Backend) {
    let tokens = tokens(1, 40);
    let blocks: Vec<u32> = (0..2).collect();
    let entry = BatchEntry { tokens: &tokens, position: 0, blocks: &blocks, logits: 39..40, states: None };
    let whole: Vec<f32> = backend.forward(std::slice::from_ref(&entry)).unwrap().rows().flatten().copied().collect();
    let mut done = backend
        .forward_in_slices(&[entry], &mut || true)
        .unwrap()
        .map(|logits| logits.rows().flatten().copied().collect::<Vec<f32>>());
    while done.is_none() {
        done = backend.resume(&mut || true).unwrap().map(|logits| logits.rows().flatten().copied().collect());
    }
    assert!(done.unwrap() == whole, "the parts of a step give what the whole gives");
}
