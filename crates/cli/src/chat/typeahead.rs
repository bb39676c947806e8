//! Input typed while the keyboard was not being read: turns keys into lines.

use std::collections::VecDeque;

use super::input::is_complete;
use crate::terminal::is_active;

/// The command that Ctrl-D stands for.
const EXIT: &str = "/exit";

/// Input that was typed ahead.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Finished lines, each a complete input.
    pub(crate) inputs: VecDeque<String>,
    /// The unfinished line.
    pub(crate) rest: String,
    /// Whether the keys that follow are pasted.
    is_pasted: bool,
    /// Whether the unfinished line contains pasted text.
    holds_paste: bool,
}

impl Typed {
    /// Adds these keys.
    pub(crate) fn press(&mut self, keys: &str) {
        let mut keys = keys.chars();
        while let Some(key) = keys.next() {
            match key {
                '\u{1b}' => self.obey(escape_sequence(&mut keys)),
                key if self.is_pasted => self.insert(if key == '\r' { '\n' } else { key }),
                '\r' | '\n' if self.rest.is_empty() => {}
                '\r' | '\n' if is_complete(&self.rest) => {
                    let (line, _) = self.take_rest();
                    self.inputs.push_back(line);
                }
                '\r' => self.insert('\n'),
                '\u{8}' | '\u{7f}' => drop(self.rest.pop()),
                '\u{15}' => drop(self.take_rest()),
                '\u{4}' if self.rest.is_empty() => self.inputs.push_back(EXIT.to_owned()),
                '\t' => self.insert(' '),
                key => self.insert(key),
            }
        }
    }

    /// Puts the finished lines back into the unfinished one, so that none is asked and none is lost.
    pub(crate) fn take_back(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        // A command that was not executed is easier to type again than to remove from the text.
        let lines = self.inputs.drain(..).filter(|input| !input.starts_with('/'));
        self.rest = lines.chain((!rest.is_empty()).then_some(rest)).collect::<Vec<_>>().join("\n");
    }

    fn insert(&mut self, key: char) {
        if !is_active(key) {
            self.rest.push(key);
            self.holds_paste |= self.is_pasted;
        }
    }

    /// Takes the unfinished line, and whether it contains pasted text.
    pub(crate) fn take_rest(&mut self) -> (String, bool) {
        (std::mem::take(&mut self.rest), std::mem::take(&mut self.holds_paste))
    }

    /// The terminal marks where a pasted text begins and ends; cursor and function keys have no meaning while no line is
    /// shown.
    fn obey(&mut self, sequence: &str) {
        match sequence {
            "[200~" => self.is_pasted = true,
            "[201~" => self.is_pasted = false,
            _ => {}
        }
    }
}

/// Takes the rest of an escape sequence from `keys`; nothing after the key alone.
fn escape_sequence<'a>(keys: &mut std::str::Chars<'a>) -> &'a str {
    let text = keys.as_str();
    let length = match text.as_bytes() {
        [b'[', parameters @ ..] => parameters.iter().position(|byte| (b'@'..=b'~').contains(byte)).map(|at| at + 2),
        [b'O', ..] => text.chars().nth(1).map(|key| 1 + key.len_utf8()),
        _ => Some(0),
    };
    let (sequence, rest) = text.split_at(length.unwrap_or(text.len()));
    *keys = rest.chars();
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &str, inputs: &[&str], rest: &str) {
        let inputs: VecDeque<String> = inputs.iter().map(|input| (*input).to_owned()).collect();
        let mut typed = Typed::default();
        // The result does not depend on when the keys are read.
        keys.split_inclusive(['a', '!']).for_each(|keys| typed.press(keys));
        assert_eq!((typed.inputs, typed.rest.as_str(), typed.is_pasted), (inputs, rest, false));
    }

    #[test]
    fn lines_are_inputs_and_the_last_may_be_unfinished() {
        check("", &[], "");
        check("one\rtwo\n\rthr", &["one", "two"], "thr");
        check("```\na\n```\nb", &["```\na\n```"], "b");
    }

    #[test]
    fn what_is_taken_back_is_one_unfinished_line() {
        let mut typed = Typed::default();
        typed.press("one\r/clear\rtwo\rthr");
        typed.take_back();
        assert_eq!((typed.inputs.len(), typed.rest.as_str()), (0, "one\ntwo\nthr"));
        typed.take_back();
        assert_eq!(typed.rest, "one\ntwo\nthr");
    }

    #[test]
    fn pasted_lines_are_one_input() {
        check("\u{1b}[200~one\rtwo\r\u{1b}[201~", &[], "one\ntwo\n");
        check("What is\u{1b}[200~\tone\nt\u{7f}wo!\u{1b}[201~?\rnext", &["What is\tone\ntwo!?"], "next");
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
