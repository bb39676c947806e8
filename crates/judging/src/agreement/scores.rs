//! Agreement of a judge's scores with reference scores.

use serde::Serialize;

use super::correlation::{kendall, pearson, spearman};
use super::graded::{GradedAnswer, refuse_other_scale};
use super::measure::{FigureUnit, Measure};
use super::{Statistic, mean, reliability};
use crate::examination::median;

/// Share of equal grades from which the remark says "nearly always".
const NEARLY_ALWAYS: f64 = 0.9;

/// The measures of grades.
pub const SCORE_MEASURES: [Measure<GradedAnswer>; 12] = [
    row("pearson", "Pearson", FigureUnit::Coefficient, |answers| pearson(&scores(answers), &references(answers))),
    row("spearman", "Spearman", FigureUnit::Coefficient, |answers| spearman(&scores(answers), &references(answers))),
    row("kendall", "Kendall's tau-b", FigureUnit::Coefficient, |answers| {
        kendall(&scores(answers), &references(answers))
    }),
    Measure {
        is_about: |answer| answer.expected_score.is_some(),
        ..row("spearman_expected", "Spearman, expected score", FigureUnit::Coefficient, |answers| {
            let expected: Vec<f64> = answers.iter().filter_map(|answer| answer.expected_score).collect();
            spearman(&expected, &references(answers))
        })
    },
    row("exact", "exact agreement", FigureUnit::Share, |answers| {
        share(answers, |answer| answer.deviation().abs() <= 0.5)
    }),
    row("within_one", "agreement within one", FigureUnit::Share, |answers| {
        share(answers, |answer| answer.deviation().abs() <= 1.0)
    }),
    row("mean_bias", "mean bias", FigureUnit::Points, |answers| {
        refuse_other_scale(answers)?;
        Ok(mean(answers.iter().map(|answer| answer.deviation())))
    }),
    row("auc", "AUC, good answers", FigureUnit::Coefficient, reliability::auc),
    row("brier", "Brier score", FigureUnit::Coefficient, reliability::brier),
    row("calibration_error", "calibration error", FigureUnit::Coefficient, reliability::calibration_error),
    row("length_bias", "length bias", FigureUnit::Coefficient, length_bias),
    row("seconds_per_grade", "seconds per grade", FigureUnit::Seconds, |answers| {
        Ok(median(&answers.iter().map(|answer| answer.seconds).collect::<Vec<_>>()))
    }),
];

const fn row(
    key: &'static str,
    label: &'static str,
    unit: FigureUnit,
    statistic: fn(&[&GradedAnswer]) -> Statistic,
) -> Measure<GradedAnswer> {
    Measure { key, label, unit, is_about: |_| true, statistic }
}

fn scores(answers: &[&GradedAnswer]) -> Vec<f64> {
    answers.iter().map(|answer| f64::from(answer.score)).collect()
}

fn references(answers: &[&GradedAnswer]) -> Vec<f64> {
    answers.iter().map(|answer| answer.reference).collect()
}

fn share(answers: &[&GradedAnswer], agrees: impl Fn(&GradedAnswer) -> bool) -> Statistic {
    refuse_other_scale(answers)?;
    Ok(answers.iter().filter(|answer| agrees(answer)).count() as f64 / answers.len() as f64)
}

/// The rank correlation of a score's deviation from the reference with the answer's length. Above 0, long answers get
/// better scores than they deserve.
fn length_bias(answers: &[&GradedAnswer]) -> Statistic {
    refuse_other_scale(answers)?;
    let deviations: Vec<f64> = answers.iter().map(|answer| answer.deviation()).collect();
    let lengths: Vec<f64> = answers.iter().map(|answer| answer.characters as f64).collect();
    spearman(&deviations, &lengths).map_err(|_| "all deviations, or all lengths, are the same")
}

/// How often a judge gives each score.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScoreDistribution {
    /// The counts of the scores 1 to 5.
    pub counts: [usize; 5],
    /// A remark about the counts, such as "always 5".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

