//! The findings of a workspace's evaluators, as lines.

use hone_protocol::{CriticScore, EvaluationResult, EvaluationStatus, GateAction, GateDecision};
use nu_ansi_term::Color;

use crate::terminal::{Line, Output};

/// Prints an evaluator's findings.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn print_result(output: Output, result: &EvaluationResult) -> anyhow::Result<()> {
    output.print_marked_line(&result_line(result))?;
    for suggestion in &result.suggestions {
        output.print_line(&format!("    {suggestion}"))?;
    }
    if !result.not_contained.is_empty() {
        output.print_line(&format!("    not contained: {}", result.not_contained.join("; ")))?;
    }
    Ok(())
}

/// A result in a line.
fn result_line(result: &EvaluationResult) -> Line {
    let EvaluationResult { evaluator, feedback, .. } = result;
    let (color, mark, score) = match &result.status {
        EvaluationStatus::Passed { score } => (Color::Green, "✓", format!("{score:.2}")),
        EvaluationStatus::Failed { score } => (Color::Red, "✗", format!("{score:.2}")),
        EvaluationStatus::Skipped { .. } => (Color::DarkGray, "-", "skip".to_owned()),
        EvaluationStatus::Unscored { .. } => (Color::Yellow, "?", "none".to_owned()),
    };
    let first = feedback.lines().next().unwrap_or_default();
    Line::marked(color, mark, format!("{evaluator:<14} {score:>4}  {first}"))
}

/// A critic's score in a line.
pub(crate) fn critic_line(critic: &CriticScore) -> String {
    let score = critic.score.map_or("none".to_owned(), |score| format!("{score:.2}"));
    format!("critic {:<9} {score:>4}  {}", critic.critic, critic.evidence.join(", "))
}

/// A decision in a line.
pub(crate) fn decision_line(decision: &GateDecision) -> Line {
    let color = match decision.action {
        GateAction::Accept => Color::Green,
        GateAction::Retry | GateAction::Reassign => Color::Yellow,
        GateAction::Escalate => Color::Red,
    };
    Line::marked(color, decision.action.to_string(), decision.reason.clone())
}
