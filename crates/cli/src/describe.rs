//! Formats times, texts and ratings for people, on one line.

use hone_protocol::{Rating, Timestamp};
use time::OffsetDateTime;

/// The most characters of a text that shares its line.
const LONGEST_TEXT: usize = 72;

/// A time, in UTC and to the second.
pub(crate) fn moment(at: Timestamp) -> String {
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
pub(crate) fn on_one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A rating as a word.
pub(crate) fn rating(rating: Rating) -> &'static str {
    match rating {
        Rating::Good => "good",
        Rating::Bad => "bad",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
