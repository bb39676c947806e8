//! The built-in model against figures recorded from llama.cpp.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;

use hone_engine::perplexity::perplexity;
use hone_protocol::{Completion, FinishReason, Generate, GenerateRequest, LogprobOptions, Message, Prompt, Role};
use serde::Deserialize;

/// Log-probabilities may differ by this much: engines quantize activations differently.
const LOGPROB_TOLERANCE: f32 = 0.15;
/// Where the two likeliest tokens are closer than this, either may be chosen.
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

fn answer(case: &Case, prompt: Prompt) -> Completion {
    let engine = support::engine(support::options());
    let request = GenerateRequest {
        max_tokens: Some(case.steps.len()),
        logprobs: LogprobOptions { top: Some(5), named: Vec::new() },
        ..GenerateRequest::new(support::smollm2().to_str().unwrap(), prompt)
    };
    engine.generate(request).unwrap().complete().unwrap()
}

/// Follows an answer along the recorded one until a close call is decided the other way. Returns how far it came.
#[track_caller]
fn check_continuation(case: &Case, answer: &Completion) -> usize {
    for (index, (ours, theirs)) in answer.logprobs.iter().zip(&case.steps).enumerate() {
        let recorded: BTreeMap<u32, f32> = theirs.top.iter().copied().collect();
        let difference = (ours.top[0].logprob - recorded.get(&ours.top[0].id).copied().unwrap_or(f32::MIN)).abs();
        let is_close_call = theirs.top[0].1 - theirs.top[1].1 < CLOSE_CALL;
        if ours.id != theirs.id {
            assert!(is_close_call, "{:?}: token {index} is {} and not {}", case.question, ours.id, theirs.id);
            return index;
        }
        assert!(difference < LOGPROB_TOLERANCE, "{:?}: token {index} differs by {difference}", case.question);
    }
    case.steps.len().min(answer.logprobs.len())
}

#[test]
fn greedy_answers_are_those_of_llama_cpp() {
    let mut compared = 0;
    let mut recorded = 0;
    for case in cases() {
        let prompt = Prompt::Text { text: case.prompt.clone(), parse_special: true, add_special: true };
        let answer = answer(&case, prompt);
        assert_eq!(answer.prompt_token_ids, case.prompt_ids, "{:?}", case.question);
        compared += check_continuation(&case, &answer);
        recorded += case.steps.len();
    }
    assert!(compared * 2 > recorded, "close calls left only {compared} of {recorded} tokens to compare");
}

#[test]
fn a_chat_is_rendered_as_the_models_own_template_says() {
    let case = &cases()[0];
    let answer = answer(case, Prompt::Chat(vec![Message::new(Role::User, case.question.clone())]));
    assert_eq!(answer.prompt_token_ids, case.prompt_ids);
    assert!(answer.text.contains("100 degrees Celsius"), "{:?}", answer.text);
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
