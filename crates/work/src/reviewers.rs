//! Evaluators and a critic that ask a model about the work on a task.

use std::fmt;
use std::sync::Arc;

use hone_protocol::{Category, CriterionResult, CriticScore, EvaluationResult, EvaluationStatus, Grade, Metrics};

use hone_judging::{GradeTask, Review, ReviewForm, ReviewTask, Reviewed, addressed};

use crate::assignment::Assignment;
use crate::evaluator::{EvaluationContext, Evaluator, bare_result};
use crate::review::{CodeQualitySaid, CriterionSaid, CriticSaid, ReviewSettings};
use crate::work_format::quoted_file;

/// Maximum bytes of files given to a model, which may be shown less.
const MOST_BYTES: usize = 64 << 10;
/// The name of the model-based critic.
pub(crate) const CRITIC: &str = "model";

/// Asks a model for a verdict, or takes one from a cache.
pub type Ask<T, V> = Arc<dyn Fn(&T) -> V + Send + Sync>;

/// Asks models about the work on a task. The default asks none.
#[derive(Clone, Default)]
pub struct Reviewers {
    evaluators: Vec<PhaseEvaluator>,
    critic: Option<ModelCritic>,
}

/// An evaluator, and the phases that it evaluates.
#[derive(Clone)]
struct PhaseEvaluator {
    phases: Vec<String>,
    evaluator: Arc<dyn Evaluator>,
}

impl Reviewers {
    /// The configured reviewers, with functions for reviewing and grading. `threshold` is the score, 0 to 1, from which
    /// work passes.
    pub fn new(
        settings: ReviewSettings,
        threshold: f64,
        review: Ask<ReviewTask, Review>,
        grade: Ask<GradeTask, Grade>,
    ) -> Reviewers {
        let settings = Arc::new(settings);
        let code_quality = CodeQuality { settings: Arc::clone(&settings), threshold, review: Arc::clone(&review) };
        let reviewed = PhaseEvaluator { phases: settings.phases.clone(), evaluator: Arc::new(code_quality) };
        let graded = PhaseEvaluator {
            phases: settings.graded_phases.clone(),
            evaluator: Arc::new(AnswerJudge { threshold, grade }),
        };
        Reviewers { evaluators: vec![reviewed, graded], critic: Some(ModelCritic { settings, review }) }
    }

    /// The evaluators of a phase.
    pub fn of_phase<'a>(&'a self, phase: &'a str) -> impl Iterator<Item = &'a dyn Evaluator> {
        let is_for_phase = move |one: &&PhaseEvaluator| one.phases.iter().any(|name| name == phase);
        self.evaluators.iter().filter(is_for_phase).map(|one| one.evaluator.as_ref())
    }

    /// The model-based critic's score of the work, unless another result blocks it anyway.
    pub(crate) fn criticize(
        &self,
        context: &EvaluationContext<'_>,
        results: &[EvaluationResult],
        threshold: f64,
    ) -> CriticScore {
        match (&self.critic, blocked_by(results)) {
            (_, Some(blocked)) => without_score(&not_asked(blocked)),
            (Some(critic), None) => critic.criticize(context, threshold),
            (None, None) => without_score("no model can be asked"),
        }
    }
}

impl fmt::Debug for Reviewers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewers").finish_non_exhaustive()
    }
}

/// The result of an evaluator that is not asked, because another result blocks the work anyway; `None` if it must be
/// asked.
pub fn spared(evaluator: &dyn Evaluator, results: &[EvaluationResult]) -> Option<EvaluationResult> {
    let reason = not_asked(blocked_by(results)?);
    let status = EvaluationStatus::Skipped { reason: reason.clone() };
    let deterministic = evaluator.is_deterministic();
    Some(EvaluationResult { deterministic, ..bare_result(evaluator.name(), evaluator.category(), status, reason) })
}

