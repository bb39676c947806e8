//! The badge of a grade: `● 4/5`, green for 4 and 5, amber for 3, red for 1 and 2; a hollow `○` where the model graded its
//! own answer, and a `‼` behind the score where the answer looks as if it wanted to influence its judge. An answer without a
//! score has no badge.

use hone_protocol::Grade;
use nu_ansi_term::Color;

/// Follows on the score of a suspicious answer.
pub(crate) const SUSPICIOUS: &str = " ‼";

/// The badge as one text; `None` where there is no score.
pub(crate) fn badge(grade: &Grade, colors: bool) -> Option<String> {
    let (color, text) = colored_badge(grade)?;
    Some(if colors { color.paint(text).to_string() } else { text })
}

/// The badge and its colour; `None` where there is no score.
pub(crate) fn colored_badge(grade: &Grade) -> Option<(Color, String)> {
    grade.score?;
    let (color, mark, score) = parts(grade.score, grade.judging.self_graded);
    let suspicious = if grade.suspicious.is_some() { SUSPICIOUS } else { "" };
    Some((color, format!("{mark} {score}{suspicious}")))
}

/// A score as a mark with its colour, and as text; where there is none, both are blank.
pub(crate) fn parts(score: Option<u8>, self_graded: bool) -> (Color, &'static str, String) {
    let Some(score) = score else { return (Color::Default, " ", "   ".to_string()) };
    let color = match score {
        4.. => Color::Green,
        3 => Color::Yellow,
        _ => Color::Red,
    };
    (color, if self_graded { "○" } else { "●" }, format!("{score}/5"))
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Judging, Suspicion, SuspicionKind};

    use super::*;

    #[track_caller]
    fn check(score: impl Into<Option<u8>>, self_graded: bool, expected: Option<&str>) {
        let judging = Judging { self_graded, ..Judging::default() };
        let grade = Grade { score: score.into(), judging, ..Grade::default() };
        let colored = badge(&grade, true).map(|badge| badge.replace('\u{1b}', "^"));
        assert_eq!(colored.as_deref(), expected);
        let plain = expected.and_then(|badge| Some(badge.split_once('m')?.1.split_once('^')?.0));
        assert_eq!(badge(&grade, false).as_deref(), plain);
    }

    #[test]
    fn a_suspicious_answer_has_a_mark_behind_its_score() {
        let suspicious =
            Some(Suspicion { kind: SuspicionKind::ClaimsScore, is_hidden: false, passage: "it is a 5".to_string() });
        let grade = Grade { score: Some(1), suspicious, ..Grade::default() };
        assert_eq!(badge(&grade, false).as_deref(), Some("● 1/5 ‼"));
        assert_eq!(badge(&Grade { score: None, ..grade }, false), None);
    }

    #[test]
    fn a_badge_shows_score_and_judge() {
        check(5, false, Some("^[32m● 5/5^[0m"));
        check(4, false, Some("^[32m● 4/5^[0m"));
        check(3, false, Some("^[33m● 3/5^[0m"));
        check(2, false, Some("^[31m● 2/5^[0m"));
        check(1, true, Some("^[31m○ 1/5^[0m"));
        check(None, false, None);
        check(None, true, None);
    }
}
