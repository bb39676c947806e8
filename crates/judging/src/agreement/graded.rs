//! Graded answers with human ratings of their quality.

use super::measure::OfQuestion;

/// The reason why comparisons of scores are undefined.
pub(super) const OTHER_SCALE: &str = "the reference scores are not on the scale from 1 to 5";

/// A graded answer and its human rating.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradedAnswer {
    /// The number of its question: answers to the same question are not independent.
    pub question: usize,
    /// The reference score.
    pub reference: f64,
    /// The judge's score, 1 to 5.
    pub score: u8,
    /// The judge's expected score, if it has one.
    pub expected_score: Option<f64>,
    /// The length of the answer.
    pub characters: usize,
    /// Seconds that the grading took.
    pub seconds: f64,
}

impl GradedAnswer {
    /// The score minus the reference.
    pub(super) fn deviation(&self) -> f64 {
        f64::from(self.score) - self.reference
    }
}

impl OfQuestion for GradedAnswer {
    fn question(&self) -> usize {
        self.question
    }
}

/// Scores on different scales correlate, but their agreement and difference are undefined.
pub(super) fn refuse_other_scale(answers: &[&GradedAnswer]) -> Result<(), &'static str> {
    let is_on_scale = |answer: &&GradedAnswer| (1.0..=5.0).contains(&answer.reference);
    if answers.iter().all(is_on_scale) { Ok(()) } else { Err(OTHER_SCALE) }
}
