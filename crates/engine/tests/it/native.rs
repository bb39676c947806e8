//! The native backend gives the results of the candle backend.

use std::path::Path;

use hone_engine::gguf::Gguf;
use hone_engine::synth::Shape;
use hone_engine::{
    ActivationBits, Advance, BackendChoice, CachedSequence, DeviceChoice, EncodeOptions, KvFormat, Model, ModelOptions,
};

use crate::support::{self, of_few_tokens as few, tokens};

/// How far log-probabilities may differ.
#[derive(Clone, Copy)]
struct Tolerance {
    mean: f32,
    largest: f32,
}

/// Only keys and values are rounded.
const EXACT: Tolerance = Tolerance { mean: 0.001, largest: 0.01 };
/// Activations are rounded to 16 bits. The backends must agree to within 0.05 at every position; they stay within this.
const IN_16_BITS: Tolerance = Tolerance { mean: 0.003, largest: 0.015 };
/// Like `IN_16_BITS`, where candle rounds an expert's input to 8 bits: few tokens choose the same expert.
const MIXTURE_IN_16_BITS: Tolerance = Tolerance { mean: 0.06, largest: 0.15 };
/// Activations are rounded to 8 bits, and in random weights the rounding of one layer is not damped by the next.
const IN_8_BITS_RANDOM: Tolerance = Tolerance { mean: 0.12, largest: 0.5 };
/// A trained model is more stable. candle rounds too in short steps, in its own way.
const ROUNDED: Tolerance = Tolerance { mean: 0.06, largest: 0.4 };

/// Rounded to 8 bits, compared with exact numbers.
const IN_8_BITS: Tolerance = Tolerance { mean: 0.03, largest: 0.25 };

const QUANTIZATIONS: [&str; 24] = [
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl",
    "iq4_xs", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "tq1_0", "tq2_0", "mxfp4", "q4_k_m",
];

fn load(path: &Path, backend: BackendChoice) -> Model {
    Model::load(&support::whole(path), &ModelOptions { backend, ..support::options() }).unwrap()
}

fn load_native(path: &Path, activation_bits: ActivationBits) -> Model {
    let options = ModelOptions { backend: BackendChoice::Native, activation_bits, ..support::options() };
    Model::load(&support::whole(path), &options).unwrap()
}

/// Logits of every position: a prompt in two chunks, the rest token by token.
fn logits(model: &mut Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let half = tokens.len() / 2;
    let mut chunks = vec![half, tokens.len() - half - 4];
    chunks.extend([1; 4]);
    logits_in(model, tokens, &chunks)
}

/// Logits of every position, for a prompt computed in chunks of these lengths.
fn logits_in(model: &mut Model, tokens: &[u32], chunks: &[usize]) -> Vec<Vec<f32>> {
    let mut sequence = CachedSequence::default();
    let (mut rest, mut rows) = (tokens, Vec::new());
    for n_tokens in chunks {
        let (chunk, after) = rest.split_at(*n_tokens);
        let entry = Advance { sequence: &mut sequence, tokens: chunk, logits: 0..chunk.len() };
        rows.extend(model.advance(&mut [entry]).unwrap().rows().map(<[f32]>::to_vec));
        rest = after;
    }
    assert!(rest.is_empty());
    model.release(sequence);
    rows
}

/// Logits of every position of these prompts, all in one step.
fn logits_of_all(model: &mut Model, prompts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let mut sequences: Vec<CachedSequence> = prompts.iter().map(|_| CachedSequence::default()).collect();
    let entries = sequences.iter_mut().zip(prompts);
    let mut entries: Vec<Advance<'_>> =
        entries.map(|(sequence, tokens)| Advance { sequence, tokens, logits: 0..tokens.len() }).collect();
    let rows = model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec).collect();
    sequences.into_iter().for_each(|sequence| model.release(sequence));
    rows
}

/// Differences between the log-probabilities that the two give to candle's likeliest tokens.
fn differences(native: &[Vec<f32>], candle: &[Vec<f32>]) -> Vec<f32> {
    assert_eq!(native.len(), candle.len());
    let logprob = |row: &[f32], token: usize| row[token] - support::log_sum_exp(row);
    let difference = |(native, candle): (&Vec<f32>, &Vec<f32>)| {
        let token = support::argmax(candle) as usize;
        (logprob(native, token) - logprob(candle, token)).abs()
    };
    native.iter().zip(candle).map(difference).collect()
}

