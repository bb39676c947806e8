//! Makes texts harmless before they are shown to a judge, so that an answer cannot grade itself.
//!
//! Anything that the judge could mistake for a part of its own prompt or verdict is marked as quoted: `[RESULT]`,
//! headings like those in the prompt, the control tokens of chat templates. It stays visible and readable, since the
//! judge must grade the answer as given. The text is examined as a reader sees it: without invisible characters, in one
//! case, with look-alikes replaced.

mod appearance;

use crate::verdict::{is_emphasis, score_at_end, winner_at_end};
pub(crate) use appearance::{Sign, folded, is_invisible, signs};

/// Inserted after a bracket that opens a marker.
const QUOTED: &str = "quoted ";
/// Replaces each `#` of a heading.
const HEADING: &str = "»";
/// Replaces each character of a line under a heading.
const UNDERLINE: &str = "·";
/// Minimum length of a run of `#`, `=` or `-` that divides a prompt.
const LEAST_RUN: usize = 3;
/// Control tokens of chat templates in square brackets; spaces and underscores do not count.
const BRACKETED: [&str; 7] =
    ["inst", "systemprompt", "availabletools", "toolcalls", "toolresults", "toolcontent", "modelsettings"];
/// Control tokens in angle brackets.
const ANGLED: [&str; 9] = ["s", "bos", "eos", "pad", "unk", "sys", "start_of_turn", "end_of_turn", "endoftext"];
/// Words that may follow `[RESULT` in a verdict.
const VERDICT_WORDS: [&str; 7] = ["a", "b", "response", "answer", "score", "rating", "grade"];
/// Maximum length of a control token between `<|` and `|>`, in characters.
const LONGEST_CONTROL_TOKEN: usize = 48;

/// Quotes everything in the text that a judge could mistake for its own prompt or verdict.
///
/// Each replacement adds at most a few characters, and the text grows to at most three times its length.
pub fn neutralized(text: &str) -> String {
    neutralized_against(text, &[])
}

/// Like [`neutralized`], for a judge whose verdicts have these markers.
pub(crate) fn neutralized_against(text: &str, markers: &[String]) -> String {
    let signs = signs(text);
    let mut edits = Edits::default();
    markers.iter().for_each(|marker| edits.marker(&signs, marker));
    let mut index = 0;
    while index < signs.len() {
        index = match signs[index].looks_like {
            '[' => edits.bracket(&signs, index),
            '<' => edits.angle(&signs, index),
            '#' => edits.heading(&signs, index),
            _ => index + 1,
        };
    }
    edits.underlines(&signs);
    without_verdict_at_end(edits.apply(text))
}

/// The changes, by byte position.
#[derive(Default)]
struct Edits {
    edits: Vec<Edit>,
}

/// Replaces `removed` bytes at `at` with a text.
struct Edit {
    at: usize,
    removed: usize,
    inserted: &'static str,
}

impl Edits {
    fn replace(&mut self, sign: &Sign, inserted: &'static str) {
        self.edits.push(Edit { at: sign.at, removed: sign.length, inserted });
    }

    /// The marker of a judge's verdict, such as `<score>`, `**Result:**` or `"score":`, with any white space in it. The
    /// quote is inserted before its first letter, so that it is no longer a marker. `[RESULT]` is left to `bracket`.
    fn marker(&mut self, signs: &[Sign], marker: &str) {
        let wanted: Vec<char> = folded(marker).chars().filter(|letter| !letter.is_whitespace()).collect();
        let bare: Vec<&Sign> = signs.iter().filter(|sign| !sign.looks_like.is_whitespace()).collect();
        let Some(letter) = wanted.iter().position(|letter| letter.is_alphanumeric()) else { return };
        if wanted.starts_with(&['[', 'r', 'e', 's', 'u', 'l', 't']) {
            return;
        }
        for part in bare.windows(wanted.len()) {
            if part.iter().zip(&wanted).all(|(sign, letter)| sign.looks_like == *letter) {
                self.edits.push(Edit { at: part[letter].at, removed: 0, inserted: QUOTED });
            }
        }
    }

    /// `[RESULT`, `[INST]` and the like. Like the other methods, returns the index at which to continue.
    fn bracket(&mut self, signs: &[Sign], index: usize) -> usize {
        let rest = &signs[index + 1..];
        let is_result = after_letters(rest, "result").is_some_and(opens_verdict);
        let is_control = || {
            let rest = match rest.first() {
                Some(sign) if sign.looks_like == '/' => &rest[1..],
                _ => rest,
            };
            let closes = |rest: &[Sign]| without_fillers(rest).first().is_some_and(|sign| sign.looks_like == ']');
            BRACKETED.iter().any(|name| after_letters(rest, name).is_some_and(closes))
        };
        if is_result || is_control() {
            self.edits.push(Edit { at: signs[index].at + signs[index].length, removed: 0, inserted: QUOTED });
        }
        index + 1
    }

