//! The forms of a score.

use super::FoundVerdict;
use super::quoted::is_quoted;
use super::tail::{Separator, Tail, TailToken, TailTokenKind};

/// Words that a score can be labelled with.
const LABELS: &[&str] = &["score", "rating", "grade", "result"];
/// Words that may precede a label.
const ADJECTIVES: &[&str] = &["final", "overall", "total", "the", "my"];

/// The score at the end of `text`.
pub(crate) fn score_at_end(text: &str) -> Option<FoundVerdict<u8>> {
    let mut tail = Tail::of(text);
    let mut brackets = tail.take_closing_brackets();
    let end = tail.peek().end;
    let has_scale = take_scale(&mut tail, &mut brackets);
    let (score, value) = take_score(&mut tail)?;
    tail.take_opening_brackets(&mut brackets);
    let (start, is_marked) = match brackets[..] {
        [] => place_of_plain(text, tail, has_scale, value)?,
        [bracket] => place_of_bracketed(tail, bracket)?,
        _ => return None,
    };
    let found =
        FoundVerdict { verdict: score, place: start..end.max(value.end), value: value.start..value.end, is_marked };
    (!is_quoted(text, start, value.end)).then_some(found)
}

/// `[RESULT] 4`, `[RESULT] Score: 4`, `Score: 4`: the start offset, and whether `[RESULT]` marks it.
fn place_of_plain(text: &str, mut tail: Tail<'_>, has_scale: bool, value: TailToken<'_>) -> Option<(usize, bool)> {
    let separator = tail.take_separator();
    if let Some(start) = tail.take_marker() {
        return Some((start, true));
    }
    let label = tail.take_word(LABELS)?;
    let mut before_label = tail;
    before_label.take_separator();
    if let Some(start) = before_label.take_marker() {
        return Some((start, true));
    }
    let is_labelled = match separator {
        Separator::Colon | Separator::Of => true,
        Separator::Dash => false,
        Separator::None => has_scale,
    };
    // A label on a line of its own is a heading, under which anything may follow.
    let on_one_line = !text[label.end..value.start].contains(['\n', '\r']);
    let start = take_adjectives(&mut tail, label);
    (is_labelled && on_one_line && tail.is_at_boundary()).then_some((start, false))
}

/// `[RESULT: 4]`, `(Score 4)`, `[RESULT] (Score: 4)`: the start offset, and whether `[RESULT]` marks it.
fn place_of_bracketed(mut tail: Tail<'_>, bracket: char) -> Option<(usize, bool)> {
    tail.take_separator();
    let label = tail.take_word(LABELS)?;
    let is_result = matches!(label.kind, TailTokenKind::Word(word) if word.eq_ignore_ascii_case("result"));
    if is_result && bracket == '[' {
        return tail.take_marker_opening().map(|start| (start, true));
    }
    let opening = tail.take_if(|token| token.kind == TailTokenKind::Mark(bracket))?;
    let mut before = tail;
    before.take_separator();
    if let Some(start) = before.take_marker() {
        return Some((start, true));
    }
    tail.is_at_boundary().then_some((opening.start, false))
}

/// Takes `/5`, `out of 5` or `(out of 5)`, the last including its bracket.
fn take_scale(tail: &mut Tail<'_>, brackets: &mut Vec<char>) -> bool {
    let mut ahead = *tail;
    let is_five = ahead.take_word(&["5"]).is_some();
    let is_scale = ahead.take_mark('/') || (ahead.take_word(&["of"]).is_some() && ahead.take_word(&["out"]).is_some());
    if !(is_five && is_scale) {
        return false;
    }
    *tail = ahead;
    if brackets.last() == Some(&'(') && tail.take_mark('(') {
        brackets.pop();
    }
    true
}

fn take_score<'a>(tail: &mut Tail<'a>) -> Option<(u8, TailToken<'a>)> {
    let token = tail.take_word(&["1", "2", "3", "4", "5"])?;
    match token.kind {
        TailTokenKind::Word(word) => Some((word.parse().ok()?, token)),
        _ => None,
    }
}

/// Takes the adjectives before a label; returns their start.
fn take_adjectives(tail: &mut Tail<'_>, label: TailToken<'_>) -> usize {
    let mut start = label.start;
    while let Some(word) = tail.take_if(|token| !token.ends_line && is_adjective(token)) {
        start = word.start;
    }
    start
}

fn is_adjective(token: &TailToken<'_>) -> bool {
    matches!(token.kind, TailTokenKind::Word(word) if ADJECTIVES.iter().any(|wanted| wanted.eq_ignore_ascii_case(word)))
}
