//! Graded answers whose quality people have said.

use super::measure::OfQuestion;

/// Why answers have no figures that compare scores.
pub(super) const OTHER_SCALE: &str = "the reference scores are not on the scale from 1 to 5";

/// A graded answer and what people said of it.
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
    /// The score less the reference.
    pub(super) fn deviation(&self) -> f64 {
        f64::from(self.score) - self.reference
    }
}

impl OfQuestion for GradedAnswer {
    fn question(&self) -> usize {
        self.question
    }
}

/// Scores of different scales correlate, but do not agree or differ.
pub(super) fn refuse_other_scale(answers: &[&GradedAnswer]) -> Result<(), &'static str> {
    let is_on_scale = |answer: &&GradedAnswer| (1.0..=5.0).contains(&answer.reference);
    if answers.iter().all(is_on_scale) { Ok(()) } else { Err(OTHER_SCALE) }
}