impl ScoreDistribution {
    /// The distribution of the scores of these answers.
    pub fn of(answers: &[GradedAnswer]) -> ScoreDistribution {
        let mut counts = [0; 5];
        for answer in answers {
            counts[usize::from(answer.score.clamp(1, 5)) - 1] += 1;
        }
        let most = (1..).zip(counts).max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
        let remark = most.and_then(|(score, count)| remark(score, count as f64 / answers.len() as f64));
        ScoreDistribution { counts, remark }
    }
}

fn remark(score: usize, share: f64) -> Option<String> {
    match share {
        1.0 => Some(format!("always {score}")),
        NEARLY_ALWAYS.. => Some(format!("nearly always {score} ({:.0} %)", 100.0 * share)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of each of ten questions.
    fn answers(scores: [u8; 10], references: [f64; 10]) -> Vec<GradedAnswer> {
        let answer = |question: usize| GradedAnswer {
            question,
            reference: references[question],
            score: scores[question],
            expected_score: None,
            characters: 10 * question,
            seconds: question as f64,
        };
        (0..10).map(answer).collect()
    }

    #[track_caller]
    fn figure(key: &str, answers: &[GradedAnswer]) -> super::super::Figure {
        SCORE_MEASURES.iter().find(|measure| measure.key == key).unwrap().figure(answers)
    }

    #[test]
    fn agreement_counts_equal_and_neighbouring_scores() {
        let answers = answers([1, 2, 3, 4, 5, 5, 5, 5, 5, 1], [1.0, 2.0, 3.0, 4.0, 5.0, 4.0, 4.0, 3.0, 2.5, 5.0]);
        assert_eq!(figure("exact", &answers).value, Some(0.5));
        assert_eq!(figure("within_one", &answers).value, Some(0.7));
        let bias = figure("mean_bias", &answers);
        assert!((bias.value.unwrap() - 0.25).abs() < 1e-12, "{bias:?}");
        assert!(bias.low.unwrap() < 0.25 && bias.high.unwrap() > 0.25, "{bias:?}");
        assert_eq!(figure("seconds_per_grade", &answers).value, Some(4.5));
    }

    #[test]
    fn a_judge_that_always_says_the_same_is_named_and_has_no_correlation() {
        let references = [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let always = answers([5; 10], references);
        assert_eq!(ScoreDistribution::of(&always).remark.as_deref(), Some("always 5"));
        let pearson = figure("pearson", &always);
        assert_eq!((pearson.value, pearson.n), (None, 10));
        assert_eq!(pearson.reason.as_deref(), Some("the judge gave all answers the same score"));
        let nearly = answers([4, 4, 4, 4, 4, 4, 4, 4, 4, 1], references);
        assert_eq!(ScoreDistribution::of(&nearly).remark.as_deref(), Some("nearly always 4 (90 %)"));
        assert_eq!(ScoreDistribution::of(&answers([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], references)).remark, None);
        assert_eq!(ScoreDistribution::of(&[]), ScoreDistribution::default());
    }

    #[test]
    fn scores_of_another_scale_correlate_but_do_not_agree() {
        let answers = answers([1, 1, 1, 2, 2, 3, 3, 4, 5, 5], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!(figure("spearman", &answers).value.unwrap() > 0.9);
        for key in ["exact", "within_one", "mean_bias", "length_bias"] {
            assert_eq!(figure(key, &answers).reason.as_deref(), Some(super::super::graded::OTHER_SCALE));
        }
    }

    #[test]
    fn a_judge_that_likes_long_answers_has_a_length_bias() {
        let answers = answers([1, 1, 2, 2, 3, 3, 4, 4, 5, 5], [3.0; 10]);
        assert!(figure("length_bias", &answers).value.unwrap() > 0.9);
    }

    #[test]
    fn few_answers_have_no_figures() {
        let answers = answers([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let figure = figure("pearson", &answers[..9]);
        assert_eq!((figure.value, figure.reason.as_deref()), (None, Some("9 of at least 10 items")));
    }
}
