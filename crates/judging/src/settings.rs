//! The judge's validated configuration.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::profile::{FeedbackMode, JudgeProfile};
use crate::prompt::has_place;

/// The shipped settings.
const SHIPPED: &str = include_str!("../../../config/judge.toml");
/// The longest timeout, in seconds: a week.
const LONGEST_TIMEOUT: f64 = 604_800.0;
/// Maximum gradings of one answer.
const MOST_SAMPLES: usize = 64;
/// Minimum context in tokens; a smaller one cannot hold a prompt.
const LEAST_CONTEXT: usize = 256;

/// The judge's model, rubric and limits. They are validated when read from TOML (`config/judge.toml` has every key).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "JudgeFile")]
pub struct JudgeSettings {
    /// Name or path of the judge's model.
    pub model: String,
    /// Names or paths of the jurors' models; empty if the judge alone judges.
    pub models: Vec<String>,
    /// The spread of the jurors' scores from which they count as disagreeing.
    pub disagreement: u8,
    /// Name or path of the model to ask when the jurors disagree; empty for none.
    pub stronger: String,
    /// Name of the judge's profile; empty selects the one for its model.
    pub profile: String,
    /// Divides the judge's logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// Maximum tokens of the judge's prompt and verdict together.
    pub context: usize,
    /// Time limit of a grading, not counting time spent waiting.
    pub grade_timeout: Duration,
    /// Name of the rubric.
    pub rubric: String,
    /// The fallback if the judge cannot be loaded.
    pub fallback: Fallback,
    /// Whether only verdicts of judges that have passed their examination are shown.
    pub examination: bool,
    /// A judge passes if the lower end of the interval of its area under the curve is above this.
    pub least_auc: f64,
    /// The model whose log-probabilities the likelihood judge uses.
    pub likelihood_model: String,
    /// The number of gradings of an answer; the most frequent score wins.
    pub samples: usize,
    /// When the judge writes its reasons; `None` uses the profile's mode.
    pub feedback: Option<FeedbackMode>,
    /// Maximum tokens of feedback before the verdict.
    pub feedback_tokens: usize,
    /// Two answers are a tie if the log-odds between them, in nats, are smaller than this.
    pub tie_margin: f64,
    /// Whether a badge shows how often people agree with such a score, where known.
    pub calibrated: bool,
    /// Whether passages that address the judge are hidden from it.
    pub leave_out_suspicious: bool,
    /// The fence around every judged text, with a place for `text` and, before and after it, places for `boundary`.
    pub fence: String,
}

/// The fallback if the judge cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// The likelihood judge, where it separates good answers from bad ones well enough.
    Likelihood,
    /// The model that answered; the grade is marked as self-graded.
    Generator,
    /// Nothing: the answer stays without a score.
    None,
}

/// An invalid setting.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvalidJudgeSettings {
    /// A value out of range.
    #[error("{key} is {value}: it must be {expected}")]
    Value {
        /// The key in the configuration.
        key: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// A fence without a place for the judged text.
    #[error("{key} has no place for the {place}: write {{{place}}} where it belongs")]
    Place {
        /// The key in the configuration.
        key: &'static str,
        /// The missing place.
        place: &'static str,
    },
    /// A fence without a boundary on one side.
    #[error("fence has no boundary on one side of the text: write {{boundary}} before and after {{text}}")]
    OpenFence,
    /// Two values that leave no room for a prompt.
    #[error(
        "feedback_tokens is {feedback_tokens}{} and context is {context}: raise the context or lower feedback_tokens, so \
         that half of the context is left for the prompt", and_thoughts(.thinking_tokens)
    )]
    NoRoom {
        /// Tokens of feedback.
        feedback_tokens: usize,
        /// Tokens of thoughts, from the judge's profile.
        thinking_tokens: usize,
        /// Tokens of context.
        context: usize,
    },
    /// A jury with a judge that votes twice.
    #[error("models names {name:?} twice: name every judge once")]
    SameJurors {
        /// The judge.
        name: String,
    },
    /// Several gradings that would all be identical.
    #[error("samples is {samples} and temperature is 0, at which all of them say the same: raise the temperature")]
    SameSamples {
        /// The number of gradings of an answer.
        samples: usize,
    },
}

