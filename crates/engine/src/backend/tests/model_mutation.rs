//! Broken model files of every architecture: regardless of a file's metadata, tensors and bytes, opening it, reading
//! its decoder, loading it on the native backend and computing a step with it gives an error or numbers, and never a
//! panic or a disproportionate allocation.
//!
//! By default each architecture gets a thousand mutations; `HONE_MUTATIONS` sets another number.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::backend::native::{ComputeThreads, NativeBackend, NativeOptions};
use crate::backend::{Backend, BatchEntry, LoadProgress, SequenceStates};
use crate::decoder::{DecoderSpec, RecurrentSpec};
use crate::gguf::{Gguf, WriteValue, Writer};
use crate::kv_cache::{BlockPool, CachedSequence, StateAt};
use crate::synth::{self, Architecture, Experts, Gemma4Shape, Quantization, Recurrence, Shape};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::support::counting::peak_of;

const VOCAB_SIZE: usize = 96;
const DEFAULT_MUTATIONS: usize = 1000;
/// Bytes that a broken file may allocate beyond the valid one: metadata may ask for wide heads, many experts and long
/// states, but tensors must have the sizes that it says.
const ALLOWANCE: isize = 1 << 20;

/// A shape with the layers of the tiny one, but so small that thousands can be loaded.
fn minute(shape: &Shape) -> Shape {
    let recurrent = |recurrent: RecurrentSpec| match recurrent {
        RecurrentSpec::DeltaNet { n_taps, n_key_heads, n_value_heads, .. } => {
            RecurrentSpec::DeltaNet { n_taps, n_key_heads, n_value_heads, head_dim: 8 }
        }
        RecurrentSpec::Mamba2 { n_taps, n_heads, n_groups, .. } => {
            RecurrentSpec::Mamba2 { n_taps, n_heads, n_groups, state_size: 8, inner_size: 128 }
        }
        other => other,
    };
    Shape {
        hidden_size: 64,
        n_heads: 4,
        n_kv_heads: shape.n_kv_heads.min(4),
        head_dim: 16,
        rotated_dim: shape.rotated_dim.map(|width| width.min(8)),
        ffn_size: shape.ffn_size.min(32),
        sliding_window: shape.sliding_window.map(|window| window.min(4)),
        recurrence: shape.recurrence.map(|recurrence| Recurrence { layer: recurrent(recurrence.layer), ..recurrence }),
        experts: shape.experts.map(|experts| Experts {
            width: 32,
            shared_width: experts.shared_width.map(|_| 32),
            ..experts
        }),
        gemma4: shape.gemma4.map(|gemma| Gemma4Shape {
            local_head_dim: 8,
            sharing_ffn_size: 64,
            layer_input_width: gemma.layer_input_width.min(8),
            ..gemma
        }),
        ..shape.clone()
    }
}

fn model(shape: &Shape) -> Vec<u8> {
    let tokens: Vec<String> = (0..VOCAB_SIZE).map(|id| format!("t{id}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)).unwrap();
    let vocabulary = Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let mut bytes = Vec::new();
    let quantization = Quantization::named("mxfp4_moe").unwrap();
    synth::write_to(&minute(shape), quantization, &vocabulary, 1, &mut bytes, &mut |_| {}).unwrap();
    bytes
}

/// The stage that a file reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    NotOpened,
    NoDecoder,
    NotLoaded,
    Computed,
}

fn run(bytes: Vec<u8>, threads: &ComputeThreads) -> Outcome {
    let Ok(gguf) = Gguf::from_bytes(bytes) else { return Outcome::NotOpened };
    let Ok(spec) = DecoderSpec::from_gguf(&gguf, Some(128)) else { return Outcome::NoDecoder };
    let options = NativeOptions { n_loading: Some(1), ..NativeOptions::default() };
    let Ok(mut backend) = NativeBackend::load(&gguf, &spec, options, threads.clone(), &LoadProgress::default()) else {
        return Outcome::NotLoaded;
    };
    let mut pool = BlockPool::with_room_for(32);
    let mut sequence = CachedSequence::default();
    pool.extend(&mut sequence, 5).unwrap();
    let tokens = [1, 5, 2, 0, 3].map(|token| token % spec.vocab_size as u32);
    let written = [StateAt { position: tokens.len(), state: 0 }];
    let states = spec.is_recurrent().then_some(SequenceStates { before: None, written: &written });
    let entry = BatchEntry { tokens: &tokens, position: 0, blocks: sequence.blocks(), logits: 2..5, states };
    let n_rows = backend.forward(&[entry]).unwrap().rows().count();
    assert_eq!(n_rows, 3);
    Outcome::Computed
}

/// The places of the numbers in a file.
struct Places {
    header_bytes: usize,
    /// Where the values of the architecture's keys begin, with their types before them.
    values: Vec<usize>,
    /// Where the numbers of dimensions of tensors are, followed by the dimensions, the type and the offset.
    tensors: Vec<usize>,
    /// Where each tensor's data begins, and how many bytes they are.
    data: Vec<(usize, usize)>,
}

impl Places {
    fn of(model: &[u8]) -> Self {
        let gguf = Gguf::from_bytes(model.to_vec()).unwrap();
        let find = |name: &str| {
            let with_length = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
            let start = model.windows(with_length.len()).position(|window| window == with_length).unwrap();
            start + with_length.len()
        };
        let prefix = format!("{}.", gguf.string("general.architecture").unwrap().unwrap());
        Places {
            header_bytes: gguf.tensors().map(|tensor| tensor.offset).min().unwrap(),
            values: gguf.metadata().map(|(key, _)| key).filter(|key| key.starts_with(&prefix)).map(find).collect(),
            tensors: gguf.tensors().map(|tensor| find(&tensor.name)).collect(),
            data: gguf.tensors().map(|tensor| (tensor.offset, tensor.n_bytes)).collect(),
        }
    }
}

/// Numbers at which sizes go wrong.
const NUMBERS: [u64; 24] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 24, 31, 32, 33, 48, 64, 65, 128, 256, 4096, 1 << 31];

