//! Renders whole blocks of Markdown as lines.

use hone_server::{CodeHighlighter, WordKind};
use nu_ansi_term::{Color, Style};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};

use super::blocks::{EXTENSIONS, language_of};
use super::styled::Styled;
use super::table::Table;

/// The indentation of a line of code.
const CODE_INDENT: &str = "  ";

/// How lines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Maximum number of columns of a line.
    pub(super) width: usize,
    /// Whether text may have styles. If not, the marks of Markdown are kept instead.
    pub(super) styles: bool,
    /// Whether code is highlighted.
    pub(super) highlights: bool,
}

/// The lines of whole blocks.
pub(super) fn render(source: &str, look: Look) -> Vec<Styled> {
    let mut page = Page::new(source, look);
    for (event, range) in Parser::new_ext(source, EXTENSIONS).into_offset_iter() {
        page.take(event, range.start);
    }
    page.break_block();
    page.lines
}

/// A line of code, which ends with its line break, as lines.
pub(super) fn code_lines(line: &str, highlighter: Option<&mut CodeHighlighter>, look: Look) -> Vec<Styled> {
    let mut text = Styled::default();
    match highlighter.and_then(|highlighter| highlighter.words(line)) {
        Some(words) => {
            words.into_iter().for_each(|(range, kind)| text.push(line[range].trim_end_matches('\n'), style_of(kind)))
        }
        None => text.push(line.trim_end_matches('\n'), Style::new()),
    }
    let indent = Styled::new(CODE_INDENT, Style::new());
    let rows = text.cut(look.width.saturating_sub(CODE_INDENT.len()));
    rows.into_iter().map(|row| joined(&indent, &row)).collect()
}

/// Colours that are readable on light and dark backgrounds.
fn style_of(kind: WordKind) -> Style {
    match kind {
        WordKind::Plain => Style::new(),
        WordKind::Attribute | WordKind::Constant | WordKind::Type => Style::new().fg(Color::Cyan),
        WordKind::Comment => Style::new().dimmed(),
        WordKind::Deleted => Style::new().fg(Color::Red),
        WordKind::Function => Style::new().bold(),
        WordKind::Inserted | WordKind::String => Style::new().fg(Color::Green),
        WordKind::Keyword => Style::new().fg(Color::Magenta),
    }
}

fn joined(first: &Styled, second: &Styled) -> Styled {
    let mut line = first.clone();
    line.append(second);
    line
}

/// A container of blocks.
enum Container {
    Quote,
    /// A list; the number of the next item if it is ordered.
    List(Option<u64>),
    /// An item, with the mark before its first line, until that is written.
    Item {
        mark: String,
        is_written: bool,
    },
}

/// Lines that are being written.
struct Page<'a> {
    source: &'a str,
    look: Look,
    lines: Vec<Styled>,
    containers: Vec<Container>,
    /// The text of the block in progress.
    text: Styled,
    styles: Vec<Style>,
    /// The targets of open links.
    links: Vec<String>,
    table: Option<Table>,
    /// A block of code: its language and its lines.
    code: Option<(String, String)>,
}

