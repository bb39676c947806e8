//! The badge of a grade, as the terminal shows it: `● 4/5`, hollow `○` if the model graded its own answer,
//! `◇ likely wrong` if the judge gives no score, `◐ 3/5 ±2` if the judges of a jury disagree, and `‼` after the score of an
//! answer that looks as if it tried to influence its judge.

use hone_protocol::{Grade, Judging, JudgingMethod, Likely, remarks_in_words};
use serde_json::{Value, json};

/// The colours of good, fair and poor answers.
const GREEN: &str = "#22c55e";
const AMBER: &str = "#f59e0b";
const RED: &str = "#ef4444";

/// The badge: its text, its colour and the colour's meaning; `null` if there is nothing to show.
pub(super) fn badge(grade: &Grade) -> Value {
    let (tone, color) = match (grade.score, grade.likely) {
        (Some(4..), _) | (None, Some(Likely::Right)) => ("good", GREEN),
        (Some(3), _) => ("fair", AMBER),
        (Some(_), _) | (None, Some(Likely::Wrong)) => ("poor", RED),
        (None, None) => return Value::Null,
    };
    let (mark, text) = (mark(grade), text(grade));
    json!({"mark": mark, "text": format!("{mark} {text}"), "tone": tone, "color": color})
}

/// The judge's name, with the method and whether the model graded itself.
pub(super) fn judge_name(judging: &Judging) -> String {
    let Judging { judge, self_graded, method, .. } = judging;
    let by = match method {
        JudgingMethod::Likelihood => format!("likelihood with {judge}"),
        JudgingMethod::Prompted | JudgingMethod::Reward => judge.clone(),
    };
    if *self_graded { format!("{by} (self-graded)") } else { by }
}

fn mark(grade: &Grade) -> &'static str {
    match &grade.judging {
        _ if grade.disputed => "◐",
        Judging { method: JudgingMethod::Likelihood | JudgingMethod::Reward, .. } => "◇",
        Judging { self_graded: true, .. } => "○",
        _ => "●",
    }
}

fn text(grade: &Grade) -> String {
    let verdict = match (grade.score, grade.likely) {
        (Some(score), _) => format!("{score}/5"),
        (None, likely) => likely.map(|likely| likely.to_string()).unwrap_or_default(),
    };
    let spread = grade.spread.filter(|_| grade.disputed).map(|spread| format!(" ±{spread}")).unwrap_or_default();
    let suspicious = if grade.suspicious.is_some() { " ‼" } else { "" };
    format!("{verdict}{spread}{suspicious}")
}

/// A grade with its badge and other data for a page; the score is null without a grade.
pub(super) fn grade_json(grade: Option<&Grade>) -> Value {
    let Some(grade) = grade else { return json!({"score": null, "badge": null, "remarks": [], "remarked": ""}) };
    let mut object = serde_json::to_value(grade).unwrap_or_default();
    object["badge"] = badge(grade);
    object["remarks"] = json!(grade.remarks);
    object["remarked"] = json!(remarks_in_words(&grade.remarks));
    object["by"] = json!(judge_name(&grade.judging));
    object["warning"] = json!(grade.suspicious.as_ref().map(ToString::to_string));
    object
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
        let judging = Judging { method: JudgingMethod::Likelihood, self_graded: true, ..Judging::default() };
        let likely = Grade { likely: Some(Likely::Wrong), judging, ..Grade::default() };
        assert_eq!(badge(&likely)["text"], "◇ likely wrong");
        assert_eq!(badge(&Grade { likely: None, ..likely }), Value::Null);
        check(1, Judging::default(), ["● 1/5", "poor", RED]);
        assert_eq!(badge(&Grade::default()), Value::Null);
    }
}
