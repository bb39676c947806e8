//! The quality gate: accepts the work on a task, retries it, reassigns it, or leaves it to a person.
//!
//! It is a pure function of the findings of evaluators and critics, the attempts so far, and its configuration.

use hone_protocol::{CriticScore, EvaluationResult, EvaluationStatus, GateAction, GateDecision, Metrics};
use serde::{Deserialize, Serialize};

use crate::evaluator::EvaluationContext;
use crate::reviewers::{CRITIC, Reviewers};
use crate::rule_critic::{NAME, rule_critic, weighs};

/// The conditions for accepting work, and the consequences otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateConfig {
    /// The mean score, 0 to 1, from which work is accepted.
    pub threshold: f64,
    /// Maximum number of attempts after the first one.
    pub max_retries: usize,
    /// The number of attempts by an agent before the next one on the ladder gets the task.
    pub attempts_per_agent: usize,
    /// The agents, in order; callers without a ladder give the name of their only agent.
    pub ladder: Vec<String>,
    /// The critics to ask.
    pub critics: Vec<String>,
    /// Metrics that must each reach the threshold, averaged over the critics that reported them.
    pub required_metrics: Vec<String>,
    /// How an evaluator without a conclusion counts.
    pub unscored: WithoutScore,
    /// How an evaluator with nothing to evaluate counts.
    pub skipped: WithoutScore,
}

/// How a missing score counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithoutScore {
    /// Not at all.
    #[default]
    Neither,
    /// As passed, with full marks.
    Passed,
    /// As failed, with a score of 0.
    Failed,
}

/// The available critics.
const CRITICS: [&str; 2] = [NAME, CRITIC];

impl GateConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// Describes the first invalid value.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.threshold) {
            return Err(format!("threshold is {}: it must be 0 to 1", self.threshold));
        }
        if self.attempts_per_agent == 0 {
            return Err("attempts_per_agent is 0: it must be 1 or more".to_owned());
        }
        let check = |what: &str, names: &[String], known: &[&str]| match names
            .iter()
            .find(|name| !known.contains(&name.as_str()))
        {
            Some(name) => Err(format!("{what} has {name:?}: known are {}", known.join(", "))),
            None => Ok(()),
        };
        check("critics", &self.critics, &CRITICS)?;
        check("required_metrics", &self.required_metrics, &Metrics::NAMES)
    }
}

/// The configured critics' scores of the work and of the evaluators' findings.
pub fn criticize(
    config: &GateConfig,
    results: &[EvaluationResult],
    context: &EvaluationContext<'_>,
    reviewers: &Reviewers,
) -> Vec<CriticScore> {
    let criticize = |name: &String| match name.as_str() {
        CRITIC => reviewers.criticize(context, results, config.threshold),
        // `check` refuses other names.
        _ => rule_critic(results, config.threshold),
    };
    config.critics.iter().map(criticize).collect()
}

/// Decides about the latest attempt. `agents` are the agents of all attempts so far, the latest last.
pub fn decide(
    config: &GateConfig,
    results: &[EvaluationResult],
    critics: &[CriticScore],
    agents: &[&str],
) -> GateDecision {
    let mean = mean_score(config, results, critics);
    let decision = |action, reason: String, agent: Option<&str>| GateDecision {
        action,
        reason,
        score: mean,
        agent: agent.map(str::to_owned),
        feedback: String::new(),
    };
    if !results.iter().any(|result| result.score().is_some()) {
        // Another attempt would not be evaluated, either.
        let why = why_nothing_ran(results);
        return decision(GateAction::Escalate, format!("no evaluator came to a conclusion{why}"), None);
    }
    let Some(obstacle) = obstacle(config, results, critics, mean) else {
        let score = mean.unwrap_or_default();
        return decision(GateAction::Accept, format!("the score {score:.2} reaches {:.2}", config.threshold), None);
    };
    let next = next_agent(config, agents);
    let (action, reason) = match next {
        None => (GateAction::Escalate, format!("{obstacle}, and {} attempts are all there are", agents.len())),
        Some(agent) if agents.last() == Some(&agent) => (GateAction::Retry, obstacle),
        Some(agent) => (GateAction::Reassign, format!("{obstacle}, and {agent} is next")),
    };
    let feedback = if next.is_some() { feedback(results, critics) } else { String::new() };
    GateDecision { feedback, ..decision(action, reason, next) }
}

/// The mean score of critics and evaluators. Results weighed by the rule-based critic do not count again.
fn mean_score(config: &GateConfig, results: &[EvaluationResult], critics: &[CriticScore]) -> Option<f64> {
    let has_rules = critics.iter().any(|critic| critic.critic == NAME && critic.score.is_some());
    let is_weighed = |result: &&EvaluationResult| has_rules && result.score().is_some() && weighs(result);
    let of_evaluators = results.iter().filter(|result| !is_weighed(result)).filter_map(|result| score(config, result));
    let scores: Vec<f64> = of_evaluators.chain(critics.iter().filter_map(|critic| critic.score)).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
}

