//! The state of a JSON text while it is written: whether a string is open, and the number of digits at its end.

/// Maximum number of consecutive digits outside of strings. With more, the model is not finding the end of the number.
const MOST_DIGITS: usize = 20;

/// A JSON text that is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JsonText {
    is_within_string: bool,
    is_escaped: bool,
    n_digits: usize,
}

impl JsonText {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_within_string => self.is_escaped = true,
                b'"' => self.is_within_string = !self.is_within_string,
                _ => {}
            }
            let is_digit = byte.is_ascii_digit() && !self.is_within_string;
            self.n_digits = if is_digit { self.n_digits + 1 } else { 0 };
        }
    }

    /// Number of digits that may still follow.
    pub(super) fn digits_left(&self) -> usize {
        MOST_DIGITS.saturating_sub(self.n_digits)
    }

    /// The bytes that may end the text soonest, likeliest first.
    pub(super) fn closers(&self) -> impl Iterator<Item = u8> {
        let first: &[u8] = match (self.is_within_string, self.is_escaped) {
            (_, true) => b"nu0",
            (true, false) => b"\"",
            (false, false) => b"}],\"0n{[:",
        };
        first.iter().copied().chain((b' '..=b'~').filter(|byte| *byte != b'\\')).chain(0x80..=0xff)
    }
}

/// Digits at the beginning of a token.
pub(super) fn leading_digits(token: &[u8]) -> usize {
    token.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_in_a_row_are_counted_outside_of_strings() {
        let check = |text: &str, expected: usize| {
            let mut json = JsonText::default();
            json.push(text.as_bytes());
            assert_eq!(json.digits_left(), expected, "{text}");
        };
        check("", 20);
        check(r#"{"a123": 12"#, 18);
        check(r#"{"a": "\"123"#, 20);
        check(r#"{"a": "\\", "b": -1.5"#, 19);
        check("[0000000000000000000000000", 0);
    }
}
