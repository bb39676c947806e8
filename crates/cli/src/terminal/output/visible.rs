//! Makes characters visible that could control a terminal.
//!
//! Control characters move the cursor, rename windows, and send input in the user's name; bidirectional overrides
//! change the order in which a text appears. They are shown to the user, but have no effect.

use std::borrow::Cow;

/// `text` with a visible stand-in for each character that could control the terminal; line breaks and tabs stay, and
/// the carriage returns of foreign line breaks are removed.
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

/// Whether a character affects a terminal beyond being shown.
pub(crate) fn is_active(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Embeddings, overrides and isolates, and their terminators.
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