impl<'a> Page<'a> {
    fn new(source: &'a str, look: Look) -> Page<'a> {
        let (lines, containers, styles, links) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Page { source, look, lines, containers, text: Styled::default(), styles, links, table: None, code: None }
    }

    fn take(&mut self, event: Event<'_>, start: usize) {
        match event {
            Event::Start(tag) => self.start(tag, start),
            Event::End(end) => self.end(end),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.add(&text),
            },
            Event::Code(code) if self.look.styles => self.add_styled(&code, self.style().fg(Color::Cyan)),
            Event::Code(code) => self.add(&format!("`{code}`")),
            Event::InlineMath(formula) => self.add(&format!("${formula}$")),
            Event::DisplayMath(formula) => self.add(&format!("$${formula}$$")),
            Event::Html(text) | Event::InlineHtml(text) => self.add(&text),
            Event::FootnoteReference(name) => self.add(&format!("[{name}]")),
            Event::SoftBreak | Event::HardBreak => self.add("\n"),
            Event::Rule => {
                self.begin_block(start);
                self.text.push(&"─".repeat(self.room().min(40)), Style::new().dimmed());
                self.break_block();
            }
            Event::TaskListMarker(is_done) => self.add(if is_done { "[x] " } else { "[ ] " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>, start: usize) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(start),
            Tag::Heading { level, .. } => {
                self.begin_block(start);
                self.begin_heading(level);
            }
            Tag::BlockQuote(_) => {
                self.begin_block(start);
                self.containers.push(Container::Quote);
            }
            Tag::List(number) => {
                self.begin_block(start);
                self.containers.push(Container::List(number));
            }
            Tag::Item => self.begin_item(start),
            Tag::CodeBlock(kind) => {
                self.begin_block(start);
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => language_of(info),
                    CodeBlockKind::Indented => "",
                };
                self.code = Some((language.to_owned(), String::new()));
            }
            Tag::Table(alignments) => {
                self.begin_block(start);
                self.table = Some(Table { alignments, rows: Vec::new() });
            }
            Tag::TableHead | Tag::TableRow => self.table.iter_mut().for_each(|table| table.rows.push(Vec::new())),
            Tag::TableCell => {
                let row = self.table.as_mut().and_then(|table| table.rows.last_mut());
                row.into_iter().for_each(|row| row.push(Styled::default()));
            }
            Tag::Emphasis => self.begin_style("*", Style::italic),
            Tag::Strong => self.begin_style("**", Style::bold),
            Tag::Strikethrough => self.begin_style("~~", Style::strikethrough),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(dest_url.to_string());
                self.begin_style("", Style::underline);
            }
            _ => {}
        }
    }

    fn end(&mut self, end: TagEnd) {
        match end {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.break_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.break_block();
            }
            TagEnd::BlockQuote(_) | TagEnd::List(_) => {
                self.break_block();
                self.containers.pop();
            }
            TagEnd::Item => {
                self.break_block();
                if matches!(self.containers.last(), Some(Container::Item { is_written: false, .. })) {
                    self.write(vec![Styled::default()]);
                }
                self.containers.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Table => {
                let lines = self.table.take().map(|table| table.lines(self.room())).unwrap_or_default();
                self.write(lines);
            }
            TagEnd::Emphasis => self.end_style("*"),
            TagEnd::Strong => self.end_style("**"),
            TagEnd::Strikethrough => self.end_style("~~"),
            TagEnd::Link | TagEnd::Image => {
                self.end_style("");
                let target = self.links.pop().unwrap_or_default();
                // An address that is its own text says where it leads.
                if !target.is_empty() && !self.text.text().ends_with(target.trim_start_matches("mailto:")) {
                    self.add_styled(&format!(" ({target})"), self.style().dimmed());
                }
            }
            _ => {}
        }
    }

    fn begin_heading(&mut self, level: HeadingLevel) {
        let style = match level {
            HeadingLevel::H1 | HeadingLevel::H2 => Style::new().bold().underline(),
            _ => Style::new().bold(),
        };
        self.styles.push(style);
        if !self.look.styles {
            self.add(&format!("{} ", "#".repeat(level as usize)));
        }
    }

    fn begin_item(&mut self, start: usize) {
        self.begin_block(start);
        let mark = match self.containers.last_mut() {
            Some(Container::List(Some(number))) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        self.containers.push(Container::Item { mark, is_written: false });
    }

    /// Ends the text before a block, and keeps the blank line that the source has there.
    fn begin_block(&mut self, start: usize) {
        self.break_block();
        if !self.lines.is_empty() && follows_blank_line(self.source, start) {
            let prefix = self.prefix(false);
            let is_blank = |line: &Styled| line.text().trim().is_empty();
            let follows_blank = self.lines.last().is_some_and(|line| is_blank(line) || *line == prefix);
            if !follows_blank {
                self.lines.push(if is_blank(&prefix) { Styled::default() } else { prefix });
            }
        }
    }

    /// Writes the text of the block in progress.
    fn break_block(&mut self) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            let mut lines = text.wrapped(self.room());
            // A block of HTML ends with a line break.
            lines.pop_if(|last| last.is_empty());
            self.write(lines);
        }
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        let look = Look { width: self.room(), ..self.look };
        let mut highlighter = look.highlights.then(|| CodeHighlighter::new(&language)).flatten();
        let lines = code.split_inclusive('\n').flat_map(|line| code_lines(line, highlighter.as_mut(), look)).collect();
        self.write(lines);
    }

    /// Writes lines, with the prefixes of their containers.
    fn write(&mut self, lines: Vec<Styled>) {
        for line in lines {
            let line = joined(&self.prefix(true), &line);
            // Containers that leave no room for text do not make lines wider.
            match line.width() <= self.look.width {
                true => self.lines.push(line),
                false => self.lines.extend(line.cut(self.look.width)),
            }
        }
    }

    /// The prefix of a line. The mark of an item precedes the first line that `is_text`.
    fn prefix(&mut self, is_text: bool) -> Styled {
        let mut prefix = Styled::default();
        for container in &mut self.containers {
            match container {
                Container::Quote => prefix.push("│ ", Style::new().dimmed()),
                Container::List(_) => {}
                Container::Item { mark, is_written } if is_text && !*is_written => {
                    *is_written = true;
                    prefix.push(mark, Style::new());
                }
                Container::Item { mark, .. } => prefix.push(&" ".repeat(mark.chars().count()), Style::new()),
            }
        }
        prefix
    }

    /// Columns for a line's text.
    fn room(&self) -> usize {
        let of_container = |container: &Container| match container {
            Container::Quote => 2,
            Container::List(_) => 0,
            Container::Item { mark, .. } => mark.chars().count(),
        };
        let taken: usize = self.containers.iter().map(of_container).sum();
        // Even in deeply nested containers, a line has at least one column.
        self.look.width.saturating_sub(taken).max(1)
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn begin_style(&mut self, mark: &str, change: impl FnOnce(&Style) -> Style) {
        if !self.look.styles {
            self.add(mark);
        }
        self.styles.push(change(&self.style()));
    }

    fn end_style(&mut self, mark: &str) {
        self.styles.pop();
        if !self.look.styles {
            self.add(mark);
        }
    }

    fn add(&mut self, text: &str) {
        self.add_styled(text, self.style());
    }

    fn add_styled(&mut self, text: &str, style: Style) {
        match &mut self.table {
            Some(table) => {
                let style = if table.rows.len() == 1 { style.bold() } else { style };
                table.push(text, style);
            }
            None => self.text.push(text, style),
        }
    }
}

