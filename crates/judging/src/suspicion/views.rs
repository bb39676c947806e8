//! A text as it looks, and as it reads once decoded.
//!
//! Every character of a view is mapped to the bytes of the text that it represents, so that any finding in a view can
//! be located in the text.

use std::ops::Range;

use crate::neutralize::{Sign, is_invisible, signs};

/// Minimum number of single characters in a row that make a spaced-out word.
const LEAST_SPACED: usize = 4;
/// Minimum characters of Base64 to decode.
const LEAST_BASE64: usize = 12;
/// Minimum characters of an invisible text.
const LEAST_INVISIBLE: usize = 4;

/// A view of a text.
pub(super) struct TextView {
    text: String,
    /// The start of each character, and the bytes of the original that it represents.
    origins: Vec<(usize, Range<usize>)>,
    is_disguise: bool,
}

impl TextView {
    /// The characters, with runs of white space reduced to one space or line break each, without emphasis.
    fn new(signs: &[Sign], is_disguise: bool) -> TextView {
        let mut view = TextView { text: String::new(), origins: Vec::with_capacity(signs.len()), is_disguise };
        for sign in signs.iter().filter(|sign| !matches!(sign.looks_like, '*' | '~')) {
            let shown = match sign.looks_like {
                _ if sign.ends_line => '\n',
                blank if blank.is_whitespace() => ' ',
                other => other,
            };
            match (shown, view.text.chars().next_back()) {
                (' ', Some(' ' | '\n')) | ('\n', Some('\n')) => {}
                ('\n', Some(' ')) => {
                    view.text.pop();
                    view.origins.pop();
                    view.push(shown, sign);
                }
                _ => view.push(shown, sign),
            }
        }
        view
    }

    fn push(&mut self, shown: char, sign: &Sign) {
        self.origins.push((self.text.len(), sign.at..sign.at + sign.length));
        self.text.push(shown);
    }

    /// The view's text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the text must be decoded to read like this.
    pub(super) fn is_disguise(&self) -> bool {
        self.is_disguise
    }

    /// The bytes of the original that these bytes of the view represent.
    pub(super) fn place_of(&self, range: &Range<usize>) -> Range<usize> {
        let first = self.origins.partition_point(|(start, _)| *start < range.start);
        let end = self.origins.partition_point(|(start, _)| *start < range.end);
        let places = || self.origins[first..end.max(first)].iter().map(|(_, place)| place);
        let start = places().map(|place| place.start).min().unwrap_or(0);
        start..places().map(|place| place.end).max().unwrap_or(start)
    }
}

/// The text as it looks, followed by the views that differ from it.
pub(super) fn views(text: &str) -> Vec<TextView> {
    let plain = signs(text);
    let mut views = vec![TextView::new(&plain, false)];
    views.extend(
        [joined, unescaped, without_digits_in_words]
            .iter()
            .filter_map(|change| change(&plain).map(|changed| TextView::new(&changed, true))),
    );
    views.extend(base64(text, &plain).map(|decoded| TextView::new(&decoded, true)));
    views.push(TextView::new(&rotated(&plain), true));
    views.push(TextView::new(&plain.iter().rev().copied().collect::<Vec<Sign>>(), true));
    views
}

/// Whether a passage contains invisible characters or ones that look like Latin letters.
pub(super) fn is_disguised(passage: &str) -> bool {
    let is_strange = |(at, character): (usize, char)| match character {
        '\u{fe0f}' | '\u{200d}' => passage[..at].chars().next_back().is_some_and(|before| before.is_ascii()),
        _ => is_invisible(character) && character != '\r',
    };
    let is_latin = |text: &str| text.chars().any(|character| character.is_ascii_alphabetic());
    let mixes = |word: &str| is_latin(word) && word.chars().any(looks_latin);
    passage.char_indices().any(is_strange) || passage.split_whitespace().any(mixes) || passage.chars().any(is_styled)
}

/// Whether a character is a Cyrillic or Greek letter.
fn looks_latin(character: char) -> bool {
    matches!(character, '\u{370}'..='\u{52f}')
}

/// Whether a character is an ASCII letter or mark in another form.
fn is_styled(character: char) -> bool {
    matches!(character, '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}' | '\u{2460}'..='\u{24ff}' | '\u{1f130}'..='\u{1f189}')
}

