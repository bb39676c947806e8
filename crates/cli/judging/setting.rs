//! What verdicts depend on in addition to the texts: the judge's model, settings, prompts and rubric.
//!
//! Verdicts from two settings cannot be compared. So each line in a file of verdicts contains a digest of its setting,
//! and the cache has the setting in its key.

use hone_protocol::hexadecimal;
use hone_quality::Judge;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::judge::identity::{identity, settings};

/// The field of a line that holds the digest.
pub(super) const SETTING: &str = "setting";
/// Bytes of the digest that a line shows.
const SHOWN_BYTES: usize = 8;

/// The setting of a run.
pub(super) struct Setting {
    /// The judge's model.
    pub(super) model: String,
    /// Everything about the judge that its verdicts depend on.
    pub(super) judge: Value,
    /// The digest of it.
    pub(super) digest: String,
    /// Whether the model is installed.
    pub(super) is_installed: bool,
    rubric: String,
}

impl Setting {
    /// The setting of `judge` if `model` gives the verdicts.
    pub(super) fn new(app: &App, judge: &Judge, model: &str) -> Setting {
        let installed = app.store.show(model).ok();
        let self_graded = model == app.config.engine.model;
        let is_installed = installed.is_some();
        let rubric = judge.rubric().name.clone();
        let judge = json!([
            model,
            installed.map(|installed| identity(&installed)),
            self_graded,
            settings(judge.settings(), judge.profile_for(model), judge.rubric())
        ]);
        let digest = hexadecimal(&Sha256::digest(judge.to_string())[..SHOWN_BYTES]);
        Setting { model: model.to_owned(), judge, digest, is_installed, rubric }
    }

    /// How the setting of `line` differs from this one; `None` if it does not.
    pub(super) fn difference(&self, line: &Map<String, Value>) -> Option<String> {
        let text = |name: &str| line.get(name).and_then(Value::as_str);
        if text(SETTING) == Some(&self.digest) {
            return None;
        }
        let Setting { rubric, model, .. } = self;
        Some(match (text("rubric"), text("judge")) {
            (Some(other), _) if other != rubric => format!("was judged by the rubric {other:?}, not by {rubric:?}"),
            (_, Some(other)) if other != model => format!("was judged by the model {other:?}, not by {model:?}"),
            _ => "was judged with another text of the rubric, other prompts, or other settings of the judge".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: Value, expected: Option<&str>) {
        let setting = Setting {
            model: "m:7b".into(),
            judge: Value::Null,
            digest: "0f".into(),
            is_installed: true,
            rubric: "default".into(),
        };
        let line: Map<String, Value> = line.as_object().cloned().unwrap_or_default();
        assert_eq!(setting.difference(&line).as_deref(), expected);
    }

    #[test]
    fn a_verdict_of_another_setting_is_told_apart() {
        check(json!({"setting": "0f", "rubric": "default", "judge": "m:7b"}), None);
        // The judge could not be loaded, and the model that answered stood in for it.
        check(json!({"setting": "0f", "rubric": "default", "judge": "small"}), None);
        let rubric = "was judged by the rubric \"honesty\", not by \"default\"";
        check(json!({"setting": "10", "rubric": "honesty", "judge": "x"}), Some(rubric));
        let model = "was judged by the model \"x\", not by \"m:7b\"";
        check(json!({"setting": "10", "rubric": "default", "judge": "x"}), Some(model));
        check(json!({"setting": "10", "judge": "x"}), Some(model));
        let texts = "was judged with another text of the rubric, other prompts, or other settings of the judge";
        check(json!({"setting": "10", "rubric": "default", "judge": "m:7b"}), Some(texts));
        check(json!({"judge": "m:7b"}), Some(texts));
    }
}
