//! How well scores separate good answers from bad ones.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Half-width of an interval in standard errors. An examination looks at the interval three times, and is wrong over
/// all three looks in 5 % of cases (Pocock 1977, "Group sequential methods in the design and analysis of clinical
/// trials").
const STANDARD_ERRORS: f64 = 2.289;
/// Half of a pair's weight: the share of pairs that a perfect judge might still get wrong among pairs outside the
/// sample.
const CORRECTION: f64 = 0.5;

/// The area under the receiver operating characteristic: the probability that a good answer is graded above a bad one,
/// counting a tie as half; 0.5 is chance. Includes its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Auc {
    /// The estimate.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl fmt::Display for Auc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Auc { value, low, high } = self;
        write!(f, "{value:.2} ({low:.2} to {high:.2})")
    }
}

/// The area under the curve of scores of good and bad answers. Answers with the same index belong to the same question.
///
/// The standard error accounts for this pairing (Obuchowski 1997, "Nonparametric analysis of clustered ROC curve
/// data"). The interval is computed on the logit scale, so that it stays within 0 and 1.
///
/// # Panics
/// If the numbers of good and bad answers differ.
pub(crate) fn area_under_curve(goods: &[f64], bads: &[f64]) -> Auc {
    assert_eq!(goods.len(), bads.len(), "a good and a bad answer for every question");
    if goods.len() < 2 {
        return Auc { value: 0.5, low: 0.0, high: 1.0 };
    }
    let n = goods.len() as f64;
    let above_bads: Vec<f64> = goods.iter().map(|good| share(bads, |bad| wins(*good, bad))).collect();
    let below_goods: Vec<f64> = bads.iter().map(|bad| share(goods, |good| wins(good, *bad))).collect();
    let value = above_bads.iter().sum::<f64>() / n;
    let deviation = |(above, below): (&f64, &f64)| (above + below - 2.0 * value).powi(2);
    let variance = std::iter::zip(&above_bads, &below_goods).map(deviation).sum::<f64>() / (n * (n - 1.0));
    let [low, high] = logit_interval(value, variance.sqrt(), n);
    Auc { value, low: low.min(value), high: high.max(value) }
}

fn share(others: &[f64], wins: impl Fn(f64) -> f64) -> f64 {
    others.iter().map(|other| wins(*other)).sum::<f64>() / others.len() as f64
}

/// 1 if the good answer has the higher score, 0.5 for a tie.
pub(crate) fn wins(good: f64, bad: f64) -> f64 {
    match good.partial_cmp(&bad) {
        Some(std::cmp::Ordering::Greater) => 1.0,
        Some(std::cmp::Ordering::Equal) => 0.5,
        _ => 0.0,
    }
}

/// An interval around a share. A share of 0 or 1 in `n` cases may differ slightly in a larger sample.
fn logit_interval(value: f64, standard_error: f64, n: f64) -> [f64; 2] {
    let within = value.clamp(CORRECTION / n, 1.0 - CORRECTION / n);
    let slope = within * (1.0 - within);
    let least_error = (slope / n).sqrt() * CORRECTION;
    let logit = (within / (1.0 - within)).ln();
    let half = STANDARD_ERRORS * standard_error.max(least_error) / slope;
    [logit - half, logit + half].map(|logit| 1.0 / (1.0 + (-logit).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(goods: &[f64], bads: &[f64], expected: f64) {
        let auc = area_under_curve(goods, bads);
        assert!((auc.value - expected).abs() < 1e-12, "{auc:?}");
        assert!(0.0 <= auc.low && auc.low <= auc.value && auc.value <= auc.high && auc.high <= 1.0, "{auc:?}");
    }

    #[test]
    fn good_answers_above_bad_ones_are_counted_and_ties_half() {
        check(&[3.0, 4.0], &[1.0, 2.0], 1.0);
        check(&[1.0, 2.0], &[3.0, 4.0], 0.0);
        check(&[1.0, 4.0], &[2.0, 3.0], 0.5);
        check(&[2.0, 2.0], &[2.0, 2.0], 0.5);
        // As sklearn.metrics.roc_auc_score([1, 1, 1, 0, 0, 0], [0.9, 0.4, 0.6, 0.4, 0.1, 0.7]) computes it.
        check(&[0.9, 0.4, 0.6], &[0.4, 0.1, 0.7], 6.5 / 9.0);
    }

    #[test]
    fn the_interval_narrows_with_more_questions() {
        let scores = |n: usize| {
            let goods: Vec<f64> = (0..n).map(|index| (index * 7 % 10) as f64 + 3.0).collect();
            let bads: Vec<f64> = (0..n).map(|index| (index * 3 % 10) as f64).collect();
            area_under_curve(&goods, &bads)
        };
        let (few, many) = (scores(20), scores(80));
        assert!((few.value - many.value).abs() < 1e-12);
        assert!(many.high - many.low < 0.6 * (few.high - few.low), "{few:?} {many:?}");
    }

    #[test]
    fn one_question_says_nothing() {
        assert_eq!(area_under_curve(&[5.0], &[1.0]), Auc { value: 0.5, low: 0.0, high: 1.0 });
    }
}
