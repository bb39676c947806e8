//! Prompts to models about the work on a task, and their responses.

use std::time::Duration;

use hone_judging::{ReviewLimits, has_place};
use serde::Deserialize;

/// Settings for the evaluation of work on a task by models: `review.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewSettings {
    /// The model that reviews; empty for the judge of answers.
    pub model: String,
    /// The phases whose code quality is reviewed.
    pub phases: Vec<String>,
    /// The phases whose work is graded like answers.
    pub graded_phases: Vec<String>,
    /// Maximum tokens of a review.
    pub max_tokens: usize,
    /// Time limit of a review in seconds, not counting time spent waiting.
    pub timeout: f64,
    /// The prompt of the code quality evaluator, with places for the texts.
    pub code_quality_prompt: String,
    /// The critic's prompt, with places for the texts.
    pub critic_prompt: String,
}

impl ReviewSettings {
    /// Checks every value.
    ///
    /// # Errors
    /// Describes the first invalid value.
    pub fn check(&self) -> Result<(), String> {
        ReviewLimits::check(self.max_tokens, self.timeout)?;
        let shows_work = |prompt: &str| has_place(prompt, "work") || has_place(prompt, "changes");
        for (key, prompt) in
            [("code_quality_prompt", &self.code_quality_prompt), ("critic_prompt", &self.critic_prompt)]
        {
            if !shows_work(prompt) {
                return Err(format!("{key} has no place for the work: write {{work}} or {{changes}} where it belongs"));
            }
        }
        Ok(())
    }

    /// Limits on the length and duration of a review.
    pub(crate) fn limits(&self) -> ReviewLimits {
        ReviewLimits { max_tokens: self.max_tokens, timeout: Duration::from_secs_f64(self.timeout) }
    }
}

/// The content of a code quality review.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CodeQualitySaid {
    pub(crate) overall_assessment: String,
    pub(crate) score: f64,
    pub(crate) criteria_results: Vec<CriterionSaid>,
    pub(crate) suggestions: Vec<String>,
    pub(crate) blocking_issues: Vec<String>,
}

/// The assessment of one criterion.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CriterionSaid {
    pub(crate) criterion: String,
    pub(crate) passed: bool,
    pub(crate) score: f64,
    pub(crate) message: String,
}

/// The content of a critic's review.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CriticSaid {
    pub(crate) feedback: String,
    pub(crate) suggestions: Vec<String>,
    pub(crate) metrics: hone_protocol::Metrics,
}
