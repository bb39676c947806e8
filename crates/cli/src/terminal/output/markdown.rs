//! Markdown on a terminal while it is being written.
//!
//! A block that is whole is printed once. The block in progress is shown as it will be, and changes only within its own
//! lines; a block of code is whole line by line. So text that was read stays where it is, and a long answer costs no
//! more per token than its current block.

mod blocks;
#[cfg(test)]
mod cost;
mod rendering;
mod styled;
mod table;

use hone_server::CodeHighlighter;

use super::region::Region;
use blocks::{Fence, ends_in_blank_line, finished, in_progress};
use rendering::{Look, code_lines, render};
use styled::Styled;

/// The screen that the text is shown on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Maximum number of columns of a line.
    pub(crate) width: usize,
    /// The lines of the screen.
    pub(crate) height: usize,
    /// Whether text may have colours and other styles.
    pub(crate) styles: bool,
}

/// A text in Markdown that is being written.
#[derive(Default)]
pub(crate) struct Markdown {
    /// The text that is not yet printed for good.
    source: String,
    /// The open block of code.
    code: Option<OpenCode>,
    /// Whether a blank line comes before the next block.
    blank_is_due: bool,
    /// The lines of the block in progress.
    region: Region,
    page: Option<Page>,
}

struct OpenCode {
    fence: Fence,
    highlighter: Option<CodeHighlighter>,
}

impl Markdown {
    /// The output to the screen for more text.
    pub(crate) fn feed(&mut self, text: &str, page: Page) -> String {
        let mut written = self.turn_to(page);
        self.source.push_str(&text.replace('\r', ""));
        if text.contains('\n') {
            self.print_finished(page, &mut written);
        }
        let rows = self.rows_in_progress(page);
        written.push_str(&self.region.show(rows, page.height));
        written
    }

    /// The output to the screen for the rest of the text; the cursor is then at the beginning of a line.
    pub(crate) fn finish(&mut self, page: Page) -> String {
        let mut written = self.turn_to(page);
        if !self.source.is_empty() && !self.source.ends_with('\n') {
            self.source.push('\n');
        }
        self.print_finished(page, &mut written);
        let rest = std::mem::take(&mut self.source);
        self.print(render(&rest, look(page, true)), page, &mut written);
        // Source that turns out not to be text, such as the address of a link, may have been shown as text.
        written.push_str(self.region.release());
        *self = Markdown::default();
        written
    }

    /// On a wider screen, the block in progress is drawn again. On a narrower one, where a terminal may have broken its
    /// lines, it begins again below.
    fn turn_to(&mut self, page: Page) -> String {
        match self.page.replace(page) {
            Some(before) if before.width < page.width && self.region.is_within(page.height) => self.region.clear(),
            Some(before) if before.width != page.width => self.region.release().to_owned(),
            _ => String::new(),
        }
    }

    /// Prints everything that no later text can change.
    fn print_finished(&mut self, page: Page, written: &mut String) {
        loop {
            if self.code.is_some() {
                if !self.print_code_line(page, written) {
                    return;
                }
                continue;
            }
            let finished = finished(&self.source);
            let rest = self.source.split_off(finished.length);
            let whole = std::mem::replace(&mut self.source, rest);
            self.print(render(&whole, look(page, true)), page, written);
            self.blank_is_due |= ends_in_blank_line(&whole);
            if !finished.opens_code {
                return;
            }
            self.open_code();
        }
    }

    /// Takes the fence that begins a block of code.
    fn open_code(&mut self) {
        let line = self.take_line().unwrap_or_default();
        let fence = Fence::open(line.trim_end_matches('\n'));
        self.code = fence.map(|fence| OpenCode { highlighter: CodeHighlighter::new(&fence.language), fence });
    }

    /// Prints the next line of code; `false` if none is whole.
    fn print_code_line(&mut self, page: Page, written: &mut String) -> bool {
        let Some(line) = self.take_line() else { return false };
        let Some(mut code) = self.code.take() else { return false };
        if !code.fence.is_closed_by(&line) {
            let line = without_indent(&line, code.fence.indent);
            let highlighter = code.highlighter.as_mut().filter(|_| page.styles);
            self.print(code_lines(line, highlighter, look(page, true)), page, written);
            self.code = Some(code);
        }
        true
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.source.find('\n')? + 1;
        let rest = self.source.split_off(end);
        Some(std::mem::replace(&mut self.source, rest))
    }

    /// Prints lines for good, in place of those of the block in progress.
    fn print(&mut self, lines: Vec<Styled>, page: Page, written: &mut String) {
        if !lines.is_empty() {
            let rows = self.rows(lines, page);
            written.push_str(&self.region.show(rows, page.height));
            written.push_str(self.region.release());
            self.blank_is_due = false;
        }
    }

    /// The lines of the block in progress.
    fn rows_in_progress(&self, page: Page) -> Vec<String> {
        let lines = match &self.code {
            Some(code) if code.fence.may_be_closed_by(&self.source) => Vec::new(),
            Some(code) => code_lines(without_indent(&self.source, code.fence.indent), None, look(page, false)),
            None => render(&in_progress(&self.source), look(page, false)),
        };
        if lines.is_empty() { Vec::new() } else { self.rows(lines, page) }
    }

