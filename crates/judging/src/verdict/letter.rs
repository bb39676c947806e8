//! Recognizes a letter that stands by itself, since `A` is also an English word.

use super::tail::is_emphasis;

/// Words after the letter that begin its reason.
const REASONS: &[&str] = &["because", "since"];

/// Whether a letter followed by `rest` is a verdict rather than a word.
pub(super) fn stands_alone(rest: &str) -> bool {
    let rest = rest.trim_start_matches(is_wrapping);
    let mut characters = rest.chars();
    match characters.next() {
        None | Some('\n' | '\r') => true,
        Some('.' | ':' | ',' | ';' | '-' | '–' | '—') => characters.next().is_none_or(char::is_whitespace),
        Some('<') => rest.starts_with("</s>") || rest.starts_with("<|"),
        Some(first) if first.is_whitespace() => {
            let rest = rest.trim_start();
            let word = rest.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default();
            let is_reason = REASONS.iter().any(|reason| reason.eq_ignore_ascii_case(word));
            is_reason || rest.is_empty() || rest.starts_with(['-', '–', '—'])
        }
        Some(_) => false,
    }
}

/// Whether `letter` stands alone at the start of a sentence or line of `text`, as a second verdict would.
pub(super) fn names_alone(text: &str, letter: char) -> bool {
    let mut can_begin = true;
    for (at, character) in text.char_indices() {
        if can_begin && character == letter && is_second_verdict(&text[at + letter.len_utf8()..]) {
            return true;
        }
        let passes_over = character.is_whitespace() || is_wrapping(character) || ",:-–—".contains(character);
        can_begin = ".!?;\n\r".contains(character) || (can_begin && passes_over);
    }
    false
}

/// Like [`stands_alone`], but a comma after the letter may begin a sentence about it ("B, however, is wrong").
fn is_second_verdict(rest: &str) -> bool {
    let after = rest.trim_start_matches(is_wrapping);
    stands_alone(rest) && after.strip_prefix(',').is_none_or(|after| after.trim_start().is_empty())
}

/// Whether a character may surround a letter without changing its meaning.
pub(super) fn is_wrapping(character: char) -> bool {
    is_emphasis(character) || matches!(character, '"' | '\'' | '“' | '”' | '(' | ')' | '[' | ']')
}