/// The evaluator whose result blocks the work.
fn blocked_by(results: &[EvaluationResult]) -> Option<&str> {
    let blocking = results.iter().find(|result| result.blocking_issues().next().is_some());
    blocking.map(|result| result.evaluator.as_str())
}

fn not_asked(blocked_by: &str) -> String {
    format!("not asked, because {blocked_by} blocks the work")
}

/// Reviews the quality of the code: the model-based evaluator of seed 001.
struct CodeQuality {
    settings: Arc<ReviewSettings>,
    threshold: f64,
    review: Ask<ReviewTask, Review>,
}

impl Evaluator for CodeQuality {
    fn name(&self) -> &str {
        "code-quality"
    }

    fn category(&self) -> Category {
        Category::Maintainability
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        let work = shown_work(context);
        if work.is_empty() {
            return asked(self, EvaluationStatus::Skipped { reason: NO_WORK.to_owned() }, NO_WORK.to_owned());
        }
        let requirements = requirements(context.assignment);
        let texts = Reviewed { goal: &context.assignment.goal, requirements: &requirements, work: &work };
        let (prompt, limits) = (&self.settings.code_quality_prompt, self.settings.limits());
        let task = ReviewTask::new(ReviewForm::CodeQuality, prompt, texts, limits);
        let review = (self.review)(&task);
        match review.read::<CodeQualitySaid>() {
            Ok(said) => self.result(&review, said),
            Err(reason) => asked(self, EvaluationStatus::Unscored { reason: reason.clone() }, reason),
        }
    }
}

impl CodeQuality {
    fn result(&self, review: &Review, said: CodeQualitySaid) -> EvaluationResult {
        let score = said.score.clamp(0.0, 1.0);
        let passes = score >= self.threshold && said.blocking_issues.is_empty();
        let status = if passes { EvaluationStatus::Passed { score } } else { EvaluationStatus::Failed { score } };
        let of_criterion = |one: CriterionSaid| CriterionResult {
            criterion: one.criterion,
            passed: one.passed,
            score: one.score.clamp(0.0, 1.0),
            message: one.message,
            evidence: None,
        };
        let blocking = |issue: String| CriterionResult {
            criterion: "blocking issue".to_owned(),
            passed: false,
            score: 0.0,
            message: issue,
            evidence: None,
        };
        let fixes = said.blocking_issues.iter().map(|issue| format!("fix: {issue}"));
        let suggestions = fixes.chain(said.suggestions).collect();
        let criteria = said.criteria_results.into_iter().map(of_criterion);
        let criteria = criteria.chain(said.blocking_issues.into_iter().map(blocking)).collect();
        let feedback = with_remarks(said.overall_assessment, review.remarks("work"));
        EvaluationResult { criteria, suggestions, ..asked(self, status, feedback) }
    }
}

/// The judge that grades answers, as an evaluator.
struct AnswerJudge {
    threshold: f64,
    grade: Ask<GradeTask, Grade>,
}

impl Evaluator for AnswerJudge {
    fn name(&self) -> &str {
        "judge"
    }

    fn category(&self) -> Category {
        Category::Correctness
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        let answer = shown_work(context);
        if answer.is_empty() {
            return asked(self, EvaluationStatus::Skipped { reason: NO_WORK.to_owned() }, NO_WORK.to_owned());
        }
        let query = format!("{}\n\n{}", context.assignment.goal.trim(), requirements(context.assignment));
        let grade = (self.grade)(&GradeTask { query: query.trim().to_owned(), answer, reference: None });
        let Some(score) = grade.expected_score.or(grade.score.map(f64::from)) else {
            let reason = grade.judging.failure.unwrap_or_else(|| "the judge gave no score".to_owned());
            return asked(self, EvaluationStatus::Unscored { reason: reason.clone() }, reason);
        };
        let score = ((score - 1.0) / 4.0).clamp(0.0, 1.0);
        let status = match score >= self.threshold {
            true => EvaluationStatus::Passed { score },
            false => EvaluationStatus::Failed { score },
        };
        let remark = grade.suspicious.as_ref().map(|suspicion| addressed("work", suspicion));
        asked(self, status, with_remarks(grade.feedback, remark))
    }
}

