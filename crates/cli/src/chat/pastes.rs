//! Text that is pasted at the prompt: one input, however many lines it has.
//!
//! A long text is folded: the line shows a short name of it, which is edited like the rest and replaced by the text when
//! the line is entered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_app::describe::bytes;

use super::input::{BLOCK, joined};

/// The pasted texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pastes(Arc<Mutex<Pasted>>);

#[derive(Debug, Default)]
struct Pasted {
    folded: Vec<Folded>,
    /// Texts of the line being typed that are shown whole.
    shown: Vec<String>,
    /// The line as it was drawn last, before and after the cursor; `None` once it may have changed.
    drawn: Option<(String, String)>,
    /// The abandoned line.
    given_up: Option<String>,
}

#[derive(Debug)]
struct Folded {
    name: String,
    text: String,
}

/// Maximum number of lines of a pasted text that is shown whole.
const MOST_LINES: usize = 5;

/// Maximum number of characters of a pasted text that is shown whole.
const MOST_CHARACTERS: usize = 500;

/// A side of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    Typed(&'a str),
    Pasted(&'a str),
}

impl Pastes {
    /// The text that a line shows for a pasted text.
    pub(crate) fn fold(&self, pasted: &str) -> String {
        let text = pasted.replace("\r\n", "\n").replace('\r', "\n");
        let n_lines = text.lines().count();
        let mut pasted = self.pasted();
        if n_lines <= MOST_LINES && text.chars().count() <= MOST_CHARACTERS {
            if !text.trim().is_empty() {
                pasted.shown.push(text.clone());
            }
            return text;
        }
        let name = fresh_name(&pasted.folded, &text, n_lines);
        pasted.folded.push(Folded { name: name.clone(), text });
        name
    }

    /// The input of a line with pasted texts, which are not notation: only typed text can be a command, begin a block
    /// or continue a line. `None` if nothing in the line was pasted.
    pub(crate) fn entered(&self, line: &str) -> Option<String> {
        let pasted = self.pasted();
        let parts = pasted.parts(line);
        let is_pasted = parts.iter().any(|part| matches!(part, Part::Pasted(_)));
        let is_notation = match parts.iter().find(|part| !part.text().trim().is_empty())? {
            Part::Typed(text) => ["/", BLOCK].iter().any(|start| text.trim_start().starts_with(start)),
            Part::Pasted(_) => false,
        };
        let text: String = parts
            .iter()
            .map(|part| match part {
                Part::Typed(text) if !is_notation => joined(text),
                part => part.text().to_owned(),
            })
            .collect();
        is_pasted.then(|| if is_notation { text } else { format!("{BLOCK}{text}{BLOCK}") })
    }

    /// The line with a letter in place of each pasted text, to tell whether the typed part is complete.
    pub(crate) fn typed(&self, line: &str) -> String {
        let pasted = self.pasted();
        pasted.parts(line).iter().map(|part| if let Part::Typed(text) = part { text } else { "x" }).collect()
    }

    /// Notes how the line is drawn.
    pub(crate) fn note_drawn(&self, line: &str, cursor: usize) {
        let place = line.split_at_checked(cursor);
        self.pasted().drawn = place.map(|(before, after)| (before.to_owned(), after.to_owned()));
    }

    /// Abandons the line as it was drawn.
    pub(crate) fn give_up(&self) {
        let mut pasted = self.pasted();
        pasted.given_up = pasted.drawn.as_ref().map(|(before, after)| format!("{before}{after}"));
    }

    /// The line that was abandoned since the last call, unless it was empty.
    pub(crate) fn take_given_up(&self) -> Option<String> {
        self.pasted().given_up.take().filter(|line| !line.trim().is_empty())
    }

    /// Notes that the line may have changed since it was drawn.
    pub(crate) fn forget_drawn(&self) {
        self.pasted().drawn = None;
    }

    /// The number of characters of the name next to the cursor on this side, if any, for a key that acts on the whole
    /// name. The line counts as changed.
    pub(crate) fn name_at_cursor(&self, side: Side) -> Option<usize> {
        let mut pasted = self.pasted();
        let (before, after) = pasted.drawn.take()?;
        let is_there = |name: &&str| match side {
            Side::Left => before.ends_with(*name),
            Side::Right => after.starts_with(*name),
        };
        let mut names = pasted.folded.iter().map(|paste| paste.name.as_str());
        names.find(is_there).map(|name| name.chars().count())
    }

    /// Forgets the texts shown in a line that was entered or abandoned.
    pub(crate) fn forget_shown(&self) {
        self.pasted().shown.clear();
    }

