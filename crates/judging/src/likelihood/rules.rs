//! Rules about the text of an answer that need no model.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// Shorter words say little about a subject.
const SHORTEST_WORD: usize = 4;
/// The number of words in a phrase.
const PHRASE_WORDS: usize = 3;
/// Words that claim something without exception or doubt.
const ABSOLUTES: &str = "absolutely all always any anybody anyone anything certainly clearly completely definitely \
    doubtless entirely ever every everybody everyone everything exactly invariably never nobody none nothing obviously \
    simply surely totally undoubtedly unquestionably";
/// Maximum relative deviation from the right result, since people round.
const ROUNDING: f64 = 0.011;

static EQUATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(\d+(?:\.\d+)?)\s*([-+*/])\s*(\d+(?:\.\d+)?)\s*=\s*(\d+(?:\.\d+)?)"));
static EQUATION_CONTINUES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:[-+*/=(]\s*|\d)$"));

pub(super) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this module are used by its tests")
}

/// The share of three-word phrases that repeat an earlier one.
pub(super) fn repetition(answer: &str) -> f64 {
    let words = words(answer);
    let phrases: Vec<&[String]> = words.windows(PHRASE_WORDS).collect();
    let distinct: BTreeSet<&[String]> = phrases.iter().copied().collect();
    (phrases.len() - distinct.len()) as f64 / phrases.len().max(1) as f64
}

/// The share of the question's longer words that occur in the answer.
pub(super) fn overlap(query: &str, answer: &str) -> f64 {
    let long = |text: &str| -> BTreeSet<String> {
        words(text).into_iter().filter(|word| word.chars().count() >= SHORTEST_WORD).collect()
    };
    let (query, answer) = (long(query), long(answer));
    query.intersection(&answer).count() as f64 / query.len().max(1) as f64
}

/// Whether an answer ends without the end of a sentence, a list, a quotation or a piece of code.
pub(super) fn breaks_off(answer: &str) -> bool {
    let is_short = words(answer).len() <= PHRASE_WORDS;
    let ends = |last: char| ".!?:\"”'’)`}]*".contains(last) || last.is_ascii_digit();
    !is_short && !answer.trim_end().ends_with(ends)
}

/// The number of wrong sums, differences, products and quotients in the answer.
pub(super) fn wrong_equations(answer: &str) -> usize {
    let plain = answer.replace(',', "").replace(['×', '·'], "*").replace('÷', "/").replace(['−', '–'], "-");
    let is_wrong = |captures: &regex::Captures<'_>| {
        let before = &plain[..captures.get(0).map_or(0, |whole| whole.start())];
        let number = |group: usize| captures[group].parse::<f64>().unwrap_or(f64::NAN);
        let (left, right, claimed) = (number(1), number(3), number(4));
        let result = match &captures[2] {
            "+" => left + right,
            "-" => left - right,
            "*" => left * right,
            _ => left / right,
        };
        // The text before it may be a part of a longer expression.
        !EQUATION_CONTINUES.is_match(before.trim_end())
            && (!result.is_finite() || (result - claimed).abs() > ROUNDING * result.abs().max(1.0))
    };
    EQUATION.captures_iter(&plain).filter(is_wrong).count()
}

/// The share of words that claim something without exception or doubt.
pub(super) fn absolutes(answer: &str) -> f64 {
    let words = words(answer);
    let is_absolute = |word: &&String| ABSOLUTES.split(' ').any(|absolute| absolute == **word);
    words.iter().filter(is_absolute).count() as f64 / words.len().max(1) as f64
}

/// The words of a text in lower case.
pub(super) fn words(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphanumeric() && character != '\'');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_checked_and_rounding_allowed() {
        for (answer, expected) in [
            ("3 + 4 = 7, so 7 * 6 = 42.", 0),
            ("3 + 4 = 8.", 1),
            ("12 × 12 = 142 and 10 ÷ 4 = 2.5", 1),
            ("1,200 − 300 = 900", 0),
            ("10 / 3 = 3.33", 0),
            ("2 + 3 * 4 = 14", 0),
            ("2 * 3 + 4 = 10", 0),
            ("In 1999 there were 3.", 0),
            ("1 / 0 = 0", 1),
        ] {
            assert_eq!(wrong_equations(answer), expected, "{answer}");
        }
    }

    #[test]
    fn an_answer_that_breaks_off_or_repeats_itself_is_found() {
        assert!(breaks_off("It is hot because the") && !breaks_off("It is hot.") && !breaks_off("Lisbon"));
        assert!(!breaks_off("```\nprint(1)\n```") && !breaks_off("The result is 42"));
        assert_eq!(repetition("one two three four"), 0.0);
        assert!((repetition("a b c a b c a b c") - 4.0 / 7.0).abs() < 1e-12);
        assert_eq!(repetition(""), 0.0);
        assert_eq!(overlap("Why is fire hot?", "Fire is hot."), 1.0);
        assert_eq!(overlap("?", ""), 0.0);
        assert_eq!((absolutes("It always works."), absolutes("")), (1.0 / 3.0, 0.0));
    }
}
