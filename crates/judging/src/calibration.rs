//! The meaning of a judge's expected score: the probability that a person finds the answer good.
//!
//! It is fitted by isotonic regression, which assumes only that higher scores are no worse (Barlow, Bartholomew,
//! Bremner and Brunk 1972, "Statistical inference under order restrictions"; for probabilities Zadrozny and Elkan 2002,
//! "Transforming classifier scores into accurate multiclass probability estimates"). The benefit of the map is measured
//! on held-out answers.

use serde::{Deserialize, Serialize};

use crate::auc::wins;
use crate::random::SplitMix;

/// Minimum number of ratings to fit a map.
pub const LEAST_RATINGS: usize = 30;
/// Minimum number of good and of bad ratings among them.
pub const LEAST_RATINGS_OF_EACH_KIND: usize = 5;
/// Folds of the cross-validation: each part is predicted by a map fitted to the others.
const FOLDS: usize = 5;
const SEED: u64 = 0x0063_616c_6962;
/// The scale of expected scores.
const SCALE: [f64; 2] = [1.0, 5.0];

/// An answer that a judge has graded and a person has rated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatedAnswer {
    /// The number of its question: answers to the same question are held out together.
    pub question: usize,
    /// The judge's expected score.
    pub expected_score: f64,
    /// Whether the person found it good.
    pub is_good: bool,
}

/// A map from expected scores to the probability that a person finds the answer good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Expected scores in ascending order, each with its probability; values between them are interpolated.
    knots: Vec<[f64; 2]>,
}

/// The quality of a map's predictions on held-out answers. A Brier score is the mean squared prediction error (Brier
/// 1950, "Verification of forecasts expressed in terms of probability"): 0 is perfect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The number of ratings.
    pub n: usize,
    /// The number of good ratings.
    pub n_good: usize,
    /// The Brier score of the map.
    pub brier: f64,
    /// The Brier score of the uncalibrated expected score, mapped linearly from 1 to 5 to probabilities 0 to 1.
    pub brier_uncalibrated: f64,
    /// The Brier score of the share of good ratings, which ignores the judge.
    pub brier_base_rate: f64,
    /// The probability that a good answer has a higher expected score than another one.
    pub auc: f64,
}

impl HeldOut {
    /// Whether the map predicts better than both the uncalibrated score and the base rate.
    pub fn helps(&self) -> bool {
        self.brier < self.brier_uncalibrated && self.brier < self.brier_base_rate
    }
}

/// The ratings missing for a fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TooFewRatings {
    /// The number of missing ratings.
    pub missing: usize,
    /// Minimum number of missing good ratings.
    pub missing_good: usize,
    /// Minimum number of missing bad ratings.
    pub missing_bad: usize,
}

/// Checks that there are enough ratings.
///
/// # Errors
/// When there are not enough; contains the missing numbers.
pub fn check_number_of_ratings(answers: &[RatedAnswer]) -> Result<(), TooFewRatings> {
    let n_good = answers.iter().filter(|answer| answer.is_good).count();
    let missing_good = LEAST_RATINGS_OF_EACH_KIND.saturating_sub(n_good);
    let missing_bad = LEAST_RATINGS_OF_EACH_KIND.saturating_sub(answers.len() - n_good);
    let missing = LEAST_RATINGS.saturating_sub(answers.len()).max(missing_good + missing_bad);
    if missing == 0 { Ok(()) } else { Err(TooFewRatings { missing, missing_good, missing_bad }) }
}

impl Calibration {
    /// Fits a map. A bad answer at the upper end of the scale and a good one at the lower end are added, so that a few
    /// ratings never result in certainty.
    pub fn fit(answers: &[RatedAnswer]) -> Calibration {
        let rated = answers.iter().map(|answer| (answer.expected_score.clamp(SCALE[0], SCALE[1]), answer.is_good));
        Calibration::between(SCALE, rated.collect())
    }