impl JudgeSettings {
    /// The shipped settings.
    ///
    /// # Panics
    /// If `config/judge.toml` is invalid; a test checks it.
    pub fn shipped() -> JudgeSettings {
        toml::from_str(SHIPPED).expect("config/judge.toml is checked by a test")
    }

    /// The models that judge: the jurors' models, or the judge's alone.
    pub fn jurors(&self) -> &[String] {
        match self.models.as_slice() {
            [] => std::slice::from_ref(&self.model),
            models => models,
        }
    }

    /// Fills the keys that are not set, according to `is_set`, with the values of this profile.
    pub fn for_profile(mut self, profile: &JudgeProfile, is_set: impl Fn(&str) -> bool) -> JudgeSettings {
        if !is_set("temperature") {
            self.temperature = profile.temperature;
        }
        if !is_set("context") {
            self.context = profile.context;
        }
        if !is_set("grade_timeout") {
            self.grade_timeout = profile.grade_timeout;
        }
        self
    }

    /// Checks constraints between values that are individually valid.
    ///
    /// # Errors
    /// When they contradict each other.
    pub(crate) fn check_together(&self, profile: &JudgeProfile) -> Result<(), InvalidJudgeSettings> {
        let JudgeSettings { feedback_tokens, context, .. } = *self;
        let thinking_tokens = profile.thinking_tokens();
        if feedback_tokens + thinking_tokens > context / 2 {
            return Err(InvalidJudgeSettings::NoRoom { feedback_tokens, thinking_tokens, context });
        }
        match self.samples > 1 && self.temperature == 0.0 {
            true => Err(InvalidJudgeSettings::SameSamples { samples: self.samples }),
            false => Ok(()),
        }
    }
}

/// The settings as stored in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgeFile {
    model: String,
    models: Vec<String>,
    disagreement: i64,
    stronger: String,
    profile: String,
    temperature: f64,
    context: i64,
    grade_timeout: f64,
    rubric: String,
    fallback: Fallback,
    examination: bool,
    least_auc: f64,
    likelihood_model: String,
    samples: i64,
    feedback: String,
    feedback_tokens: i64,
    tie_margin: f64,
    calibrated: bool,
    leave_out_suspicious: bool,
    fence: String,
}

impl TryFrom<JudgeFile> for JudgeSettings {
    type Error = InvalidJudgeSettings;

    fn try_from(file: JudgeFile) -> Result<Self, Self::Error> {
        let timeout = check("grade_timeout", file.grade_timeout, "above 0 and at most 604800 (seconds)", |seconds| {
            seconds > 0.0 && seconds <= LONGEST_TIMEOUT
        })?;
        Ok(JudgeSettings {
            model: named("model", file.model)?,
            models: jurors(file.models)?,
            disagreement: disagreement(file.disagreement)?,
            stronger: file.stronger,
            profile: file.profile,
            temperature: check("temperature", file.temperature, "0 or more", |value| {
                (0.0..=f64::from(f32::MAX)).contains(&value)
            })? as f32,
            context: tokens("context", file.context, LEAST_CONTEXT, "256 or more")?,
            grade_timeout: Duration::from_secs_f64(timeout),
            rubric: named("rubric", file.rubric)?,
            fallback: file.fallback,
            examination: file.examination,
            least_auc: check("least_auc", file.least_auc, "0.5 to 1", |value| (0.5..=1.0).contains(&value))?,
            likelihood_model: named("likelihood_model", file.likelihood_model)?,
            samples: Some(tokens("samples", file.samples, 1, "1 to 64")?)
                .filter(|samples| *samples <= MOST_SAMPLES)
                .ok_or_else(|| InvalidJudgeSettings::Value {
                    key: "samples",
                    value: file.samples.to_string(),
                    expected: "1 to 64",
                })?,
            feedback: feedback(&file.feedback)?,
            feedback_tokens: tokens("feedback_tokens", file.feedback_tokens, 1, "1 or more")?,
            tie_margin: check("tie_margin", file.tie_margin, "0 or more", |value| value.is_finite() && value >= 0.0)?,
            calibrated: file.calibrated,
            leave_out_suspicious: file.leave_out_suspicious,
            fence: fence(file.fence)?,
        })
    }
}

