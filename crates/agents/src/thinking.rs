//! Separates reasoning from the answer: finds text between think tags while it streams.
//!
//! Tags may arrive in any number of pieces. Text is passed on as soon as it can no longer be the beginning of a tag, so
//! at most one incomplete tag is held back. Some models write their turn as several messages. The header of such a
//! message states its kind, and is held back as a whole.

use hone_protocol::{MessageMarks, ReasoningTags};

/// The longest header, in bytes. Longer text is not a header.
const LONGEST_HEADER: usize = 256;

/// A piece of a model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputPiece {
    /// Reasoning.
    Thinking(String),
    /// The answer.
    Text(String),
}

/// The part of a turn that is being written.
#[derive(Clone, Copy, Debug)]
enum TurnPart {
    /// The answer.
    Answer,
    /// A message to the reader, or a call.
    Message,
    /// Reasoning.
    Reasoning(ReasoningTags),
    /// The header of a message, begun by this mark, or by the end of another message.
    Header(ReasoningTags, &'static str),
}

/// Separates reasoning from the answer in one stream of text.
#[derive(Debug)]
pub(crate) struct Splitter {
    part: TurnPart,
    /// Text that may be the beginning of a tag, or the header.
    held: String,
    /// Whether the open part has contained only white space, which is dropped next to tags.
    at_start: bool,
}

impl Splitter {
    /// A splitter for an answer that begins inside these tags, if any.
    pub(crate) fn new(inside: Option<ReasoningTags>) -> Splitter {
        Splitter { part: inside.map_or(TurnPart::Answer, TurnPart::Reasoning), held: String::new(), at_start: true }
    }

    /// A splitter for the rest of an answer that has begun: its leading white space counts.
    pub(crate) fn within_answer() -> Splitter {
        Splitter { part: TurnPart::Message, at_start: false, ..Splitter::new(None) }
    }

    /// Whether the next text may still be reasoning.
    pub(crate) fn is_inside(&self) -> bool {
        matches!(self.part, TurnPart::Reasoning(_) | TurnPart::Header(..))
    }

    /// Adds text, and returns the pieces that have become certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<OutputPiece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while let Some((start, length, leads_to)) = self.next_tag() {
            let before = self.held[..start].to_owned();
            self.held.drain(..start + length);
            match self.part {
                TurnPart::Header(tags, begun_by) => self.end_header(tags, begun_by, &before, &mut pieces),
                _ => {
                    self.emit(&before, &mut pieces);
                    self.enter(leads_to);
                }
            }
        }
        self.release(&mut pieces);
        pieces
    }

    /// Returns the text held back until the end.
    pub(crate) fn finish(&mut self) -> Vec<OutputPiece> {
        let mut pieces = Vec::new();
        match self.part {
            // The turn was cut off between two messages.
            TurnPart::Header(_, "") => self.held.clear(),
            TurnPart::Header(_, begun_by) => self.give_up_header(begun_by),
            _ => {}
        }
        let held = std::mem::take(&mut self.held);
        self.emit(&held, &mut pieces);
        pieces
    }

    /// Passes on text that cannot be the beginning of a tag.
    fn release(&mut self, pieces: &mut Vec<OutputPiece>) {
        match self.part {
            TurnPart::Header(..) if self.held.len() <= LONGEST_HEADER => return,
            TurnPart::Header(_, begun_by) => self.give_up_header(begun_by),
            _ => {}
        }
        let certain = self.held.len() - self.longest_beginning();
        let text: String = self.held.drain(..certain).collect();
        self.emit(&text, pieces);
    }

    fn enter(&mut self, part: TurnPart) {
        self.part = part;
        self.at_start = true;
    }

    /// Treats an apparent header as text.
    fn give_up_header(&mut self, begun_by: &str) {
        self.held.insert_str(0, begun_by);
        self.part = TurnPart::Answer;
    }

    /// Begins the message that a header announces. The header of a call is passed on as a whole, since it names the
    /// tool.
    fn end_header(&mut self, tags: ReasoningTags, begun_by: &str, header: &str, pieces: &mut Vec<OutputPiece>) {
        let Some(marks) = tags.messages else { return };
        if header.contains(marks.recipient) {
            let header = format!("{begun_by}{header}");
            let header = header.trim_start();
            let header = header.strip_prefix(marks.start).unwrap_or(header);
            self.enter(TurnPart::Message);
            self.emit(&[marks.start, header, marks.text].concat(), pieces);
        } else if header.contains(marks.reasoning) {
            self.enter(TurnPart::Reasoning(tags));
        } else {
            self.enter(TurnPart::Message);
        }
    }

    /// The position of the next tag, its length, and the part that follows it.
    fn next_tag(&self) -> Option<(usize, usize, TurnPart)> {
        let found = self.awaited().filter_map(|(tag, leads_to)| Some((self.held.find(tag)?, tag.len(), leads_to)));
        found.min_by_key(|(start, ..)| *start)
    }

    /// The tags that are recognized now, and the part that follows each.
    fn awaited(&self) -> impl Iterator<Item = (&'static str, TurnPart)> {
        let of = |tags: ReasoningTags| match (tags.messages, self.part) {
            (Some(marks), TurnPart::Header(..)) => [Some((marks.text, TurnPart::Answer)), None, None],
            (_, TurnPart::Header(..)) => [None; 3],
            (None, TurnPart::Answer) => [Some((tags.open, TurnPart::Reasoning(tags))), None, None],
            (None, TurnPart::Reasoning(open)) if open == tags => [Some((tags.close, TurnPart::Answer)), None, None],
            (Some(marks), TurnPart::Answer) => messages(tags, marks, false),
            (Some(marks), TurnPart::Message) => messages(tags, marks, true),
            (Some(marks), TurnPart::Reasoning(open)) if open == tags => messages(tags, marks, true),
            (_, TurnPart::Reasoning(_) | TurnPart::Message) => [None; 3],
        };
        let part = ReasoningTags::ALL.map(of);
        part.into_iter().flatten().flatten()
    }

    /// Length in bytes of the end of the held text that may be the beginning of a tag.
    fn longest_beginning(&self) -> usize {
        self.awaited().map(|(tag, _)| overlap(&self.held, tag)).max().unwrap_or(0)
    }

    fn emit(&mut self, text: &str, pieces: &mut Vec<OutputPiece>) {
        // White space next to tags belongs to neither side; leading white space of an answer without tags does not
        // matter.
        let text = if self.at_start { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.at_start = false;
        let text = text.to_owned();
        pieces.push(if matches!(self.part, TurnPart::Reasoning(_)) {
            OutputPiece::Thinking(text)
        } else {
            OutputPiece::Text(text)
        });
    }
}

