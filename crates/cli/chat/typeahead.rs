//! What is typed while nobody reads the keyboard: kept off the screen, and read when there is time.

use std::collections::VecDeque;

use super::input::is_complete;
use crate::output::is_active;

/// While this exists, what is typed is not echoed into what is being printed, and waits in the terminal. Ctrl-C works as
/// ever, and takes back what was typed before it.
pub(crate) struct Typeahead(#[cfg(unix)] Option<terminal::Quiet>);

impl Typeahead {
    /// From now on.
    pub(crate) fn begin() -> Typeahead {
        #[cfg(unix)]
        return Typeahead(terminal::Quiet::begin());
        #[cfg(not(unix))]
        Typeahead()
    }

    /// What was typed since goes on with what was typed before.
    pub(crate) fn end(self, typed: &mut Typed) {
        #[cfg(unix)]
        self.0.iter().for_each(|quiet| typed.press(&quiet.keys()));
        #[cfg(not(unix))]
        let _ = typed;
    }
}

/// Lines that were typed ahead.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Those that were ended, each a whole input.
    pub(crate) inputs: VecDeque<String>,
    /// What was not ended.
    pub(crate) rest: String,
}

impl Typed {
    fn press(&mut self, keys: &str) {
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

/// Cursor and function keys have no meaning where no line is seen.
fn skip_escape_sequence(keys: &mut std::str::Chars<'_>) {
    match keys.clone().next() {
        Some('[') => drop(keys.skip(1).find(|key| ('@'..='~').contains(key))),
        Some('O') => drop(keys.nth(1)),
        // The key alone.
        _ => {}
    }
}

/// Gives a terminal that is quiet its manners back, for a process that ends where it stands.
pub(crate) fn restore() {
    #[cfg(unix)]
    terminal::restore();
}

#[cfg(unix)]
mod terminal {
    use std::io::{Stdin, stdin};
    use std::sync::{Mutex, PoisonError};

    use rustix::io::{Errno, read};
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

    /// A terminal that neither echoes nor waits for whole lines.
    pub(super) struct Quiet {
        keyboard: Stdin,
        quiet: Termios,
    }

    /// How the terminal was before it became quiet.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    pub(super) fn restore() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A terminal that is gone needs no care.
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
    }

    impl Quiet {
        /// Where the input is a terminal.
        pub(super) fn begin() -> Option<Quiet> {
            let keyboard = stdin();
            let before = tcgetattr(&keyboard).ok()?;
            let mut quiet = before.clone();
            quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
            // Reading returns at once with what is there.
            quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
            quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
            tcsetattr(&keyboard, OptionalActions::Now, &quiet).ok()?;
            Some(Quiet { keyboard, quiet })
        }

        /// What was typed and has not been read.
        pub(super) fn keys(&self) -> String {
            let (mut keys, mut part) = (Vec::new(), [0; 1024]);
            // A shell that had stopped the process may have set the terminal anew, so that reading would wait.
            if tcsetattr(&self.keyboard, OptionalActions::Now, &self.quiet).is_err() {
                return String::new();
            }
            loop {
                match read(&self.keyboard, &mut part) {
                    Ok(count @ 1..) => keys.extend_from_slice(&part[..count]),
                    Err(Errno::INTR) => {}
                    Ok(0) | Err(_) => return String::from_utf8_lossy(&keys).into_owned(),
                }
            }
        }
    }

    impl Drop for Quiet {
        fn drop(&mut self) {
            restore();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &str, inputs: &[&str], rest: &str) {
        let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
        let mut typed = Typed::default();
        // It makes no difference when the keys are read.
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
