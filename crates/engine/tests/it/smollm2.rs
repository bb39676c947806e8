//! The built-in model against figures recorded from llama.cpp.

use hone_engine::{Advance, CachedSequence, EncodeOptions, Model, perplexity};
use hone_protocol::{FinishReason, Generate, GenerateRequest, Message, Prompt, Role};
use serde::Deserialize;

use crate::support;

/// The log-probability of the recorded token differs by less than this at all but one in twenty steps.
const USUAL_DIFFERENCE: f32 = 0.15;
/// At every step it differs by less than this. llama.cpp rounds activations to 8 bits, and we may too: the exact
/// product of the same weights differs by up to 0.23 from the recorded figures ("What is 12 times 12?", the eighth
/// token), rounded ones by up to 0.33.
const LARGEST_DIFFERENCE: f32 = 0.4;
/// If the two likeliest tokens are closer than this, either may be chosen.
const CLOSE_CALL: f32 = 0.3;

#[derive(Deserialize)]
struct Case {
    question: String,
    prompt: String,
    prompt_ids: Vec<u32>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    id: u32,
    top: Vec<(u32, f32)>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("data/smollm2_greedy.json")).unwrap()
}

/// The logits after the prompt and after every recorded token: the prompt in one step, then token by token.
fn logits_along(model: &mut Model, case: &Case) -> Vec<Vec<f32>> {
    let mut sequence = CachedSequence::default();
    let mut rows = Vec::new();
    let mut advance = |tokens: &[u32]| {
        let entry = Advance { sequence: &mut sequence, tokens, logits: tokens.len() - 1..tokens.len() };
        rows.extend(model.advance(&mut [entry]).unwrap().rows().map(<[f32]>::to_vec));
    };
    advance(&case.prompt_ids);
    case.steps.iter().take(case.steps.len() - 1).for_each(|step| advance(&[step.id]));
    model.release(sequence);
    rows
}

/// By how much the log-probability of the likeliest token differs from the recorded one.
#[track_caller]
fn check_step(case: &Case, index: usize, logits: &[f32]) -> f32 {
    let recorded = &case.steps[index];
    let (likeliest, second) = (recorded.top[0], recorded.top[1]);
    let is_close_call = likeliest.1 - second.1 < CLOSE_CALL;
    let chosen = support::argmax(logits);
    assert!(
        chosen == likeliest.0 || is_close_call,
        "{:?}: token {index} is {chosen}, not {}",
        case.question,
        likeliest.0
    );
    let difference = (logits[likeliest.0 as usize] - support::log_sum_exp(logits) - likeliest.1).abs();
    assert!(difference < LARGEST_DIFFERENCE, "{:?}: token {index} differs by {difference}", case.question);
    difference
}

#[test]
fn greedy_continuations_are_those_of_llama_cpp() {
    let mut model = support::shared_smollm2();
    let mut differences = Vec::new();
    for case in cases() {
        let options = EncodeOptions { parse_special: true, add_special: true };
        assert_eq!(model.tokenizer().encode(&case.prompt, options).unwrap(), case.prompt_ids, "{:?}", case.question);
        let rows = logits_along(&mut model, &case);
        differences.extend(rows.iter().enumerate().map(|(index, logits)| check_step(&case, index, logits)));
    }
    assert_eq!(differences.len(), 263);
    let n_unusual = differences.iter().filter(|difference| **difference >= USUAL_DIFFERENCE).count();
    assert!(n_unusual * 20 < differences.len(), "{n_unusual} of 263 tokens differ by {USUAL_DIFFERENCE} or more");
}

#[test]
fn a_chat_is_rendered_as_the_models_own_template_says() {
    let case = &cases()[0];
    let prompt = Prompt::Chat(vec![Message::new(Role::User, case.question.clone())]);
    let request = GenerateRequest {
        max_tokens: Some(case.steps.len()),
        ..GenerateRequest::new(support::smollm2().to_str().unwrap(), prompt)
    };
    let answer = support::engine(support::options()).generate(request).unwrap().complete().unwrap();
    assert_eq!(answer.prompt_token_ids, case.prompt_ids);
    assert!(answer.text.contains("100 degrees Celsius"), "{:?}", answer.text);
    let is_close_call = |step: &Step| step.top[0].1 - step.top[1].1 < CLOSE_CALL;
    let n_certain = case.steps.iter().position(is_close_call).unwrap();
    let recorded: Vec<u32> = case.steps[..n_certain].iter().map(|step| step.id).collect();
    assert!(n_certain > 10 && answer.token_ids.starts_with(&recorded), "{:?}", answer.token_ids);
    assert_eq!(answer.finish_reason, Some(FinishReason::Length));
}

#[test]
fn perplexity_is_that_of_llama_cpp() {
    let text = std::fs::read_to_string("/usr/share/common-licenses/GPL-3")
        .expect("the GPL's text is needed: Debian's package base-files has it");
    let result = perplexity(&mut support::shared_smollm2(), &text, 512, |_| ()).unwrap();
    assert_eq!(result.total_chunks, 14);
    assert!((result.value / 18.3914 - 1.0).abs() < 0.01, "{result:?}");
    assert!((result.standard_error - 0.86).abs() < 0.05, "{result:?}");
}
