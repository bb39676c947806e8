//! The subjects of a report: outcomes of tasks, answers, and pairs of answers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hone_judging::{Contender, GRADES, OUTCOMES, PairRow, ReportRow};
use hone_memory::{GradeOutline, Outline};
use hone_work::{TaskPhase, TaskRecord, findings_about, type_of};

use super::CHAT;
use crate::arguments::ReportArguments;
use crate::badge::judge_name;

/// Scores below this, from 1 to 5, leave something to improve.
const GOOD_SCORE: u8 = 4;

/// A row for every task and agent that worked on it.
pub(super) fn task_rows(records: &[&TaskRecord], phases: &[TaskPhase]) -> Vec<ReportRow> {
    let scale: Arc<str> = "tasks".into();
    let rows = records.iter().flat_map(|record| {
        let scale = Arc::clone(&scale);
        record.outcomes(phases).into_iter().map(move |outcome| ReportRow {
            respondent: None,
            temperature: outcome.temperature,
            thinking: outcome.thinking,
            kind: Cow::Owned(type_of(record).to_owned()),
            scale: Arc::clone(&scale),
            range: OUTCOMES,
            score: Some(outcome.score()),
            likely: None,
            at: outcome.at.0,
            suggestions: findings_about(record, &outcome.agent),
            agent: outcome.agent,
        })
    });
    rows.collect()
}

/// A row for every answer; grades that a model gave itself are on a scale of their own.
pub(super) fn answer_rows(outlines: &[Outline]) -> Vec<ReportRow> {
    let mut scales = Scales::default();
    let rows = outlines.iter().filter(|outline| !outline.model.is_empty()).map(|outline| {
        let grade = outline.grade.as_ref().filter(|grade| grade.score.is_some() || grade.probability.is_some());
        let score = grade.and_then(|grade| grade.score);
        let is_poor = |grade: &&GradeOutline| grade.score.is_some_and(|score| score < GOOD_SCORE);
        let suggestion = grade.filter(is_poor).map(|grade| grade.feedback.clone());
        ReportRow {
            agent: outline.model.clone(),
            respondent: Some(outline.respondent_id),
            temperature: Some(outline.temperature),
            thinking: outline.thinking,
            kind: Cow::Borrowed(outline.question_type.as_str()),
            scale: scales.of(grade),
            range: GRADES,
            score: score.map(f64::from),
            likely: grade.and_then(|grade| grade.likely),
            at: outline.at.0,
            suggestions: suggestion.into_iter().filter(|text| !text.is_empty()).collect(),
        }
    });
    rows.collect()
}

/// The names of scales, each written once.
#[derive(Default)]
struct Scales<'a> {
    known: Vec<(&'a GradeOutline, Arc<str>)>,
}

impl<'a> Scales<'a> {
    fn of(&mut self, grade: Option<&'a GradeOutline>) -> Arc<str> {
        let Some(grade) = grade else { return "not graded".into() };
        let is_same = |known: &GradeOutline| {
            (&known.judge, known.self_graded, known.method, &known.rubric)
                == (&grade.judge, grade.self_graded, grade.method, &grade.rubric)
        };
        if let Some((_, scale)) = self.known.iter().find(|(known, _)| is_same(known)) {
            return Arc::clone(scale);
        }
        let scale: Arc<str> = format!("{}, {}", judge_name(&grade.judging()), grade.rubric).into();
        self.known.push((grade, Arc::clone(&scale)));
        scale
    }
}

/// The pairs of answers that are both remembered and pass the filters. A comparison is stored on both engrams; the one
/// of the respondent whose name comes later in the alphabet counts.
pub(super) fn pair_rows(outlines: &[Outline], arguments: &ReportArguments) -> Vec<PairRow> {
    let respondent = arguments.respondent.map(String::from);
    let by_id: HashMap<_, &Outline> = outlines.iter().map(|outline| (outline.query_id, outline)).collect();
    let pair = |second: &Outline| {
        let compared = second.compared.as_ref()?;
        let first = by_id.get(&compared.with)?;
        let is_later = (&second.respondent_id, second.query_id) > (&first.respondent_id, first.query_id);
        let is_about =
            |name: &Option<String>, names: [&str; 2]| name.as_deref().is_none_or(|name| names.contains(&name));
        let [of_first, of_second] = [contender(first), contender(second)];
        let is_wanted = is_about(&arguments.agent, [&of_first.model, &of_second.model])
            && is_about(&respondent, [&of_first.respondent, &of_second.respondent])
            && arguments.task_type.as_ref().is_none_or(|kind| kind == CHAT || kind == second.question_type.as_str())
            && arguments.since.is_none_or(|since| since <= second.at);
        (is_later && is_wanted).then(|| PairRow {
            judge: judge_name(&compared.judging()),
            consistent: compared.consistent,
            first: of_first,
            second: of_second,
            has_first_won: second.pairwise_winner.map(|won| !won),
        })
    };
    outlines.iter().filter_map(pair).collect()
}

fn contender(outline: &Outline) -> Contender {
    Contender {
        respondent: outline.respondent_id.to_string(),
        model: outline.model.clone(),
        n_characters: outline.n_characters,
    }
}
