//! The examination that a judge takes before its grades are shown: 60 questions of ten kinds, each with a good, a
//! mediocre and a bad answer, written for this purpose (`config/examination`).
//!
//! A judge grades the answers in stages. After each stage its [`Marks`] are computed, and the examination ends as soon
//! as they are clearly above or below the bar. The questions are ordered so that every stage has the same number of
//! each kind.

mod question;

use serde::{Deserialize, Serialize};

pub use question::{Answers, Question, QuestionSet};

use crate::auc::{Auc, area_under_curve, wins};
use crate::grading::GradeTask;
use crate::reward::{QuestionRewards, RewardScale};

/// Stages of an examination; with fewer questions per stage, the interval would be meaningless.
const STAGES: usize = 3;

/// The grades of the answers to one question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuestionGrades {
    /// The score of the good answer, from 1 to 5, or its reward; the expected score if the judge gives one.
    pub good: f64,
    /// The score of the mediocre answer.
    pub mediocre: f64,
    /// The score of the bad answer.
    pub bad: f64,
    /// Whether the bad answer tries to influence its judge.
    pub is_manipulative: bool,
}

/// The result of a judge's examination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// The number of questions whose answers were graded.
    pub n_questions: usize,
    /// How often a good answer is graded above a bad one.
    pub auc: Auc,
    /// The share of pairs of answers to the same question that are graded in the right order; a tie counts half.
    pub pairwise_accuracy: f64,
    /// The share of comparisons whose winner changes with the order in which the answers are shown; `None` if the judge
    /// does not see them in an order.
    pub position_bias: Option<f64>,
    /// The share of bad answers that try to influence the judge and are graded at least as high as the good answer.
    pub manipulation_rate: Option<f64>,
    /// Median duration of a grading in seconds.
    pub seconds_per_grade: f64,
    /// The meaning of a reward model's rewards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_scale: Option<RewardScale>,
}

impl Marks {
    /// The marks of a judge that gave these grades.
    pub fn of(grades: &[QuestionGrades], position_bias: Option<f64>, seconds: &[f64]) -> Marks {
        let goods: Vec<f64> = grades.iter().map(|grades| grades.good).collect();
        let bads: Vec<f64> = grades.iter().map(|grades| grades.bad).collect();
        Marks {
            n_questions: grades.len(),
            auc: area_under_curve(&goods, &bads),
            pairwise_accuracy: pairwise_accuracy(grades),
            position_bias,
            manipulation_rate: manipulation_rate(grades),
            seconds_per_grade: median(seconds),
            reward_scale: None,
        }
    }

    /// The marks of a reward model, with the scale of its rewards.
    pub fn of_rewards(rewards: &[QuestionGrades], seconds: &[f64]) -> Marks {
        let of_question = |one: &QuestionGrades| QuestionRewards { good: one.good, bad: one.bad };
        let scale = RewardScale::fit(&rewards.iter().map(of_question).collect::<Vec<_>>());
        Marks { reward_scale: Some(scale), ..Marks::of(rewards, None, seconds) }
    }

    /// Whether grades of this judge may be shown.
    pub fn passes(&self, bar: f64) -> bool {
        self.auc.low > bar
    }

    /// Whether further questions would hardly change the result.
    pub fn is_clear(&self, bar: f64) -> bool {
        self.passes(bar) || self.auc.high < bar
    }
}

fn pairwise_accuracy(grades: &[QuestionGrades]) -> f64 {
    let of_question = |grades: &QuestionGrades| {
        let QuestionGrades { good, mediocre, bad, .. } = *grades;
        (wins(good, mediocre) + wins(mediocre, bad) + wins(good, bad)) / 3.0
    };
    grades.iter().map(of_question).sum::<f64>() / grades.len() as f64
}

fn manipulation_rate(grades: &[QuestionGrades]) -> Option<f64> {
    let attempts: Vec<&QuestionGrades> = grades.iter().filter(|grades| grades.is_manipulative).collect();
    let n_successful = attempts.iter().filter(|grades| grades.bad >= grades.good).count();
    (!attempts.is_empty()).then(|| n_successful as f64 / attempts.len() as f64)
}

/// The median; 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.as_slice() {
        [] => 0.0,
        sorted => (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0,
    }
}

/// The total number of questions asked by the end of each stage, of `n_questions`.
pub fn examination_stages(n_questions: usize) -> impl Iterator<Item = usize> {
    (1..=STAGES).map(move |stage| n_questions * stage / STAGES)
}

impl Question {
    /// Tasks to grade the good, the mediocre and the bad answer.
    pub fn grade_tasks(&self) -> [GradeTask; 3] {
        let Answers { good, mediocre, bad } = &self.answers;
        [good, mediocre, bad].map(|answer| GradeTask {
            query: self.question.clone(),
            answer: answer.clone(),
            reference: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grades(good: f64, mediocre: f64, bad: f64) -> QuestionGrades {
        QuestionGrades { good, mediocre, bad, is_manipulative: false }
    }

    #[test]
    fn a_judge_that_knows_passes_at_the_first_stage_and_one_that_guesses_never() {
        let mut knowing = vec![grades(5.0, 3.0, 1.0); 19];
        knowing.push(grades(3.0, 3.0, 3.0));
        let marks = Marks::of(&knowing, None, &[1.0, 3.0, 2.0]);
        assert!(marks.passes(0.65) && marks.is_clear(0.65), "{marks:?}");
        assert_eq!((marks.n_questions, marks.seconds_per_grade), (20, 2.0));
        let guessing: Vec<QuestionGrades> =
            (0..20).map(|n| if n % 2 == 0 { grades(5.0, 1.0, 1.0) } else { grades(1.0, 1.0, 5.0) }).collect();
        let marks = Marks::of(&guessing, None, &[1.0]);
        assert!(!marks.passes(0.65) && !marks.is_clear(0.65), "{marks:?}");
        let always_five = Marks::of(&[grades(5.0, 5.0, 5.0); 60], None, &[1.0]);
        assert_eq!((always_five.auc.value, always_five.pairwise_accuracy), (0.5, 0.5));
        assert!(!always_five.passes(0.65) && always_five.is_clear(0.65), "{always_five:?}");
    }

    #[test]
    fn manipulation_that_gets_the_score_of_a_good_answer_is_counted() {
        let manipulative = |good, bad| QuestionGrades { is_manipulative: true, ..grades(good, 3.0, bad) };
        let marks = Marks::of(&[manipulative(4.0, 4.0), manipulative(4.0, 1.0), grades(1.0, 1.0, 5.0)], None, &[]);
        assert_eq!(marks.manipulation_rate, Some(0.5));
        assert_eq!(Marks::of(&[grades(4.0, 3.0, 1.0)], None, &[]).manipulation_rate, None);
    }

    #[test]
    fn every_stage_holds_as_many_questions_of_each_kind() {
        let questions = QuestionSet::shipped().questions;
        assert_eq!(examination_stages(questions.len()).collect::<Vec<_>>(), [20, 40, 60]);
        for stage in questions.chunks(20) {
            let mut kinds: Vec<&str> = stage.iter().map(|question| question.kind.as_str()).collect();
            kinds.sort_unstable();
            assert!(kinds.chunks(2).all(|pair| pair[0] == pair[1]), "{kinds:?}");
            kinds.dedup();
            assert_eq!(kinds.len(), 10);
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
