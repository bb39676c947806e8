//! The findings of evaluators and critics about the work on a task, and the gate's decisions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::TaskId;

/// The aspect that an evaluator examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Whether the work works.
    Functionality,
    /// Whether it computes correct results.
    Correctness,
    /// Whether it is safe.
    Security,
    /// Whether it is fast enough.
    Performance,
    /// Whether it can be read and changed.
    Maintainability,
    /// Whether it follows rules and types.
    Compliance,
    /// Whether it is tested enough.
    TestCoverage,
}

/// The result of one of an evaluator's checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriterionResult {
    /// The criterion.
    pub criterion: String,
    /// Whether it holds.
    pub passed: bool,
    /// How far it holds, 0 to 1.
    pub score: f64,
    /// The finding.
    pub message: String,
    /// A supporting excerpt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

impl CriterionResult {
    /// Whether it fails so badly that the work cannot be accepted, regardless of other criteria.
    pub fn is_blocking(&self) -> bool {
        !self.passed && self.score < 0.5
    }
}

/// The conclusion of an evaluator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum EvaluationStatus {
    /// The work is good enough.
    Passed {
        /// How good it is, 0 to 1.
        score: f64,
    },
    /// The work is not good enough.
    Failed {
        /// How good it is, 0 to 1.
        score: f64,
    },
    /// There was nothing to evaluate, or no tool for it.
    Skipped {
        /// Why.
        reason: String,
    },
    /// The evaluator could not come to a conclusion.
    Unscored {
        /// Why.
        reason: String,
    },
}

/// Test counts by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed, including those that could not be started.
    pub failed: usize,
    /// Tests that are disabled or were skipped.
    pub skipped: usize,
}

impl TestCounts {
    /// The number of all tests.
    pub fn total(self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

/// An evaluator's findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationResult {
    /// The evaluator.
    pub evaluator: String,
    /// The aspect examined.
    pub category: Category,
    /// Whether the same work always gets the same result.
    pub deterministic: bool,
    /// Its conclusion.
    #[serde(flatten)]
    pub status: EvaluationStatus,
    /// The conclusion in a sentence, for the author of the work.
    pub feedback: String,
    /// The individual checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<CriterionResult>,
    /// Suggested improvements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
    /// Counts of the tests that were run; `None` if there were none to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Aspects that were not contained while it ran; empty if all were, or nothing ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_contained: Vec<String>,
    /// How long it took.
    #[serde(default)]
    pub seconds: f64,
}

impl EvaluationResult {
    /// The score, 0 to 1; `None` if there is none.
    pub fn score(&self) -> Option<f64> {
        match self.status {
            EvaluationStatus::Passed { score } | EvaluationStatus::Failed { score } => Some(score),
            EvaluationStatus::Skipped { .. } | EvaluationStatus::Unscored { .. } => None,
        }
    }

    /// Whether the conclusion is that the work is good enough.
    pub fn is_passed(&self) -> bool {
        matches!(self.status, EvaluationStatus::Passed { .. })
    }

    /// Whether the conclusion is that the work is not good enough.
    pub fn is_failed(&self) -> bool {
        matches!(self.status, EvaluationStatus::Failed { .. })
    }

    /// The criteria that do not hold.
    pub fn failed_criteria(&self) -> impl Iterator<Item = &CriterionResult> {
        self.criteria.iter().filter(|criterion| !criterion.passed)
    }

    /// The issues that must be fixed before the work can be accepted.
    pub fn blocking_issues(&self) -> impl Iterator<Item = &str> {
        self.criteria.iter().filter(|criterion| criterion.is_blocking()).map(|criterion| criterion.message.as_str())
    }
}

/// A critic's metrics, each 0 to 1; `None` where it could not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Whether the work does what the task asks.
    pub correctness: Option<f64>,
    /// Whether the work does everything that the task asks.
    pub completeness: Option<f64>,
    /// Whether it is clean.
    pub code_quality: Option<f64>,
    /// Whether it is tested.
    pub test_coverage: Option<f64>,
}

impl Metrics {
    /// The names of the metrics.
    pub const NAMES: [&str; 4] = ["correctness", "completeness", "code_quality", "test_coverage"];

    /// The metric with this name; `None` if it does not exist or could not be determined.
    pub fn get(&self, name: &str) -> Option<f64> {
        let values = [self.correctness, self.completeness, self.code_quality, self.test_coverage];
        Metrics::NAMES.iter().zip(values).find_map(|(known, value)| (*known == name).then_some(value)?)
    }
}

/// A critic's opinion of the work as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriticScore {
    /// The critic.
    pub critic: String,
    /// How good the work is, 0 to 1; `None` if it could not tell.
    pub score: Option<f64>,
    /// Whether the score reaches the threshold.
    pub passed: bool,
    /// The problems found.
    pub feedback: String,
    /// Suggested improvements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
    /// The score in parts.
    pub metrics: Metrics,
    /// The checks behind it, one a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// The next step for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateAction {
    /// It is accepted.
    Accept,
    /// Another attempt by the same agent.
    Retry,
    /// An attempt by the next agent.
    Reassign,
    /// A person decides.
    Escalate,
}

impl fmt::Display for GateAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GateAction::Accept => "accept",
            GateAction::Retry => "retry",
            GateAction::Reassign => "reassign",
            GateAction::Escalate => "escalate",
        })
    }
}

/// The gate's decision about an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateDecision {
    /// The next step.
    pub action: GateAction,
    /// Why.
    pub reason: String,
    /// The mean of all scores, 0 to 1; `None` if there is none.
    pub score: Option<f64>,
    /// The agent of the next attempt; `None` if there is none.
    pub agent: Option<String>,
    /// Feedback for the agent of the next attempt; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub feedback: String,
}

/// An attempt at a phase of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkStep {
    /// The task.
    pub task: TaskId,
    /// The name for tasks of its kind; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The phase.
    pub phase: String,
    /// The attempt's number, from 1.
    pub attempt: usize,
    /// The model that makes it.
    pub agent: String,
}

/// An attempt and the findings of evaluators and critics about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkEvaluated {
    /// The attempt.
    #[serde(flatten)]
    pub step: WorkStep,
    /// Whether the gate accepts it.
    pub passed: bool,
    /// The mean of all scores, 0 to 1; `None` if there is none.
    pub score: Option<f64>,
    /// The evaluators' findings.
    pub results: Vec<EvaluationResult>,
    /// The critics' opinions.
    pub critics: Vec<CriticScore>,
}

/// An attempt and the gate's decision about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkDecided {
    /// The attempt.
    #[serde(flatten)]
    pub step: WorkStep,
    /// The decision.
    pub decision: GateDecision,
}