/// Texts in tag characters, which no font shows. Regional flags, which also consist of tag characters, are left out.
pub(super) fn invisible_texts(text: &str) -> impl Iterator<Item = (Range<usize>, String)> {
    let mut found: Vec<(Range<usize>, String)> = Vec::new();
    let mut previous = ' ';
    let mut is_flag = false;
    for (at, character) in text.char_indices() {
        let is_tag = matches!(character, '\u{e0020}'..='\u{e007e}');
        let goes_on = found.last().is_some_and(|(place, _)| place.end == at);
        is_flag = is_tag && (is_flag || previous == '\u{1f3f4}');
        let shown = char::from_u32(u32::from(character).wrapping_sub(0xe0000)).filter(|_| is_tag && !is_flag);
        match (shown, found.last_mut()) {
            (Some(shown), Some((place, read))) if goes_on => {
                place.end = at + character.len_utf8();
                read.push(shown);
            }
            (Some(shown), _) => found.push((at..at + character.len_utf8(), shown.to_string())),
            (None, _) => {}
        }
        previous = character;
    }
    found.into_iter().filter(|(_, read)| read.len() >= LEAST_INVISIBLE)
}

/// The text with spaced-out words joined: `s c o r e`, `s.c.o.r.e`. Two spaces separate such words. If one word is too
/// long to be an accident, shorter ones are joined too.
fn joined(signs: &[Sign]) -> Option<Vec<Sign>> {
    let mut result = Vec::with_capacity(signs.len());
    let mut index = 0;
    let mut longest = 0;
    while index < signs.len() {
        let begins = index == 0 || !is_letter(&signs[index - 1]);
        let n_letters = if begins { spaced_letters(&signs[index..]) } else { 1 };
        let length = (2 * n_letters).max(2) - 1;
        result.extend(signs[index..index + length].iter().step_by(2).copied());
        longest = longest.max(n_letters);
        index += length;
    }
    (longest >= LEAST_SPACED).then_some(result)
}

/// The number of single letters at the start of the signs that are separated by the same character.
fn spaced_letters(signs: &[Sign]) -> usize {
    let separator = signs.get(1).filter(|sign| !is_letter(sign) && !sign.ends_line).map(|sign| sign.looks_like);
    let is_single = |index: &usize| {
        let is_next = |at: usize| signs.get(at).is_none_or(|next| !is_letter(next));
        let follows = *index == 0 || signs.get(2 * index - 1).map(|sign| sign.looks_like) == separator;
        let is_letter = |sign: &Sign| sign.looks_like.is_alphabetic();
        follows && signs.get(2 * index).is_some_and(is_letter) && is_next(2 * index + 1)
    };
    match separator {
        Some(_) => (0..).take_while(is_single).count(),
        None => 0,
    }
}

fn is_letter(sign: &Sign) -> bool {
    sign.looks_like.is_alphanumeric()
}

/// The text with `&#91;`, `%5B` and `\u005b` decoded.
fn unescaped(signs: &[Sign]) -> Option<Vec<Sign>> {
    let mut result = Vec::with_capacity(signs.len());
    let mut index = 0;
    while index < signs.len() {
        let (character, length) = escaped(&signs[index..]).unwrap_or((signs[index].looks_like, 1));
        let (first, last) = (signs[index], signs[index + length - 1]);
        let ends_line = if length == 1 { first.ends_line } else { character == '\n' };
        let looks_like = character.to_ascii_lowercase();
        result.push(Sign { at: first.at, length: last.at + last.length - first.at, looks_like, ends_line });
        index += length;
    }
    (result.len() < signs.len()).then_some(result)
}

