//! The forms of a winner.
//!
//! In addition to the forms at the end of a text, the pairwise prompt asks for one at the start: the letter, then a
//! reason. `A` is also an English word, so the letter counts only if it stands by itself (`A.`, `A:`, `A because`), and
//! only if the other letter does not stand by itself later.

use std::ops::Range;

use hone_protocol::RespondentId;

use super::FoundVerdict;
use super::letter::{is_wrapping, names_alone, stands_alone};
use super::quoted::is_quoted;
use super::statement::{decisions, is_left_standing};
use super::tail::{Separator, Tail, TailToken, TailTokenKind};

/// Words that can label a winner.
const LABELS: &[&str] = &["winner", "verdict", "result"];
/// Words that may precede the letter.
const NOUNS: &[&str] = &["response", "answer"];

/// The winner that `text` names at its end, at its start, or in a deciding sentence.
pub(crate) fn winner_of(text: &str) -> Option<FoundVerdict<RespondentId>> {
    let at_end = winner_at_end(text);
    if at_end.as_ref().is_some_and(|found| found.is_marked) {
        return at_end;
    }
    if holds_marker(text) {
        return None;
    }
    let in_form: Vec<FoundVerdict<RespondentId>> = [at_end, winner_at_start(text)].into_iter().flatten().collect();
    let in_sentences: Vec<FoundVerdict<RespondentId>> = decisions(text).collect();
    let first = in_form.first().or(in_sentences.first())?;
    let is_one = in_form.iter().chain(&in_sentences).all(|other| other.verdict == first.verdict);
    let stands = !in_form.is_empty() || is_left_standing(text, first);
    (is_one && stands).then(|| first.clone())
}

/// The winner named at the end of `text`.
pub(crate) fn winner_at_end(text: &str) -> Option<FoundVerdict<RespondentId>> {
    let mut tail = Tail::of(text);
    let mut brackets = tail.take_closing_brackets();
    let value = tail.take_word(&["a", "b"])?;
    let winner = letter_of(&value)?;
    tail.take_opening_brackets(&mut brackets);
    let noun = tail.take_word(NOUNS);
    let (start, is_marked) = match brackets[..] {
        [] => place_of_plain(text, tail, value)?,
        [bracket] => place_of_bracketed(tail, bracket, noun.is_some())?,
        _ => return None,
    };
    let found = FoundVerdict { verdict: winner, place: start..value.end, value: value.start..value.end, is_marked };
    (!is_quoted(text, start, value.end)).then_some(found)
}

/// `[RESULT] A`, `[RESULT]: Response A`, `Winner: A`: the start offset, and whether `[RESULT]` marks it.
fn place_of_plain(text: &str, mut tail: Tail<'_>, value: TailToken<'_>) -> Option<(usize, bool)> {
    let separator = tail.take_separator();
    if let Some(start) = tail.take_marker() {
        return Some((start, true));
    }
    let label = tail.take_word(LABELS)?;
    let on_one_line = !text[label.end..value.start].contains(['\n', '\r']);
    let is_labelled = separator == Separator::Colon && on_one_line && tail.is_at_boundary();
    is_labelled.then_some((label.start, false))
}

/// `[RESULT: A]`, `[Response A]`: the start offset, and whether `[RESULT]` marks it.
fn place_of_bracketed(mut tail: Tail<'_>, bracket: char, has_noun: bool) -> Option<(usize, bool)> {
    if has_noun && let Some(opening) = tail.take_if(|token| token.kind == TailTokenKind::Mark(bracket)) {
        return tail.is_at_boundary().then_some((opening.start, false));
    }
    tail.take_separator();
    let is_marker = bracket == '[' && tail.take_word(&["result"]).is_some();
    is_marker.then(|| tail.take_marker_opening()).flatten().map(|start| (start, true))
}

/// The winner named at the beginning of `text`, in the form that the pairwise prompt asks for.
fn winner_at_start(text: &str) -> Option<FoundVerdict<RespondentId>> {
    let letter = text.len() - without_opening(text).len();
    let (winner, other) = match text[letter..].chars().next()? {
        'A' => (RespondentId::A, 'B'),
        'B' => (RespondentId::B, 'A'),
        _ => return None,
    };
    let rest = &text[letter + 1..];
    if !stands_alone(rest) || names_alone(rest, other) {
        return None;
    }
    let value: Range<usize> = letter..letter + 1;
    Some(FoundVerdict { verdict: winner, place: 0..value.end, value, is_marked: false })
}

/// The text without white space and quotation marks before its first letter, and without a leading label (`Verdict:`).
fn without_opening(text: &str) -> &str {
    let is_opening = |character: char| character.is_whitespace() || is_wrapping(character) || character == '#';
    let text = text.trim_start_matches(is_opening);
    let after_label = |label: &&str| {
        let start = text.get(..label.len()).filter(|start| start.eq_ignore_ascii_case(label))?;
        text[start.len()..].trim_start_matches(is_wrapping).strip_prefix(':')
    };
    LABELS.iter().find_map(after_label).map_or(text, |rest| rest.trim_start_matches(is_opening))
}

/// Whether `[RESULT` occurs anywhere, in any case.
fn holds_marker(text: &str) -> bool {
    text.split('[').skip(1).any(|after| {
        let word = after.trim_start().split(|character: char| !character.is_alphanumeric()).next();
        word.is_some_and(|word| word.eq_ignore_ascii_case("result"))
    })
}

fn letter_of(token: &TailToken<'_>) -> Option<RespondentId> {
    match token.kind {
        TailTokenKind::Word("A" | "a") => Some(RespondentId::A),
        TailTokenKind::Word("B" | "b") => Some(RespondentId::B),
        _ => None,
    }
}
