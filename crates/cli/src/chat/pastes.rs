//! Text that is pasted at the prompt: one input, however many lines it has.
//!
//! A long text is folded: the line shows a short name of it, which is edited like the rest and replaced by the text when
//! the line is entered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_app::describe::bytes;

/// The texts that were pasted and folded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pastes(Arc<Mutex<Vec<Folded>>>);

#[derive(Debug)]
struct Folded {
    name: String,
    text: String,
}

/// The most lines of a pasted text that is shown whole.
const MOST_LINES: usize = 5;

/// The most characters of a pasted text that is shown whole.
const MOST_CHARACTERS: usize = 500;

impl Pastes {
    /// What a line shows for a pasted text.
    pub(crate) fn fold(&self, pasted: &str) -> String {
        let text = pasted.replace("\r\n", "\n").replace('\r', "\n");
        let n_lines = text.lines().count();
        if n_lines <= MOST_LINES && text.chars().count() <= MOST_CHARACTERS {
            return text;
        }
        let mut folded = self.folded();
        let name = fresh_name(&folded, &text, n_lines);
        folded.push(Folded { name: name.clone(), text });
        name
    }

    /// What was entered, if the line names a pasted text: the line with the texts.
    pub(crate) fn unfold(&self, line: &str) -> Option<String> {
        let folded = self.folded();
        let (mut unfolded, mut rest) = (String::new(), line);
        while let Some((at, paste)) = first_name(&folded, rest) {
            unfolded.push_str(&rest[..at]);
            unfolded.push_str(&paste.text);
            rest = &rest[at + paste.name.len()..];
        }
        (rest.len() < line.len()).then(|| unfolded + rest)
    }

    fn folded(&self) -> MutexGuard<'_, Vec<Folded>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fresh_name(folded: &[Folded], text: &str, n_lines: usize) -> String {
    let lines = if n_lines == 1 { "line" } else { "lines" };
    let size = format!("pasted {}, {n_lines} {lines}", bytes(text.len() as u64));
    let numbered = (2..).map(|number| format!("[{size}, no. {number}]"));
    let mut names = std::iter::once(format!("[{size}]")).chain(numbered);
    names.find(|name| folded.iter().all(|paste| paste.name != *name)).unwrap_or(size)
}

fn first_name<'a>(folded: &'a [Folded], text: &str) -> Option<(usize, &'a Folded)> {
    folded.iter().filter_map(|paste| Some((text.find(&paste.name)?, paste))).min_by_key(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_have_different_names() {
        let pastes = Pastes::default();
        let (one, two) = (pastes.fold(&"a".repeat(600)), pastes.fold(&"b".repeat(600)));
        assert_eq!((one.as_str(), two.as_str()), ("[pasted 600 B, 1 line]", "[pasted 600 B, 1 line, no. 2]"));
        assert_eq!(pastes.unfold(&two), Some("b".repeat(600)));
    }

    #[test]
    fn a_short_text_is_shown_whole_and_a_long_one_is_folded() {
        let pastes = Pastes::default();
        assert_eq!(pastes.fold("one\r\ntwo\rthree"), "one\ntwo\nthree");
        let long = "word ".repeat(200);
        assert_eq!(pastes.fold(&long), "[pasted 1.00 kB, 1 line]");
        assert_eq!(pastes.fold("a\n[pasted 1.00 kB, 1 line]\nb\nc\nd\ne"), "[pasted 34 B, 6 lines]");
        assert_eq!(pastes.unfold("plain [pasted 1 B, 9 lines]"), None);
        let line = "x [pasted 34 B, 6 lines] [pasted 1.00 kB, 1 line]. y";
        let expected = format!("x a\n[pasted 1.00 kB, 1 line]\nb\nc\nd\ne {long}. y");
        assert_eq!(pastes.unfold(line), Some(expected), "a pasted text is not looked into");
    }
}
