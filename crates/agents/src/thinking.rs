//! Separates reasoning from the answer: finds text between think tags while it streams.
//!
//! Tags may arrive in any number of pieces. Text is passed on as soon as it can no longer be the beginning of a tag, so
//! at most one incomplete tag is held back.

use hone_protocol::ReasoningTags;

/// A piece of a model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Reasoning.
    Thinking(String),
    /// The answer.
    Text(String),
}

/// Separates reasoning from the answer in one stream of text.
#[derive(Debug)]
pub(crate) struct Splitter {
    /// The open tags, if any.
    inside: Option<ReasoningTags>,
    /// Text that may be the beginning of a tag.
    held: String,
    /// Whether the open part has contained only white space, which is dropped next to tags.
    at_start: bool,
}

impl Splitter {
    /// A splitter for an answer that begins inside of these tags, if any.
    pub(crate) fn new(inside: Option<ReasoningTags>) -> Splitter {
        Splitter { inside, held: String::new(), at_start: true }
    }

    /// Whether what comes next is reasoning, as far as it is known.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// Adds text, and returns the pieces that have become certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while let Some((start, length, leads_to)) = self.next_tag() {
            let before = self.held[..start].to_owned();
            self.held.drain(..start + length);
            self.emit(&before, &mut pieces);
            self.inside = leads_to;
            self.at_start = true;
        }
        let certain = self.held.len() - self.longest_beginning();
        let text: String = self.held.drain(..certain).collect();
        self.emit(&text, &mut pieces);
        pieces
    }

    /// Returns what was held back until the end.
    pub(crate) fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let held = std::mem::take(&mut self.held);
        self.emit(&held, &mut pieces);
        pieces
    }

    /// The position of the next tag, its length, and the tag that is open after it.
    fn next_tag(&self) -> Option<(usize, usize, Option<ReasoningTags>)> {
        let found = self.awaited().filter_map(|(tag, leads_to)| Some((self.held.find(tag)?, tag.len(), leads_to)));
        found.min_by_key(|(start, ..)| *start)
    }

    /// The tags that are recognized now, and which tag is open after each.
    fn awaited(&self) -> impl Iterator<Item = (&'static str, Option<ReasoningTags>)> {
        let is_outside = self.inside.is_none();
        let closing = self.inside.map(|tags| (tags.close, None));
        let opening = ReasoningTags::ALL.into_iter().map(|tags| (tags.open, Some(tags)));
        closing.into_iter().chain(opening.filter(move |_| is_outside))
    }

    /// Length in bytes of the end of the held text that may be the beginning of a tag.
    fn longest_beginning(&self) -> usize {
        self.awaited().map(|(tag, _)| overlap(&self.held, tag)).max().unwrap_or(0)
    }

    fn emit(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        // White space next to tags belongs to neither side; leading white space of an answer without tags does not
        // matter.
        let text = if self.at_start { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.at_start = false;
        let text = text.to_owned();
        pieces.push(if self.inside.is_some() { Piece::Thinking(text) } else { Piece::Text(text) });
    }
}

/// Length in bytes of the longest proper prefix of `mark` that `text` ends with.
pub(crate) fn overlap(text: &str, mark: &str) -> usize {
    let lengths = (1..mark.len()).rev().filter(|length| mark.is_char_boundary(*length));
    lengths.into_iter().find(|length| text.ends_with(&mark[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `[thinking]` and text of an answer given in one piece, in pieces of every length, and in single
    /// characters.
    #[track_caller]
    fn check_inside(inside: Option<ReasoningTags>, answer: &str, expected: &str) {
        let characters: Vec<char> = answer.chars().collect();
        for size in 1..=characters.len().max(1) {
            let mut splitter = Splitter::new(inside);
            let mut pieces = Vec::new();
            for chunk in characters.chunks(size) {
                pieces.extend(splitter.push(&chunk.iter().collect::<String>()));
            }
            pieces.extend(splitter.finish());
            assert_eq!(shown(&pieces), expected, "{answer:?} in pieces of {size}");
        }
    }

    #[track_caller]
    fn check(answer: &str, expected: &str) {
        check_inside(None, answer, expected);
    }

    fn shown(pieces: &[Piece]) -> String {
        let mut shown = String::new();
        let mut is_thinking = false;
        for piece in pieces {
            let (text, thinks) = match piece {
                Piece::Thinking(text) => (text, true),
                Piece::Text(text) => (text, false),
            };
            if thinks != is_thinking {
                shown.push(if thinks { '{' } else { '}' });
                is_thinking = thinks;
            }
            shown.push_str(text);
        }
        shown
    }

    #[test]
    fn an_answer_without_tags_stays_as_it_is() {
        check("", "");
        check("because", "because");
        check("1 < 2, and <thin air> is thin\n", "1 < 2, and <thin air> is thin\n");
        check("ends with <thi", "ends with <thi");
        check("a lone </think> ends nothing", "a lone </think> ends nothing");
    }

    #[test]
    fn reasoning_is_told_from_the_answer() {
        check("<think>why?</think>because", "{why?}because");
        check("<think>\nwhy? 1 < 2 </ok\n</think>\n\nbecause", "{why? 1 < 2 </ok\n}because");
        check("<think>\n\n</think>\n\nbecause", "because");
        check("one <think>two</think> three <think>four</think>five", "one {two}three {four}five");
        check("<seed:think>a <think> b</seed:think>c", "{a <think> b}c");
        check("[THINK]why [not]?[/THINK]because [x]", "{why [not]?}because [x]");
        check("<think>unfinished</thin", "{unfinished</thin");
        check("é<think>ü</think>ö", "é{ü}ö");
    }

    #[test]
    fn a_template_may_have_opened_the_tag() {
        let inside = Some(ReasoningTags::ALL[0]);
        check_inside(inside, "why?</think>\nbecause", "{why?}because");
        check_inside(inside, "unfinished", "{unfinished");
        check_inside(inside, "<think>why?</think>because", "{<think>why?}because");
    }
}
