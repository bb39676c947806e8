//! Makes what could drive a terminal visible instead.
//!
//! Control characters move the cursor, rename windows, answer in the person's name; bidirectional overrides show a text in
//! another order than it has. A person is shown that they are there, and they do nothing.

use std::borrow::Cow;

/// `text` with a visible stand-in for each character that could drive the terminal; line breaks and tabs stay, and the
/// carriage returns of foreign line breaks go.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\r' => {}
            active if is_active(active) => show(active, &mut shown),
            plain => shown.push(plain),
        }
    }
    Cow::Owned(shown)
}

/// Whether a character does something to a terminal beside being shown.
pub(crate) fn is_active(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Embeddings, overrides and isolates, and what ends them.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

/// The pictures that Unicode has for the control characters of ASCII, and the code points of the others.
fn show(active: char, shown: &mut String) {
    let picture = match active {
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(active)),
        '\u{7f}' => Some('␡'),
        _ => None,
    };
    match picture {
        Some(picture) => shown.push(picture),
        None => shown.push_str(&format!("<U+{:04X}>", u32::from(active))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(visible(text), expected);
        assert_eq!(visible(expected), expected, "what is shown is plain");
    }

    #[test]
    fn what_drives_a_terminal_is_shown() {
        check("plain: é 漢 🦀 שלום\n\tend", "plain: é 漢 🦀 שלום\n\tend");
        check("a\u{1b}[2J\u{7}\u{7f}\0b", "a␛[2J␇␡␀b");
        check("one\r\ntwo\rthree", "one\ntwothree");
        check("\u{9b}2J\u{85}", "<U+009B>2J<U+0085>");
        check("user\u{202e}txt.exe\u{2066}x\u{2069}", "user<U+202E>txt.exe<U+2066>x<U+2069>");
    }
}