    fn pasted(&self) -> MutexGuard<'_, Pasted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pasted {
    /// The parts of a line. Pasted texts are not searched.
    fn parts<'a>(&'a self, line: &'a str) -> Vec<Part<'a>> {
        let (mut parts, mut rest) = (Vec::new(), line);
        while let Some((at, shown, text)) = self.first_in(rest) {
            parts.extend([Part::Typed(&rest[..at]), Part::Pasted(text)]);
            rest = &rest[at + shown.len()..];
        }
        parts.push(Part::Typed(rest));
        parts
    }

    /// The first pasted text in a line, with its position and displayed form. Of two at one position, the longer.
    fn first_in(&self, line: &str) -> Option<(usize, &str, &str)> {
        let folded = self.folded.iter().map(|paste| (paste.name.as_str(), paste.text.as_str()));
        let all = folded.chain(self.shown.iter().map(|text| (text.as_str(), text.as_str())));
        let found = all.filter_map(|(shown, text)| Some((line.find(shown)?, shown, text)));
        found.min_by_key(|(at, shown, _)| (*at, std::cmp::Reverse(shown.len())))
    }
}

impl<'a> Part<'a> {
    fn text(self) -> &'a str {
        let (Part::Typed(text) | Part::Pasted(text)) = self;
        text
    }
}

fn fresh_name(folded: &[Folded], text: &str, n_lines: usize) -> String {
    let lines = if n_lines == 1 { "line" } else { "lines" };
    let size = format!("pasted {}, {n_lines} {lines}", bytes(text.len() as u64));
    let numbered = (2..).map(|number| format!("[{size}, no. {number}]"));
    let mut names = std::iter::once(format!("[{size}]")).chain(numbered);
    names.find(|name| folded.iter().all(|paste| paste.name != *name)).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(pastes: &Pastes, line: &str) -> Option<String> {
        let entered = pastes.entered(line)?;
        Some(entered.strip_prefix(BLOCK)?.strip_suffix(BLOCK)?.to_owned())
    }

    #[test]
    fn a_long_text_is_folded_under_a_name_of_its_own() {
        let pastes = Pastes::default();
        let (one, two) = (pastes.fold(&"a".repeat(600)), pastes.fold(&"b".repeat(600)));
        assert_eq!((one.as_str(), two.as_str()), ("[pasted 600 B, 1 line]", "[pasted 600 B, 1 line, no. 2]"));
        assert_eq!(entered(&pastes, &two), Some("b".repeat(600)));
    }

    #[test]
    fn a_line_has_the_texts_of_its_names() {
        let pastes = Pastes::default();
        assert_eq!(pastes.fold("one\r\ntwo\rthree"), "one\ntwo\nthree");
        let long = "c".repeat(1000);
        assert_eq!(pastes.fold(&long), "[pasted 1.00 kB, 1 line]");
        assert_eq!(pastes.fold("a\n[pasted 1.00 kB, 1 line]\nb\nc\nd\ne"), "[pasted 34 B, 6 lines]");
        assert_eq!(pastes.entered("plain [pasted 1 B, 9 lines]"), None);
        let line = "x [pasted 34 B, 6 lines] [pasted 1.00 kB, 1 line]. y";
        let expected = format!("x a\n[pasted 1.00 kB, 1 line]\nb\nc\nd\ne {long}. y");
        assert_eq!(entered(&pastes, line), Some(expected), "a pasted text is not looked into");
    }

    #[test]
    fn a_name_is_one_character() {
        let pastes = Pastes::default();
        let line = format!("x {} y", pastes.fold(&"a".repeat(600)));
        let at = |cursor: usize, side: Side| {
            pastes.note_drawn(&line, cursor);
            pastes.name_at_cursor(side)
        };
        let n_characters = line.len() - 4;
        assert_eq!((at(line.len() - 2, Side::Left), at(2, Side::Right)), (Some(n_characters), Some(n_characters)));
        assert_eq!((at(line.len(), Side::Left), at(0, Side::Right), at(5, Side::Left)), (None, None, None));
        assert_eq!(pastes.name_at_cursor(Side::Left), None, "it is not known how the line is drawn");
    }

    #[test]
    fn a_pasted_text_is_no_notation() {
        for text in ["// counts up\nlet n;", "/etc/hosts", "/clear", "\"\"\"Doc\"\"\"", "run \\\n  --rm \\", "```"] {
            let pastes = Pastes::default();
            assert_eq!(pastes.fold(text), text);
            assert_eq!(entered(&pastes, text).as_deref(), Some(text));
            assert_eq!(pastes.typed(text), "x");
            assert_eq!(entered(&pastes, &format!("Why \\\n{text}")), Some(format!("Why \n{text}")));
            assert_eq!(pastes.entered(&format!("/system {text}")), Some(format!("/system {text}")));
            pastes.forget_shown();
            assert_eq!(pastes.entered(text), None, "typed again, it is notation");
        }
    }
}
