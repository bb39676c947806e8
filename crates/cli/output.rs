//! What a person or a script sees: results on stdout, everything else on stderr, colours only where they are wanted.
//!
//! Texts come from models and files and are not trusted: none of them reaches a terminal with its control characters. All
//! printing goes through [`Output`], which is the one place that takes them away.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use nu_ansi_term::{Color, Style};
use serde::Serialize;

/// What the two streams lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// Whether somebody reads stdout as it is written.
    pub(crate) stdout_is_terminal: bool,
    /// Whether somebody reads stderr as it is written; progress is shown only then.
    pub(crate) stderr_is_terminal: bool,
    colors_wanted: bool,
}

impl Output {
    /// Looks at the streams of this process and at `NO_COLOR`.
    pub(crate) fn of_this_process() -> Output {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Output {
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            colors_wanted: !no_color && !dumb,
        }
    }

    /// Whether text on stderr is coloured.
    pub(crate) fn colors_stderr(self) -> bool {
        self.colors_wanted && self.stderr_is_terminal
    }

    /// A remark beside the result, on stderr.
    pub(crate) fn note(self, text: &str) {
        self.to_stderr(Style::new().dimmed(), text);
    }

    /// A line of our own making, which brings its colours with it, on stderr.
    pub(crate) fn announce(self, line: &str) {
        // Nobody is left to be told when stderr itself fails.
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    /// A piece of a remark, on stderr, without a line break of its own.
    pub(crate) fn note_piece(self, text: &str) {
        let text = self.styled(Style::new().dimmed(), text);
        // Nobody is left to be told when stderr itself fails.
        let _ = write!(std::io::stderr(), "{text}");
    }

    /// An error, on stderr.
    pub(crate) fn error(self, text: &str) {
        self.to_stderr(Style::new().fg(Color::Red), &format!("error: {text}"));
    }

    /// Prints one line of the result.
    ///
    /// # Errors
    /// When stdout cannot be written, which `println!` would answer with a panic.
    pub(crate) fn print_line(self, text: &str) -> anyhow::Result<()> {
        Ok(writeln!(std::io::stdout(), "{}", self.for_stdout(text))?)
    }

    /// Prints one line that begins with a coloured `mark`.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_marked_line(self, color: Color, mark: &str, text: &str) -> anyhow::Result<()> {
        let colored = self.colors_wanted && self.stdout_is_terminal;
        let mark = if colored { color.paint(mark).to_string() } else { mark.to_string() };
        let line = format!("{mark} {}", self.for_stdout(text));
        Ok(writeln!(std::io::stdout(), "{}", line.trim_end())?)
    }

    /// Prints the result as JSON, on one line.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_json(self, value: &impl Serialize) -> anyhow::Result<()> {
        self.print_line(&serde_json::to_string(value)?)
    }

    /// Prints a piece of a text, at once and without a line break of its own.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print_piece(self, text: &str) -> anyhow::Result<()> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(self.for_stdout(text).as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// What stdout is given of `text`: every byte, unless it is a terminal, which the text could drive.
    fn for_stdout(self, text: &str) -> Cow<'_, str> {
        if self.stdout_is_terminal { Cow::Owned(without_control_characters(text)) } else { Cow::Borrowed(text) }
    }

    /// Text as stderr is given it.
    fn styled(self, style: Style, text: &str) -> String {
        let text = without_control_characters(text);
        if self.colors_stderr() { style.paint(text).to_string() } else { text }
    }

    fn to_stderr(self, style: Style, text: &str) {
        let text = self.styled(style, text);
        // Nobody is left to be told when stderr itself fails.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// Rows as lines, each column as wide as its widest cell; the last column is not padded. A cell is one line: what would
/// break it or drive a terminal becomes a space.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let on_one_line = |cell: &String| cell.replace(char::is_control, " ");
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(on_one_line).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `text` without the control characters by which a model or a file could drive the terminal; line breaks and tabs stay.
pub(crate) fn without_control_characters(text: &str) -> String {
    text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}

/// A number of bytes as people read it, with decimal units.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::DecimalBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rows: &[&[&str]], expected: &str) {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| cell.to_string()).collect()).collect();
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn columns_line_up() {
        check(&[], "");
        check(&[&["a"]], "a");
        check(&[&["name", "size"], &["qwen3:4b", "2 GB"]], "name      size\nqwen3:4b  2 GB");
        check(&[&["é", "x"], &["ab", ""]], "é   x\nab");
        check(&[&["a\u{1b}[2J\nb", "x"], &["c", "y"]], "a [2J b  x\nc        y");
    }

    #[test]
    fn a_model_cannot_drive_the_terminal() {
        let text = "a\u{1b}[2Jb\n\tc\u{7}\r\u{9b}";
        let output = |stdout_is_terminal| Output { stdout_is_terminal, stderr_is_terminal: false, colors_wanted: true };
        assert_eq!(output(true).for_stdout(text), "a[2Jb\n\tc");
        assert_eq!(output(false).for_stdout(text), text, "a script is given every byte");
    }
}
