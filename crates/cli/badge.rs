//! The badge of a grade: `● 4/5`, green for 4 and 5, amber for 3, red for 1 and 2; a hollow `○` if the model graded its
//! own answer, `◇ 4/5 likelihood` if no model was asked for the grade, and a `‼` after the score if the answer looks as if it tried to influence its judge. An answer without a
//! score has no badge.

use hone_protocol::{Grade, Judging, JudgingMethod};
use nu_ansi_term::Color;

use crate::terminal::Line;

/// Appended to the score of a suspicious answer.
pub(crate) const SUSPICIOUS: &str = " ‼";

/// The badge as a line; `None` if there is no score.
pub(crate) fn badge(grade: &Grade) -> Option<Line> {
    grade.score?;
    let (color, mark, score) = parts(grade.score, Some(&grade.judging));
    let method = if grade.judging.method == JudgingMethod::Likelihood { " likelihood" } else { "" };
    let suspicious = if grade.suspicious.is_some() { SUSPICIOUS } else { "" };
    Some(Line::marked(color, format!("{mark} {score}{method}{suspicious}"), ""))
}

/// A score as a mark with its colour, and as text; without a score, both are blank.
pub(crate) fn parts(score: Option<u8>, judging: Option<&Judging>) -> (Color, &'static str, String) {
    let Some(score) = score else { return (Color::Default, " ", "   ".to_string()) };
    let color = match score {
        4.. => Color::Green,
        3 => Color::Yellow,
        _ => Color::Red,
    };
    let mark = match judging {
        Some(Judging { method: JudgingMethod::Likelihood, .. }) => "◇",
        Some(Judging { self_graded: true, .. }) => "○",
        _ => "●",
    };
    (color, mark, format!("{score}/5"))
}

/// The judge, with its model and what else a reader should know about it.
pub(crate) fn judge_name(judging: &Judging) -> String {
    let Judging { judge, self_graded, method, .. } = judging;
    match (method, self_graded) {
        (JudgingMethod::Likelihood, _) => format!("likelihood with {judge}"),
        (JudgingMethod::Prompted, true) => format!("{judge} (self-graded)"),
        (JudgingMethod::Prompted, false) => judge.clone(),
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Suspicion, SuspicionKind};

    use super::*;

    #[track_caller]
    fn check(score: impl Into<Option<u8>>, self_graded: bool, expected: Option<(Color, &str)>) {
        let judging = Judging { self_graded, ..Judging::default() };
        let grade = Grade { score: score.into(), judging, ..Grade::default() };
        assert_eq!(badge(&grade), expected.map(|(color, text)| Line::marked(color, text, "")));
    }

    #[test]
    fn a_suspicious_answer_has_a_mark_behind_its_score() {
        let suspicious =
            Some(Suspicion { kind: SuspicionKind::ClaimsScore, is_hidden: false, passage: "it is a 5".to_string() });
        let grade = Grade { score: Some(1), suspicious, ..Grade::default() };
        assert_eq!(badge(&grade), Some(Line::marked(Color::Red, "● 1/5 ‼", "")));
        assert_eq!(badge(&Grade { score: None, ..grade }), None);
    }

    #[test]
    fn a_grade_from_log_probabilities_is_marked() {
        let judging = Judging { method: JudgingMethod::Likelihood, self_graded: true, ..Judging::default() };
        let grade = Grade { score: Some(3), judging, ..Grade::default() };
        assert_eq!(badge(&grade), Some(Line::marked(Color::Yellow, "◇ 3/5 likelihood", "")));
    }

    #[test]
    fn a_badge_shows_score_and_judge() {
        check(5, false, Some((Color::Green, "● 5/5")));
        check(4, false, Some((Color::Green, "● 4/5")));
        check(3, false, Some((Color::Yellow, "● 3/5")));
        check(2, false, Some((Color::Red, "● 2/5")));
        check(1, true, Some((Color::Red, "○ 1/5")));
        check(None, false, None);
        check(None, true, None);
    }
}