    /// Fits a map from values on a scale without ends.
    pub(crate) fn of_points(points: Vec<(f64, bool)>) -> Calibration {
        let values = || points.iter().map(|(value, _)| *value);
        let ends = [values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max)];
        Calibration::between(ends, points)
    }

    fn between([low, high]: [f64; 2], points: Vec<(f64, bool)>) -> Calibration {
        let with_ends = points.into_iter().chain([(low, true), (high, false)]);
        let blocks = isotonic(with_ends.map(|(value, is_good)| (value, if is_good { 1.0 } else { 0.0 })).collect());
        let knots = blocks.iter().flat_map(|block| [[block.first, block.mean()], [block.last, block.mean()]]);
        let mut knots: Vec<[f64; 2]> = knots.collect();
        knots.dedup();
        Calibration { knots }
    }

    /// The probability that a person finds an answer with this expected score good.
    pub fn probability(&self, expected_score: f64) -> f64 {
        let above = self.knots.partition_point(|knot| knot[0] < expected_score);
        match (above.checked_sub(1).and_then(|below| self.knots.get(below)), self.knots.get(above)) {
            (Some(below), Some(above)) => {
                below[1] + (above[1] - below[1]) * (expected_score - below[0]) / (above[0] - below[0])
            }
            (Some(end), None) | (None, Some(end)) => end[1],
            (None, None) => f64::NAN,
        }
    }
}

/// Adjacent points that share a fitted value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FittedBlock {
    first: f64,
    last: f64,
    total: f64,
    weight: f64,
}

impl FittedBlock {
    fn mean(&self) -> f64 {
        self.total / self.weight
    }
}

/// The increasing step function with the least squares error: adjacent values that decrease are pooled ("pool adjacent
/// violators"; de Leeuw, Hornik and Mair 2009, "Isotone optimization in R").
fn isotonic(mut points: Vec<(f64, f64)>) -> Vec<FittedBlock> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut blocks: Vec<FittedBlock> = Vec::new();
    for same in points.chunk_by(|a, b| a.0 == b.0) {
        let total = same.iter().map(|point| point.1).sum();
        let mut block = FittedBlock { first: same[0].0, last: same[0].0, total, weight: same.len() as f64 };
        while let Some(before) = blocks.pop_if(|before| before.mean() >= block.mean()) {
            let (total, weight) = (before.total + block.total, before.weight + block.weight);
            block = FittedBlock { first: before.first, last: block.last, total, weight };
        }
        blocks.push(block);
    }
    blocks
}

/// The quality of maps' predictions on the parts of the ratings that they were not fitted to.
pub fn cross_validated_calibration(answers: &[RatedAnswer]) -> HeldOut {
    let fold_of = folds(answers);
    let part = |is_wanted: &dyn Fn(usize) -> bool| -> Vec<RatedAnswer> {
        answers.iter().filter(|answer| is_wanted(fold_of(answer.question))).copied().collect()
    };
    let mut totals = [0.0; 3];
    for fold in 0..FOLDS {
        let (fitted, held_out) = (part(&|other| other != fold), part(&|other| other == fold));
        let map = Calibration::fit(&fitted);
        let base_rate = share_of_good(&fitted);
        for answer in held_out {
            let uncalibrated = (answer.expected_score - SCALE[0]) / (SCALE[1] - SCALE[0]);
            let predictions = [map.probability(answer.expected_score), uncalibrated, base_rate];
            let said = f64::from(u8::from(answer.is_good));
            totals.iter_mut().zip(predictions).for_each(|(total, said_to_be)| *total += (said_to_be - said).powi(2));
        }
    }
    let [brier, brier_uncalibrated, brier_base_rate] = totals.map(|total| total / answers.len() as f64);
    let n_good = answers.iter().filter(|answer| answer.is_good).count();
    HeldOut { n: answers.len(), n_good, brier, brier_uncalibrated, brier_base_rate, auc: auc(answers) }
}

/// The fold of each question, assigned at random.
fn folds(answers: &[RatedAnswer]) -> impl Fn(usize) -> usize {
    let mut questions: Vec<usize> = answers.iter().map(|answer| answer.question).collect();
    questions.sort_unstable();
    questions.dedup();
    SplitMix::seeded(SEED).shuffle(&mut questions);
    move |question| questions.iter().position(|other| *other == question).unwrap_or_default() % FOLDS
}

fn share_of_good(answers: &[RatedAnswer]) -> f64 {
    answers.iter().filter(|answer| answer.is_good).count() as f64 / answers.len().max(1) as f64
}

