//! Converts formulas as models delimit them, `\\(…\\)` and `\\[…\\]`, to Markdown's dollar signs.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, Parser, Tag};

use super::EXTENSIONS;
use super::math::LONGEST;

/// The opening delimiter of a formula, the closing one, and its sign in Markdown. Markdown's own delimiters are listed
/// because of the text between them: a line of a formula must not be taken for a list or a heading.
const DELIMITERS: [(&str, &str, &str); 3] = [("\\(", "\\)", "$"), ("\\[", "\\]", "$$"), ("$$", "$$", "$$")];

/// The Markdown with each formula between dollar signs and on one line.
pub(super) fn with_dollars(markdown: &str) -> Cow<'_, str> {
    if !DELIMITERS.iter().any(|(begin, ..)| markdown.contains(begin)) {
        return Cow::Borrowed(markdown);
    }
    let code = code_in(markdown);
    let (mut text, mut rest) = (String::with_capacity(markdown.len()), 0);
    let (mut place, mut n_passed) = (0, 0);
    while let Some(character) = markdown[place..].chars().next() {
        while code.get(n_passed).is_some_and(|range| range.end <= place) {
            n_passed += 1;
        }
        if let Some(skipped) = code.get(n_passed).filter(|range| range.contains(&place)) {
            place = skipped.end;
        } else if let Some((formula, end)) = formula_at(markdown, place) {
            text.push_str(&markdown[rest..place]);
            text.push_str(&formula);
            (place, rest) = (end, end);
        } else {
            // A backslash escapes the next character.
            let escaped = markdown[place + character.len_utf8()..].chars().next().filter(|_| character == '\\');
            place += character.len_utf8() + escaped.map_or(0, char::len_utf8);
        }
    }
    text.push_str(&markdown[rest..]);
    Cow::Owned(text)
}

/// The formula that begins at `place`, in dollar signs, and the place after it.
fn formula_at(markdown: &str, place: usize) -> Option<(String, usize)> {
    let here = &markdown[place..];
    let (begin, end, sign) = DELIMITERS.iter().find(|(begin, ..)| here.starts_with(begin))?;
    let inner = &here[begin.len()..];
    // A longer formula is not rendered, and searching for its end from every beginning would take too long.
    let length = inner[..inner.floor_char_boundary(LONGEST + end.len())].find(end)?;
    let latex = &inner[..length];
    let lines: Vec<&str> = latex.trim().lines().map(str::trim).collect();
    let is_one = !lines.is_empty() && !latex.contains('$') && !lines.contains(&"");
    is_one.then(|| (format!("{sign}{}{sign}", lines.join(" ")), place + begin.len() + length + end.len()))
}

/// The ranges of code.
fn code_in(markdown: &str) -> Vec<Range<usize>> {
    let events = Parser::new_ext(markdown, EXTENSIONS).into_offset_iter();
    let is_code = |event: &Event<'_>| matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(_)));
    events.filter(|(event, _)| is_code(event)).map(|(_, range)| range).collect()
}