fn largest(differences: &[f32]) -> f32 {
    differences.iter().copied().fold(0.0, f32::max)
}

/// Compares the log-probabilities of candle's likeliest tokens.
#[track_caller]
fn check(path: &Path, tokens: &[u32], tolerance: Tolerance, what: &str) {
    let candle = logits(&mut load(path, BackendChoice::Candle), tokens);
    let mut model = load(path, BackendChoice::Native);
    assert_eq!(model.backend_name(), "native");
    check_logits(&logits(&mut model, tokens), &candle, tolerance, what);
}

/// A rounding can send a token to another expert, in either backend, so the worst tenth of all positions is left out.
#[track_caller]
fn check_mixture(native: &[Vec<f32>], candle: &[Vec<f32>], tolerance: Tolerance, what: &str) {
    assert!(native.iter().flatten().all(|logit| logit.is_finite()), "{what}");
    let mut differences = differences(native, candle);
    differences.sort_by(f32::total_cmp);
    check_differences(&differences[..differences.len() * 9 / 10], tolerance, what);
}

#[track_caller]
fn check_logits(native: &[Vec<f32>], candle: &[Vec<f32>], tolerance: Tolerance, what: &str) {
    assert!(native.iter().flatten().all(|logit| logit.is_finite()), "{what}");
    check_differences(&differences(native, candle), tolerance, what);
}

#[track_caller]
fn check_differences(differences: &[f32], tolerance: Tolerance, what: &str) {
    let mean = differences.iter().sum::<f32>() / differences.len() as f32;
    assert!(mean < tolerance.mean, "{what}: log-probabilities differ by {mean} in the mean");
    assert!(largest(differences) < tolerance.largest, "{what}: log-probabilities differ: {differences:?}");
}

/// The shapes that both backends compute.
fn shared_shapes() -> impl Iterator<Item = &'static Shape> {
    support::tiny_shapes().filter(|shape| support::runs_on_candle(shape))
}

/// The states of every position, for a prompt in two chunks.
fn states(model: &mut Model, tokens: &[u32]) -> Vec<f32> {
    let mut sequence = CachedSequence::default();
    let mut states = Vec::new();
    for chunk in [&tokens[..7], &tokens[7..]] {
        let entry = Advance { sequence: &mut sequence, tokens: chunk, logits: 0..chunk.len() };
        let logits = model.advance(&mut [entry]).unwrap();
        states.extend(logits.rows_with_states().flat_map(|row| row.state.iter().copied()));
    }
    model.release(sequence);
    states
}

#[test]
fn states_are_those_of_candle_in_every_architecture() {
    let folder = support::scratch();
    for Shape { name, .. } in shared_shapes() {
        let path = folder.path().join("model");
        support::synthesize_few_tokens(name, "f16", &path);
        let prompt = few(3, 20);
        let candle = states(&mut load(&path, BackendChoice::Candle), &prompt);
        let native = states(&mut load_native(&path, ActivationBits::Sixteen), &prompt);
        assert_eq!(native.len(), candle.len());
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
        let difference = square(&mut native.iter().zip(&candle).map(|(native, candle)| native - candle));
        let size = square(&mut candle.iter().copied());
        assert!(size > 0.0 && difference < 1e-4 * size, "{name}: {difference} of {size}");
    }
}

/// How much a cache in 8 bits changes the log-probabilities of a trained model's likeliest tokens.
#[test]
fn a_cache_in_8_bits_says_nearly_the_same() {
    let path = support::smollm2();
    let load = |kv_cache| {
        let options = ModelOptions { backend: BackendChoice::Native, kv_cache, ..support::options() };
        Model::load(&support::whole(&path), &options).unwrap()
    };
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kv_cache.rs")).unwrap();
    let mut model = load(KvFormat::F16);
    let tokens = model.tokenizer().encode(&text, EncodeOptions::default()).unwrap();
    let exact = logits(&mut model, &tokens[..400]);
    let differences = differences(&logits(&mut load(KvFormat::Q8_0), &tokens[..400]), &exact);
    let mean = differences.iter().sum::<f32>() / differences.len() as f32;
    assert!(mean > 0.0, "the cache is not in 8 bits");
    assert!(mean < 0.05, "log-probabilities differ by {mean} in the mean");
}

