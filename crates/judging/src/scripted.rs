//! Judges over a model whose answers are scripted by a test.

use std::sync::Arc;

use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{Generate, GenerateRequest, Prompt};

use crate::{FenceKey, Judge, JudgeProfile, JudgeSettings, Rubric};

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
