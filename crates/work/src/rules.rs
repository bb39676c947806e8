//! Evaluators that are rules about the files of a workspace: they need no program.

mod plan;

use hone_protocol::{Category, CriterionResult, EvaluationResult, EvaluationStatus, TestCounts};

use crate::assignment::TaskRequirement;
use crate::evaluator::{EvaluationContext, Evaluator, WorkspaceFiles, bare_result};

use plan::PlanHolds;

/// The rules, in the order in which they are shown.
pub fn rules() -> Vec<Box<dyn Evaluator>> {
    vec![Box::new(FilesExist), Box::new(PlanHolds), Box::new(RequirementsMet), Box::new(WithinPaths)]
}

/// The name of the rule about files.
pub(crate) const FILES: &str = "files";
/// The name of the rule about requirements.
pub(crate) const REQUIREMENTS: &str = "requirements";
/// The name of the rule about the number of tests.
pub(crate) const REGRESSIONS: &str = "tests-kept";

/// The files that the task names are there.
struct FilesExist;

impl Evaluator for FilesExist {
    fn name(&self) -> &str {
        FILES
    }

    fn category(&self) -> Category {
        Category::Correctness
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        let criteria = context.assignment.files.iter().map(|path| {
            let exists = context.workspace.exists(path);
            criterion(path, exists, if exists { format!("{path} exists") } else { format!("{path} is missing") })
        });
        conclude(self.name(), self.category(), criteria.collect(), "the task names no files", "create")
    }
}

/// The requirements that name a file are met.
struct RequirementsMet;

impl Evaluator for RequirementsMet {
    fn name(&self) -> &str {
        REQUIREMENTS
    }

    fn category(&self) -> Category {
        Category::Correctness
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        let requirements = context.assignment.requirements.iter();
        let criteria = requirements.filter_map(|requirement| check(requirement, context.workspace)).collect();
        conclude(
            self.name(),
            self.category(),
            criteria,
            "no requirement names a file that shows it",
            "meet the requirement:",
        )
    }
}

fn check(requirement: &TaskRequirement, workspace: &dyn WorkspaceFiles) -> Option<CriterionResult> {
    let TaskRequirement { text, file, contains } = requirement;
    let file = file.as_ref()?;
    let (is_met, why) = match (contains, workspace.text(file)) {
        (None, _) => (workspace.exists(file), format!("{file} is missing")),
        (Some(part), Some(content)) => (content.contains(part), format!("{file} does not contain {part:?}")),
        (Some(_), None) => (false, format!("{file} is missing, or is not a text")),
    };
    Some(criterion(text, is_met, if is_met { text.clone() } else { format!("{text}: {why}") }))
}

/// The work changes only the paths that the task allows.
struct WithinPaths;

impl Evaluator for WithinPaths {
    fn name(&self) -> &str {
        "within-paths"
    }

    fn category(&self) -> Category {
        Category::Compliance
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        let Some(changed) = context.changed.filter(|_| !context.assignment.paths.is_empty()) else {
            return skipped(self.name(), self.category(), "the task allows all paths, or what has changed is unknown");
        };
        let outside: Vec<CriterionResult> = changed
            .iter()
            .filter(|path| !context.assignment.allows(path))
            .map(|path| criterion(path, false, format!("{path} is outside of the paths that the task allows")))
            .collect();
        match outside.is_empty() {
            true => {
                let message = format!("{} changed files are where the task allows them", changed.len());
                conclude(self.name(), self.category(), vec![criterion("paths", true, message)], "", "")
            }
            false => conclude(self.name(), self.category(), outside, "", "leave as it was:"),
        }
    }
}

/// No tests are lost and none disabled: a rule about two runs of the same tests. `before` is what the tools counted in
/// the workspace before the work.
pub fn tests_kept(before: &[(String, TestCounts)], results: &[EvaluationResult]) -> EvaluationResult {
    let pairs = before.iter().filter_map(|(tool, before)| {
        let after = results.iter().find(|result| result.evaluator == *tool)?;
        // Tests that cannot be run are their own tool's finding.
        after.score()?;
        Some((tool, *before, after.tests?))
    });
    let mut criteria = Vec::new();
    for (tool, before, after) in pairs {
        let is_fewer = after.total() < before.total();
        let message = format!("{tool} counts {} tests, {} before", after.total(), before.total());
        criteria.push(criterion("no fewer tests", !is_fewer, message));
        let message = format!("{tool} skips {} tests, {} before", after.skipped, before.skipped);
        criteria.push(criterion("no tests disabled", after.skipped <= before.skipped, message));
    }
    conclude(REGRESSIONS, Category::TestCoverage, criteria, "there were no tests before", "restore tests:")
}

fn criterion(name: &str, passed: bool, message: String) -> CriterionResult {
    let score = if passed { 1.0 } else { 0.0 };
    CriterionResult { criterion: name.to_owned(), passed, score, message, evidence: None }
}

fn skipped(name: &str, category: Category, reason: &str) -> EvaluationResult {
    bare_result(name, category, EvaluationStatus::Skipped { reason: reason.to_owned() }, reason.to_owned())
}

/// The share of criteria that hold; all must.
fn conclude(
    name: &str,
    category: Category,
    criteria: Vec<CriterionResult>,
    nothing: &str,
    advice: &str,
) -> EvaluationResult {
    let failed: Vec<&CriterionResult> = criteria.iter().filter(|criterion| !criterion.passed).collect();
    if criteria.is_empty() {
        return skipped(name, category, nothing);
    }
    let score = (criteria.len() - failed.len()) as f64 / criteria.len() as f64;
    let suggestions = failed.iter().map(|criterion| format!("{advice} {}", criterion.message)).collect();
    let (status, feedback) = match failed.first() {
        None => (EvaluationStatus::Passed { score }, format!("{} of {} hold", criteria.len(), criteria.len())),
        Some(first) => (EvaluationStatus::Failed { score }, first.message.clone()),
    };
    EvaluationResult { criteria, suggestions, ..bare_result(name, category, status, feedback) }
}