fn number(rng: &mut ChaCha8Rng) -> u64 {
    match below(8, rng) {
        0 => u64::MAX >> below(64, rng),
        _ => NUMBERS[below(NUMBERS.len(), rng)],
    }
}

fn mutate(model: &mut Vec<u8>, places: &Places, rng: &mut ChaCha8Rng) {
    let put = |model: &mut Vec<u8>, offset: usize, bytes: &[u8]| {
        model[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    match below(11, rng) {
        0..=3 => {
            let start = places.values[below(places.values.len(), rng)];
            let value_type = u32::from_le_bytes(model[start..start + 4].try_into().unwrap());
            let is_array = value_type == 9;
            let value = if is_array { start + 16 + 4 * below(6, rng) } else { start + 4 };
            let small = number(rng) as u32;
            let float = [0.0, -1.0, 1e-30, 1e30, f32::NAN, f32::INFINITY][below(6, rng)];
            match value_type {
                6 => put(model, value, &f32::to_le_bytes(float)),
                7 => model[value] ^= 1,
                _ => put(model, value, &small.to_le_bytes()),
            }
        }
        // The length of an array, or the type of a value.
        4 => {
            let start = places.values[below(places.values.len(), rng)];
            let offset = start + [0, 8][below(2, rng)];
            let small = below(14, rng) as u32;
            put(model, offset, &small.to_le_bytes());
        }
        5..=6 => {
            let start = places.tensors[below(places.tensors.len(), rng)];
            let dimension = start + 4 + 8 * below(2, rng);
            let long = number(rng);
            put(model, dimension, &long.to_le_bytes());
        }
        // A tensor under another name is a tensor that is missing.
        7 => {
            let start = places.tensors[below(places.tensors.len(), rng)];
            let offset = start - 1 - below(12, rng);
            model[offset] = b'a' + below(26, rng) as u8;
        }
        // Weights that are no numbers, or too large to multiply.
        8 => {
            let (start, n_bytes) = places.data[below(places.data.len(), rng)];
            let offset = start + 4 * below(n_bytes / 4, rng);
            let weight = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.0][below(5, rng)];
            put(model, offset, &weight.to_le_bytes());
        }
        9 => {
            let offset = below(places.header_bytes, rng);
            model[offset] ^= 1 << below(8, rng);
        }
        _ => {
            let offset = below(model.len() - 4, rng);
            rng.fill_bytes(&mut model[offset..offset + 4]);
        }
    }
}

fn below(end: usize, rng: &mut ChaCha8Rng) -> usize {
    (rng.next_u64() % end as u64) as usize
}

fn n_mutations() -> usize {
    std::env::var("HONE_MUTATIONS").ok().map_or(DEFAULT_MUTATIONS, |number| number.parse().unwrap())
}

/// Architectures that the older tests do not read.
fn shapes() -> impl Iterator<Item = &'static Shape> {
    use Architecture::{Gemma2, Gemma3, Llama, Phi3, Qwen2, Qwen3};
    let is_new = |shape: &&Shape| !matches!(shape.architecture, Llama | Qwen2 | Qwen3 | Gemma2 | Gemma3 | Phi3);
    Shape::all().iter().filter(|shape| shape.name.starts_with("tiny-")).filter(is_new)
}

#[test]
fn mutations_of_every_architecture_do_no_harm() {
    let threads = ComputeThreads::new(Some(1));
    let mut failures = Vec::new();
    for (index, shape) in shapes().enumerate() {
        let original = model(shape);
        let places = Places::of(&original);
        let valid = original.clone();
        let (outcome, usual) = peak_of(|| run(valid, &threads));
        assert_eq!(outcome, Outcome::Computed, "{}", shape.name);
        let mut rng = ChaCha8Rng::seed_from_u64(index as u64);
        let mut counts = [0; 4];
        let mut highest = 0;
        for round in 0..n_mutations() {
            let mut mutated = original.clone();
            for _ in 0..=below(2, &mut rng) {
                mutate(&mut mutated, &places, &mut rng);
            }
            let (outcome, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| run(mutated, &threads))));
            highest = highest.max(peak - usual);
            match outcome {
                Ok(outcome) if peak <= usual + ALLOWANCE => counts[outcome as usize] += 1,
                Ok(outcome) => failures.push(format!("{}, round {round}: {outcome:?} took {peak} bytes", shape.name)),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
                    failures.push(format!("{}, round {round}: {text}", shape.name));
                }
            }
        }
        println!(
            "{}: {} bytes, {counts:?}, {usual} bytes allocated, at most {highest} more",
            shape.name,
            original.len()
        );
        let n_refused = n_mutations() - counts[Outcome::Computed as usize];
        assert!(n_refused > n_mutations() / 10, "{}: {counts:?}: the mutations miss their mark", shape.name);
        assert!(counts[Outcome::NotLoaded as usize] > 0, "{}: {counts:?}: nothing fails to load", shape.name);
    }
    assert!(failures.is_empty(), "{} failures: {:#?}", failures.len(), &failures[..failures.len().min(40)]);
}
