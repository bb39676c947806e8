//! What llama.cpp computes for tiny models of this year's architectures, on both backends.
//!
//! The models and figures are not part of the repository: `HONE_REFERENCE` names their folder, with a file
//! `arch2026.json` and a `NAME-a.gguf` for each model. Run with `--ignored`.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};

use hone_engine::backend::ActivationBits;
use hone_engine::kv_cache::CachedSequence;
use hone_engine::logprobs::log_sum_exp;
use hone_engine::model::{Advance, BackendChoice, Model, ModelOptions};
use hone_engine::tokenizer::EncodeOptions;
use serde_json::Value;

/// Those of the recorded models whose architectures run.
const MODELS: [&str; 5] = ["smollm3", "granite", "olmo2", "olmo3", "mistral3"];

fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os("HONE_REFERENCE").expect("HONE_REFERENCE names the folder of arch2026.json"))
}

fn load(path: &Path, backend: BackendChoice) -> Model {
    let options = ModelOptions { backend, activation_bits: ActivationBits::Sixteen, ..support::options() };
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
        let sum = log_sum_exp(&row);
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

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE"]
fn every_recorded_step_is_what_llama_cpp_computes() {
    let folder = folder();
    let recorded: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("arch2026.json")).unwrap()).unwrap();
    for name in MODELS {
        let (path, expected) = (folder.join(format!("{name}-a.gguf")), &recorded["models"][name]);
        let tolerance = expected["tolerance"].as_f64().unwrap() as f32;
        for backend in [BackendChoice::Native, BackendChoice::Candle] {
            let mut model = load(&path, backend);
            for (index, prompt) in expected["prompts"].as_array().unwrap().iter().enumerate() {
                let text = prompt["text"].as_str().unwrap();
                let tokens = model.tokenizer().encode(text, EncodeOptions { parse_special: false, add_special: true });
                let recorded_ids = prompt["prompt_ids"].as_array().unwrap();
                assert!(
                    tokens
                        .unwrap()
                        .iter()
                        .map(|id| u64::from(*id))
                        .eq(recorded_ids.iter().map(|id| id.as_u64().unwrap()))
                );
                let difference = largest_difference(&log_probabilities(&mut model, prompt), prompt);
                println!("{name} {backend:?} prompt {}: {difference:.4} of {tolerance}", index + 1);
                assert!(difference <= tolerance, "{name} on {backend:?}, prompt {}: {difference}", index + 1);
            }
        }
    }
}