/// Whether the line before that of `start` is blank, apart from the marks of quotes.
fn follows_blank_line(source: &str, start: usize) -> bool {
    let is_blank = |line: &str| line.chars().all(|character| character.is_whitespace() || character == '>');
    let before = &source[..start];
    let Some(line_end) = before.rfind('\n') else { return false };
    let line_start = before[..line_end].rfind('\n').map_or(0, |end| end + 1);
    is_blank(&before[line_end..]) && is_blank(&before[line_start..line_end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str, look: Look) -> String {
        render(source, look).iter().map(|line| line.painted(look.styles)).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn check(source: &str, width: usize, expected: &str) {
        let plain = lines(source, Look { width, styles: false, highlights: false });
        assert_eq!(plain, expected, "{source}");
        assert!(
            render(source, Look { width, styles: true, highlights: true }).iter().all(|line| line.width() <= width)
        );
    }

    #[test]
    fn blocks_become_lines() {
        check("# One\n\ntext", 40, "# One\n\ntext");
        check("text\n- a\n- b\n", 40, "text\n• a\n• b");
        check("1. a\n2. b\n   - c\n\n   d", 40, "1. a\n2. b\n   • c\n\n   d");
        check("9. a\n10. b", 40, "9. a\n10. b");
        check("- one two three four", 10, "• one two\n  three\n  four");
        check("> a\n>\n> b", 40, "│ a\n│ \n│ b");
        check("a\n\n***\nb", 10, "a\n\n──────────\nb");
        check("a\nb", 40, "a\nb");
        check("- [ ] a\n- [x] b", 40, "• [ ] a\n• [x] b");
        check("<b>x</b>", 40, "<b>x</b>");
        check("<div>\n<p>x</p>\n</div>", 40, "<div>\n<p>x</p>\n</div>");
        check("-\n- b", 40, "• \n• b");
        check("a $x_1 * y * z_1$ b", 40, "a $x_1 * y * z_1$ b");
        check("- ```\n  let x;\n  ```", 40, "•   let x;");
        check("    a b c d", 6, "  a b \n  c d");
    }

    #[test]
    fn links_say_where_they_lead() {
        check("[a](https://b.example)", 40, "a (https://b.example)");
        check("<https://b.example>", 40, "https://b.example");
        check("![a](i.png)", 40, "a (i.png)");
    }

    #[test]
    fn tables_line_up_and_fit() {
        let table = "| name | size |\n|---|--:|\n| a | 10 |\n| bcd | 2 |\n";
        check(table, 40, "name  size\n────  ────\na       10\nbcd      2");
        let long = "| name | remark |\n|---|---|\n| a | one two three four |\n";
        check(long, 20, "name  remark\n────  ──────────────\na     one two three\n      four");
        check(long, 10, "name: a\nremark:\none two\nthree four");
    }

    #[test]
    fn styles_replace_marks() {
        let look = Look { width: 40, styles: true, highlights: true };
        assert_eq!(lines("# A *b*", look), "\u{1b}[1;4mA \u{1b}[0m\u{1b}[1;3;4mb\u{1b}[0m");
        assert_eq!(lines("**a** `b`", look), "\u{1b}[1ma\u{1b}[0m \u{1b}[36mb\u{1b}[0m");
        assert!(lines("```rust\nlet x = 1;\n```", look).starts_with("  \u{1b}[35mlet\u{1b}[0m x"));
        assert_eq!(lines("**a** *b* ~~c~~ `d`", Look { styles: false, ..look }), "**a** *b* ~~c~~ `d`");
    }

    #[test]
    fn entities_cannot_drive_a_terminal() {
        let look = Look { width: 40, styles: true, highlights: true };
        for source in ["&#27;[2J", "`\u{1b}[2J`", "[a](<&#27;]0;x>)", "```\n\u{1b}[2J\n```", "|\u{9b}|\n|-|\n"] {
            let shown = render(source, look);
            assert!(shown.iter().all(|line| !line.text().contains(['\u{1b}', '\u{9b}'])), "{source:?}");
        }
    }

    #[test]
    fn deep_nesting_ends() {
        let deep = format!("{}x", "> ".repeat(2000));
        assert!(!render(&deep, Look { width: 20, styles: true, highlights: true }).is_empty());
    }
}