fn auc(answers: &[RatedAnswer]) -> f64 {
    let (goods, bads): (Vec<&RatedAnswer>, Vec<&RatedAnswer>) = answers.iter().partition(|answer| answer.is_good);
    let of_good = |good: &&RatedAnswer| -> f64 {
        bads.iter().map(|bad| wins(good.expected_score, bad.expected_score)).sum::<f64>()
    };
    goods.iter().map(of_good).sum::<f64>() / (goods.len() * bads.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rated(question: usize, expected_score: f64, is_good: bool) -> RatedAnswer {
        RatedAnswer { question, expected_score, is_good }
    }

    /// Ratings of a person who likes answers with an expected score above `bar`, and a few others.
    fn ratings(bar: f64) -> Vec<RatedAnswer> {
        let answer = |question: usize| {
            let score = 1.0 + 4.0 * (question * 37 % 100) as f64 / 99.0;
            rated(question, score, (score > bar) != question.is_multiple_of(10))
        };
        (0..100).map(answer).collect()
    }

    #[test]
    fn falling_neighbours_are_pooled() {
        let blocks = isotonic(vec![(1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (4.0, 4.0), (4.0, 6.0), (5.0, 1.0)]);
        let means: Vec<f64> = blocks.iter().map(FittedBlock::mean).collect();
        assert_eq!(means, [1.0, 2.5, 11.0 / 3.0]);
        assert_eq!((blocks[1].first, blocks[1].last), (2.0, 3.0));
    }

    #[test]
    fn the_map_rises_and_is_never_certain() {
        let map = Calibration::fit(&ratings(3.0));
        let probabilities: Vec<f64> = (0..=50).map(|step| map.probability(0.5 + f64::from(step) / 10.0)).collect();
        assert!(probabilities.is_sorted(), "{probabilities:?}");
        assert!(probabilities[0] > 0.0 && probabilities[50] < 1.0, "{probabilities:?}");
        assert!(map.probability(1.5) < 0.2 && map.probability(4.5) > 0.8, "{map:?}");
        let all_good: Vec<RatedAnswer> = (0..9).map(|question| rated(question, 5.0, true)).collect();
        assert!((Calibration::fit(&all_good).probability(5.0) - 10.0 / 11.0).abs() < 1e-12);
    }

    #[test]
    fn a_map_that_knows_a_persons_bar_helps_and_one_of_noise_does_not() {
        let strict = cross_validated_calibration(&ratings(4.2));
        assert!(strict.helps() && strict.auc > 0.7, "{strict:?}");
        let noise: Vec<RatedAnswer> = (0..100)
            .map(|question| rated(question, 1.0 + (question * 37 % 41) as f64 / 10.0, question % 3 == 0))
            .collect();
        let noise = cross_validated_calibration(&noise);
        assert!(!noise.helps(), "{noise:?}");
        assert!(noise.brier < noise.brier_uncalibrated, "it is no worse than the scores themselves: {noise:?}");
    }

    #[test]
    fn answers_to_one_question_are_held_out_together() {
        // The question determines everything, the score nothing: a map fitted to other answers to it would know.
        let answers: Vec<RatedAnswer> =
            (0..100).map(|index| rated(index / 10, 1.0 + (index / 10) as f64 / 3.0, index / 10 % 2 == 0)).collect();
        let held_out = cross_validated_calibration(&answers);
        assert!(!held_out.helps(), "{held_out:?}");
    }

    #[test]
    fn too_few_ratings_are_refused_with_what_is_missing() {
        let good = |n: usize| (0..n).map(|question| rated(question, 5.0, true)).collect::<Vec<_>>();
        assert_eq!(check_number_of_ratings(&[]), Err(TooFewRatings { missing: 30, missing_good: 5, missing_bad: 5 }));
        assert_eq!(
            check_number_of_ratings(&good(28)),
            Err(TooFewRatings { missing: 5, missing_good: 0, missing_bad: 5 })
        );
        assert_eq!(
            check_number_of_ratings(&good(100)),
            Err(TooFewRatings { missing: 5, missing_good: 0, missing_bad: 5 })
        );
        assert_eq!(check_number_of_ratings(&ratings(3.0)), Ok(()));
    }
}
