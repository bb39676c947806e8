//! Evaluators of the work on a task, and their context.

use hone_protocol::{Category, EvaluationResult, EvaluationStatus};

use crate::assignment::Assignment;

/// Evaluates the work on a task. It never fails: an evaluator that cannot reach a conclusion states the reason in its
/// result.
pub trait Evaluator: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;
    /// The category of its findings.
    fn category(&self) -> Category;
    /// Whether the same work always gets the same result.
    fn is_deterministic(&self) -> bool;
    /// Evaluates the output of a phase.
    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult;
}

/// The context of an evaluation.
#[derive(Clone, Copy)]
pub struct EvaluationContext<'a> {
    /// The phase.
    pub phase: &'a str,
    /// The agent's answer.
    pub output: &'a str,
    /// The task.
    pub assignment: &'a Assignment,
    /// The files as they are now.
    pub workspace: &'a dyn WorkspaceFiles,
    /// The paths of files that the attempts have changed, added or removed; `None` if unknown.
    pub changed: Option<&'a [String]>,
    /// The changes as a unified diff; empty if they are unknown.
    pub diff: &'a str,
    /// The plans that the phase writes, if any.
    pub plans: Option<Plans<'a>>,
}

/// The files of a phase that are not part of the result: plans for the task.
#[derive(Clone, Copy)]
pub struct Plans<'a> {
    /// Their paths.
    pub files: &'a [String],
    /// The whole task.
    pub task: &'a Assignment,
}

/// The files of a workspace. Paths are relative to it, with `/` between their parts.
pub trait WorkspaceFiles {
    /// The text of a file; `None` if it does not exist, is not text, or is not part of the workspace.
    fn text(&self, path: &str) -> Option<String>;
    /// Whether the path is a file or a folder.
    fn exists(&self, path: &str) -> bool;
    /// The paths of all files, except those of tools and version control.
    fn paths(&self) -> Vec<String>;
}

/// The result of a rule without criteria.
pub(crate) fn bare_result(
    name: &str,
    category: Category,
    status: EvaluationStatus,
    feedback: String,
) -> EvaluationResult {
    EvaluationResult {
        evaluator: name.to_owned(),
        category,
        deterministic: true,
        status,
        feedback,
        criteria: Vec::new(),
        suggestions: Vec::new(),
        tests: None,
        not_contained: Vec::new(),
        seconds: 0.0,
    }
}
