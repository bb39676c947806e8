//! How engrams and moments are written for people.

use hone_memory::MemoryStore;
use hone_protocol::{QueryId, Rating, Timestamp};
use nu_ansi_term::Color;
use time::OffsetDateTime;

use crate::app::App;
use crate::output::table;

/// Characters of a question in a list.
const LONGEST_TEXT: usize = 72;

/// A score as a mark with its colour, and as text; an unscored answer has neither. The mark is hollow where the model graded itself.
pub(in super::super) fn badge(score: Option<u8>, self_graded: bool) -> (Color, &'static str, String) {
    let Some(score) = score else { return (Color::Default, " ", "   ".to_string()) };
    let color = match score {
        4.. => Color::Green,
        3 => Color::Yellow,
        _ => Color::Red,
    };
    (color, if self_graded { "○" } else { "●" }, format!("{score}/5"))
}

/// A moment, in UTC and to the second.
pub(in super::super) fn moment(at: Timestamp) -> String {
    let seconds = i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX);
    match OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(at) => {
            let (date, (hour, minute, second)) = (at.date(), at.to_hms());
            format!("{date} {hour:02}:{minute:02}:{second:02}")
        }
        Err(_) => at.0.to_string(),
    }
}

/// The beginning of a text, on one line.
pub(in super::super) fn on_one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What a person said, as a word.
pub(in super::super) fn rating(rating: Rating) -> &'static str {
    match rating {
        Rating::Good => "good",
        Rating::Bad => "bad",
    }
}

/// An answer in a list.
pub(super) struct Line {
    pub(super) query_id: QueryId,
    pub(super) score: Option<u8>,
    pub(super) self_graded: bool,
    /// What stands after the id.
    pub(super) cells: Vec<String>,
}

/// Prints answers as lines: score, as many digits of the id as tell it from all others in memory, and the rest.
///
/// # Errors
/// When memory cannot be read, or stdout not be written.
pub(super) fn print_lines(app: &App, store: &MemoryStore, lines: Vec<Line>) -> anyhow::Result<()> {
    let ids: Vec<QueryId> = lines.iter().map(|line| line.query_id).collect();
    let n_digits = store.abbreviate(&ids)?.into_iter().max().unwrap_or(0);
    let (mut marks, mut rows) = (Vec::new(), Vec::new());
    for line in lines {
        let (color, mark, score) = badge(line.score, line.self_graded);
        marks.push((color, mark));
        rows.push([vec![score, first_digits(&line.query_id.to_string(), n_digits)], line.cells].concat());
    }
    for ((color, mark), line) in marks.into_iter().zip(table(&rows).lines()) {
        app.output.print_marked_line(color, mark, line)?;
    }
    Ok(())
}

fn first_digits(id: &str, n_digits: usize) -> String {
    let mut n_seen = 0;
    let is_wanted = |character: &char| {
        n_seen += usize::from(*character != '-');
        n_seen <= n_digits
    };
    id.chars().take_while(is_wanted).collect::<String>().trim_end_matches('-').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_cut_after_digits() {
        let id = "0199ab12-3456-7000-8000-000000000001";
        assert_eq!(first_digits(id, 6), "0199ab");
        assert_eq!(first_digits(id, 8), "0199ab12");
        assert_eq!(first_digits(id, 9), "0199ab12-3");
        assert_eq!(first_digits(id, 32), id);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(on_one_line(" a\n  b\t"), "a b");
        assert_eq!(on_one_line(&"é".repeat(LONGEST_TEXT)), "é".repeat(LONGEST_TEXT));
        assert_eq!(on_one_line(&"é".repeat(LONGEST_TEXT + 1)), "é".repeat(LONGEST_TEXT) + "…");
    }

    #[test]
    fn moments_are_written() {
        assert_eq!(moment(Timestamp(1_769_884_201_999)), "2026-01-31 18:30:01");
        assert_eq!(moment(Timestamp(u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn a_badge_says_who_graded() {
        assert_eq!(badge(Some(4), false), (Color::Green, "●", "4/5".to_string()));
        assert_eq!(badge(Some(3), true), (Color::Yellow, "○", "3/5".to_string()));
        assert_eq!(badge(Some(1), false), (Color::Red, "●", "1/5".to_string()));
        assert_eq!(badge(None, false).1, " ");
    }
}
