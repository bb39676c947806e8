//! The kernels of the GPU, emulated, against figures recorded from llama.cpp.
//!
//! A product's input is rounded to bfloat16 or 8 bits there, whatever the weights, so the tolerances are wider than those
//! of the native backend.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Growing, emulated, step};
use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;
use crate::kv_cache::KvFormat;

#[derive(Deserialize)]
struct Prompt {
    prompt_ids: Vec<u32>,
    steps: Vec<Step>,
}

/// What llama.cpp computes after a prompt or a token.
#[derive(Deserialize)]
struct Step {
    /// The likeliest token.
    id: u32,
    /// The likeliest tokens with their log-probabilities.
    top: Vec<(u32, f32)>,
}

/// An emulated step beside the recorded one.
struct Compared {
    is_same_token: bool,
    /// By how much the likeliest recorded token is likelier than the second.
    margin: f32,
    /// By how much the log-probability of the likeliest recorded token differs.
    first: f32,
    /// The largest and the mean difference of the recorded log-probabilities.
    largest: f32,
    mean: f32,
}

impl Compared {
    fn new(ours: &[f32], recorded: &Step) -> Self {
        let likeliest = (0..ours.len()).max_by(|one, other| ours[*one].total_cmp(&ours[*other])).unwrap();
        let gaps: Vec<f32> = recorded.top.iter().map(|(id, theirs)| (ours[*id as usize] - theirs).abs()).collect();
        Compared {
            is_same_token: likeliest == recorded.id as usize,
            margin: recorded.top[0].1 - recorded.top[1].1,
            first: gaps[0],
            largest: gaps.iter().copied().fold(0.0, f32::max),
            mean: gaps.iter().sum::<f32>() / gaps.len() as f32,
        }
    }
}

/// Every recorded step of the prompts: the whole prompt, then the recorded tokens one by one.
fn compare(gguf: &Gguf, spec: &DecoderSpec, prompts: &[Prompt]) -> Vec<Compared> {
    let mut backend = emulated(gguf, spec, KvFormat::F16);
    let mut compared = Vec::new();
    for (number, prompt) in (0..).zip(prompts) {
        let taken = prompt.steps[..prompt.steps.len() - 1].iter().map(|step| step.id);
        let tokens = prompt.prompt_ids.iter().copied().chain(taken).collect();
        let mut growing = Growing { blocks: (32 * number..32 * number + 32).collect(), ..Growing::new(number, tokens) };
        for (index, recorded) in prompt.steps.iter().enumerate() {
            let n = if index == 0 { prompt.prompt_ids.len() } else { 1 };
            let rows = step(&mut *backend, spec.is_recurrent(), &mut [(&mut growing, n)]);
            compared.push(Compared::new(rows.last().unwrap(), recorded));
        }
    }
    compared
}

fn file(folder: &OsStr, name: &str) -> Vec<u8> {
    let path = PathBuf::from(folder).join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Of two experts that are nearly as good, rounding may choose the other, and a state remembers it.
fn check_architecture(name: &str, has_experts: bool, compared: &[Compared]) {
    let is_other = |step: &&Compared| !step.is_same_token;
    let n_others = compared.iter().filter(is_other).count();
    let widest = compared.iter().filter(is_other).map(|step| step.margin).fold(0.0, f32::max);
    let largest = compared.iter().map(|step| step.largest).fold(0.0, f32::max);
    let mean = compared.iter().map(|step| step.mean).sum::<f32>() / compared.len() as f32;
    let n = compared.len();
    let what =
        format!("{name}: {n_others} of {n} tokens differ, at margins up to {widest}; {largest}, on average {mean}");
    println!("{what}");
    if has_experts {
        assert!(n_others * 10 <= n && mean < 0.12, "{what}");
    } else {
        assert!(widest < 0.1 && largest < 0.15 && mean < 0.03, "{what}");
    }
}

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE"]
fn every_recorded_architecture_gives_what_llama_cpp_computes() {
    let folder = std::env::var_os("HONE_REFERENCE").expect("HONE_REFERENCE names the folder of arch2026.json");
    let figures: serde_json::Value = serde_json::from_slice(&file(&folder, "arch2026.json")).unwrap();
    let models = figures["models"].as_object().unwrap();
    assert_eq!(models.len(), 15);
    for (name, recorded) in models {
        let prompts: Vec<Prompt> = serde_json::from_value(recorded["prompts"].clone()).unwrap();
        let gguf = Gguf::from_bytes(file(&folder, &format!("{name}-a.gguf"))).unwrap();
        let spec = DecoderSpec::from_gguf(&gguf, None).unwrap();
        check_architecture(name, spec.experts.is_some(), &compare(&gguf, &spec, &prompts));
    }
}

/// The shorter half of the recorded answers, with the bounds of the native backend, except that twice as many tokens may
/// differ by more than is usual.
#[test]
#[ignore = "takes a minute or two, `scripts/check.sh batches` runs it"]
fn the_built_in_model_continues_as_under_llama_cpp() {
    let prompts = include_str!("../../../../tests/it/data/smollm2_greedy.json");
    let mut prompts: Vec<Prompt> = serde_json::from_str(prompts).unwrap();
    prompts.retain(|prompt| prompt.steps.len() < 25);
    let folder = std::env::var_os("HONE_TEST_MODELS").expect("HONE_TEST_MODELS names the folder of the test models");
    let gguf = Gguf::from_bytes(file(&folder, "SmolLM2-135M-Instruct.Q4_1.gguf")).unwrap();
    let spec = DecoderSpec::from_gguf(&gguf, None).unwrap();
    let compared = compare(&gguf, &spec, &prompts);
    assert_eq!(compared.len(), 71);
    let n_unusual = compared.iter().filter(|step| step.first >= 0.15).count();
    let largest = compared.iter().map(|step| step.first).fold(0.0, f32::max);
    let widest = compared.iter().filter(|step| !step.is_same_token).map(|step| step.margin).fold(0.0, f32::max);
    let what =
        format!("{n_unusual} of 71 tokens differ by 0.15 or more, at most {largest}; others at margins up to {widest}");
    println!("{what}");
    assert!(widest < 0.3 && largest < 0.4 && n_unusual * 10 < 71, "{what}");
}
