//! The evaluators of a workspace according to the configuration, and what they find as lines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hone_protocol::{CriticScore, EvaluationResult, EvaluationStatus, GateAction, GateDecision};
use hone_work::{Assignment, EvaluatorSet, EvaluatorTool, Reviewers, ToolSettings};
use nu_ansi_term::Color;

use crate::arguments::WorkspaceFlags;
use crate::config::{EVALUATORS, Places};
use crate::contained;
use crate::failure::usage;
use crate::terminal::{Line, Output};

/// What tools run with in a workspace, and the tools.
pub(crate) struct Tools {
    /// The configured tools.
    pub(crate) tools: Vec<EvaluatorTool>,
    /// What they run with.
    pub(crate) settings: ToolSettings,
}

/// The evaluators of a workspace.
pub(crate) struct Evaluation {
    /// The workspace, as an absolute path.
    pub(crate) workspace: PathBuf,
    /// Its evaluators.
    pub(crate) evaluators: EvaluatorSet,
}

impl Evaluation {
    /// Reads the configured tools; they run nothing yet.
    ///
    /// # Errors
    /// When a table of a tool is not valid, the workspace does not exist, or this system contains less than required.
    pub(crate) fn open(flags: &WorkspaceFlags, reviewers: Reviewers) -> anyhow::Result<Evaluation> {
        let Tools { tools, settings } = Tools::open(flags)?;
        let evaluators = EvaluatorSet::new(tools, &settings, reviewers);
        Ok(Evaluation { workspace: settings.workspace, evaluators })
    }
}

impl Tools {
    /// Reads the configured tools; they run nothing yet.
    ///
    /// # Errors
    /// When a table of a tool is not valid, the workspace does not exist, or this system contains less than required.
    pub(crate) fn open(flags: &WorkspaceFlags) -> anyhow::Result<Tools> {
        let workspace = flags.workspace.canonicalize();
        let workspace = workspace.with_context(|| format!("cannot use the workspace {}", flags.workspace.display()))?;
        if !workspace.is_dir() {
            return Err(usage(format!("the workspace {} is not a folder", workspace.display())));
        }
        let tools = EvaluatorTool::all(&Places::of_this_process().tables(EVALUATORS)?)
            .map_err(|wrong| usage(format!("{EVALUATORS}.toml: {wrong}")))?;
        let launcher = contained::launcher()?;
        if flags.require_containment {
            let containment = launcher.containment().context("cannot tell how commands are contained")?;
            anyhow::ensure!(containment.is_complete(), "nothing is run, because it would be {containment}");
        }
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let settings = ToolSettings { launcher, workspace, environment, is_cancelled: Arc::new(|| false) };
        Ok(Tools { tools, settings })
    }
}

/// Reads a task's file.
///
/// # Errors
/// When it cannot be read, or is not valid.
pub(crate) fn read_assignment(path: &Path) -> anyhow::Result<Assignment> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Assignment::parse(&text).map_err(|invalid| usage(format!("{}: {invalid}", path.display())))
}

/// Prints what an evaluator found.
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
