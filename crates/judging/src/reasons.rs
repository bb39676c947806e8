//! Reasons for a grade that was read from probabilities, written when somebody asks for them.

use hone_protocol::{Grade, Juror};

use crate::judge::Judge;
use crate::jury::Jury;

impl Jury {
    /// The same judges, which write their reasons before every verdict.
    #[must_use]
    pub fn with_reasons(self) -> Jury {
        self.of_each(Judge::with_reasons)
    }
}

/// A grade with the reasons that its judge has `written` since. The score stays: it is the one that the judge was examined
/// for. Where the judge comes to another one while it writes, the reasons say so.
///
/// # Errors
/// When nothing was written, or by another judge or for another rubric.
pub fn explained(grade: Grade, written: &Grade) -> Result<Grade, String> {
    if let Some(failure) = &written.judging.failure {
        return Err(format!("the judge gives no reasons: {failure}"));
    }
    if !grade.is_comparable(written) {
        return Err(format!(
            "{} graded this answer for {}, and the judge is now {} for {}: its reasons would be others",
            grade.judging.judge, grade.rubric, written.judging.judge, written.rubric
        ));
    }
    let reasons_of = |juror: Juror<Grade>| {
        let own = written.jury.iter().find(|other| other.name == juror.name);
        match own {
            Some(own) => Juror { verdict: with_feedback(juror.verdict, &own.verdict), ..juror },
            None => juror,
        }
    };
    let jury = grade.jury.iter().cloned().map(reasons_of).collect();
    Ok(Grade { jury, ..with_feedback(grade, written) })
}

fn with_feedback(grade: Grade, written: &Grade) -> Grade {
    let remark = match written.score.filter(|score| grade.score.is_some_and(|other| other != *score)) {
        Some(score) => format!("[With its reasons written out, the judge comes to {score}/5.]"),
        None => String::new(),
    };
    let feedback = [written.feedback.trim(), &remark].into_iter().filter(|part| !part.is_empty());
    Grade { feedback: feedback.collect::<Vec<_>>().join("\n"), ..grade }
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
    fn every_juror_gets_its_own_reasons() {
        let juror = |name: &str, feedback: &str| Juror {
            name: name.to_owned(),
            is_stronger: false,
            verdict: grade(3, name, feedback),
        };
        let of_jury =
            |feedback: &str| Grade { jury: vec![juror("a", feedback), juror("b", feedback)], ..grade(3, "a, b", "") };
        let explained = explained(of_jury(""), &of_jury("Because.")).unwrap();
        assert!(explained.jury.iter().all(|juror| juror.verdict.feedback == "Because."), "{explained:?}");
    }
}