/// The agent of the next attempt; `None` if all attempts are used up.
fn next_agent<'a>(config: &'a GateConfig, agents: &[&'a str]) -> Option<&'a str> {
    let current = *agents.last()?;
    if agents.len() > config.max_retries {
        return None;
    }
    let in_a_row = agents.iter().rev().take_while(|agent| **agent == current).count();
    let place = config.ladder.iter().position(|agent| agent == current);
    let after = place.and_then(|place| config.ladder.get(place + 1)).map(String::as_str);
    Some(after.filter(|_| in_a_row >= config.attempts_per_agent).unwrap_or(current))
}

/// The reason why the work cannot be accepted; `None` if it can.
fn obstacle(
    config: &GateConfig,
    results: &[EvaluationResult],
    critics: &[CriticScore],
    mean: Option<f64>,
) -> Option<String> {
    if let Some((result, issue)) = results.iter().find_map(|result| Some((result, result.blocking_issues().next()?))) {
        return Some(format!("{} blocks: {issue}", result.evaluator));
    }
    let counts_as_failed = |result: &&EvaluationResult| match result.status {
        EvaluationStatus::Unscored { .. } => config.unscored == WithoutScore::Failed,
        EvaluationStatus::Skipped { .. } => config.skipped == WithoutScore::Failed,
        EvaluationStatus::Passed { .. } | EvaluationStatus::Failed { .. } => false,
    };
    if let Some(result) = results.iter().find(counts_as_failed) {
        return Some(format!("{} has no score, which counts as failed: {}", result.evaluator, result.feedback));
    }
    for name in &config.required_metrics {
        let values: Vec<f64> = critics.iter().filter_map(|critic| critic.metrics.get(name)).collect();
        let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        match mean {
            None => return Some(format!("the required metric {name} could not be told")),
            Some(value) if value < config.threshold => {
                return Some(format!("the required metric {name} is {value:.2}, below {:.2}", config.threshold));
            }
            Some(_) => {}
        }
    }
    let score = mean.unwrap_or_default();
    (score < config.threshold).then(|| format!("the score {score:.2} is below {:.2}", config.threshold))
}

fn score(config: &GateConfig, result: &EvaluationResult) -> Option<f64> {
    let as_configured = |counts| match counts {
        WithoutScore::Neither => None,
        WithoutScore::Passed => Some(1.0),
        WithoutScore::Failed => Some(0.0),
    };
    match result.status {
        EvaluationStatus::Passed { score } | EvaluationStatus::Failed { score } => Some(score),
        EvaluationStatus::Unscored { .. } => as_configured(config.unscored),
        EvaluationStatus::Skipped { .. } => as_configured(config.skipped),
    }
}

fn why_nothing_ran(results: &[EvaluationResult]) -> String {
    let reasons: Vec<String> = results
        .iter()
        .filter_map(|result| match &result.status {
            EvaluationStatus::Skipped { reason } | EvaluationStatus::Unscored { reason } => {
                Some(format!("{}: {reason}", result.evaluator))
            }
            EvaluationStatus::Passed { .. } | EvaluationStatus::Failed { .. } => None,
        })
        .collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}

/// Lines shorter than this, in bytes, may be repeated.
const SHORTEST_REPEATED: usize = 12;

/// Feedback for the next attempt, most important first, without duplicates.
pub(crate) fn feedback(results: &[EvaluationResult], critics: &[CriticScore]) -> String {
    let mut lines: Vec<String> = Vec::new();
    // A suggestion or a critic may repeat a part of another line.
    let mut add = |text: String| {
        let is_new = |line: &&str| {
            let said = line.trim();
            said.len() < SHORTEST_REPEATED
                || !lines.iter().any(|known| known.lines().any(|known| known.trim().ends_with(said)))
        };
        let new: Vec<&str> = text.lines().filter(is_new).collect();
        if new.iter().any(|line| !line.trim().is_empty()) {
            lines.push(new.join("\n"));
        }
    };
    for result in results.iter().filter(|result| result.is_failed()) {
        add(format!("{}: {}", result.evaluator, result.feedback));
        result.suggestions.iter().for_each(|suggestion| add(format!("- {suggestion}")));
        let evidence = result.failed_criteria().filter_map(|criterion| criterion.evidence.as_deref());
        evidence.for_each(|evidence| add(evidence.trim().to_owned()));
    }
    for critic in critics.iter().filter(|critic| !critic.passed) {
        add(critic.feedback.clone());
        critic.suggestions.iter().for_each(|suggestion| add(format!("- {suggestion}")));
    }
    lines.join("\n")
}
