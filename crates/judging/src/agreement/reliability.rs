//! Whether a judge's scores can be read as probabilities: how often are answers with a given score good?

use serde::Serialize;

use super::correlation::ranks;
use super::graded::{GradedAnswer, refuse_other_scale};
use super::{Statistic, mean};

/// Minimum reference score of an answer that counts as good.
pub const GOOD: f64 = 4.0;
/// The number of parts of the scale.
const BINS: usize = 10;

/// The answers with scores in one part of the scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReliabilityBin {
    /// The number of answers.
    pub n: usize,
    /// The mean of their scores, with 1 as probability 0 and 5 as 1.
    pub predicted: f64,
    /// The share of good answers.
    pub observed: f64,
}

/// The points of a reliability diagram (DeGroot and Fienberg 1983, "The comparison and evaluation of forecasters"):
/// predicted and observed quality for each non-empty part of the scale. Empty if the references are on another scale.
pub fn reliability(answers: &[GradedAnswer]) -> Vec<ReliabilityBin> {
    let answers: Vec<&GradedAnswer> = answers.iter().collect();
    refuse_other_scale(&answers).map_or_else(|_| Vec::new(), |()| bins(&answers))
}

fn bins(answers: &[&GradedAnswer]) -> Vec<ReliabilityBin> {
    let mut bins = [ReliabilityBin::default(); BINS];
    for answer in answers {
        let probability = probability(answer);
        let bin = &mut bins[((probability * BINS as f64) as usize).min(BINS - 1)];
        bin.n += 1;
        bin.predicted += probability;
        bin.observed += f64::from(u8::from(is_good(answer)));
    }
    let shared = |bin: ReliabilityBin| {
        let n = bin.n as f64;
        ReliabilityBin { predicted: bin.predicted / n, observed: bin.observed / n, ..bin }
    };
    bins.into_iter().filter(|bin| bin.n > 0).map(shared).collect()
}

/// The distance between predicted and observed shares, weighted by the number of answers in each part (Naeini, Cooper
/// and Hauskrecht 2015, "Obtaining well calibrated probabilities using Bayesian binning").
pub(super) fn calibration_error(answers: &[&GradedAnswer]) -> Statistic {
    refuse_other_scale(answers)?;
    let distance = |bin: &ReliabilityBin| (bin.predicted - bin.observed).abs() * bin.n as f64;
    Ok(bins(answers).iter().map(distance).sum::<f64>() / answers.len() as f64)
}

/// The mean squared difference between prediction and outcome (Brier 1950).
pub(super) fn brier(answers: &[&GradedAnswer]) -> Statistic {
    refuse_other_scale(answers)?;
    let error = |answer: &&GradedAnswer| (probability(answer) - f64::from(u8::from(is_good(answer)))).powi(2);
    Ok(mean(answers.iter().map(error)))
}

/// The probability that a good answer scores higher than another one, from the ranks of all answers (Mann and Whitney
/// 1947).
pub(super) fn auc(answers: &[&GradedAnswer]) -> Statistic {
    refuse_other_scale(answers)?;
    let n_good = answers.iter().filter(|answer| is_good(answer)).count();
    if n_good == 0 || n_good == answers.len() {
        return Err("all answers are good, or none is");
    }
    let ranks = ranks(&answers.iter().map(|answer| probability(answer)).collect::<Vec<_>>());
    let sum: f64 = std::iter::zip(answers, ranks).filter(|(answer, _)| is_good(answer)).map(|(_, rank)| rank).sum();
    let (n_good, n_others) = (n_good as f64, (answers.len() - n_good) as f64);
    Ok((sum - n_good * (n_good + 1.0) / 2.0) / (n_good * n_others))
}

fn is_good(answer: &GradedAnswer) -> bool {
    answer.reference >= GOOD
}

fn probability(answer: &GradedAnswer) -> f64 {
    ((answer.expected_score.unwrap_or(f64::from(answer.score)) - 1.0) / 4.0).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with these scores and references.
    fn answers(graded: &[(f64, f64)]) -> Vec<GradedAnswer> {
        let answer = |(question, (expected, reference)): (usize, &(f64, f64))| GradedAnswer {
            question,
            reference: *reference,
            score: expected.round() as u8,
            expected_score: Some(*expected),
            characters: 1,
            seconds: 1.0,
        };
        graded.iter().enumerate().map(answer).collect()
    }

    #[track_caller]
    fn check(graded: &[(f64, f64)], expected: [f64; 3]) {
        let answers = answers(graded);
        let answers: Vec<&GradedAnswer> = answers.iter().collect();
        for (statistic, expected) in [auc, brier, calibration_error].into_iter().zip(expected) {
            let seen = statistic(&answers).unwrap();
            assert!((seen - expected).abs() < 1e-12, "{seen} is not {expected}");
        }
    }

    #[test]
    fn a_judge_that_knows_is_told_from_one_that_is_too_sure_and_one_that_guesses() {
        check(&[(5.0, 5.0), (5.0, 4.0), (1.0, 1.0), (1.0, 3.0)], [1.0, 0.0, 0.0]);
        check(&[(5.0, 5.0), (5.0, 1.0), (5.0, 1.0), (5.0, 1.0)], [0.5, 0.75, 0.75]);
        // Right in three of four cases, with matching confidence.
        check(&[(4.0, 5.0), (4.0, 5.0), (4.0, 5.0), (4.0, 1.0)], [0.5, 3.0 / 16.0, 0.0]);
        check(&[(2.0, 5.0), (4.0, 1.0)], [0.0, 9.0 / 16.0, 0.75]);
    }

    #[test]
    fn a_diagram_has_a_point_for_every_part_of_the_scale_that_has_answers() {
        let answers = answers(&[(1.0, 1.0), (1.2, 5.0), (5.0, 5.0), (3.0, 1.0)]);
        let bins = reliability(&answers);
        let points: Vec<(usize, f64)> = bins.iter().map(|bin| (bin.n, bin.observed)).collect();
        assert_eq!(points, [(2, 0.5), (1, 0.0), (1, 1.0)]);
        assert!((bins[0].predicted - 0.025).abs() < 1e-12, "{bins:?}");
    }

    #[test]
    fn without_good_and_other_answers_there_is_nothing_to_tell_apart() {
        let same = answers(&[(5.0, 5.0), (4.0, 4.0)]);
        assert!(auc(&same.iter().collect::<Vec<_>>()).is_err());
        let other_scale = answers(&[(5.0, 9.0), (4.0, 1.0)]);
        assert!(brier(&other_scale.iter().collect::<Vec<_>>()).is_err());
    }
}