#[test]
fn candle_has_no_cache_in_8_bits() {
    let options = ModelOptions { backend: BackendChoice::Candle, kv_cache: KvFormat::Q8_0, ..support::options() };
    let error = Model::load(&support::whole(&support::smollm2()), &options).err().unwrap().to_string();
    assert_eq!(error, "the candle backend has no KV cache in q8_0: set kv_cache to f16, or use --backend native");
}

#[test]
fn candle_has_no_activations_in_16_bits() {
    let activation_bits = ActivationBits::Sixteen;
    let options = ModelOptions { backend: BackendChoice::Candle, activation_bits, ..support::options() };
    let error = Model::load(&support::whole(&support::smollm2()), &options).err().unwrap().to_string();
    let expected = "the candle backend rounds activations to 8 bits in short steps: set activation_bits to 8, or use \
                    --backend native";
    assert_eq!(error, expected);
}

#[test]
fn every_architecture_agrees_with_candle() {
    let folder = support::scratch();
    for Shape { name, .. } in shared_shapes() {
        let path = folder.path().join("model");
        support::synthesize_few_tokens(name, "f32", &path);
        check(&path, &few(1, 90), EXACT, name);
    }
}

/// From 64 rows on candle multiplies without rounding activations, so that the reference is exact.
#[test]
fn every_tensor_type_agrees_with_candle_in_every_architecture() {
    let folder = support::scratch();
    for shape in shared_shapes() {
        for quantization in QUANTIZATIONS {
            let path = folder.path().join("model");
            support::synthesize_few_tokens(shape.name, quantization, &path);
            let tokens = few(1, 136);
            let candle = logits_in(&mut load(&path, BackendChoice::Candle), &tokens, &[70, 66]);
            // Activations multiplied by floating-point weights are not rounded.
            let is_float = ["f32", "f16", "bf16"].contains(&quantization);
            let in_8_bits = if is_float { EXACT } else { IN_8_BITS_RANDOM };
            for (bits, tolerance) in [(ActivationBits::Eight, in_8_bits), (ActivationBits::Sixteen, IN_16_BITS)] {
                let native = logits_in(&mut load_native(&path, bits), &tokens, &[70, 62, 1, 1, 1, 1]);
                let what = format!("{} {quantization} {bits:?}", shape.name);
                if shape.experts.is_some() {
                    let tolerance = if bits == ActivationBits::Sixteen { MIXTURE_IN_16_BITS } else { tolerance };
                    check_mixture(&native, &candle, tolerance, &what);
                    continue;
                }
                check_logits(&native, &candle, tolerance, &what);
            }
        }
    }
}

/// All of the prompts in one step, in which candle does not round activations.
#[test]
fn the_reference_prompts_agree_with_candle_at_every_position() {
    let path = support::smollm2();
    let prompts = reference_prompts();
    assert!(prompts.iter().map(Vec::len).sum::<usize>() > 500);
    let candle = logits_of_all(&mut load(&path, BackendChoice::Candle), &prompts);
    for (bits, tolerance) in [(ActivationBits::Eight, IN_8_BITS), (ActivationBits::Sixteen, IN_16_BITS)] {
        let native = logits_of_all(&mut load_native(&path, bits), &prompts);
        check_logits(&native, &candle, tolerance, &format!("{bits:?}"));
    }
}