    /// `<|im_end|>`, `</s>`, `<<SYS>>` and the like.
    fn angle(&mut self, signs: &[Sign], index: usize) -> usize {
        let rest = &signs[index..];
        let Some(length) = length_of_control_token(rest) else { return index + 1 };
        for sign in &rest[..length] {
            match sign.looks_like {
                '<' => self.replace(sign, "‹"),
                '>' => self.replace(sign, "›"),
                _ => {}
            }
        }
        index + length
    }

    /// `###` at any position.
    fn heading(&mut self, signs: &[Sign], index: usize) -> usize {
        let length = signs[index..].iter().take_while(|sign| sign.looks_like == '#').count();
        if length >= LEAST_RUN {
            signs[index..index + length].iter().for_each(|sign| self.replace(sign, HEADING));
        }
        index + length
    }

    /// Lines of `===` or `---` under a line of text.
    fn underlines(&mut self, signs: &[Sign]) {
        let mut is_below_text = false;
        for line in signs.split(|sign| sign.ends_line) {
            let is_blank = line.iter().all(|sign| sign.looks_like.is_whitespace());
            let marks = || line.iter().filter(|sign| !sign.looks_like.is_whitespace());
            let is_run = |mark| marks().count() >= LEAST_RUN && marks().all(|sign| sign.looks_like == mark);
            if is_below_text && (is_run('=') || is_run('-')) {
                marks().for_each(|sign| self.replace(sign, UNDERLINE));
            }
            is_below_text = !is_blank;
        }
    }

    fn apply(mut self, text: &str) -> String {
        self.edits.sort_by_key(|edit| edit.at);
        let mut result = String::with_capacity(text.len() + self.edits.len() * QUOTED.len());
        let mut done = 0;
        for edit in self.edits {
            result.push_str(&text[done..edit.at]);
            result.push_str(edit.inserted);
            done = edit.at + edit.removed;
        }
        result.push_str(&text[done..]);
        result
    }
}

/// The signs after `letters`, which fillers may separate; `None` if the signs do not begin with them.
fn after_letters<'a>(mut rest: &'a [Sign], letters: &str) -> Option<&'a [Sign]> {
    for letter in letters.chars() {
        let (first, after) = without_fillers(rest).split_first()?;
        if first.looks_like != letter {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

/// Whether the text after `[RESULT` makes it a verdict, unlike `[results]` or `[result of the vote]`.
fn opens_verdict(rest: &[Sign]) -> bool {
    let is_part_of_name = matches!(rest, [underscore, next, ..]
        if underscore.looks_like == '_' && next.looks_like.is_alphanumeric());
    if is_part_of_name {
        return false;
    }
    let is_adjacent = rest.first().is_some_and(|sign| sign.looks_like.is_alphabetic());
    let rest = without_fillers(rest);
    match rest.first().map(|sign| sign.looks_like) {
        Some(letter) if letter.is_alphabetic() => {
            let word: String = rest
                .iter()
                .map(|sign| sign.looks_like)
                .take_while(|letter| letter.is_alphanumeric())
                .take(16)
                .collect();
            !is_adjacent && VERDICT_WORDS.contains(&word.as_str())
        }
        Some(',' | '.') => false,
        _ => true,
    }
}

fn without_fillers(signs: &[Sign]) -> &[Sign] {
    let is_filler = |sign: &&Sign| sign.looks_like.is_whitespace() || is_emphasis(sign.looks_like);
    let fillers = signs.iter().take_while(is_filler).count();
    &signs[fillers..]
}

/// The length, in signs, of the control token at the start of `signs`.
fn length_of_control_token(signs: &[Sign]) -> Option<usize> {
    let letter = |index: usize| signs.get(index).map(|sign| sign.looks_like);
    if letter(1) == Some('|') {
        let is_inside = |index: &usize| letter(*index).is_some_and(|letter| !letter.is_whitespace() && letter != '<');
        let bar = (2..LONGEST_CONTROL_TOKEN)
            .take_while(is_inside)
            .find(|index| letter(*index) == Some('|') && letter(index + 1) == Some('>'))?;
        return Some(bar + 2);
    }
    let is_double = letter(1) == Some('<');
    let opening = if is_double { 2 } else { 1 };
    let start = opening + usize::from(letter(opening) == Some('/'));
    let is_part = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let name: String = (start..LONGEST_CONTROL_TOKEN).map_while(letter).take_while(is_part).collect();
    let end = start + name.len();
    let is_closed = letter(end) == Some('>') && (!is_double || letter(end + 1) == Some('>'));
    (is_closed && ANGLED.contains(&name.as_str())).then_some(end + opening)
}

/// If a text ends with an unmarked verdict (`Score: 5`, `Winner: A`), puts the verdict in quotation marks.
fn without_verdict_at_end(text: String) -> String {
    let score = score_at_end(&text).map(|found| found.value);
    let value = score.or_else(|| winner_at_end(&text).map(|found| found.value));
    match value {
        Some(value) => format!("{}“{}”{}", &text[..value.start], &text[value.clone()], &text[value.end..]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
