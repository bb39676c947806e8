//! Lines at the end of the screen that change in place: only differences are written, so that nothing flickers.

use std::fmt::Write;

use crossterm::Command;
use crossterm::cursor::MoveUp;
use crossterm::terminal::{Clear, ClearType};

/// Lines on the screen, with the cursor in the last one. None is wider than the screen.
#[derive(Debug, Default)]
pub(crate) struct Region {
    rows: Vec<String>,
}

impl Region {
    /// The output that replaces the previous rows with these. Rows that have left a screen of `height` lines stay
    /// unchanged.
    pub(crate) fn show(&mut self, rows: Vec<String>, height: usize) -> String {
        let mut written = String::new();
        let n_same = self.rows.iter().zip(&rows).take_while(|(old, new)| old == new).count();
        let n_out_of_reach = self.rows.len().saturating_sub(height.max(1));
        if rows.len() <= n_out_of_reach || (n_same == rows.len() && n_same == self.rows.len()) {
            return written;
        }
        let appended = (n_same + 1 == self.rows.len()).then(|| rows.get(n_same)?.strip_prefix(&self.rows[n_same]));
        if let Some(appended) = appended.flatten() {
            written.push_str(appended);
            rows[n_same + 1..].iter().for_each(|row| add(&mut written, format_args!("\n{row}")));
        } else {
            let first = n_same.max(n_out_of_reach).min(rows.len() - 1);
            self.go_to(first, &mut written);
            write_rows(&rows[first..], &mut written);
            if rows.len() < self.rows.len() {
                command(Clear(ClearType::FromCursorDown), &mut written);
            }
        }
        self.rows = rows;
        written
    }

    /// Whether all rows are on a screen of `height` lines.
    pub(crate) fn is_within(&self, height: usize) -> bool {
        self.rows.len() < height
    }

    /// The output that keeps the rows and moves to the next line.
    pub(crate) fn release(&mut self) -> &'static str {
        if std::mem::take(&mut self.rows).is_empty() { "" } else { "\n" }
    }

    /// The output that removes the rows; the cursor is then where they began.
    pub(crate) fn clear(&mut self) -> String {
        let mut written = String::new();
        if !self.rows.is_empty() {
            self.go_to(0, &mut written);
            command(Clear(ClearType::FromCursorDown), &mut written);
            self.rows.clear();
        }
        written
    }

    /// Moves the cursor to the beginning of a row, or of the one after the last.
    fn go_to(&self, row: usize, written: &mut String) {
        match (self.rows.len() - row.min(self.rows.len())) as u16 {
            0 if self.rows.is_empty() => {}
            0 => written.push('\n'),
            1 => written.push('\r'),
            up => {
                written.push('\r');
                command(MoveUp(up - 1), written);
            }
        }
    }
}

/// Writes rows over the existing ones.
fn write_rows(rows: &[String], written: &mut String) {
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            written.push('\n');
        }
        written.push_str(row);
        command(Clear(ClearType::UntilNewLine), written);
    }
}

fn command(command: impl Command, written: &mut String) {
    // Writing to a text cannot fail.
    let _ = command.write_ansi(written);
}

fn add(written: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a text cannot fail.
    let _ = written.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows these states of a region on a screen of 4 lines, and returns the screen with its scrollback.
    #[track_caller]
    fn check(states: &[&[&str]], expected: &[&str]) {
        let (mut region, mut screen) = (Region::default(), vt100::Parser::new(4, 20, 100));
        screen.process(b"before\r\n");
        for state in states {
            let written = region.show(state.iter().map(|row| (*row).to_owned()).collect(), 4);
            screen.process(written.replace('\n', "\r\n").as_bytes());
        }
        screen.process(region.release().replace('\n', "\r\n").as_bytes());
        screen.process(b"after");
        screen.screen_mut().set_scrollback(100);
        let mut rows: Vec<String> = screen.screen().rows(0, 20).collect();
        screen.screen_mut().set_scrollback(0);
        let rest: Vec<String> = screen.screen().rows(0, 20).collect();
        if rows != rest {
            rows.extend(rest);
        }
        rows.dedup();
        rows.retain(|row| !row.is_empty());
        assert_eq!(rows, expected);
    }

    #[test]
    fn only_what_differs_is_written_again() {
        check(&[&["a"], &["ab"], &["ab", "c"]], &["before", "ab", "c", "after"]);
        check(&[&["a", "b"], &["x", "b"]], &["before", "x", "b", "after"]);
        check(&[&["a", "long"], &["a", "lo"]], &["before", "a", "lo", "after"]);
        check(&[&["a", "b", "c"], &["x"]], &["before", "x", "after"]);
        check(&[&["a", "b"], &["a"]], &["before", "a", "after"]);
        check(&[&[], &["a"]], &["before", "a", "after"]);
        let mut region = Region::default();
        assert_eq!(region.show(vec!["one".to_owned()], 9), "one\u{1b}[K");
        assert_eq!(region.show(vec!["one two".to_owned()], 9), " two");
        assert_eq!(region.show(vec!["one two".to_owned()], 9), "");
        assert_eq!(region.show(vec!["one two".to_owned(), "three".to_owned()], 9), "\nthree\u{1b}[K");
    }

    #[test]
    fn what_has_left_the_screen_stays_as_it_is() {
        let rows = ["1", "2", "3", "4", "5", "6"];
        check(&[&rows, &["x", "2", "3", "y", "5", "6"]], &["before", "1", "2", "3", "y", "5", "6", "after"]);
        check(&[&rows, &["x"]], &["before", "1", "2", "3", "4", "5", "6", "after"]);
    }
}
