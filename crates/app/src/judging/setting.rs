//! Everything that verdicts depend on besides the texts: the judge's model, settings, prompts and rubric.
//!
//! Verdicts from two settings cannot be compared. So each line in a file of verdicts contains a digest of its setting,
//! and the cache has the setting in its key.

use hone_judging::{Fallback, Judge, JudgeSettings, Jury, LIKELIHOOD, Likelihood};
use hone_protocol::{JudgingMethod, hexadecimal};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::judge::identity::{identity, settings};

/// The field of a line that holds the digest.
pub const SETTING: &str = "setting";
/// Bytes of the digest that a line shows.
pub(super) const SHOWN_BYTES: usize = 8;

/// The setting of a run.
#[derive(Clone)]
pub(super) struct Setting {
    /// The judge's model, or the names of the jurors.
    pub(super) model: String,
    /// Its method of judging.
    pub(super) method: JudgingMethod,
    /// Everything about the judge, or the jury, that its verdicts depend on.
    pub(super) judge: Value,
    /// The digest of `judge`.
    pub(super) digest: String,
    /// Whether all models are installed.
    pub(super) is_installed: bool,
    rubric: String,
}

impl Setting {
    /// The setting of a jury, given the model that each of its judges asks.
    pub(super) fn new(app: &App, jury: &Jury, model_of: impl Fn(&Judge) -> String) -> Setting {
        let is_installed = jury.judges().all(|judge| app.store.show(&model_of(judge)).is_ok());
        let rubric = jury.first().rubric().name.clone();
        let method = match jury.is_single() {
            true => method_of(jury.first(), &model_of(jury.first())),
            false => JudgingMethod::Prompted,
        };
        let (model, judge) = match jury.is_single() {
            true => (model_of(jury.first()), of_judge(app, jury.first(), &model_of(jury.first()))),
            false => of_jury(jury, |judge| of_judge(app, judge, &model_of(judge))),
        };
        Setting { model, method, digest: digest(&judge), judge, is_installed, rubric }
    }

    /// The setting for answers that are known to be by this model: the likelihood judge knows its own answers, and no
    /// model counts as impartial to its own.
    pub(super) fn of_author(self, author: &str) -> Setting {
        let judge = json!([self.judge, {"answered_by": author}]);
        Setting { digest: digest(&judge), judge, ..self }
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
            _ => "was judged with another text of the rubric, other prompts, other settings of the judge, or as an answer of \
                  another model"
                .to_owned(),
        })
    }
}

fn digest(judge: &Value) -> String {
    hexadecimal(&Sha256::digest(judge.to_string())[..SHOWN_BYTES])
}

/// The method by which `model` judges, as the judge or in its place.
fn method_of(judge: &Judge, model: &str) -> JudgingMethod {
    method(judge.settings(), judge.is_reward_model(), model)
}

fn method(judge: &JudgeSettings, is_reward_model: bool, model: &str) -> JudgingMethod {
    let stands_in = model != judge.model;
    match judge.fallback {
        _ if judge.model == LIKELIHOOD => JudgingMethod::Likelihood,
        _ if !stands_in && is_reward_model => JudgingMethod::Reward,
        Fallback::Likelihood if stands_in => JudgingMethod::Likelihood,
        _ => JudgingMethod::Prompted,
    }
}

/// Everything that the verdicts of a judge that asks `model` depend on.
fn of_judge(app: &App, judge: &Judge, model: &str) -> Value {
    let installed = app.store.show(model).ok();
    let self_graded = model == app.config.engine.model;
    let mut parts = vec![
        json!(model),
        json!(installed.map(|installed| identity(&installed))),
        json!(self_graded),
        settings(judge.settings(), judge.profile_for(model), judge.rubric()),
    ];
    match method_of(judge, model) {
        JudgingMethod::Prompted => {}
        JudgingMethod::Likelihood => parts.push(json!([LIKELIHOOD, Likelihood::digest()])),
        JudgingMethod::Reward => parts.push(json!(["reward", judge.standings().reward_scale.as_deref()])),
    }
    parts.into()
}

/// The names of the jurors, and everything that the jury's verdicts depend on.
fn of_jury(jury: &Jury, of_judge: impl Fn(&Judge) -> Value) -> (String, Value) {
    let names: Vec<&str> = jury.jurors().map(|judge| judge.settings().model.as_str()).collect();
    let judges: Vec<Value> = jury.judges().map(|judge| json!([judge.settings().model, of_judge(judge)])).collect();
    let judge = json!({"jurors": names, "judges": judges, "disagreement": jury.first().settings().disagreement});
    (names.join(", "), judge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: Value, expected: Option<&str>) {
        let setting = Setting {
            model: "m:7b".into(),
            method: JudgingMethod::Prompted,
            judge: Value::Null,
            digest: "0f".into(),
            is_installed: true,
            rubric: "default".into(),
        };
        let line: Map<String, Value> = line.as_object().cloned().unwrap_or_default();
        assert_eq!(setting.difference(&line).as_deref(), expected);
    }

    #[test]
    fn a_model_judges_in_one_of_three_ways() {
        let judge = |model: &str, fallback| JudgeSettings { model: model.into(), fallback, ..JudgeSettings::shipped() };
        assert_eq!(method(&judge("m", Fallback::Likelihood), false, "m"), JudgingMethod::Prompted);
        assert_eq!(method(&judge(LIKELIHOOD, Fallback::None), false, "m"), JudgingMethod::Likelihood);
        assert_eq!(method(&judge("absent", Fallback::Likelihood), false, "m"), JudgingMethod::Likelihood);
        assert_eq!(method(&judge("absent", Fallback::Generator), false, "m"), JudgingMethod::Prompted);
        assert_eq!(method(&judge("m", Fallback::Likelihood), true, "m"), JudgingMethod::Reward);
        assert_eq!(method(&judge("m", Fallback::Generator), true, "other"), JudgingMethod::Prompted);
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
        let texts = "was judged with another text of the rubric, other prompts, other settings of the judge, or as an \
                     answer of another model";
        check(json!({"setting": "10", "rubric": "default", "judge": "m:7b"}), Some(texts));
        check(json!({"judge": "m:7b"}), Some(texts));
    }
}
