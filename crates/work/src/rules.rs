//! Evaluators that are rules about the files of a workspace and need no program.

mod plan;

use hone_protocol::{Category, CriterionResult, EvaluationResult, EvaluationStatus, TestCounts};

use crate::assignment::TaskRequirement;
use crate::evaluator::{EvaluationContext, Evaluator, WorkspaceFiles, bare_result};

/// The rules, in display order.
pub fn rules() -> Vec<Box<dyn Evaluator>> {
    [FILES_EXIST, plan::PLAN_HOLDS, REQUIREMENTS_MET, WITHIN_PATHS]
        .map(|rule| Box::new(rule) as Box<dyn Evaluator>)
        .into()
}

/// The name of the rule about files.
pub(crate) const FILES: &str = "files";
/// The name of the rule about requirements.
pub(crate) const REQUIREMENTS: &str = "requirements";
/// The name of the rule about the number of tests.
pub(crate) const REGRESSIONS: &str = "tests-kept";

/// A rule about the files of a workspace.
struct Rule {
    name: &'static str,
    category: Category,
    /// The criteria that apply; all must be met.
    criteria: fn(&EvaluationContext<'_>) -> Vec<CriterionResult>,
    /// The reason for skipping the rule if no criterion applies.
    skipped_because: &'static str,
    /// The beginning of the suggestion for a criterion that is not met.
    advice: &'static str,
}

impl Evaluator for Rule {
    fn name(&self) -> &str {
        self.name
    }

    fn category(&self) -> Category {
        self.category
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        conclude(self.name, self.category, (self.criteria)(context), self.skipped_because, self.advice)
    }
}

/// The files that the task names exist.
const FILES_EXIST: Rule = Rule {
    name: FILES,
    category: Category::Correctness,
    criteria: |context| {
        let paths = context.assignment.files.iter();
        let checked = paths.map(|path| {
            let exists = context.workspace.exists(path);
            criterion(path, exists, if exists { format!("{path} exists") } else { format!("{path} is missing") })
        });
        checked.collect()
    },
    skipped_because: "the task names no files",
    advice: "create",
};

/// The requirements that name a file are met.
const REQUIREMENTS_MET: Rule = Rule {
    name: REQUIREMENTS,
    category: Category::Correctness,
    criteria: |context| {
        let requirements = context.assignment.requirements.iter();
        requirements.filter_map(|requirement| check(requirement, context.workspace)).collect()
    },
    skipped_because: "no requirement names a file that shows it",
    advice: "meet the requirement:",
};

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
const WITHIN_PATHS: Rule = Rule {
    name: "within-paths",
    category: Category::Compliance,
    criteria: |context| {
        let Some(changed) = context.changed.filter(|_| !context.assignment.paths.is_empty()) else { return Vec::new() };
        let outside: Vec<CriterionResult> = changed
            .iter()
            .filter(|path| !context.assignment.allows(path))
            .map(|path| criterion(path, false, format!("{path} is outside of the paths that the task allows")))
            .collect();
        match outside.is_empty() {
            true => {
                let message = format!("{} changed files are where the task allows them", changed.len());
                vec![criterion("paths", true, message)]
            }
            false => outside,
        }
    },
    skipped_because: "the task allows all paths, or what has changed is unknown",
    advice: "leave as it was:",
};

/// No tests were lost or disabled: a rule about two runs of the same tests. `before` is the tools' counts in the
/// workspace before the work.
pub fn tests_kept(before: &[(String, TestCounts)], results: &[EvaluationResult]) -> EvaluationResult {
    let pairs = before.iter().filter_map(|(tool, before)| {
        let after = results.iter().find(|result| result.evaluator == *tool)?;
        // Tests that cannot be run are a finding of their own tool.
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

/// The share of criteria that are met; all must be.
fn conclude(
    name: &str,
    category: Category,
    criteria: Vec<CriterionResult>,
    skipped_because: &str,
    advice: &str,
) -> EvaluationResult {
    let failed: Vec<&CriterionResult> = criteria.iter().filter(|criterion| !criterion.passed).collect();
    if criteria.is_empty() {
        let reason = skipped_because.to_owned();
        return bare_result(name, category, EvaluationStatus::Skipped { reason: reason.clone() }, reason);
    }
    let score = (criteria.len() - failed.len()) as f64 / criteria.len() as f64;
    let suggestions = failed.iter().map(|criterion| format!("{advice} {}", criterion.message)).collect();
    let (status, feedback) = match failed.first() {
        None => (EvaluationStatus::Passed { score }, format!("{} of {} hold", criteria.len(), criteria.len())),
        Some(first) => (EvaluationStatus::Failed { score }, first.message.clone()),
    };
    EvaluationResult { criteria, suggestions, ..bare_result(name, category, status, feedback) }
}
