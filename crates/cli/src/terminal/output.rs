//! The output for users and scripts: results on stdout, everything else on stderr, colours only where supported.
//!
//! Texts come from models, files and servers and are not trusted: none of them reaches a terminal with its control
//! characters. All printing goes through [`Output`], and everything it prints through [`visible()`]: there is no other
//! exit.

mod markdown;
mod region;
mod table;
mod visible;

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::MoveTo;
use crossterm::terminal::{Clear, ClearType};
use nu_ansi_term::{Color, Style};
use serde::Serialize;

use super::wrap::Wrap;
pub(crate) use markdown::Markdown;
use markdown::Page;
pub(crate) use region::Region;
use table::table;
pub(crate) use visible::{is_active, visible};

/// A line for the user: a mark of our own, which may be coloured, and an untrusted text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    mark: Option<(Color, String)>,
    text: String,
}

impl Line {
    /// A text without a mark.
    pub(crate) fn plain(text: impl Into<String>) -> Line {
        Line { mark: None, text: text.into() }
    }

    /// A coloured mark followed by a text, which may be empty.
    pub(crate) fn marked(color: Color, mark: impl Into<String>, text: impl Into<String>) -> Line {
        Line { mark: Some((color, mark.into())), text: text.into() }
    }

    /// Replaces the text after the mark.
    pub(crate) fn with_text(self, text: impl Into<String>) -> Line {
        Line { text: text.into(), ..self }
    }

    /// The line in a form that is safe for a terminal.
    fn render(&self, colored: bool) -> String {
        let text = visible(&self.text);
        match &self.mark {
            None => text.into_owned(),
            Some((color, mark)) => {
                let mark = if colored { color.paint(mark).to_string() } else { mark.clone() };
                format!("{mark} {text}").trim_end().to_owned()
            }
        }
    }
}

/// The destinations of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// Whether stdout is a terminal.
    pub(crate) stdout_is_terminal: bool,
    /// Whether stderr is a terminal; progress is shown only then.
    pub(crate) stderr_is_terminal: bool,
    colors_wanted: bool,
    /// Whether the terminal supports cursor movement.
    pub(crate) moves_cursor: bool,
}

impl Output {
    /// Examines the streams of this process and `NO_COLOR`.
    pub(crate) fn of_this_process() -> Output {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Output {
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            colors_wanted: !no_color && !dumb,
            moves_cursor: !dumb,
        }
    }

    /// Streams without a terminal.
    #[cfg(test)]
    pub(crate) fn plain() -> Output {
        Output { stdout_is_terminal: false, stderr_is_terminal: false, colors_wanted: false, moves_cursor: false }
    }

    /// Whether text on stdout may be coloured.
    pub(crate) fn colors_stdout(self) -> bool {
        self.colors_wanted && self.stdout_is_terminal
    }

    /// Whether text on stderr is coloured.
    pub(crate) fn colors_stderr(self) -> bool {
        self.colors_wanted && self.stderr_is_terminal
    }

    /// A remark in addition to the result, on stderr.
    pub(crate) fn note(self, text: &str) {
        self.to_stderr(Style::new().dimmed(), text);
    }

    /// A line on stderr.
    pub(crate) fn announce(self, line: &Line) {
        // If stderr itself fails, there is no one to tell.
        let _ = writeln!(std::io::stderr(), "{}", self.rendered(line));
    }

    /// A line in the form written to the terminal of stderr, for an editor that prints it above the line being typed.
    pub(crate) fn rendered(self, line: &Line) -> String {
        line.render(self.colors_stderr())
    }

    /// A piece of a remark, on stderr, without a line break.
    pub(crate) fn note_piece(self, text: &str) {
        let text = self.styled(Style::new().dimmed(), text);
        // If stderr itself fails, there is no one to tell.
        let _ = write!(std::io::stderr(), "{text}");
    }

    /// An error, on stderr.
    pub(crate) fn error(self, text: &str) {
        self.to_stderr(Style::new().fg(Color::Red), &format!("error: {text}"));
    }

    /// Prints one line of the result.
    ///
    /// # Errors
    /// When stdout cannot be written, for which `println!` would panic.
    pub(crate) fn print_line(self, text: &str) -> anyhow::Result<()> {
        Ok(writeln!(std::io::stdout(), "{}", self.for_stdout(text))?)
    }

