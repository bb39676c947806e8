//! The badge of a grade: `● 4/5`, green for 4 and 5, amber for 3, red for 1 and 2; a hollow `○` if the model graded its
//! own answer, `◇ likely wrong` if the judge gives no score, `◐ 3/5 ±2` if the judges of a jury disagree, and a
//! trailing `‼` if the answer seems to try to influence its judge. An answer without a verdict has no badge.

use hone_protocol::{Grade, Judging, JudgingMethod, Juror, Likely, Preference};
use nu_ansi_term::Color;

use crate::terminal::Line;

/// Appended to the badge of a suspicious answer.
const SUSPICIOUS: &str = " ‼";

/// The badge as a line; `None` if there is nothing to show. `agreement` is the probability that a person agrees, if
/// known.
pub(crate) fn badge(grade: &Grade, agreement: Option<f64>) -> Option<Line> {
    let (color, ..) = shown(grade)?;
    let agreement = agreement.map(|share| format!(" ({:.0} % agree)", 100.0 * share)).unwrap_or_default();
    Some(Line::marked(color, format!("{}{agreement}", text(grade)?), ""))
}

/// The badge as text, without its colour.
pub(crate) fn text(grade: &Grade) -> Option<String> {
    let (_, mark, verdict) = shown(grade)?;
    let suspicious = if grade.suspicious.is_some() { SUSPICIOUS } else { "" };
    Some(format!("{mark} {verdict}{suspicious}"))
}

/// A verdict as a mark with its colour, and as text; without one, both are blank.
pub(crate) fn parts(grade: Option<&Grade>) -> (Color, &'static str, String) {
    grade.and_then(shown).unwrap_or((Color::Default, " ", "   ".to_string()))
}

/// The verdict in a line, or the reason for its absence.
pub(crate) fn in_words(grade: &Grade) -> String {
    match (shown(grade), &grade.judging.failure) {
        (Some((_, mark, verdict)), _) => format!("{mark} {verdict}"),
        (None, Some(failure)) => format!("none: {failure}"),
        (None, None) => format!("none: {}", cannot_tell(&grade.judging)),
    }
}

/// Why an answer that the likelihood judge has seen has no badge.
pub(crate) const CANNOT_TELL: &str = "the likelihood judge cannot tell whether it is right";

/// Why an answer with a verdict has no badge.
pub(crate) fn cannot_tell(judging: &Judging) -> &'static str {
    match judging.method {
        JudgingMethod::Reward => "its reward does not tell whether it is right",
        JudgingMethod::Likelihood | JudgingMethod::Prompted => CANNOT_TELL,
    }
}

fn shown(grade: &Grade) -> Option<(Color, &'static str, String)> {
    let color = match (grade.score, grade.likely) {
        (Some(4..), _) | (None, Some(Likely::Right)) => Color::Green,
        (Some(3), _) => Color::Yellow,
        (Some(_), _) | (None, Some(Likely::Wrong)) => Color::Red,
        (None, None) => return None,
    };
    let verdict = match (grade.score, grade.likely) {
        (Some(score), _) => format!("{score}/5"),
        (None, likely) => likely.map(|likely| likely.to_string()).unwrap_or_default(),
    };
    let mark = if grade.disputed { "◐" } else { mark(Some(&grade.judging)) };
    let spread = grade.spread.filter(|_| grade.disputed).map(|spread| format!(" ±{spread}")).unwrap_or_default();
    Some((color, mark, format!("{verdict}{spread}")))
}

/// The mark of a verdict, which identifies the kind of judge.
pub(crate) fn mark(judging: Option<&Judging>) -> &'static str {
    match judging {
        Some(Judging { method: JudgingMethod::Likelihood | JudgingMethod::Reward, .. }) => "◇",
        Some(Judging { self_graded: true, .. }) => "○",
        _ => "●",
    }
}

/// The judge's name, its method, and whether it graded its own answer.
pub(crate) fn judge_name(judging: &Judging) -> String {
    let Judging { judge, self_graded, method, .. } = judging;
    let by = match method {
        JudgingMethod::Likelihood => format!("likelihood with {judge}"),
        JudgingMethod::Prompted | JudgingMethod::Reward => judge.clone(),
    };
    if *self_graded { format!("{by} (self-graded)") } else { by }
}

/// A member of a jury, by its name.
pub(crate) fn juror_name<V>(juror: &Juror<V>) -> String {
    let Juror { name, is_stronger, .. } = juror;
    if *is_stronger { format!("{name} (the stronger judge)") } else { name.clone() }
}

/// A juror's score for an answer, or the reason why it did not vote.
pub(crate) fn juror_grade(juror: &Juror<Grade>) -> String {
    let Grade { score, expected_score, feedback, judging, .. } = &juror.verdict;
    let Some(score) = score else { return format!("no vote: {}", judging.failure.as_deref().unwrap_or_default()) };
    let expected = expected_score.map(|expected| format!("expected {expected:.2}, ")).unwrap_or_default();
    let raw = juror.verdict.raw_score_of_its_own().map(|raw| format!("{raw} on its scale, ")).unwrap_or_default();
    format!("{score}/5 ({raw}{expected}{:.1} s) {feedback}", judging.seconds).trim_end().to_owned()
}

