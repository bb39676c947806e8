//! The inputs that a judge's verdicts depend on.

use std::time::UNIX_EPOCH;

use hone_judging::{JudgeProfile, JudgeSettings, Rubric};
use hone_models::{InstalledFile, InstalledModel};
use serde_json::{Value, json};

/// Identifies a model among others of the same name: by its hash, or if that is unknown by its path, length and date.
pub fn identity(model: &InstalledModel) -> Value {
    let file = |file: &InstalledFile| match &file.sha256 {
        Some(sha256) => json!([file.name, sha256]),
        None => {
            let modified = std::fs::metadata(&file.location.path).and_then(|metadata| metadata.modified()).ok();
            let nanoseconds =
                modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_nanos());
            json!([file.location.path, file.location.length, nanoseconds.map(|count| count.to_string())])
        }
    };
    model.files.iter().map(file).collect()
}

/// The settings, the profile and the rubric of a judge.
pub fn settings(settings: &JudgeSettings, profile: &JudgeProfile, rubric: &Rubric) -> Value {
    json!([
        settings.temperature,
        settings.samples,
        settings.context,
        settings.feedback,
        settings.feedback_tokens,
        settings.tie_margin,
        settings.leave_out_suspicious,
        settings.fence,
        profile,
        rubric.name,
        profile.written(rubric),
    ])
}
