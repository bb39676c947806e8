//! The text of HTML, with the source line of each part.
//!
//! Only the tokens are read, and no tree is built: a million nested elements cost no more than as many words.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

use super::document::{Document, DocumentLine, DocumentUnit};
use crate::settings::on_one_line;

/// Elements that neither begin nor end a line of the text.
const INLINE: [&str; 29] = [
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins", "kbd", "mark", "q",
    "ruby", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var", "wbr",
];

/// The text that a reader of the page sees, apart from the effects of styles and scripts.
pub(super) fn read(name: &str, source: &str) -> Document {
    let tokenizer = Tokenizer::new(LineSink::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(source));
    // The tokenizer stops after a script, for a browser that would run it.
    while !input.is_empty() {
        let _ = tokenizer.feed(&input);
    }
    tokenizer.end();
    let lines = tokenizer.sink.found.into_inner().lines;
    let lines = lines.into_iter().map(|line| DocumentLine { text: on_one_line(&line.text), ..line });
    let lines = lines.filter(|line| !line.text.is_empty()).collect();
    Document { name: name.to_owned(), unit: DocumentUnit::Line, lines }
}

#[derive(Default)]
struct LineSink {
    found: RefCell<ReadLines>,
}

#[derive(Default)]
struct ReadLines {
    lines: Vec<DocumentLine>,
    /// Whether the next text begins a new line although it is in the same line of the source.
    is_broken: bool,
    /// Whether a script or a style is open, whose text is not shown.
    is_hidden: bool,
}

impl TokenSink for LineSink {
    type Handle = ();

    fn process_token(&self, token: Token, line_number: u64) -> TokenSinkResult<()> {
        let mut found = self.found.borrow_mut();
        match token {
            Token::CharacterTokens(text) => found.text(&text, line_number as usize),
            Token::TagToken(tag) => return found.tag(&tag),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

impl ReadLines {
    fn text(&mut self, text: &str, number: usize) {
        if self.is_hidden || text == "\n" {
            return;
        }
        match self.lines.last_mut() {
            Some(line) if line.number == number && !self.is_broken => line.text.push_str(text),
            _ => self.lines.push(DocumentLine { number, text: text.to_owned() }),
        }
        self.is_broken = false;
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let name = &*tag.name;
        let raw = match name {
            "script" => Some(RawKind::ScriptData),
            "style" | "xmp" | "iframe" | "noembed" | "noframes" => Some(RawKind::Rawtext),
            "title" | "textarea" => Some(RawKind::Rcdata),
            _ => None,
        };
        self.is_broken |= !INLINE.contains(&name);
        self.is_hidden = tag.kind == TagKind::StartTag && matches!(name, "script" | "style");
        match raw {
            Some(raw) if tag.kind == TagKind::StartTag => TokenSinkResult::RawData(raw),
            _ => TokenSinkResult::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &[(usize, &str)]) {
        let document = read("page.html", source);
        let lines: Vec<(usize, &str)> = document.lines.iter().map(|line| (line.number, line.text.as_str())).collect();
        assert_eq!(lines, expected, "{source}");
    }

    #[test]
    fn text_has_the_lines_of_the_source() {
        let page = "<!doctype html>\n<title>Tides\nand moons</title>\n<script>\nif (a < b) { '<p>no</p>' }\n</script>\n\
                    <style>p { color: red }</style><h1>High&nbsp;tide</h1><p>The tide <b>rises</b>\n   twice a&#32;day.</p>\n\
                    <!-- not this -->\n<td>6:12</td><td>18:40</td>";
        check(
            page,
            &[
                (2, "Tides"),
                (3, "and moons"),
                (7, "High tide"),
                (7, "The tide rises"),
                (8, "twice a day."),
                (10, "6:12"),
                (10, "18:40"),
            ],
        );
        check("a\r\nb\rc", &[(1, "a"), (2, "b"), (3, "c")]);
    }

    #[test]
    fn what_is_no_page_has_its_text_too() {
        check("", &[]);
        check("plain", &[(1, "plain")]);
        check("<p>open <b>and <i>never closed", &[(1, "open and never closed")]);
        check("a <script>b", &[(1, "a")]);
        check("1 < 2 & 3 > 2 </", &[(1, "1 < 2 & 3 > 2 </")]);
        check("a\0b", &[(1, "ab")]);
    }

    #[test]
    fn a_page_that_nests_without_end_is_read() {
        let bomb = format!("{}deep{}", "<div><b>".repeat(200_000), "&amp;".repeat(1000));
        let document = read("bomb.html", &bomb);
        assert_eq!(document.lines.len(), 1);
        assert!(document.lines[0].text.starts_with("deep&&"));
    }
}