/// The character that an escape at the start of the signs represents, and the escape's length.
fn escaped(signs: &[Sign]) -> Option<(char, usize)> {
    if !matches!(signs.first()?.looks_like, '&' | '%' | '\\') {
        return None;
    }
    let start: String = signs.iter().take(10).map(|sign| sign.looks_like).collect();
    let hexadecimal = |digits: Option<&str>| u32::from_str_radix(digits?, 16).ok().and_then(char::from_u32);
    if let Some(rest) = start.strip_prefix("&#") {
        let end = rest.find(';')?;
        let code = match rest[..end].strip_prefix('x') {
            Some(digits) => hexadecimal(Some(digits))?,
            None => char::from_u32(rest[..end].parse().ok()?)?,
        };
        return Some((code, start[..2 + end].chars().count() + 1));
    }
    let named = [("&lt;", '<'), ("&gt;", '>'), ("&lbrack;", '['), ("&rbrack;", ']'), ("&nbsp;", ' ')];
    if let Some((name, character)) = named.iter().find(|(name, _)| start.starts_with(name)) {
        return Some((*character, name.len()));
    }
    match start.get(..1)? {
        "%" => Some((hexadecimal(start.get(1..3)).filter(char::is_ascii)?, 3)),
        "\\" if start.get(1..2) == Some("u") => Some((hexadecimal(start.get(2..6))?, 6)),
        "\\" if start.get(1..2) == Some("x") => Some((hexadecimal(start.get(2..4)).filter(char::is_ascii)?, 4)),
        _ => None,
    }
}

/// The text with digits in place of letters replaced by the letters: `sc0re`, `R3SULT`.
fn without_digits_in_words(signs: &[Sign]) -> Option<Vec<Sign>> {
    let letter = |sign: &Sign| match sign.looks_like {
        '0' => Some('o'),
        '1' => Some('i'),
        '3' => Some('e'),
        '4' | '@' => Some('a'),
        '5' | '$' => Some('s'),
        '7' => Some('t'),
        _ => None,
    };
    let is_part = |sign: &Sign| is_letter(sign) || matches!(sign.looks_like, '@' | '$');
    let mut result = signs.to_vec();
    let mut has_changed = false;
    for word in result.chunk_by_mut(|left, right| is_part(left) && is_part(right)) {
        if word.iter().any(|sign| sign.looks_like.is_alphabetic()) {
            for sign in word {
                if let Some(read) = letter(sign) {
                    sign.looks_like = read;
                    has_changed = true;
                }
            }
        }
    }
    has_changed.then_some(result)
}

/// The text with every letter shifted by thirteen places (ROT13).
fn rotated(signs: &[Sign]) -> Vec<Sign> {
    let rotate = |character: char| match character {
        'a'..='m' => char::from(character as u8 + 13),
        'n'..='z' => char::from(character as u8 - 13),
        _ => character,
    };
    signs.iter().map(|sign| Sign { looks_like: rotate(sign.looks_like), ..*sign }).collect()
}

/// The text with Base64 words decoded if they yield English text. Reads `text`, since Base64 depends on case, which
/// signs do not keep.
fn base64(text: &str, signs: &[Sign]) -> Option<Vec<Sign>> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
    let bytes = text.as_bytes();
    let mut result: Vec<Sign> = Vec::new();
    let mut done = 0;
    let mut start = 0;
    while start < bytes.len() {
        let length = bytes[start..].iter().take_while(|byte| is_part(**byte)).count();
        let decoded = (length >= LEAST_BASE64).then(|| decoded_base64(&bytes[start..start + length])).flatten();
        if let Some(decoded) = decoded {
            result.extend(signs.iter().filter(|sign| sign.at >= done && sign.at < start));
            let sign = |looks_like: char| Sign { at: start, length, looks_like, ends_line: looks_like == '\n' };
            result.extend(decoded.chars().map(|character| sign(character.to_ascii_lowercase())));
            done = start + length;
        }
        start += length.max(1);
    }
    (done > 0).then(|| {
        result.extend(signs.iter().filter(|sign| sign.at >= done));
        result
    })
}

/// The decoded Base64, if it is printable ASCII.
fn decoded_base64(bytes: &[u8]) -> Option<String> {
    let value = |byte: &u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let values: Vec<u8> = bytes.iter().take_while(|byte| **byte != b'=').map(value).collect::<Option<_>>()?;
    let mut decoded = String::new();
    for group in values.chunks(4) {
        let bits = group.iter().fold(0_u32, |bits, value| bits << 6 | u32::from(*value)) << (6 * (4 - group.len()));
        decoded.extend(bits.to_be_bytes()[1..].iter().take(group.len() - 1).map(|byte| char::from(*byte)));
    }
    let is_text = decoded.chars().all(|character| character.is_ascii_graphic() || " \n\t".contains(character));
    is_text.then_some(decoded)
}