    /// Prints one line that may begin with a coloured mark.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_marked_line(self, line: &Line) -> anyhow::Result<()> {
        let colored = self.colors_stdout();
        Ok(writeln!(std::io::stdout(), "{}", line.render(colored))?)
    }

    /// Prints a picture made of characters in black on white, whatever the terminal's colours are; nothing if it has no
    /// colours.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_black_on_white(self, picture: &str) -> anyhow::Result<()> {
        // Unlike the first sixteen colours, these are the same in every theme.
        let style = Style::new().fg(Color::Fixed(16)).on(Color::Fixed(231));
        let mut lines = picture.lines().filter(|_| self.colors_stdout());
        lines.try_for_each(|line| Ok(writeln!(std::io::stdout(), "{}", style.paint(visible(line)))?))
    }

    /// Prints rows as lines with aligned columns; on a terminal no line is wider than the screen.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_table(self, rows: &[Vec<String>]) -> anyhow::Result<()> {
        self.print_line(&self.table(rows, 0).join("\n"))
    }

    /// Prints a table under its titles, which are printed in capitals; prints nothing without rows.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_titled(
        self,
        titles: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> anyhow::Result<()> {
        let titles = titles.iter().map(|title| title.to_uppercase()).collect();
        let rows: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
        if rows.len() == 1 { Ok(()) } else { self.print_table(&rows) }
    }

    /// The lines of a table, for a caller that puts something `reserved` columns wide before each.
    pub(crate) fn table(self, rows: &[Vec<String>], reserved: usize) -> Vec<String> {
        table(rows, self.screen_columns().map(|columns| columns.saturating_sub(reserved)))
    }

    /// The width of the terminal of stdout, if it is one and its width is known.
    fn screen_columns(self) -> Option<usize> {
        self.size().filter(|_| self.stdout_is_terminal).map(|(columns, _)| columns)
    }

    /// Columns and lines of the terminal. Without one, crossterm would run whatever program is called `tput`.
    fn size(self) -> Option<(usize, usize)> {
        if !(self.stdout_is_terminal || self.stderr_is_terminal) {
            return None;
        }
        let (columns, lines) = crossterm::terminal::size().ok()?;
        (columns > 0).then_some((usize::from(columns), usize::from(lines)))
    }

    /// Prints the result as JSON, on one line.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_json(self, value: &impl Serialize) -> anyhow::Result<()> {
        self.print_line(&serde_json::to_string(value)?)
    }

    /// Prints a piece of a text at once, without a line break.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_piece(self, text: &str) -> anyhow::Result<()> {
        write_at_once(&self.for_stdout(text))
    }

    /// Like [`print_piece`](Output::print_piece), but wraps between words on a terminal; `wrap` tracks the position.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_wrapped(self, text: &str, wrap: &mut Wrap) -> anyhow::Result<()> {
        let text = self.for_stdout(text);
        match self.screen_columns().filter(|_| self.moves_cursor) {
            // The last column stays free: a cursor beyond it would not move back the full distance.
            Some(columns) => write_at_once(&wrap.feed(&text, columns.saturating_sub(1).max(1))),
            None => write_at_once(&text),
        }
    }

    /// Prints prose, whose lines are wrapped between words on a terminal.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_prose(self, text: &str) -> anyhow::Result<()> {
        self.print_wrapped(&format!("{text}\n"), &mut Wrap::default())
    }

    /// The screen of stdout, if it can show Markdown.
    fn page(self) -> Option<Page> {
        let (columns, height) = self.size().filter(|_| self.renders_markdown())?;
        // The last column stays free: a cursor beyond it would not move back the full distance.
        let width = columns.saturating_sub(1);
        (width > 0 && height > 0).then_some(Page { width, height, styles: self.colors_wanted })
    }

    /// Whether stdout is a terminal that can show Markdown.
    pub(crate) fn renders_markdown(self) -> bool {
        self.stdout_is_terminal && self.moves_cursor
    }

    /// Prints a piece of a text in Markdown at once.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_markdown(self, text: &str, markdown: &mut Markdown) -> anyhow::Result<()> {
        match self.page() {
            Some(page) => write_at_once(&markdown.feed(text, page)),
            None => self.print_piece(text),
        }
    }

    /// Prints the rest of a text in Markdown, and ends its last line.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn finish_markdown(self, markdown: &mut Markdown) -> anyhow::Result<()> {
        self.page().map_or(Ok(()), |page| write_at_once(&markdown.finish(page)))
    }

    /// Shows remarks that change in place, on stderr: the last `most` lines of `text`.
    pub(crate) fn show_note(self, text: &str, most: usize, region: &mut Region) {
        let columns = self.size().map_or(0, |(columns, _)| columns);
        let text = visible(text);
        let lines = textwrap::wrap(&text, columns.saturating_sub(1).max(1));
        let shown = &lines[lines.len().saturating_sub(most)..];
        let rows = shown.iter().map(|line| self.styled(Style::new().dimmed(), line)).collect();
        // If stderr itself fails, there is no one to tell.
        let _ = write!(std::io::stderr(), "{}", region.show(rows, most));
    }

    /// Removes the remarks shown by [`show_note`](Output::show_note).
    pub(crate) fn clear_note(self, region: &mut Region) {
        // If stderr itself fails, there is no one to tell.
        let _ = write!(std::io::stderr(), "{}", region.clear());
    }

    /// Clears the screen of stdout, and begins at its top.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn clear_screen(self) -> anyhow::Result<()> {
        match self.moves_cursor {
            true => Ok(crossterm::execute!(std::io::stdout(), Clear(ClearType::All), MoveTo(0, 0))?),
            false => self.print_line(""),
        }
    }

    /// Asks the terminal to put a text into the clipboard.
    ///
    /// # Errors
    /// When stderr is not a terminal that supports it.
    pub(crate) fn copy(self, text: &str) -> anyhow::Result<()> {
        if !self.stderr_is_terminal || !self.moves_cursor {
            anyhow::bail!("there is no terminal that has a clipboard: /export writes a file");
        }
        // The text is encoded, so that nothing in it reaches the terminal as a command.
        Ok(crossterm::execute!(std::io::stderr(), CopyToClipboard::to_clipboard_from(text))?)
    }

    /// The form of `text` for stdout: unchanged, unless stdout is a terminal, which the text could control.
    fn for_stdout(self, text: &str) -> Cow<'_, str> {
        if self.stdout_is_terminal { visible(text) } else { Cow::Borrowed(text) }
    }

    /// Text in the form for stderr.
    fn styled(self, style: Style, text: &str) -> String {
        let text = visible(text);
        if self.colors_stderr() { style.paint(text).to_string() } else { text.into_owned() }
    }

    fn to_stderr(self, style: Style, text: &str) {
        // The words of the system's errors say the same as their numbers.
        let text = &*without_numbers(text);
        let columns = self.size().map_or(0, |(columns, _)| columns);
        let is_wrapped = self.stderr_is_terminal && self.moves_cursor && columns > 0;
        let text = if is_wrapped { remark_in_lines(text, columns) } else { text.to_owned() };
        let text = self.styled(style, &text);
        // If stderr itself fails, there is no one to tell.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// The text of an error without the system's numbers, as in "No such file or directory (os error 2)".
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')').filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((_, rest)) => kept.push_str(rest),
            None => kept.extend([" (os error ", part]),
        }
    }
    kept
}

