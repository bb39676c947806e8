//! Shared helpers of the engine's tests: the built-in model, and small models of every architecture.

pub(crate) mod counting;
pub(crate) mod made_up;
pub(crate) mod metadata;
pub(crate) mod model_files;
pub(crate) mod random;
pub(crate) mod split;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use hone_engine::gguf::{Gguf, WriteValue, Writer};
use hone_engine::synth::{self, Quantization, Shape};
use hone_engine::{DeviceChoice, EngineHandle, EngineOptions, Model, ModelOptions};
use hone_protocol::{LocateError, LocateModel, ModelFile};

/// The built-in model's file.
pub(crate) fn smollm2() -> PathBuf {
    test_model("SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// One of the files that `scripts/lib/fetch-test-models.sh` fetches.
pub(crate) fn test_model(name: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-models");
    let folder = std::env::var_os("HONE_TEST_MODELS").map_or_else(default, PathBuf::from);
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: scripts/lib/fetch-test-models.sh fetches it", path.display());
    path
}

/// Arbitrary tokens, the same for the same seed.
pub(crate) fn tokens(seed: u32, n_tokens: usize) -> Vec<u32> {
    (0..n_tokens as u32).map(|index| (seed * 7919 + index * 104_729) % 40_000).collect()
}

/// How tests load models.
pub(crate) fn options() -> ModelOptions {
    ModelOptions { device: DeviceChoice::Cpu, context_length: Some(2048), n_sequences: 4, ..ModelOptions::default() }
}

/// A whole file as a model.
pub(crate) fn whole(path: &Path) -> ModelFile {
    ModelFile::at_path(path).unwrap()
}

/// The built-in model, loaded once per test binary.
pub(crate) fn shared_smollm2() -> MutexGuard<'static, Model> {
    static MODEL: OnceLock<Mutex<Model>> = OnceLock::new();
    let model = MODEL.get_or_init(|| Mutex::new(Model::load(&whole(&smollm2()), options()).unwrap()));
    model.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits until a condition holds, for far longer than anything here takes.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < until, "within two minutes it has not come about that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Finds models by path.
struct Paths;

impl LocateModel for Paths {
    fn locate(&self, name: &str) -> Result<ModelFile, LocateError> {
        let path = Path::new(name);
        if path.is_file() { Ok(whole(path)) } else { Err(LocateError(format!("no model {name:?}"))) }
    }
}

/// An engine that finds models by path.
pub(crate) fn engine(options: ModelOptions) -> EngineHandle {
    engine_with(options.into())
}

/// An engine that finds models by path.
pub(crate) fn engine_with(options: EngineOptions) -> EngineHandle {
    EngineHandle::start(options, Arc::new(Paths)).unwrap()
}

/// Writes a small model of random weights.
pub(crate) fn synthesize(shape: &str, quantization: &str, path: &Path) {
    let vocabulary = Gguf::open(&smollm2()).unwrap();
    let shape = Shape::named(shape).unwrap();
    let quantization = Quantization::named(quantization).unwrap();
    synth::write(&shape, quantization, &vocabulary, 1, path, &mut |_| ()).unwrap();
}

/// Writes a small model of random weights with a vocabulary of [`FEW_TOKENS`], which costs much less than a real one
/// where only the layers matter.
pub(crate) fn synthesize_few_tokens(shape: &str, quantization: &str, path: &Path) {
    let shape = Shape::named(shape).unwrap();
    let quantization = Quantization::named(quantization).unwrap();
    synth::write(&shape, quantization, &few_tokens(), 1, path, &mut |_| ()).unwrap();
}

/// The number of tokens of a small vocabulary.
pub(crate) const FEW_TOKENS: u32 = 512;

/// Arbitrary tokens of a small vocabulary, the same for the same seed.
pub(crate) fn of_few_tokens(seed: u32, n_tokens: usize) -> Vec<u32> {
    tokens(seed, n_tokens).into_iter().map(|token| token % FEW_TOKENS).collect()
}

/// A vocabulary of [`FEW_TOKENS`] letters and names.
pub(crate) fn few_tokens() -> Gguf {
    vocabulary(FEW_TOKENS as usize)
}

/// A vocabulary of letters and names.
pub(crate) fn vocabulary(n_tokens: usize) -> Gguf {
    let letters = ('!'..='~').map(String::from);
    let tokens: Vec<String> = letters.chain((0..).map(|id| format!("token{id}"))).take(n_tokens).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.model", WriteValue::String("gpt2")).unwrap();
    writer.metadata("tokenizer.ggml.pre", WriteValue::String("llama-bpe")).unwrap();
    writer.metadata("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)).unwrap();
    writer.metadata("tokenizer.ggml.token_type", WriteValue::I32s(&vec![1; n_tokens])).unwrap();
    writer.metadata("tokenizer.ggml.merges", WriteValue::Strings(&[])).unwrap();
    writer.metadata("tokenizer.ggml.eos_token_id", WriteValue::U32(0)).unwrap();
    Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

/// The shapes of small models.
pub(crate) fn tiny_shapes() -> impl Iterator<Item = &'static Shape> {
    Shape::all().iter().filter(|shape| shape.name.starts_with("tiny-"))
}

/// Whether the candle backend computes a shape: it has no layers that keep a state.
pub(crate) fn runs_on_candle(shape: &Shape) -> bool {
    shape.recurrence.is_none()
}

/// A folder for small models that is removed at the end.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The id of the largest logit, the lowest among equals.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let larger = |best: usize, id: usize| if logits[id] > logits[best] { id } else { best };
    (0..logits.len()).reduce(larger).unwrap() as u32
}

/// Logarithm of the sum of the exponentials.
pub(crate) fn log_sum_exp(logits: &[f32]) -> f32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    largest + logits.iter().map(|logit| f64::from(logit - largest).exp()).sum::<f64>().ln() as f32
}
