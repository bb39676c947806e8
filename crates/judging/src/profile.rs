//! Profiles of judges, which define their prompts and verdict forms: rows of `config/judges.toml`.
//!
//! Judges are trained on one way of asking and one form of verdict, and grade worse in any other. So the differences
//! between them are data: templates, the format of rubrics, the form of the verdict, whether they think first. A
//! profile inherits missing keys from the profile named by `like`, or else from `plain`.

mod file;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::form::VerdictForm;
use crate::prompt::has_place;
use crate::rubric::Rubric;

/// The profiles that hone ships with.
const SHIPPED: &str = include_str!("../../../config/judges.toml");
/// The profile of a model without a profile of its own; it also defines the valid keys.
const PLAIN: &str = "plain";

/// The place in a prompt for the instructions about the judge's output.
const ENDING: &str = "ending";

/// When a judge writes its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackMode {
    /// Before every verdict, which then follows from them.
    Always,
    /// On request. The verdict is read from the probabilities of its labels.
    OnRequest,
}

/// The prompts of a kind of judge, and the form of its answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgeProfile {
    /// Its name.
    pub name: String,
    /// Its purpose, and where its authors describe it.
    pub about: String,
    /// Parts of the names of its models, in lower case.
    pub models: Vec<String>,
    /// Divides the judge's logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// Maximum tokens of the judge's prompt, thoughts and verdict together.
    pub context: usize,
    /// Time limit of a grading.
    pub grade_timeout: Duration,
    /// When it writes its reasons.
    pub feedback: FeedbackMode,
    /// Whether the system text is a separate message; otherwise it precedes the prompt in a single turn.
    pub(crate) system_message: bool,
    pub(crate) rubric: RubricForm,
    pub(crate) absolute_system: String,
    pub(crate) absolute_prompt: String,
    pub(crate) absolute_reference_prompt: String,
    pub(crate) pairwise_system: String,
    pub(crate) pairwise_prompt: String,
    score_ending: Ending,
    choice_ending: Ending,
    /// The form of a score.
    pub(crate) score: VerdictForm,
    /// The form of a choice between two answers.
    pub(crate) choice: VerdictForm,
}

/// The format of rubrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RubricForm {
    /// The criterion, with a place for `criterion`.
    pub(crate) criterion: String,
    /// The meaning of a score, with places for `score` and `meaning`.
    pub(crate) score: String,
}

/// The end of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Ending {
    /// For a judge that writes its reasons.
    with_reasons: String,
    /// For a judge that does not.
    alone: String,
}

impl Ending {
    /// The prompt with the ending for this feedback mode.
    fn of(&self, prompt: &str, feedback: FeedbackMode) -> String {
        let ending = match feedback {
            FeedbackMode::Always => &self.with_reasons,
            FeedbackMode::OnRequest => &self.alone,
        };
        crate::prompt::fill(prompt, &[(ENDING, ending.trim())])
    }
}

/// A profile that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the judge profile {name:?} cannot be used: {reason}")]
pub struct InvalidProfile {
    /// Its name.
    pub name: String,
    /// The reason why it is invalid.
    pub reason: String,
}

/// All profiles, by name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "BTreeMap<String, toml::Table>")]
pub struct JudgeProfiles(BTreeMap<String, JudgeProfile>);

impl JudgeProfiles {
    /// The profiles that hone ships with.
    ///
    /// # Panics
    /// If `config/judges.toml` is invalid; a test checks it.
    pub fn shipped() -> JudgeProfiles {
        toml::from_str(SHIPPED).expect("config/judges.toml is checked by a test")
    }

    /// The profile of this name.
    pub fn get(&self, name: &str) -> Option<&JudgeProfile> {
        self.0.get(name)
    }

    /// All profiles, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &JudgeProfile> {
        self.0.values()
    }

    /// The profile for the model of this name or path: the profile with the longest entry in `models` that the name or
    /// the file name contains, or else the profile for any instruct model.
    pub fn for_model(&self, model: &str) -> &JudgeProfile {
        let name = model.rsplit(['/', '\\']).next().unwrap_or(model).to_lowercase();
        let length = |profile: &JudgeProfile| {
            profile.models.iter().filter(|part| name.contains(part.as_str())).map(String::len).max()
        };
        let best =
            self.iter().filter_map(|profile| Some((length(profile)?, profile))).max_by_key(|(length, _)| *length);
        best.map_or(&self.0[PLAIN], |(_, profile)| profile)
    }
}

impl JudgeProfile {
    /// The shipped profile of this name.
    pub fn shipped(name: &str) -> Option<JudgeProfile> {
        JudgeProfiles::shipped().0.remove(name)
    }

    /// Maximum tokens that the judge thinks before its verdict; 0 if it does not think.
    pub fn thinking_tokens(&self) -> usize {
        self.score.thinking.tokens
    }

    /// The prompt of a grading.
    pub(crate) fn absolute(&self, has_reference: bool, feedback: FeedbackMode) -> String {
        let prompt = if has_reference { &self.absolute_reference_prompt } else { &self.absolute_prompt };
        self.score_ending.of(prompt, feedback)
    }

    /// The prompt of a comparison.
    pub(crate) fn pairwise(&self, feedback: FeedbackMode) -> String {
        self.choice_ending.of(&self.pairwise_prompt, feedback)
    }

    /// The form of a score.
    pub(crate) fn score_form(&self, feedback: FeedbackMode) -> Cow<'_, VerdictForm> {
        of_feedback(&self.score, &[&self.absolute_prompt, &self.absolute_reference_prompt], feedback)
    }

    /// The form of a choice between two answers.
    pub(crate) fn choice_form(&self, feedback: FeedbackMode) -> Cow<'_, VerdictForm> {
        of_feedback(&self.choice, &[&self.pairwise_prompt], feedback)
    }

    /// Limits the judge's thoughts to this many tokens; a judge that does not think is left unchanged.
    pub fn thinking_at_most(mut self, tokens: usize) -> JudgeProfile {
        for form in [&mut self.score, &mut self.choice] {
            form.thinking.tokens = form.thinking.tokens.min(tokens.max(1));
        }
        self
    }

    /// The criterion of a rubric and the meaning of each score, as this judge reads them. On a scale other than 1 to 5,
    /// each score means the same as the nearest of those five.
    pub fn written(&self, rubric: &Rubric) -> (String, String) {
        let labels = &self.score.labels;
        let criterion = crate::prompt::fill(&self.rubric.criterion, &[("criterion", rubric.criterion.trim())]);
        let line = |(index, label): (usize, &String)| {
            let meaning = &rubric.scores[labels.score(index).round() as usize - 1];
            crate::prompt::fill(&self.rubric.score, &[("score", label), ("meaning", meaning.trim())])
        };
        let lines: Vec<String> = labels.names().iter().enumerate().map(line).collect();
        (criterion, lines.join("\n"))
    }
}

/// The form of the verdict that these prompts ask for. Some of them may ask for the label alone.
fn of_feedback<'a>(form: &'a VerdictForm, prompts: &[&str], feedback: FeedbackMode) -> Cow<'a, VerdictForm> {
    match feedback {
        FeedbackMode::Always => Cow::Borrowed(form),
        FeedbackMode::OnRequest => {
            Cow::Owned(form.without_reasons(prompts.iter().all(|prompt| has_place(prompt, ENDING))))
        }
    }
}

#[cfg(test)]
mod tests;
