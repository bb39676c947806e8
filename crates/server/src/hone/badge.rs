//! The badge of a grade, as the terminal shows it: `● 4/5`, hollow `○` if the model graded its own answer, `◇ 4/5
//! likelihood` if no model was asked, `◐ 3/5 ±2` if the judges of a jury disagree, and `‼` behind the score of an answer
//! that looks as if it tried to influence its judge.

use hone_protocol::{Grade, Judging, JudgingMethod};
use serde_json::{Value, json};

/// The colours of good, fair and poor answers.
const GREEN: &str = "#22c55e";
const AMBER: &str = "#f59e0b";
const RED: &str = "#ef4444";

/// The badge: its text, its colour and what the colour means; `null` if there is no score.
pub(super) fn badge(grade: &Grade) -> Value {
    let Some(score) = grade.score else { return Value::Null };
    let (tone, color) = match score {
        4.. => ("good", GREEN),
        3 => ("fair", AMBER),
        _ => ("poor", RED),
    };
    let (mark, text) = (mark(grade), text(grade, score));
    json!({"mark": mark, "text": format!("{mark} {text}"), "tone": tone, "color": color})
}

/// The judge, with what a reader should know about it.
pub(super) fn judge_name(judging: &Judging) -> String {
    let Judging { judge, self_graded, method, .. } = judging;
    let by = match method {
        JudgingMethod::Likelihood => format!("likelihood with {judge}"),
        JudgingMethod::Prompted => judge.clone(),
    };
    if *self_graded { format!("{by} (self-graded)") } else { by }
}

fn mark(grade: &Grade) -> &'static str {
    match &grade.judging {
        _ if grade.disputed => "◐",
        Judging { method: JudgingMethod::Likelihood, .. } => "◇",
        Judging { self_graded: true, .. } => "○",
        _ => "●",
    }
}

fn text(grade: &Grade, score: u8) -> String {
    let spread = grade.spread.filter(|_| grade.disputed).map(|spread| format!(" ±{spread}")).unwrap_or_default();
    let method = if grade.judging.method == JudgingMethod::Likelihood { " likelihood" } else { "" };
    let suspicious = if grade.suspicious.is_some() { " ‼" } else { "" };
    format!("{score}/5{spread}{method}{suspicious}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(score: u8, judging: Judging, expected: [&str; 3]) {
        let badge = badge(&Grade { score: Some(score), judging, ..Grade::default() });
        assert_eq!([&badge["text"], &badge["tone"], &badge["color"]], expected);
    }

    #[test]
    fn the_badge_says_the_score_and_who_gave_it() {
        check(5, Judging::default(), ["● 5/5", "good", GREEN]);
        check(4, Judging { self_graded: true, ..Judging::default() }, ["○ 4/5", "good", GREEN]);
        let likelihood = Judging { method: JudgingMethod::Likelihood, self_graded: true, ..Judging::default() };
        check(3, likelihood, ["◇ 3/5 likelihood", "fair", AMBER]);
        check(1, Judging::default(), ["● 1/5", "poor", RED]);
        assert_eq!(badge(&Grade::default()), Value::Null);
    }
}
