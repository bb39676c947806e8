//! The effects of a judge's verdict on an engram, and the work that remains pending.

use hone_protocol::{Comparison, Grade};
use serde_json::{Map, Value};

use crate::backlog::{DUE, Due};
use crate::engram::grade_fields;

/// The pending work in an engram's fields.
pub(crate) fn due_in(fields: &Map<String, Value>) -> Option<Due> {
    let due: Due = serde_json::from_value(fields.get(DUE)?.clone()).ok()?;
    Some(due).filter(|due| !due.is_empty())
}

/// The fields that change after an attempt to grade an answer. A grade never replaces one with more information: a
/// judge's score has most, then the likelihood judge's verdict, and last the reason for a missing verdict, which is
/// stored only if it is final. A judge's reasons for its score stay when the same score arrives without them.
pub(crate) fn after_grading(stored: &Map<String, Value>, grade: &Grade) -> Map<String, Value> {
    let is_there = |name: &str| stored.get(name).is_some_and(|value| !value.is_null());
    let may_stand = match grade.score {
        Some(_) => !(grade.lacks_reasons() && is_explained(stored, grade)),
        None if grade.is_verdict() => !is_there("critic_score"),
        None => !is_there("critic_score") && !is_there("probability"),
    };
    let mut due = due_in(stored).unwrap_or_default();
    let is_final = match &grade.judging.failure {
        _ if grade.is_verdict() => {
            due.judged();
            true
        }
        Some(failure) => due.fail(failure),
        None => false,
    };
    let mut fields = if is_final && may_stand { grade_fields(grade) } else { Map::new() };
    if due_in(stored).is_some() {
        due.grade &= !is_final;
        fields.extend(due.into_fields());
    }
    fields
}

/// Whether this very score is stored with reasons.
fn is_explained(stored: &Map<String, Value>, grade: &Grade) -> bool {
    let fields = grade_fields(grade);
    let has_reasons = stored.get("feedback").and_then(Value::as_str).is_some_and(|feedback| !feedback.is_empty());
    has_reasons && ["critic_score", "judge", "rubric"].iter().all(|name| stored.get(*name) == fields.get(*name))
}

/// The pending work of an engram assembled from several sources, without grades that one of them has.
pub(crate) fn still_due(engram: &Map<String, Value>) -> Map<String, Value> {
    let is_there = |name: &str| engram.get(name).is_some_and(|value| !value.is_null());
    let Some(due) = due_in(engram) else { return Map::new() };
    let due = Due {
        grade: due.grade && !is_there("critic_score") && !is_there("probability"),
        comparison: due.comparison && !is_there("compared"),
        ..due
    };
    due.into_fields()
}

/// Whether a comparison is to be stored on the engrams: it has a verdict, or the final reason for a missing one.
/// `stored` is the engram of respondent B, on which the comparison is due.
pub(crate) fn is_final_comparison(stored: Option<&Map<String, Value>>, comparison: &Comparison) -> bool {
    let mut due = stored.and_then(due_in).unwrap_or_default();
    comparison.preference.judging.failure.as_ref().is_none_or(|failure| due.fail(failure))
}

/// The field that changes on respondent B's engram after an attempt to compare the answers.
pub(crate) fn due_after_comparing(stored: &Map<String, Value>, comparison: &Comparison) -> Map<String, Value> {
    let Some(mut due) = due_in(stored) else { return Map::new() };
    let is_final = match &comparison.preference.judging.failure {
        None => true,
        Some(failure) => due.fail(failure),
    };
    due.comparison &= !is_final;
    due.into_fields()
}

#[cfg(test)]
mod tests {
    use hone_protocol::Likely;
    use hone_protocol::prospect::{CANCELLED, NO_VERDICT, SESSION_CLOSED};

    use super::*;
    use crate::engram::tests::graded;

    /// Checks the fields of an engram after these grades; its grade was due at first.
    #[track_caller]
    fn check(grades: &[Grade], expected: (Option<u8>, Option<&str>, Option<(u32, &str)>)) {
        let mut stored = Due::fresh(false).into_fields();
        for grade in grades {
            stored.extend(after_grading(&stored, grade));
        }
        let due = due_in(&stored);
        let score = stored.get("critic_score").and_then(Value::as_u64).map(|score| score as u8);
        let failure = stored.get("judging_failure").and_then(Value::as_str);
        let due = due.as_ref().map(|due| (due.failures, due.reason.as_deref().unwrap_or_default()));
        assert_eq!((score, failure, due), expected);
    }

    #[test]
    fn a_null_stands_only_where_it_is_final() {
        let unscored = Grade::unscored;
        check(&[], (None, None, Some((0, ""))));
        check(&[graded(4)], (Some(4), None, None));
        check(&[unscored(CANCELLED)], (None, Some(CANCELLED), None));
        check(&[unscored(SESSION_CLOSED)], (None, None, Some((0, SESSION_CLOSED))));
        check(&[unscored("timeout"), unscored("timeout")], (None, None, Some((2, "timeout"))));
        check(&[unscored("timeout"), graded(2)], (Some(2), None, None));
        check(&[unscored(NO_VERDICT)], (None, None, Some((1, NO_VERDICT))));
        check(&[unscored(NO_VERDICT), unscored("timeout"), graded(2)], (Some(2), None, None));
        check(&[unscored(NO_VERDICT), unscored(NO_VERDICT)], (None, Some(NO_VERDICT), None));
        check(&[graded(4), unscored(CANCELLED)], (Some(4), None, None));
        check(&[graded(4), unscored("timeout")], (Some(4), None, None));
    }

    #[test]
    fn the_likelihood_judge_says_less_than_a_judge_and_more_than_a_failure() {
        let likely = || Grade { probability: Some(0.1), likely: Some(Likely::Wrong), ..graded(4) };
        let likely = || Grade { score: None, ..likely() };
        check(&[likely()], (None, None, None));
        check(&[likely(), Grade::unscored(CANCELLED)], (None, None, None));
        check(&[graded(4), likely()], (Some(4), None, None));
        let stored = after_grading(&Map::new(), &likely());
        assert_eq!(stored["likely"], "wrong");
        assert_eq!(after_grading(&stored, &graded(4))["likely"], Value::Null, "a judge's score stands alone");
    }

    #[test]
    fn reasons_stay_when_their_score_comes_once_more_without_them() {
        let silent = |score| Grade { feedback: String::new(), ..graded(score) };
        let after = |first: Grade, second: Grade| {
            let mut stored = after_grading(&Map::new(), &first);
            stored.extend(after_grading(&stored, &second));
            stored["feedback"].clone()
        };
        assert_eq!(after(graded(4), silent(4)), "It deserves 4.");
        assert_eq!(after(silent(4), graded(4)), "It deserves 4.");
        assert_ne!(after(graded(4), silent(2)), "It deserves 4.");
    }

    #[test]
    fn what_is_not_due_does_not_become_so_by_a_failure() {
        assert_eq!(after_grading(&Map::new(), &Grade::unscored("timeout")), Map::new());
    }
}
