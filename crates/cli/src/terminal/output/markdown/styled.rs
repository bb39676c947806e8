//! Text with styles, which breaks into lines.

use std::ops::Range;

use nu_ansi_term::Style;
use textwrap::core::break_words;
use textwrap::wrap_algorithms::wrap_first_fit;
use textwrap::{WordSeparator, core::Word};
use unicode_width::UnicodeWidthStr;

use crate::terminal::output::visible;

/// The replacement for a tab.
const TAB: &str = "    ";

/// A text whose parts have styles. It contains nothing that could control a terminal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Styled {
    text: String,
    /// The end of each part, in bytes, and its style.
    parts: Vec<(usize, Style)>,
}

impl Styled {
    /// A text of one style.
    pub(super) fn new(text: &str, style: Style) -> Styled {
        let mut styled = Styled::default();
        styled.push(text, style);
        styled
    }

    /// Adds a text, with characters that could control a terminal made visible.
    pub(super) fn push(&mut self, text: &str, style: Style) {
        self.text.push_str(&visible(text).replace('\t', TAB));
        match self.parts.last_mut() {
            Some((end, last)) if *last == style => *end = self.text.len(),
            _ => self.parts.push((self.text.len(), style)),
        }
    }

    /// Adds a text with its styles.
    pub(super) fn append(&mut self, other: &Styled) {
        let before = self.text.len();
        self.text.push_str(&other.text);
        self.parts.extend(other.parts.iter().map(|(end, style)| (before + end, *style)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Columns on the screen, for a text of one line.
    pub(super) fn width(&self) -> usize {
        self.text.width()
    }

    /// Lines of at most `width` columns, broken between words; a longer word is broken where the line ends.
    pub(super) fn wrapped(&self, width: usize) -> Vec<Styled> {
        self.broken(width, |line| WordSeparator::AsciiSpace.find_words(line).collect())
    }

    /// Lines of at most `width` columns, broken where they end.
    pub(super) fn cut(&self, width: usize) -> Vec<Styled> {
        self.broken(width, |line| vec![Word::from(line)])
    }

    fn broken<'a>(&'a self, width: usize, find: impl Fn(&'a str) -> Vec<Word<'a>>) -> Vec<Styled> {
        let width = width.max(1);
        let (mut lines, mut start) = (Vec::new(), 0);
        for line in self.text.split('\n') {
            let words = break_words(find(line), width);
            let mut place = start;
            start += line.len() + 1;
            for words in wrap_first_fit(&words, &[width as f64]) {
                let from = place;
                place += words.iter().map(|word| word.word.len() + word.whitespace.len()).sum::<usize>();
                let trailing = words.last().map_or(0, |word| word.whitespace.len());
                lines.push(self.slice(from..place - trailing));
            }
        }
        lines
    }

    fn slice(&self, range: Range<usize>) -> Styled {
        let mut slice = Styled { text: self.text[range.clone()].to_owned(), parts: Vec::new() };
        for (end, style) in &self.parts {
            let end = (*end).clamp(range.start, range.end) - range.start;
            if slice.parts.last().map_or(0, |(end, _)| *end) < end {
                slice.parts.push((end, *style));
            }
        }
        slice
    }

    /// The text for a terminal; without `styles`, plain text.
    pub(super) fn painted(&self, styles: bool) -> String {
        if !styles {
            return self.text.clone();
        }
        let (mut painted, mut start) = (String::with_capacity(self.text.len() + 16), 0);
        for (end, style) in &self.parts {
            painted.push_str(&style.paint(&self.text[start..*end]).to_string());
            start = *end;
        }
        painted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: Vec<Styled>, expected: &[&str]) {
        assert_eq!(lines.iter().map(|line| line.painted(true)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn lines_break_between_words_and_keep_their_styles() {
        let (plain, bold) = (Style::new(), Style::new().bold());
        let mut text = Styled::new("one ", plain);
        text.push("two three", bold);
        text.push(" four", plain);
        check(text.wrapped(8), &["one \u{1b}[1mtwo\u{1b}[0m", "\u{1b}[1mthree\u{1b}[0m", "four"]);
        check(text.wrapped(80), &["one \u{1b}[1mtwo three\u{1b}[0m four"]);
        check(Styled::new("a\n\nbc", plain).wrapped(80), &["a", "", "bc"]);
        check(Styled::new("abcdef gh", plain).wrapped(4), &["abcd", "ef", "gh"]);
        check(Styled::new("ab cd  ef", plain).cut(4), &["ab c", "d  e", "f"]);
        check(Styled::new("今日は天気", plain).wrapped(5), &["今日", "は天", "気"]);
    }

    #[test]
    fn what_controls_a_terminal_is_shown() {
        assert_eq!(Styled::new("a\u{1b}[2J\tb", Style::new()).text(), "a␛[2J    b");
    }
}
