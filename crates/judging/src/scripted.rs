//! Judges over a model whose answers are scripted by a test.

use std::sync::Arc;

use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{Generate, GenerateRequest, Prompt, TokenLogprob, TokenLogprobs};

use crate::{FenceKey, Judge, JudgeProfile, JudgeSettings, Purpose, PurposeDecider, Rubric};

/// A key that tests may know.
pub const KEY: FenceKey = FenceKey::from_bytes([7; FenceKey::LENGTH]);

/// The shipped rubric.
///
/// # Panics
/// If hone does not ship it, or it is invalid.
pub fn rubric() -> Rubric {
    match Rubric::shipped("default") {
        Some(Ok(rubric)) => rubric,
        other => panic!("there is no shipped rubric: {other:?}"),
    }
}

/// The shipped profile with this name.
///
/// # Panics
/// If hone does not ship it.
pub fn profile(name: &str) -> JudgeProfile {
    match JudgeProfile::shipped(name) {
        Some(profile) => profile,
        None => panic!("there is no profile {name:?}"),
    }
}

/// A judge that uses `model`, the shipped rubric and the profile of Prometheus.
///
/// # Panics
/// If the settings contradict each other.
pub fn judge_over(model: Arc<dyn Generate>, settings: JudgeSettings) -> Judge {
    judge_of(profile("prometheus"), model, settings)
}

/// A judge with this profile that uses `model` and the shipped rubric.
///
/// # Panics
/// If the settings contradict each other.
pub fn judge_of(profile: JudgeProfile, model: Arc<dyn Generate>, settings: JudgeSettings) -> Judge {
    match Judge::new(model, settings, profile, rubric(), KEY) {
        Ok(judge) => judge,
        Err(invalid) => panic!("the settings of a test are invalid: {invalid}"),
    }
}

/// A judge that answers requests with `respond`, and the model behind it.
pub fn judge(
    settings: JudgeSettings,
    respond: impl Fn(&GenerateRequest) -> Script + Send + Sync + 'static,
) -> (Judge, Arc<Scripted>) {
    let model = Arc::new(Scripted::new(respond));
    (judge_over(Arc::clone(&model) as _, settings), model)
}

/// The single turn of a request to a judge.
///
/// # Panics
/// If the request has a different form.
pub fn turn(request: &GenerateRequest) -> &str {
    match &request.prompt {
        Prompt::Chat(messages) if messages.len() == 1 => &messages[0].content,
        other => panic!("{other:?} is no single turn"),
    }
}

/// A model that decides by this rule about the prompt, and the requests that it gets.
pub fn decider(
    purpose: Purpose,
    is_yes: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> (PurposeDecider, Arc<Scripted>) {
    let model = Arc::new(Scripted::new(move |request| {
        // Without texts, when its bias is measured, it is undecided.
        let [yes, no] = match turn(request) {
            prompt if prompt.contains("\nN/A\n") => [-1.0, -1.0],
            prompt if is_yes(prompt) => [-0.1, -3.0],
            _ => [-3.0, -0.1],
        };
        let named = |text: &String| TokenLogprob {
            id: 0,
            logprob: if text.trim().eq_ignore_ascii_case("yes") { yes } else { no },
            text: text.clone(),
        };
        let named = request.logprobs.named.iter().map(named).collect();
        Script { logprobs: vec![TokenLogprobs { named, ..TokenLogprobs::default() }], ..Script::saying(&["No"]) }
    }));
    (PurposeDecider::unexamined(model.clone(), purpose, "small"), model)
}
