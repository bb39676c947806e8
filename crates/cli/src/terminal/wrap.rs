//! Wraps the lines of a streamed text between words.
//!
//! Pieces are shown as they arrive, without waiting for the end of a word. A word that turns out not to fit is removed
//! from its line and begins the next one.

use unicode_width::UnicodeWidthChar;

/// Columns from one tab stop to the next.
const TAB: usize = 8;

/// The cursor's position in a text that is being wrapped.
#[derive(Debug, Default)]
pub(crate) struct Wrap {
    column: usize,
    /// The part of the last word that is already on the screen.
    word: String,
    word_width: usize,
}

impl Wrap {
    /// The output that continues with `text`, which contains no control characters except tabs and line breaks, in
    /// lines of at most `width` columns.
    pub(super) fn feed(&mut self, text: &str, width: usize) -> String {
        let mut written = String::with_capacity(text.len() + 16);
        for character in text.chars() {
            match character {
                '\n' => self.break_line(&mut written),
                ' ' | '\t' => self.space(character, width, &mut written),
                character => self.letter(character, width, &mut written),
            }
        }
        written
    }

    fn break_line(&mut self, written: &mut String) {
        written.push('\n');
        *self = Wrap::default();
    }

    fn space(&mut self, space: char, width: usize, written: &mut String) {
        let columns = if space == '\t' { TAB - self.column % TAB } else { 1 };
        if self.column + columns > width {
            return self.break_line(written);
        }
        written.push(space);
        *self = Wrap { column: self.column + columns, ..Wrap::default() };
    }

    fn letter(&mut self, letter: char, width: usize, written: &mut String) {
        let columns = letter.width().unwrap_or(0);
        if self.column + columns > width {
            self.move_word(columns, width, written);
        }
        written.push(letter);
        self.word.push(letter);
        self.word_width += columns;
        self.column += columns;
    }

    /// Moves the word to the next line; a word longer than a line is broken at the line's end.
    fn move_word(&mut self, columns: usize, width: usize, written: &mut String) {
        let (word, word_width) = (std::mem::take(&mut self.word), self.word_width);
        let stands_alone = word_width == self.column;
        if stands_alone || word_width + columns > width {
            return self.break_line(written);
        }
        if word_width > 0 {
            // Moves back to the beginning of the word, and clears the rest of the line.
            written.push_str(&format!("\u{1b}[{word_width}D\u{1b}[K"));
        }
        written.push('\n');
        written.push_str(&word);
        *self = Wrap { column: word_width, word, word_width };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a screen of 11 columns after `text`, given in pieces of every length.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for length in 1..=text.chars().count() {
            let mut screen = vt100::Parser::new(9, 11, 0);
            let mut wrap = Wrap::default();
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(length) {
                let piece = wrap.feed(&piece.iter().collect::<String>(), 10);
                screen.process(piece.replace('\n', "\r\n").as_bytes());
            }
            let rows: Vec<String> = screen.screen().rows(0, 11).take(expected.len() + 1).collect();
            let rows: Vec<&str> = rows.iter().map(|row| row.trim_end()).collect();
            assert_eq!(rows, [expected, &[""]].concat(), "in pieces of {length}");
        }
    }

    #[test]
    fn lines_are_broken_between_words() {
        check("one two three four", &["one two", "three four"]);
        check("one two 34 five", &["one two 34", "five"]);
        check("one two 345\n  six", &["one two", "345", "  six"]);
        check("a\tbcd efg", &["a", "bcd efg"]);
    }

    #[test]
    fn a_word_longer_than_a_line_is_broken_where_the_line_ends() {
        check("abcdefghijklmno pq", &["abcdefghij", "klmno pq"]);
        check("no abcdefghijklmno", &["no", "abcdefghij", "klmno"]);
        check("今日は天気がいい", &["今日は天気", "がいい"]);
    }
}