/// The tags that begin a header. The end of a message begins one only if a message has begun.
fn messages(tags: ReasoningTags, marks: &MessageMarks, has_begun: bool) -> [Option<(&'static str, TurnPart)>; 3] {
    let by = |mark| Some((mark, TurnPart::Header(tags, mark)));
    [by(marks.start), by(marks.channel), Some((marks.end, TurnPart::Header(tags, ""))).filter(|_| has_begun)]
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

    fn shown(pieces: &[OutputPiece]) -> String {
        let mut shown = String::new();
        let mut is_thinking = false;
        for piece in pieces {
            let (text, thinks) = match piece {
                OutputPiece::Thinking(text) => (text, true),
                OutputPiece::Text(text) => (text, false),
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
    fn channels_of_gemma_4_are_told_apart() {
        check("<|channel>thought\nwhy?\n<channel|>because", "{why?\n}because");
        check("<|channel>thought\n<channel|>because", "because");
        check_inside(Some(ReasoningTags::ALL[3]), "why?\n<channel|>because", "{why?\n}because");
    }

    #[test]
    fn messages_of_gpt_oss_are_told_apart() {
        const ANALYSIS: &str = "<|channel|>analysis<|message|>";
        const FINAL: &str = "<|start|>assistant<|channel|>final<|message|>";
        check(&format!("{ANALYSIS}why?<|end|>{FINAL}because"), "{why?}because");
        check(&format!("{ANALYSIS}why?<|end|>{FINAL}because<|end|>"), "{why?}because");
        check(&format!("{ANALYSIS}why?<|end|>"), "{why?");
        check(&format!("{ANALYSIS}why?<|end|><|start|>assist"), "{why?");
        check(&format!("{ANALYSIS}one<|end|><|start|>assistant{ANALYSIS}two<|end|>{FINAL}three"), "{onetwo}three");
        check(&format!("{ANALYSIS}no end{FINAL}because"), "{no end}because");
        check("<|channel|>final<|message|>because 1 <|x|> 2", "because 1 <|x|> 2");
        check("<|channel|>commentary<|message|>wait<|end|>", "wait");
        check_inside(Some(ReasoningTags::ALL[4]), &format!("why?<|end|>{FINAL}because"), "{why?}because");
    }

    #[test]
    fn a_call_of_gpt_oss_keeps_its_header() {
        let call = "<|start|><|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}";
        let thought = "<|channel|>analysis<|message|>why?<|end|>";
        check(&call.replace("<|start|>", ""), call);
        check(&format!("{thought}{call}"), &format!("{{why?}}{call}"));
        let other = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}";
        check(&format!("{thought}{other}"), &format!("{{why?}}{other}"));
        check(&format!("{thought}{call}<|end|>{other}"), &format!("{{why?}}{call}{other}"));
    }

    #[test]
    fn what_only_looks_like_a_header_is_text() {
        check("write <|start|> first", "write <|start|> first");
        let long = format!("<|channel|>{}", "x".repeat(LONGEST_HEADER + 10));
        check(&long, &long);
        check("a lone <|end|> ends nothing", "a lone <|end|> ends nothing");
    }

    #[test]
    fn a_template_may_have_opened_the_tag() {
        let inside = Some(ReasoningTags::ALL[0]);
        check_inside(inside, "why?</think>\nbecause", "{why?}because");
        check_inside(inside, "unfinished", "{unfinished");
        check_inside(inside, "<think>why?</think>because", "{<think>why?}because");
    }
}
