//! The rule-based critic of seed 003: five weighted checks on the evaluators' results.

use hone_protocol::{Category, CriticScore, EvaluationResult, Metrics};

use crate::rules::{FILES, REGRESSIONS, REQUIREMENTS};

/// The critic's name.
pub(crate) const NAME: &str = "rules";

/// A check: its name, its weight, and the results that it applies to.
struct Check {
    name: &'static str,
    weight: f64,
    applies: fn(&EvaluationResult) -> bool,
}

/// The checks of the seed.
const CHECKS: [Check; 5] = [
    Check { name: "tests pass", weight: 0.3, applies: |result| result.category == Category::Functionality },
    Check { name: "no lint errors", weight: 0.15, applies: is_lint },
    Check { name: "files exist", weight: 0.15, applies: |result| result.evaluator == FILES },
    Check { name: "no regressions", weight: 0.2, applies: |result| result.evaluator == REGRESSIONS },
    Check { name: "requirements met", weight: 0.2, applies: |result| result.evaluator == REQUIREMENTS },
];

/// Whether any check applies to a result.
pub(crate) fn weighs(result: &EvaluationResult) -> bool {
    CHECKS.iter().any(|check| (check.applies)(result))
}

fn is_lint(result: &EvaluationResult) -> bool {
    matches!(result.category, Category::Compliance | Category::Maintainability) && result.deterministic
}

/// Weighs the evaluators' results. A check whose evaluators reached no conclusion has no weight. Failing tests and
/// other blocking issues limit the score to below a half, regardless of other results.
pub fn rule_critic(results: &[EvaluationResult], threshold: f64) -> CriticScore {
    let scores: Vec<Option<f64>> =
        CHECKS.iter().map(|check| mean(results.iter().filter(|one| (check.applies)(one)))).collect();
    let known = || CHECKS.iter().zip(&scores).filter_map(|(check, score)| Some((check, (*score)?)));
    let weight: f64 = known().map(|(check, _)| check.weight).sum();
    let weighted = (weight > 0.0).then(|| known().map(|(check, score)| check.weight * score).sum::<f64>() / weight);
    let is_broken = results
        .iter()
        .any(|result| (CHECKS[0].applies)(result) && result.is_failed() || result.blocking_issues().next().is_some());
    let score = weighted.map(|score| if is_broken { score.min(0.49) } else { score });
    let [tests, lint, files, regressions, requirements] = [scores[0], scores[1], scores[2], scores[3], scores[4]];
    let evidence = CHECKS.iter().zip(&scores).map(|(check, score)| match score {
        Some(score) => format!("{}: {score:.2} (weight {})", check.name, check.weight),
        None => format!("{}: not checked", check.name),
    });
    let failed: Vec<&EvaluationResult> = results.iter().filter(|result| result.is_failed()).collect();
    let feedback: Vec<String> =
        failed.iter().map(|result| format!("{}: {}", result.evaluator, result.feedback)).collect();
    let mut suggestions: Vec<String> = Vec::new();
    for suggestion in failed.iter().flat_map(|result| &result.suggestions) {
        if !suggestions.contains(suggestion) {
            suggestions.push(suggestion.clone());
        }
    }
    CriticScore {
        critic: NAME.to_owned(),
        score,
        passed: score.is_some_and(|score| score >= threshold),
        feedback: feedback.join("; "),
        suggestions,
        metrics: Metrics {
            correctness: mean_of([tests, requirements]),
            completeness: mean_of([files, requirements]),
            code_quality: lint,
            test_coverage: mean_of([tests, regressions]),
        },
        evidence: evidence.collect(),
    }
}

fn mean<'a>(results: impl Iterator<Item = &'a EvaluationResult>) -> Option<f64> {
    let scores: Vec<f64> = results.filter_map(EvaluationResult::score).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
}

fn mean_of(scores: [Option<f64>; 2]) -> Option<f64> {
    let known: Vec<f64> = scores.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}
