//! Reasons for a grade that was read from probabilities, written on request.

use hone_protocol::{Grade, Juror};

use crate::judge::Judge;
use crate::jury::Jury;

impl Jury {
    /// Makes all judges write their reasons before every verdict.
    #[must_use]
    pub fn with_reasons(self) -> Jury {
        self.of_each(Judge::with_reasons)
    }
}

/// A grade with the reasons that its judge or jurors have `written` since. The score stays, since the judges were
/// examined for it. If a judge arrives at another score while writing, the reasons say so.
///
/// # Errors
/// When no reasons were written, or they come from another judge or are for another rubric.
pub fn explained(grade: Grade, written: &Grade) -> Result<Grade, String> {
    match grade.jury.is_empty() {
        true => explained_alone(grade, written),
        false => explained_together(grade, written),
    }
}

fn explained_alone(grade: Grade, written: &Grade) -> Result<Grade, String> {
    if let Some(failure) = &written.judging.failure {
        return Err(format!("the judge gives no reasons: {failure}"));
    }
    if !grade.is_comparable(written) {
        return Err(format!(
            "{} graded this answer for {}, and the judge is now {} for {}: its reasons would be others",
            grade.judging.judge, grade.rubric, written.judging.judge, written.rubric
        ));
    }
    let remark = match written.score.filter(|score| grade.score.is_some_and(|other| other != *score)) {
        Some(score) => format!("[With its reasons written out, the judge comes to {score}/5.]"),
        None => String::new(),
    };
    let feedback: Vec<&str> = [written.feedback.trim(), &remark].into_iter().filter(|part| !part.is_empty()).collect();
    match feedback.is_empty() {
        true => Err("the judge wrote no reasons".to_owned()),
        false => Ok(Grade { feedback: feedback.join("\n"), ..grade }),
    }
}

/// The jury's reasons are those of the juror nearest to the score. A jury decides which other judges to ask by its
/// jurors' verdicts, so each juror is explained by its own reasons.
fn explained_together(mut grade: Grade, written: &Grade) -> Result<Grade, String> {
    let mut failures = Vec::new();
    for juror in grade.jury.iter_mut().filter(|juror| juror.verdict.lacks_reasons()) {
        let own = written.jury.iter().find(|other| other.name == juror.name);
        let own = own.ok_or_else(|| format!("{} is no longer a juror", juror.name));
        match own.and_then(|own| explained_alone(juror.verdict.clone(), &own.verdict)) {
            Ok(verdict) => juror.verdict = verdict,
            Err(reason) => failures.push(reason),
        }
    }
    let score = grade.on_scale().unwrap_or_default();
    let distance = |juror: &&Juror<Grade>| (juror.verdict.on_scale().unwrap_or_default() - score).abs();
    let with_reasons = grade.jury.iter().filter(|juror| !juror.verdict.feedback.is_empty());
    match with_reasons.min_by(|a, b| distance(a).total_cmp(&distance(b))) {
        Some(nearest) => Ok(Grade { feedback: nearest.verdict.feedback.clone(), ..grade }),
        None => Err(failures.into_iter().next().unwrap_or_else(|| "no juror wrote reasons".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::Judging;

    use super::*;

    fn grade(score: u8, judge: &str, feedback: &str) -> Grade {
        let judging = Judging { judge: judge.to_owned(), ..Judging::default() };
        Grade { score: Some(score), feedback: feedback.to_owned(), judging, ..Grade::default() }
    }

    fn feedback(score: u8, written: &Grade) -> Result<String, String> {
        let explained = explained(grade(score, "j", ""), written)?;
        assert_eq!(explained.score, Some(score), "a grade keeps its score");
        Ok(explained.feedback)
    }

    #[test]
    fn a_grade_keeps_its_score_and_says_where_the_reasons_lead_elsewhere() {
        assert_eq!(feedback(4, &grade(4, "j", "Short.")).as_deref(), Ok("Short."));
        let other = "Short.\n[With its reasons written out, the judge comes to 2/5.]";
        assert_eq!(feedback(4, &grade(2, "j", "Short.")).as_deref(), Ok(other));
    }

    #[test]
    fn reasons_of_another_judge_are_not_shown_for_a_grade() {
        assert!(feedback(4, &grade(4, "other", "Short.")).unwrap_err().contains("the judge is now other"));
        let failed = Grade::unscored("timeout");
        assert_eq!(feedback(4, &failed).unwrap_err(), "the judge gives no reasons: timeout");
    }

    #[test]
    fn reasons_that_are_none_are_an_error() {
        assert_eq!(feedback(4, &grade(4, "j", " ")).unwrap_err(), "the judge wrote no reasons");
    }

    fn juror(name: &str, score: u8, feedback: &str) -> Juror<Grade> {
        Juror { name: name.to_owned(), is_stronger: false, verdict: grade(score, name, feedback) }
    }

    #[test]
    fn every_juror_gets_its_own_reasons_and_the_jury_those_of_the_nearest() {
        let silent = Grade { jury: vec![juror("a", 1, ""), juror("b", 3, "")], ..grade(3, "a, b", "") };
        // The stronger judge was asked this time, and one juror has failed.
        let failed = Juror { verdict: Grade::unscored("timeout"), ..juror("a", 1, "") };
        let written =
            Grade { jury: vec![failed, juror("b", 3, "B says."), juror("s", 5, "S.")], ..grade(5, "s", "S.") };
        let explained = explained(silent.clone(), &written).unwrap();
        assert_eq!((explained.score, explained.feedback.as_str()), (Some(3), "B says."));
        assert_eq!(explained.jury[0].verdict.feedback, "");
        let nobody = Grade { jury: vec![juror("c", 3, "C.")], ..grade(3, "c", "C.") };
        assert_eq!(super::explained(silent, &nobody).unwrap_err(), "a is no longer a juror");
    }

    #[test]
    fn a_jury_of_which_one_writes_reasons_anyway_is_explained_by_it() {
        let mixed = Grade { jury: vec![juror("a", 3, "A."), juror("b", 3, "")], ..grade(3, "a, b", "") };
        assert!(mixed.lacks_reasons());
        assert_eq!(explained(mixed, &Grade::unscored("timeout")).unwrap().feedback, "A.");
    }
}