/// A juror's preference between two answers, or the reason why it did not vote.
pub(crate) fn juror_preference(juror: &Juror<Preference>) -> String {
    let Preference { winner, log_odds, consistent, reason, judging, .. } = &juror.verdict;
    if let Some(failure) = &judging.failure {
        return format!("no vote: {failure}");
    }
    let winner = winner.map_or_else(|| "neither".to_owned(), |winner| winner.to_string());
    let orders = if *consistent { String::new() } else { format!(", {}", about_orders(false)) };
    let (share, seconds) = (share_of_a(*log_odds), judging.seconds);
    format!("{winner} ({share}{orders}, {seconds:.1} s) {reason}").trim_end().to_owned()
}

/// The judge's probability that answer A is better.
fn share_of_a(log_odds: f64) -> String {
    format!("{:.0} % for A", 100.0 / (1.0 + (-log_odds).exp()))
}

fn about_orders(agree: bool) -> &'static str {
    if agree { "both orders agree" } else { "the orders disagree" }
}

/// The grounds of a preference: the judge's probability that answer A is better, whether it depends on the order, and
/// the judge.
pub(crate) fn grounds_of_preference(judging: &Judging, log_odds: f64, is_consistent: bool) -> Vec<String> {
    // The likelihood judge prefers an answer only if its marks differ, so a share would contradict it.
    let has_share = judging.method != JudgingMethod::Likelihood;
    let share = has_share.then(|| share_of_a(log_odds));
    // Other methods see each answer by itself.
    let orders = judging.method.is_prompted().then(|| about_orders(is_consistent).to_owned());
    share.into_iter().chain(orders).chain([format!("by {}", judge_name(judging))]).collect()
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Suspicion, SuspicionKind};

    use super::*;

    #[track_caller]
    fn check(score: impl Into<Option<u8>>, self_graded: bool, expected: Option<(Color, &str)>) {
        let judging = Judging { self_graded, ..Judging::default() };
        let grade = Grade { score: score.into(), judging, ..Grade::default() };
        assert_eq!(badge(&grade, None), expected.map(|(color, text)| Line::marked(color, text, "")));
    }

    #[test]
    fn a_suspicious_answer_has_a_mark_behind_its_score() {
        let suspicious =
            Some(Suspicion { kind: SuspicionKind::ClaimsScore, is_hidden: false, passage: "it is a 5".to_string() });
        let grade = Grade { score: Some(1), suspicious, ..Grade::default() };
        assert_eq!(badge(&grade, None), Some(Line::marked(Color::Red, "● 1/5 ‼", "")));
        assert_eq!(badge(&Grade { score: None, ..grade }, None), None);
    }

    #[test]
    fn the_likelihood_judge_shows_no_number() {
        let judging = Judging { method: JudgingMethod::Likelihood, self_graded: true, ..Judging::default() };
        let grade = Grade { probability: Some(0.1), likely: Some(Likely::Wrong), judging, ..Grade::default() };
        assert_eq!(badge(&grade, None), Some(Line::marked(Color::Red, "◇ likely wrong", "")));
        assert_eq!(in_words(&grade), "◇ likely wrong");
        let unknown = Grade { likely: None, ..grade };
        assert_eq!((badge(&unknown, None), in_words(&unknown)), (None, format!("none: {CANNOT_TELL}")));
    }

    #[test]
    fn the_agreement_of_people_stands_behind_the_score() {
        let grade = Grade { score: Some(4), ..Grade::default() };
        assert_eq!(badge(&grade, Some(0.824)), Some(Line::marked(Color::Green, "● 4/5 (82 % agree)", "")));
        assert_eq!(badge(&Grade { score: None, ..grade }, Some(0.8)), None);
    }

    #[test]
    fn a_jury_that_disagrees_is_marked_with_its_spread() {
        let grade = Grade { score: Some(3), spread: Some(2), disputed: true, ..Grade::default() };
        assert_eq!(badge(&grade, None), Some(Line::marked(Color::Yellow, "◐ 3/5 ±2", "")));
        let agreeing = Grade { disputed: false, ..grade };
        assert_eq!(badge(&agreeing, None), Some(Line::marked(Color::Yellow, "● 3/5", "")));
    }

    #[test]
    fn a_juror_says_its_score_or_why_it_has_none() {
        let judging = Judging { seconds: 1.25, ..Judging::default() };
        let (expected_score, feedback) = (Some(3.5), "It is right.".to_owned());
        let verdict = Grade { score: Some(4), expected_score, feedback, judging, ..Grade::default() };
        let juror = Juror { name: "j".to_owned(), is_stronger: true, verdict };
        let told = (juror_name(&juror), juror_grade(&juror));
        assert_eq!(told, ("j (the stronger judge)".into(), "4/5 (expected 3.50, 1.2 s) It is right.".into()));
        let failed = Juror { verdict: Grade::unscored("timeout"), ..juror };
        assert_eq!(juror_grade(&failed), "no vote: timeout");
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