fn check(
    key: &'static str,
    value: f64,
    expected: &'static str,
    is_sound: impl Fn(f64) -> bool,
) -> Result<f64, InvalidJudgeSettings> {
    match is_sound(value) {
        true => Ok(value),
        false => Err(InvalidJudgeSettings::Value { key, value: value.to_string(), expected }),
    }
}

fn tokens(key: &'static str, value: i64, least: usize, expected: &'static str) -> Result<usize, InvalidJudgeSettings> {
    let invalid = || InvalidJudgeSettings::Value { key, value: value.to_string(), expected };
    usize::try_from(value).ok().filter(|tokens| *tokens >= least).ok_or_else(invalid)
}

fn feedback(mode: &str) -> Result<Option<FeedbackMode>, InvalidJudgeSettings> {
    let value = |value: &str| InvalidJudgeSettings::Value {
        key: "feedback",
        value: value.to_owned(),
        expected: "always, on_request, or empty for what the profile says",
    };
    match mode {
        "" => Ok(None),
        "always" => Ok(Some(FeedbackMode::Always)),
        "on_request" => Ok(Some(FeedbackMode::OnRequest)),
        other => Err(value(other)),
    }
}

fn named(key: &'static str, name: String) -> Result<String, InvalidJudgeSettings> {
    match name.trim() {
        "" => Err(InvalidJudgeSettings::Value { key, value: "empty".to_owned(), expected: "a name" }),
        _ => Ok(name),
    }
}

/// Checks that the jurors' names are unique.
fn jurors(models: Vec<String>) -> Result<Vec<String>, InvalidJudgeSettings> {
    let models: Vec<String> = models.into_iter().map(|name| named("models", name)).collect::<Result<_, _>>()?;
    match (1..models.len()).find(|place| models[..*place].contains(&models[*place])) {
        Some(place) => Err(InvalidJudgeSettings::SameJurors { name: models[place].clone() }),
        None => Ok(models),
    }
}

fn disagreement(points: i64) -> Result<u8, InvalidJudgeSettings> {
    let invalid = || InvalidJudgeSettings::Value { key: "disagreement", value: points.to_string(), expected: "1 to 5" };
    u8::try_from(points).ok().filter(|points| (1..=5).contains(points)).ok_or_else(invalid)
}

fn and_thoughts(thinking_tokens: &usize) -> String {
    match thinking_tokens {
        0 => String::new(),
        tokens => format!(", the judge thinks for {tokens} tokens"),
    }
}

