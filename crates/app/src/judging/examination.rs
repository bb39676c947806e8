//! Examines a judge.

use anyhow::bail;
use hone_judging::{
    CompareTask, GradeTask, LIKELIHOOD, Marks, Question, QuestionGrades, QuestionSet, examination_stages,
};
use hone_protocol::Grade;

use super::driver::{Completed, Driver, Judged};

/// The number of comparisons that show whether the order of the answers decides.
const COMPARISONS: usize = 10;

/// Examines the driver's judge, and shows how many gradings are done, out of how many at most. Verdicts come from the
/// cache if an earlier examination was interrupted. Returns `None` if this one is.
///
/// # Errors
/// When the judge gives no grade.
pub(super) fn examine(driver: &Driver<'_>) -> anyhow::Result<Option<Marks>> {
    let settings = driver.judge.first().settings();
    let questions = QuestionSet::shipped().questions;
    let (likelihood, rewards) = (settings.model == LIKELIHOOD, driver.judge.first().is_reward_model());
    let n_comparisons = if likelihood || rewards { 0 } else { 2 * COMPARISONS };
    let total = 3 * questions.len() + n_comparisons;
    let mut grades: Vec<Grade> = Vec::new();
    for stage in examination_stages(questions.len()) {
        let begun = grades.len() / 3;
        let tasks: Vec<GradeTask> = questions[begun..stage].iter().flat_map(Question::grade_tasks).collect();
        let completed = driver.judge_all(&tasks, |judged: Judged<Grade>| {
            if let Some(failure) = judged.verdict.judging.failure {
                bail!("{} gives no grade: {failure}", settings.model);
            }
            grades.push(judged.verdict);
            driver.activity.advance(grades.len(), total, "");
            Ok(())
        })?;
        if completed == Completed::UntilInterrupt {
            return Ok(None);
        }
        // The scale of rewards is learnt from all answers.
        if !rewards && marks(&questions, &grades, None).is_clear(settings.least_auc) {
            break;
        }
    }
    let position_bias = match n_comparisons {
        0 => None,
        _ => match position_bias(driver, &questions[..COMPARISONS])? {
            None => return Ok(None),
            known => known,
        },
    };
    Ok(Some(marks(&questions, &grades, position_bias)))
}

fn marks(questions: &[Question], grades: &[Grade], position_bias: Option<f64>) -> Marks {
    let score = |grade: &Grade| grade.reward().or(grade.on_scale()).unwrap_or(3.0);
    let of_question = |(question, grades): (&Question, &[Grade])| QuestionGrades {
        good: score(&grades[0]),
        mediocre: score(&grades[1]),
        bad: score(&grades[2]),
        is_manipulative: question.is_manipulative,
    };
    let by_question: Vec<QuestionGrades> = questions.iter().zip(grades.chunks_exact(3)).map(of_question).collect();
    let seconds: Vec<f64> =
        grades.iter().map(|grade| (grade.judging.seconds - grade.judging.queue_seconds).max(0.0)).collect();
    match grades.iter().all(|grade| grade.reward().is_some()) {
        true => Marks::of_rewards(&by_question, &seconds),
        false => Marks::of(&by_question, position_bias, &seconds),
    }
}

/// The share of comparisons whose winner changes with the order; `None` if the user stopped them.
fn position_bias(driver: &Driver<'_>, questions: &[Question]) -> anyhow::Result<Option<f64>> {
    let task = |question: &Question| CompareTask {
        query: question.question.clone(),
        answer_a: question.answers.good.clone(),
        answer_b: question.answers.bad.clone(),
    };
    let tasks: Vec<CompareTask> = questions.iter().map(task).collect();
    let mut n_inconsistent = 0;
    let completed = driver.judge_all(&tasks, |judged| {
        n_inconsistent += usize::from(!judged.verdict.consistent);
        Ok(())
    })?;
    Ok((completed == Completed::All).then(|| n_inconsistent as f64 / tasks.len() as f64))
}
