//! What models are asked about the work on a task, and what they say.

use std::time::Duration;

use hone_judging::{ReviewLimits, has_place};
use serde::Deserialize;

/// How models evaluate the work on a task: `review.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewSettings {
    /// The model that reviews; empty for the judge of answers.
    pub model: String,
    /// The phases whose code quality is reviewed.
    pub phases: Vec<String>,
    /// The phases whose work is graded as answers are.
    pub graded_phases: Vec<String>,
    /// The most tokens of a review.
    pub max_tokens: usize,
    /// How long a review may take, in seconds, not counting time spent waiting.
    pub timeout: f64,
    /// What the evaluator of code quality asks, with places for the texts.
    pub code_quality_prompt: String,
    /// What the critic asks, with places for the texts.
    pub critic_prompt: String,
}

impl ReviewSettings {
    /// Checks every value.
    ///
    /// # Errors
    /// What is wrong with the first invalid one.
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

    /// How long a review may be and take.
    pub(crate) fn limits(&self) -> ReviewLimits {
        ReviewLimits { max_tokens: self.max_tokens, timeout: Duration::from_secs_f64(self.timeout) }
    }
}

/// What a review of code quality says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CodeQualitySaid {
    pub(crate) overall_assessment: String,
    pub(crate) score: f64,
    pub(crate) criteria_results: Vec<CriterionSaid>,
    pub(crate) suggestions: Vec<String>,
    pub(crate) blocking_issues: Vec<String>,
}

/// What it says about a criterion.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CriterionSaid {
    pub(crate) criterion: String,
    pub(crate) passed: bool,
    pub(crate) score: f64,
    pub(crate) message: String,
}

/// What the review of a critic says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CriticSaid {
    pub(crate) feedback: String,
    pub(crate) suggestions: Vec<String>,
    pub(crate) metrics: hone_protocol::Metrics,
}