/// Checks that a fence has its boundary on both sides of the text.
fn fence(template: String) -> Result<String, InvalidJudgeSettings> {
    const KEY: &str = "fence";
    let Some((before, after)) = template.split_once("{text}") else {
        return Err(InvalidJudgeSettings::Place { key: KEY, place: "text" });
    };
    match has_place(before, "boundary") && has_place(after, "boundary") {
        true => Ok(template),
        false => Err(InvalidJudgeSettings::OpenFence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for the shipped settings with one key set to another value.
    #[track_caller]
    fn check_refused(key: &str, value: impl Into<toml::Value>, expected: &str) {
        let mut table: toml::Table = SHIPPED.parse().unwrap();
        table.insert(key.to_owned(), value.into());
        let error = table.try_into::<JudgeSettings>().unwrap_err();
        assert_eq!(error.message(), expected);
    }

    fn prometheus() -> JudgeProfile {
        JudgeProfile::shipped("prometheus").unwrap()
    }

    #[test]
    fn the_shipped_settings_are_those_of_the_seed() {
        let settings = JudgeSettings::shipped();
        assert_eq!((settings.model.as_str(), settings.temperature, settings.context), ("prometheus:7b", 0.0, 4096));
        assert_eq!((settings.grade_timeout, settings.fallback), (Duration::from_secs(30), Fallback::Likelihood));
        let profile = prometheus();
        assert!(profile.absolute_prompt.starts_with("###Task Description:\nAn instruction"));
        for prompt in [&profile.absolute_prompt, &profile.absolute_reference_prompt, &profile.pairwise_prompt] {
            assert!(prompt.ends_with("\n\n###Feedback:"), "{prompt}");
        }
        let letter_first = JudgeProfile::shipped("prometheus_letter_first").unwrap();
        assert!(letter_first.pairwise_prompt.ends_with("\n\n###Verdict:"), "{}", letter_first.pairwise_prompt);
        assert_eq!(settings.check_together(&profile), Ok(()));
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let timeout = "it must be above 0 and at most 604800 (seconds)";
        check_refused("grade_timeout", 0.0, &format!("grade_timeout is 0: {timeout}"));
        check_refused("grade_timeout", f64::NAN, &format!("grade_timeout is NaN: {timeout}"));
        check_refused("grade_timeout", 1e300, &format!("grade_timeout is {}: {timeout}", 1e300));
        check_refused("tie_margin", -0.5, "tie_margin is -0.5: it must be 0 or more");
        check_refused("tie_margin", f64::INFINITY, "tie_margin is inf: it must be 0 or more");
        check_refused("temperature", -1.0, "temperature is -1: it must be 0 or more");
        check_refused("temperature", 1e39, &format!("temperature is {}: it must be 0 or more", 1e39));
        check_refused("context", 100, "context is 100: it must be 256 or more");
        check_refused("context", -1, "context is -1: it must be 256 or more");
        check_refused("feedback_tokens", 0, "feedback_tokens is 0: it must be 1 or more");
        check_refused("model", " ", "model is empty: it must be a name");
        check_refused("models", vec!["a", ""], "models is empty: it must be a name");
        check_refused("models", vec!["a", "b", "a"], "models names \"a\" twice: name every judge once");
        for points in [0, 6, -1] {
            let expected = format!("disagreement is {points}: it must be 1 to 5");
            check_refused("disagreement", points, &expected);
        }
        check_refused(
            "fallback",
            "somebody",
            "unknown variant `somebody`, expected one of `likelihood`, `generator`, `none`",
        );
        check_refused(
            "tone",
            "kind",
            "unknown field `tone`, expected one of `model`, `models`, `disagreement`, `stronger`, `profile`, `temperature`, \
            `context`, `grade_timeout`, `rubric`, `fallback`, `examination`, `least_auc`, `likelihood_model`, `samples`, \
            `feedback`, `feedback_tokens`, `tie_margin`, `calibrated`, `leave_out_suspicious`, `fence`",
        );
    }

    #[test]
    fn the_judge_alone_judges_where_no_jury_is_named() {
        let jury = |models: &[&str]| {
            let models = models.iter().map(|name| (*name).to_owned()).collect();
            JudgeSettings { models, ..JudgeSettings::shipped() }.jurors().to_vec()
        };
        assert_eq!(jury(&[]), ["prometheus:7b"]);
        assert_eq!(jury(&["a", "b"]), ["a", "b"]);
    }

    #[test]
    fn a_fence_that_is_open_is_refused() {
        let open = "fence has no boundary on one side of the text: write {boundary} before and after {text}";
        check_refused("fence", "{boundary}\n{text}", open);
        check_refused("fence", "{text}\n{boundary}", open);
        check_refused("fence", "{boundary}", "fence has no place for the text: write {text} where it belongs");
    }

    #[test]
    fn feedback_must_leave_room_for_the_prompt() {
        let settings = JudgeSettings { feedback_tokens: 2049, ..JudgeSettings::shipped() };
        let error = settings.check_together(&prometheus()).unwrap_err().to_string();
        assert!(error.starts_with("feedback_tokens is 2049 and context is 4096: "), "{error}");
        let settings = JudgeSettings { context: 2048, ..JudgeSettings::shipped() };
        let error = settings.check_together(&JudgeProfile::shipped("mr3").unwrap()).unwrap_err().to_string();
        let expected = "feedback_tokens is 256, the judge thinks for 1024 tokens and context is 2048: ";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn a_profile_says_what_is_not_set() {
        let profile = JudgeProfile::shipped("mr3").unwrap();
        let settings = JudgeSettings::shipped().for_profile(&profile, |_| false);
        let said = (profile.temperature, profile.context, profile.grade_timeout);
        assert_eq!((settings.temperature, settings.context, settings.grade_timeout), said);
        assert_eq!(JudgeSettings::shipped().for_profile(&profile, |_| true), JudgeSettings::shipped());
    }
}