    fn rows(&self, lines: Vec<Styled>, page: Page) -> Vec<String> {
        let blank = self.blank_is_due.then(String::new);
        blank.into_iter().chain(lines.iter().map(|line| line.painted(page.styles))).collect()
    }
}

/// Code of a block in progress is not highlighted: its words would be scanned again with every token.
fn look(page: Page, is_whole: bool) -> Look {
    Look { width: page.width, styles: page.styles, highlights: page.styles && is_whole }
}

fn without_indent(line: &str, indent: usize) -> &str {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    &line[spaces.min(indent)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a screen of 8 lines after `text`, given in pieces of every length up to 7, with the scrollback.
    #[track_caller]
    fn check(text: &str, width: usize, expected: &[&str]) {
        let page = Page { width, height: 8, styles: true };
        for length in 1..=7 {
            let (mut markdown, mut screen) = (Markdown::default(), vt100::Parser::new(8, width as u16 + 1, 100));
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(length) {
                let written = markdown.feed(&piece.iter().collect::<String>(), page);
                screen.process(written.replace('\n', "\r\n").as_bytes());
            }
            screen.process(markdown.finish(page).replace('\n', "\r\n").as_bytes());
            let mut rows = all_rows(&mut screen, width as u16 + 1);
            while rows.last().is_some_and(String::is_empty) {
                rows.pop();
            }
            assert_eq!(rows, expected, "in pieces of {length}");
        }
    }

    fn all_rows(screen: &mut vt100::Parser, width: u16) -> Vec<String> {
        let mut rows = Vec::new();
        screen.screen_mut().set_scrollback(usize::MAX);
        for scrollback in (1..=screen.screen().scrollback()).rev() {
            screen.screen_mut().set_scrollback(scrollback);
            rows.extend(screen.screen().rows(0, width).next());
        }
        screen.screen_mut().set_scrollback(0);
        rows.extend(screen.screen().rows(0, width));
        rows.iter().map(|row| row.trim_end().to_owned()).collect()
    }

    #[test]
    fn a_text_looks_the_same_however_it_arrives() {
        check(
            "# Title\n\nSome **bold** text\nand `code`.\n\n- a\n- b\n",
            40,
            &["Title", "", "Some bold text", "and code.", "", "• a", "• b"],
        );
        check("one two three four five", 9, &["one two", "three", "four five"]);
        check(
            "Look:\n```rust\nfn a() {\n    b();\n}\n```\nDone.",
            40,
            &["Look:", "  fn a() {", "      b();", "  }", "Done."],
        );
        check("| a | b |\n|---|---|\n| long | c |\n\nend", 40, &["a     b", "────  ─", "long  c", "", "end"]);
        check("```\nopen", 40, &["  open"]);
        check("a\n\n\n\nb", 40, &["a", "", "b"]);
        check("", 40, &[]);
        check("2 + 2 = 4", 40, &["2 + 2 = 4"]);
        check("**Note", 40, &["**Note"]);
        check("- a\n  ```\n  b`\n  ```\n", 40, &["• a", "    b`"]);
    }

    #[test]
    fn what_has_been_printed_stays() {
        let items: String = (1..=20).map(|n| format!("{n}. item\n")).collect();
        let expected: Vec<String> = (1..=20).map(|n| format!("{n}. item")).collect();
        check(&items, 40, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        let code = format!("```\n{}```\n", (1..=20).map(|n| format!("line {n}\n")).collect::<String>());
        let expected: Vec<String> = (1..=20).map(|n| format!("  line {n}")).collect();
        check(&code, 40, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn a_token_writes_only_what_is_new() {
        let (mut markdown, page) = (Markdown::default(), Page { width: 40, height: 8, styles: true });
        assert_eq!(markdown.feed("Some", page), "Some\u{1b}[K");
        assert_eq!(markdown.feed(" text", page), " text");
        assert_eq!(markdown.feed(" and", page), " and");
        assert_eq!(markdown.feed(" **", page), "");
        assert!(markdown.feed("bold", page).contains("\u{1b}[1mbold"));
    }

    #[test]
    fn a_text_ends_with_its_line() {
        let (mut markdown, page) = (Markdown::default(), Page { width: 40, height: 8, styles: false });
        markdown.feed("[a]", page);
        markdown.feed(": https://b.example", page);
        assert!(markdown.finish(page).ends_with('\n'));
        markdown.feed("a", page);
        assert_eq!(markdown.finish(page), "\n");
    }

    #[test]
    fn a_screen_that_is_resized_shows_the_block_again() {
        let (mut markdown, wide) = (Markdown::default(), Page { width: 40, height: 8, styles: false });
        markdown.feed("one two", wide);
        assert_eq!(markdown.feed(" three", Page { width: 8, ..wide }), "\none two\u{1b}[K\nthree\u{1b}[K");
        let again = "\r\u{1b}[1A\u{1b}[Jone two three four\u{1b}[K";
        assert_eq!(markdown.feed(" four", wide), again, "nothing is left of the narrow lines");
    }
}
