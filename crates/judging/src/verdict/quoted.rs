//! Whether a verdict is only quoted: `The student wrote "[RESULT] 5"` reports another author's words.
//!
//! A judge may put quotation marks around everything it writes; marks that open later indicate a quotation. Feedback is
//! full of apostrophes and unclosed marks, so a mark counts only if it is closed after the verdict, or touches it.

use super::tail::is_emphasis;

/// Pairs of quotation marks.
const PAIRS: [(char, char); 6] = [('"', '"'), ('\'', '\''), ('“', '”'), ('„', '“'), ('‘', '’'), ('«', '»')];
/// Label that a judge may write before a text that is quoted as a whole.
const LABEL: &str = "feedback:";

/// Whether the verdict that starts at `start`, and whose digit or letter ends at `end`, is in a quotation that begins
/// in the middle of `text`.
pub(super) fn is_quoted(text: &str, start: usize, end: usize) -> bool {
    let (before, after) = (&text[..start], &text[end..]);
    let is_open_quotation = |(opening, closing): (char, char)| {
        let is_closed = after.contains(closing);
        open_since(before, opening, closing)
            .filter(|at| is_closed || before[at + opening.len_utf8()..].is_empty())
            .is_some_and(|at| !is_beginning(&before[..at]))
    };
    PAIRS.into_iter().any(is_open_quotation) || is_code(text, start)
}

/// The start of the quotation that is still open at the end of `text`.
fn open_since(text: &str, opening: char, closing: char) -> Option<usize> {
    let mut open = None;
    let mut previous = None;
    for (at, character) in text.char_indices() {
        let is_in_word = || {
            let next = text[at + character.len_utf8()..].chars().next();
            previous.is_some_and(char::is_alphanumeric) && next.is_some_and(char::is_alphanumeric)
        };
        if open.is_some() && character == closing && !is_in_word() {
            open = None;
        } else if open.is_none() && character == opening && !previous.is_some_and(char::is_alphanumeric) {
            open = Some(at);
        }
        previous = Some(character);
    }
    open
}

/// Whether a text is empty apart from white space, emphasis and the label.
fn is_beginning(text: &str) -> bool {
    let bare = text.trim_matches(|character: char| character.is_whitespace() || is_emphasis(character));
    bare.is_empty() || bare.eq_ignore_ascii_case(LABEL)
}

/// Whether the verdict is code in the middle of a sentence.
fn is_code(text: &str, start: usize) -> bool {
    let goes_on = |last: char| last.is_alphanumeric() || matches!(last, ',' | ':');
    text[start..].starts_with('`') && text[..start].trim_end().ends_with(goes_on) && !is_beginning(&text[..start])
}
