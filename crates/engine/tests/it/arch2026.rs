//! Compares tiny models of this year's architectures, on both backends, with llama.cpp.
//!
//! The models and figures are not part of the repository: `HONE_REFERENCE` names their folder, with a file
//! `arch2026.json` and a `NAME-a.gguf` for each model. Run with `--ignored`.

use std::path::{Path, PathBuf};

use hone_engine::{ActivationBits, Advance, BackendChoice, CachedSequence, Model, ModelOptions, perplexity};
use serde_json::Value;

use crate::support;

/// The recorded models, and whether candle computes them, too.
const MODELS: [(&str, bool); 15] = [
    ("smollm3", true),
    ("granite", true),
    ("olmo2", true),
    ("olmo3", true),
    ("mistral3", true),
    ("qwen3moe", true),
    ("llama4", true),
    ("gemma4", true),
    ("gemma4moe", true),
    ("gpt-oss", true),
    ("qwen35", false),
    ("qwen35moe", false),
    ("lfm2", false),
    ("lfm2moe", false),
    ("granitehybrid", false),
];

fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os("HONE_REFERENCE").expect("HONE_REFERENCE names the folder of arch2026.json"))
}

fn load(path: &Path, backend: BackendChoice) -> Model {
    let activation_bits = match backend {
        BackendChoice::Native => ActivationBits::Sixteen,
        _ => ActivationBits::Eight,
    };
    let options = ModelOptions { backend, activation_bits, ..support::options() };
    Model::load(&support::whole(path), &options).unwrap()
}

/// The log-probabilities after every recorded step: the whole prompt, then the recorded tokens one by one.
fn log_probabilities(model: &mut Model, prompt: &Value) -> Vec<Vec<f32>> {
    let ids = |ids: &Value| ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect::<Vec<_>>();
    let steps = prompt["steps"].as_array().unwrap();
    let taken = steps[..steps.len() - 1].iter().map(|step| vec![step["id"].as_u64().unwrap() as u32]);
    let mut sequence = CachedSequence::default();
    let mut rows = Vec::new();
    for tokens in std::iter::once(ids(&prompt["prompt_ids"])).chain(taken) {
        let logits = tokens.len() - 1..tokens.len();
        let entry = Advance { sequence: &mut sequence, tokens: &tokens, logits };
        let row = model.advance(&mut [entry]).unwrap().rows().next().unwrap().to_vec();
        let sum = support::log_sum_exp(&row);
        rows.push(row.iter().map(|logit| logit - sum).collect());
    }
    model.release(sequence);
    rows
}

fn largest_difference(rows: &[Vec<f32>], prompt: &Value) -> f32 {
    let steps = rows.iter().zip(prompt["steps"].as_array().unwrap());
    let each = steps.flat_map(|(row, step)| {
        step["top"].as_array().unwrap().iter().map(|pair| {
            let ours = row[pair[0].as_u64().unwrap() as usize];
            (ours - pair[1].as_f64().unwrap() as f32).abs()
        })
    });
    each.fold(0.0, f32::max)
}

struct Recorded {
    folder: PathBuf,
    figures: Value,
}

impl Recorded {
    fn read() -> Self {
        let folder = folder();
        let figures = std::fs::read_to_string(folder.join("arch2026.json")).unwrap();
        Recorded { figures: serde_json::from_str(&figures).unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}-a.gguf"))
    }

    /// Compares a figure of every model on every backend that runs it with its tolerance.
    fn check(&self, tolerance: &str, figure: impl Fn(&mut Model, &Value) -> Vec<f64>) {
        let mut failures = Vec::new();
        for (name, on_candle) in MODELS {
            let expected = &self.figures["models"][name];
            let tolerance = expected[tolerance].as_f64().unwrap();
            let candle = Some(BackendChoice::Candle).filter(|_| on_candle);
            for backend in [BackendChoice::Native].into_iter().chain(candle) {
                let differences = figure(&mut load(&self.path(name), backend), expected);
                println!("{name} {backend:?}: {differences:.4?} of {tolerance}");
                if differences.iter().any(|difference| difference.is_nan() || *difference > tolerance) {
                    failures.push(format!("{name} {backend:?}: {differences:.4?}"));
                }
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE"]
fn every_recorded_step_is_what_llama_cpp_computes() {
    Recorded::read().check("tolerance", |model, expected| {
        let prompts = expected["prompts"].as_array().unwrap().iter();
        let difference = |prompt: &Value| f64::from(largest_difference(&log_probabilities(model, prompt), prompt));
        prompts.map(difference).collect()
    });
}

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE"]
fn perplexity_is_what_llama_cpp_computes() {
    let recorded = Recorded::read();
    let text = recorded.figures["text"].as_str().unwrap();
    let context = recorded.figures["context"].as_u64().unwrap() as usize;
    recorded.check("nll_tolerance", |model, expected| {
        let ours = perplexity(model, text, context, |_| ()).unwrap().value.ln();
        vec![(ours - expected["perplexity"]["mean_nll"].as_f64().unwrap()).abs()]
    });
}

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE"]
fn candle_refuses_layers_with_a_state_and_says_which_backend_computes_them() {
    let recorded = Recorded::read();
    for (name, _) in MODELS.iter().filter(|(_, on_candle)| !on_candle) {
        let options = ModelOptions { backend: BackendChoice::Candle, ..support::options() };
        let error = Model::load(&support::whole(&recorded.path(name)), &options).err().unwrap().to_string();
        assert!(error.contains("--backend native"), "{name}: {error}");
    }
}
