//! Formats times, sizes, texts, ratings and the events of a pull for people, on one line.

use hone_models::{Choice, Event, Phase};
use hone_protocol::{Rating, Timestamp};
use time::OffsetDateTime;

/// The maximum characters of a text that shares its line.
const LONGEST_TEXT: usize = 72;

/// A time, in UTC and to the second.
pub fn moment(at: Timestamp) -> String {
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
pub fn on_one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A rating as a word.
pub fn rating(rating: Rating) -> &'static str {
    match rating {
        Rating::Good => "good",
        Rating::Bad => "bad",
    }
}

/// A number of bytes, with decimal units.
pub fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut number, mut unit) = (count as f64, 0);
    while number >= 1_000.0 && unit + 1 < units.len() {
        (number, unit) = (number / 1_000.0, unit + 1);
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{number:.2} {}", units[unit]),
    }
}

/// An event in words.
pub fn remark(event: &Event) -> String {
    match event {
        Event::Progress { phase, file, .. } => format!("{} {file}", verb(*phase)),
        Event::Source { source } => format!("from {source}"),
        Event::Chosen { file, size, choice, others } => chosen(file, *size, *choice, others),
        Event::Waiting => "another process is downloading this model: waiting for it".to_owned(),
        Event::Retrying { reason, after } => format!("{reason}: trying again in {} s", after.as_secs_f64().ceil()),
        Event::Unchecked { from } => {
            format!("{from} could not be verified: neither the catalog nor the server provides a hash")
        }
        Event::Damaged { reason } => reason.clone(),
        Event::SourceFailed { source, reason } => format!("{source}: {reason}"),
    }
}

fn chosen(file: &str, size: Option<u64>, choice: Choice, others: &[String]) -> String {
    let size = size.map_or_else(String::new, |size| format!(" ({})", bytes(size)));
    let reason = match choice {
        Choice::Asked => return format!("{file}{size}"),
        Choice::Usual => "the usual quantization",
        Choice::LargestThatFits => "the largest quantization that fits this machine's memory",
        Choice::TooLarge => "the usual quantization, although no quantization fits this machine's memory",
    };
    format!("{file}{size} is {reason}; it also comes as {}", others.join(", "))
}

/// The current action on a file, in a word.
pub fn verb(phase: Phase) -> &'static str {
    match phase {
        Phase::Downloading => "downloading",
        Phase::Verifying => "checking",
        Phase::Unpacking => "unpacking",
        Phase::Copying => "copying",
    }
}

/// The minimum similarity of a word and its candidate, out of 1.
const ALIKE: f64 = 0.55;

/// The candidate that a mistyped word probably stands for; `None` if none is similar.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // The beginning of a name counts as the whole name.
    let alike = |name: &str| match !word.is_empty() && name.starts_with(&word) {
        true => 1.0,
        false => strsim::normalized_damerau_levenshtein(&word, name),
    };
    let rated = candidates.into_iter().map(|name| (alike(name), name));
    let (alike, name) = rated.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (alike >= ALIKE).then_some(name)
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

    #[test]
    fn sizes_have_decimal_units() {
        let sizes = [0, 999, 1_000, 1_500_000, 4_370_000_000].map(bytes);
        assert_eq!(sizes, ["0 B", "999 B", "1.00 kB", "1.50 MB", "4.37 GB"]);
    }
}