/// A remark in lines of at most `columns` columns. Quoted `code` is meant to be copied, and stays on one line.
fn remark_in_lines(text: &str, columns: usize) -> String {
    const BOUND: char = '\u{a0}';
    let mut is_code = false;
    let bind = |character: char| {
        is_code ^= character == '`';
        if is_code && character == ' ' { BOUND } else { character }
    };
    let bound: String = text.chars().map(bind).collect();
    let options = textwrap::Options::new(columns)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(&bound, options).replace(BOUND, " ")
}

fn write_at_once(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_words_instead_of_numbers() {
        assert_eq!(without_numbers("a: No such file (os error 2): b (os error x)"), "a: No such file: b (os error x)");
    }

    #[test]
    fn a_model_cannot_drive_the_terminal() {
        let text = "a\u{1b}[2Jb\n\tc\u{7}\r\u{9b}";
        let output = |stdout_is_terminal| Output { stdout_is_terminal, stderr_is_terminal: false, ..Output::plain() };
        assert_eq!(output(true).for_stdout(text), "a␛[2Jb\n\tc␇<U+009B>");
        assert_eq!(output(false).for_stdout(text), text, "a script is given every byte");
    }

    #[test]
    fn a_remark_is_wrapped_between_words_but_not_in_what_one_copies() {
        assert_eq!(remark_in_lines("it is here: `hone pull a` goes on", 20), "it is here:\n`hone pull a` goes\non");
        assert_eq!(remark_in_lines("one\n  two-three four", 11), "one\n  two-three\nfour");
    }

    #[test]
    fn a_line_has_the_colours_of_its_mark_alone() {
        let line = Line::marked(Color::Red, "● 1/5", "\u{1b}[32m● 5/5\u{202e}");
        assert_eq!(line.render(true), "\u{1b}[31m● 1/5\u{1b}[0m ␛[32m● 5/5<U+202E>");
        assert_eq!(line.render(false), "● 1/5 ␛[32m● 5/5<U+202E>");
        assert_eq!(Line::plain("a\u{1b}]0;b\u{7}").render(true), "a␛]0;b␇");
        assert_eq!(Line::marked(Color::Red, "● 1/5", "").render(false), "● 1/5");
    }
}
