//! Normalizes numbers and dates.

/// The months, for comparing dates in figures with dates in words.
pub(in crate::research) const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// Numbers from 2 that are one word; "one" is just as often a pronoun.
const SMALL: [&str; 18] = [
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
/// The tens from 20.
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// A text with its number words as figures: `twenty-three wheels` becomes `23 wheels`. "Million" and larger words stay
/// words, as they do after figures.
pub(in crate::research) fn in_figures(text: &str) -> String {
    let words: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
    let mut written = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let (before, core, after) = parts(word);
        match value(core).filter(|_| before.chars().all(|letter| !letter.is_alphanumeric())) {
            None => {
                written.push_str(word);
                at += 1;
            }
            Some(first) => {
                let (number, after, n_words) = whole_number(first, after, &words[at + 1..]);
                written.push_str(&format!("{before}{number}{after}"));
                at += 1 + n_words;
            }
        }
    }
    written
}

/// A figure without thousands separators, leading zeros and trailing zeros of its fraction.
pub(in crate::research) fn plain_figure(figure: &str) -> String {
    let (first, groups) = figure.split_once(',').unwrap_or((figure, ""));
    let is_grouped = !groups.is_empty() && first.len() <= 3 && {
        let whole = groups.split('.').next().unwrap_or_default();
        whole.split(',').all(|group| group.len() == 3)
    };
    let plain = if is_grouped { figure.replace(',', "") } else { figure.to_owned() };
    let whole = plain.trim_start_matches('0');
    let whole = if whole.starts_with(|letter: char| letter.is_ascii_digit()) { whole } else { &plain };
    match whole.split_once('.') {
        Some((whole, fraction)) if !fraction.contains(['.', ',']) => {
            let fraction = fraction.trim_end_matches('0');
            if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
        }
        _ => whole.to_owned(),
    }
}

/// Year, month in words and day of a date such as 2026-01-28.
pub(in crate::research) fn date(word: &str) -> Option<(&str, &'static str, &str)> {
    let mut parts = word.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let is_number = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = is_number(year, 4) && is_number(month, 2) && is_number(day, 2) && parts.next().is_none();
    let month = month.parse::<usize>().ok()?.checked_sub(1)?;
    MONTHS.get(month).filter(|_| is_date).map(|month| (year, *month, day))
}

/// The month that a word names, in full or in its usual abbreviation.
pub(super) fn month(word: &str) -> Option<&'static str> {
    let is_month = |month: &&&str| **month == word || is_short_month(word, month);
    MONTHS.iter().find(is_month).copied()
}

/// Whether `short` is a usual abbreviation of the month `long`.
pub(in crate::research) fn is_short_month(short: &str, long: &str) -> bool {
    (3..=4).contains(&short.len()) && long.starts_with(short) && MONTHS.contains(&long)
}

/// The number that begins with `first`, the text after its last word, and the number of further words that it takes.
fn whole_number<'a>(first: u64, mut after: &'a str, words: &[&'a str]) -> (u64, &'a str, usize) {
    let (mut total, mut open, mut n_taken) = (0, first, 0);
    loop {
        let is_joined = after.trim().is_empty();
        let Some(word) = words.get(n_taken).filter(|_| is_joined) else { break };
        let (before, core, behind) = parts(word);
        let scale = match core {
            "hundred" => Some(100),
            "thousand" => Some(1000),
            _ => None,
        };
        let n_more = match (scale, value(core)) {
            _ if !before.is_empty() => break,
            (Some(100), _) if open < 100 => {
                open *= 100;
                1
            }
            (Some(1000), _) if total == 0 => {
                (total, open) = (open * 1000, 0);
                1
            }
            (None, Some(small)) if fits_behind(small, open) => {
                open += small;
                1
            }
            _ if core == "and" && open.is_multiple_of(100) => {
                let Some(small) = words.get(n_taken + 1).and_then(|word| value(parts(word).1)) else { break };
                if small >= 100 {
                    break;
                }
                open += small;
                after = parts(words[n_taken + 1]).2;
                n_taken += 2;
                continue;
            }
            _ => break,
        };
        after = behind;
        n_taken += n_more;
    }
    (total + open, after, n_taken)
}

/// Whether a number word continues a number: units after tens, smaller numbers after hundreds and thousands.
fn fits_behind(small: u64, open: u64) -> bool {
    match open % 100 {
        0 => small < 100,
        20..=90 => open.is_multiple_of(10) && small < 10,
        _ => false,
    }
}

/// The value of one number word.
fn value(word: &str) -> Option<u64> {
    let lower = word.to_lowercase();
    let position = |list: &[&str], word: &str| list.iter().position(|number| *number == word).map(|at| at as u64);
    let small = |word: &str| position(&SMALL, word).map(|at| at + 2);
    let tens = |word: &str| position(&TENS, word).map(|at| (at + 2) * 10);
    let compound = || {
        let (left, right) = lower.split_once('-')?;
        let unit = if right == "one" { Some(1) } else { small(right).filter(|unit| *unit < 10) };
        Some(tens(left)? + unit?)
    };
    small(&lower).or_else(|| tens(&lower)).or_else(compound)
}

/// The characters before the first letter or digit of a word, the word itself, and the characters after its last.
fn parts(word: &str) -> (&str, &str, &str) {
    let start = word.find(char::is_alphanumeric).unwrap_or(word.len());
    let end =
        word.rfind(char::is_alphanumeric).map_or(start, |at| at + word[at..].chars().next().map_or(0, char::len_utf8));
    (&word[..start], &word[start..end], &word[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_words_become_figures() {
        let check = |text: &str, expected: &str| assert_eq!(in_figures(text), expected);
        check("Seventeen wheels, twenty-three rods (two hundred and five).", "17 wheels, 23 rods (205).");
        check("two thousand three hundred, forty one-eyed", "2300, 40 one-eyed");
        check("three hundred thousand people and ten of twelve", "300000 people and 10 of 12");
        check("one of them, two three, 2.3 million", "one of them, 2 3, 2.3 million");
        check("five and six, the ten-year plan", "5 and 6, the ten-year plan");
    }
}
