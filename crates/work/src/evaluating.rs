//! Evaluates the work on a task: runs the configured tools, contained, and the rules about files.

mod directory;
mod programs;
mod tool_evaluator;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hone_containment::Launcher;
use hone_protocol::{EvaluationResult, TestCounts};

use crate::{EvaluationContext, Evaluator, EvaluatorTool, Reviewers, rules, spared, tests_kept};

pub use directory::DirectoryFiles;
pub(crate) use directory::{ListedFile, is_work};
use tool_evaluator::ToolEvaluator;

/// Whether the evaluation is no longer wanted.
type CancellationCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// The settings that tools run with.
#[derive(Clone)]
pub struct ToolSettings {
    /// Runs their commands.
    pub launcher: Launcher,
    /// The folder that they evaluate, as an absolute path.
    pub workspace: PathBuf,
    /// The caller's environment variables; tools get the ones they need.
    pub environment: Vec<(String, String)>,
    /// Stops the tools early.
    pub is_cancelled: CancellationCheck,
}

/// The evaluators of every phase.
pub struct EvaluatorSet {
    tools: Vec<ToolEvaluator>,
    rules: Vec<Box<dyn Evaluator>>,
    reviewers: Reviewers,
}

impl EvaluatorSet {
    /// A set of these tools, all rules, and the reviewers.
    pub fn new(tools: Vec<EvaluatorTool>, settings: &ToolSettings, reviewers: Reviewers) -> EvaluatorSet {
        let tools = tools.into_iter().map(|tool| ToolEvaluator::new(tool, settings.clone())).collect();
        EvaluatorSet { tools, rules: rules(), reviewers }
    }

    /// The evaluators of a phase that ask no model, in the order in which they run.
    fn deterministic<'a>(&'a self, phase: &'a str) -> impl Iterator<Item = &'a dyn Evaluator> {
        let tools = self.tools.iter().filter(move |tool| tool.is_for_phase(phase)).map(|tool| tool as &dyn Evaluator);
        tools.chain(self.rules.iter().map(|rule| rule.as_ref()))
    }

    /// The reviewers, which ask models.
    pub fn reviewers(&self) -> &Reviewers {
        &self.reviewers
    }

    /// Runs every evaluator of the phase, and passes on each result as it arrives. `before` is the result of `tests_in`
    /// before the work; `None` if there was none. Models are asked only if no result blocks the work.
    pub fn evaluate(
        &self,
        context: &EvaluationContext<'_>,
        before: Option<&[(String, TestCounts)]>,
        heard: &mut dyn FnMut(&EvaluationResult),
    ) -> Vec<EvaluationResult> {
        let mut results: Vec<EvaluationResult> = Vec::new();
        for evaluator in self.deterministic(context.phase) {
            let result = evaluator.evaluate(context);
            heard(&result);
            results.push(result);
        }
        if let Some(before) = before {
            let result = tests_kept(before, &results);
            heard(&result);
            results.push(result);
        }
        for evaluator in self.reviewers.of_phase(context.phase) {
            let began = Instant::now();
            let mut result = spared(evaluator, &results).unwrap_or_else(|| evaluator.evaluate(context));
            result.seconds = began.elapsed().as_secs_f64();
            heard(&result);
            results.push(result);
        }
        results
    }

    /// The test counts of a phase's tools in the current workspace.
    pub(crate) fn tests_in(&self, context: &EvaluationContext<'_>) -> Vec<(String, TestCounts)> {
        let tools = self.tools.iter().filter(|tool| tool.is_for_phase(context.phase) && tool.counts_tests());
        let results = tools.map(|tool| tool.evaluate(context));
        results.filter_map(|result| Some((result.evaluator, result.tests?))).collect()
    }

    /// The results of all tools that run tests in the current workspace, whichever phase they evaluate.
    pub(crate) fn test(&self, context: &EvaluationContext<'_>) -> Vec<EvaluationResult> {
        self.tools.iter().filter(|tool| tool.counts_tests()).map(|tool| tool.evaluate(context)).collect()
    }
}