/// A critic that reads the changes: the model-based critic of seed 003.
#[derive(Clone)]
struct ModelCritic {
    settings: Arc<ReviewSettings>,
    review: Ask<ReviewTask, Review>,
}

impl ModelCritic {
    fn criticize(&self, context: &EvaluationContext<'_>, threshold: f64) -> CriticScore {
        let changes = if context.diff.is_empty() { shown_work(context) } else { context.diff.to_owned() };
        if changes.is_empty() {
            return without_score(NO_WORK);
        }
        let requirements = requirements(context.assignment);
        let texts = Reviewed { goal: &context.assignment.goal, requirements: &requirements, work: &changes };
        let (prompt, limits) = (&self.settings.critic_prompt, self.settings.limits());
        let task = ReviewTask::new(ReviewForm::Critic, prompt, texts, limits);
        let review = (self.review)(&task);
        let said = match review.read::<CriticSaid>() {
            Ok(said) => said,
            Err(reason) => return without_score(&reason),
        };
        let values: Vec<(&str, f64)> =
            Metrics::NAMES.iter().filter_map(|name| Some((*name, said.metrics.get(name)?.clamp(0.0, 1.0)))).collect();
        let score = values.iter().map(|(_, value)| value).sum::<f64>() / values.len().max(1) as f64;
        CriticScore {
            critic: CRITIC.to_owned(),
            score: (!values.is_empty()).then_some(score),
            passed: score >= threshold,
            feedback: with_remarks(said.feedback, review.remarks("work")),
            suggestions: said.suggestions,
            metrics: said.metrics,
            evidence: values.iter().map(|(name, value)| format!("{name}: {value:.2}")).collect(),
        }
    }
}

const NO_WORK: &str = "there is no work to read";

/// A critic's result without a score, and the reason.
fn without_score(reason: &str) -> CriticScore {
    CriticScore {
        critic: CRITIC.to_owned(),
        score: None,
        passed: false,
        feedback: String::new(),
        suggestions: Vec::new(),
        metrics: Metrics::default(),
        evidence: vec![format!("no score: {reason}")],
    }
}

/// The result of an evaluator that asks a model.
fn asked(evaluator: &dyn Evaluator, status: EvaluationStatus, feedback: String) -> EvaluationResult {
    EvaluationResult { deterministic: false, ..bare_result(evaluator.name(), evaluator.category(), status, feedback) }
}

/// The model's text, and the remarks in parentheses.
fn with_remarks(said: String, remarks: impl IntoIterator<Item = String>) -> String {
    let remarks: Vec<String> = remarks.into_iter().collect();
    if remarks.is_empty() { said } else { format!("{said} ({})", remarks.join("; ")) }
}

/// The requirements as a list.
fn requirements(assignment: &Assignment) -> String {
    let lines: Vec<String> =
        assignment.requirements.iter().map(|requirement| format!("- {}", requirement.text)).collect();
    if lines.is_empty() { "The task lists none.".to_owned() } else { lines.join("\n") }
}

/// The current files of the work: the changed ones, or all if those are unknown.
fn shown_work(context: &EvaluationContext<'_>) -> String {
    let paths = context.changed.map_or_else(|| context.workspace.paths(), <[String]>::to_vec);
    let mut work = String::new();
    for path in paths {
        let block = match context.workspace.text(&path) {
            Some(text) => quoted_file(&path, &text),
            None if context.changed.is_some() && !context.workspace.exists(&path) => format!("=== delete {path}\n"),
            None => continue,
        };
        if work.len() + block.len() <= MOST_BYTES {
            work.push_str(&block);
        }
    }
    work
}