/// The prompts whose greedy continuations are recorded, followed by the continuations.
fn reference_prompts() -> Vec<Vec<u32>> {
    #[derive(serde::Deserialize)]
    struct Case {
        prompt_ids: Vec<u32>,
        steps: Vec<Step>,
    }
    #[derive(serde::Deserialize)]
    struct Step {
        id: u32,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/smollm2_greedy.json")).unwrap();
    let tokens = |case: &Case| case.prompt_ids.iter().copied().chain(case.steps.iter().map(|step| step.id)).collect();
    cases.iter().map(tokens).collect()
}

#[test]
fn the_built_in_model_agrees_with_candle() {
    let text = "The quick brown fox jumps over the lazy dog. Iron sharpens iron, and one man sharpens another. \
                Water boils at 100 degrees Celsius at sea level, and at less on a mountain.";
    let path = support::smollm2();
    let tokens = support::shared_smollm2()
        .tokenizer()
        .encode(text, EncodeOptions { add_special: true, parse_special: false })
        .unwrap();
    check(&path, &tokens, ROUNDED, "SmolLM2");
}

fn bits(logits: &[Vec<f32>]) -> Vec<u32> {
    logits.iter().flatten().map(|logit| logit.to_bits()).collect()
}

#[test]
fn any_number_of_threads_computes_the_same_bits() {
    let path = support::smollm2();
    let load = |n_threads| {
        let options = ModelOptions { backend: BackendChoice::Native, n_threads: Some(n_threads), ..support::options() };
        Model::load(&support::whole(&path), &options).unwrap()
    };
    let mut model = load(1);
    assert_eq!(model.n_threads(), 1);
    let one = bits(&logits(&mut model, &tokens(1, 40)));
    for n_threads in 2..=4 {
        assert!(bits(&logits(&mut load(n_threads), &tokens(1, 40))) == one, "{n_threads} threads compute other bits");
    }
}

/// Layers after the last one that keeps something are computed for these positions only.
#[test]
fn which_logits_are_wanted_does_not_change_them() {
    let folder = support::scratch();
    for shape in support::tiny_shapes() {
        let path = folder.path().join(shape.name);
        support::synthesize_few_tokens(shape.name, "q4_k_m", &path);
        let mut model = load_native(&path, ActivationBits::Eight);
        let prompts = [few(1, 45), few(2, 70)];
        let all = logits_of_all(&mut model, &prompts);
        let mut sequences = [CachedSequence::default(), CachedSequence::default()];
        let [first, second] = &mut sequences;
        let mut entries = [
            Advance { sequence: first, tokens: &prompts[0], logits: 40..43 },
            Advance { sequence: second, tokens: &prompts[1], logits: 69..70 },
        ];
        let wanted: Vec<Vec<f32>> = model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec).collect();
        let expected: Vec<Vec<f32>> = [40, 41, 42, 45 + 69].map(|row: usize| all[row].clone()).into();
        assert!(bits(&wanted) == bits(&expected), "{}", shape.name);
        sequences.into_iter().for_each(|sequence| model.release(sequence));
    }
}

#[test]
fn a_model_in_several_files_computes_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.gguf");
    support::synthesize("tiny-qwen3", "q4_k_m", &whole);
    let part = |number: usize| folder.path().join(format!("tiny-0000{number}-of-00004.gguf"));
    let files = (1..=4).map(|number| std::fs::File::create(part(number)).unwrap());
    support::split::write_parts(&Gguf::open(&whole).unwrap(), files).unwrap();
    for backend in [BackendChoice::Native, BackendChoice::Candle] {
        let expected = bits(&logits(&mut load(&whole, backend), &tokens(3, 40)));
        assert!(bits(&logits(&mut load(&part(1), backend), &tokens(3, 40))) == expected, "{backend}");
    }
}

#[test]
fn the_processor_runs_our_kernels_unless_asked_otherwise() {
    let folder = support::scratch();
    let path = folder.path().join("model");
    support::synthesize("tiny-llama", "q4_0", &path);
    let expected = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) { "native" } else { "candle" };
    assert_eq!(load(&path, BackendChoice::Auto).backend_name(), expected);
    assert_eq!(load(&path, BackendChoice::Candle).backend_name(), "candle");
}

#[test]
fn devices_without_kernels_of_ours_are_refused() {
    let folder = support::scratch();
    let path = folder.path().join("model");
    support::synthesize("tiny-llama", "q4_0", &path);
    let refusal = |device| {
        let options = ModelOptions { backend: BackendChoice::Native, device, ..support::options() };
        Model::load(&support::whole(&path), &options).err().unwrap().to_string()
    };
    let error = refusal(DeviceChoice::Metal);
    assert!(error.contains("use --device cpu, or --backend candle"), "{error}");
    #[cfg(not(feature = "cuda"))]
    {
        let error = refusal(DeviceChoice::Cuda(0));
        assert!(error.contains("--features cuda") && error.contains("use --device cpu"), "{error}");
    }
}
