//! Input typed while the keyboard was not being read: turns keys into lines.

use std::collections::VecDeque;

use super::input::is_complete;
use crate::terminal::is_active;

/// Input that was typed ahead.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Finished lines, each a complete input.
    pub(crate) inputs: VecDeque<String>,
    /// The unfinished line.
    pub(crate) rest: String,
}

impl Typed {
    /// Adds these keys.
    pub(crate) fn press(&mut self, keys: &str) {
        let mut keys = keys.chars();
        while let Some(key) = keys.next() {
            match key {
                '\r' | '\n' if self.rest.is_empty() => {}
                '\r' | '\n' if is_complete(&self.rest) => self.inputs.push_back(std::mem::take(&mut self.rest)),
                '\r' | '\n' => self.rest.push('\n'),
                '\u{8}' | '\u{7f}' => drop(self.rest.pop()),
                '\u{15}' => self.rest.clear(),
                '\u{4}' if self.rest.is_empty() => self.inputs.push_back("/exit".to_owned()),
                '\u{1b}' => skip_escape_sequence(&mut keys),
                '\t' => self.rest.push(' '),
                key if is_active(key) => {}
                key => self.rest.push(key),
            }
        }
    }
}

/// Cursor and function keys have no meaning while no line is shown.
fn skip_escape_sequence(keys: &mut std::str::Chars<'_>) {
    match keys.clone().next() {
        Some('[') => drop(keys.skip(1).find(|key| ('@'..='~').contains(key))),
        Some('O') => drop(keys.nth(1)),
        // The key alone.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &str, inputs: &[&str], rest: &str) {
        let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
        let mut typed = Typed::default();
        // The result does not depend on when the keys are read.
        keys.split_inclusive(['a', '!']).for_each(|keys| typed.press(keys));
        assert_eq!(typed, Typed { inputs, rest: rest.to_owned() });
    }

    #[test]
    fn lines_are_inputs_and_the_last_may_be_unfinished() {
        check("", &[], "");
        check("one\rtwo\n\rthr", &["one", "two"], "thr");
        check("```\na\n```\nb", &["```\na\n```"], "b");
    }

    #[test]
    fn corrections_are_made_and_other_keys_ignored() {
        check("grün\u{7f}n!\u{8}\n", &["grün"], "");
        check("no\u{15}yes", &[], "yes");
        check("a\u{1b}[A\u{1b}[1;5Cb\u{1b}OP\u{4}\u{3}c\u{1b}d", &[], "abcd");
        check("a\n\u{4}", &["a", "/exit"], "");
        check("user\u{202e}\u{9b}2Jtxt", &[], "user2Jtxt");
    }
}
