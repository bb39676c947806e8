//! Rules about the text of an answer, which need no model.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// Words that are shorter say little about a subject.
const SHORTEST_WORD: usize = 4;
/// Words that make up a phrase.
const PHRASE_WORDS: usize = 3;
/// How far a result may be from the right one, as a share of it: people round.
const ROUNDING: f64 = 0.011;

static EQUATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(\d+(?:\.\d+)?)\s*([-+*/])\s*(\d+(?:\.\d+)?)\s*=\s*(\d+(?:\.\d+)?)"));
static EQUATION_CONTINUES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:[-+*/=(]\s*|\d)$"));
static FORBIDDEN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"(?i)without (?:using )?(?:the )?(?:words?|letters?) ((?:["“][^"”]+["”](?:, | or | and )?)+)"#)
});
static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r#"["“]([^"”]+)["”]"#));
static MOST_WORDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:at most|no more than|up to|within|a maximum of) (\w+) words\b"));
static EXACT_WORDS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:exactly|in) (\w+) words?\b"));
static SENTENCES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:exactly|in) (\w+) (?:short )?sentences?\b"));
static SENTENCE_END: LazyLock<Regex> = LazyLock::new(|| pattern(r#"[.!?]+["”')]*(?:\s|$)"#));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this module are used by its tests")
}

/// The share of three-word phrases that occurred before.
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

/// How many sums, differences, products and quotients in the answer are wrong.
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
        // What stands before may be a part of a longer expression.
        !EQUATION_CONTINUES.is_match(before.trim_end())
            && (!result.is_finite() || (result - claimed).abs() > ROUNDING * result.abs().max(1.0))
    };
    EQUATION.captures_iter(&plain).filter(is_wrong).count()
}

/// Whether the answer does not have the form that the question asks for in so many words: JSON, a number of words or
/// sentences, words to avoid.
pub(super) fn ignores_form(query: &str, answer: &str) -> bool {
    let bound = |pattern: &Regex| pattern.captures(query).and_then(|captures| number(&captures[1]));
    let n_words = answer.split_whitespace().count();
    let n_sentences = SENTENCE_END.find_iter(answer).count().max(1);
    bound(&MOST_WORDS).is_some_and(|most| n_words > most)
        || bound(&EXACT_WORDS).is_some_and(|exact| n_words != exact)
        || bound(&SENTENCES).is_some_and(|exact| n_sentences != exact)
        || uses_forbidden(query, answer)
}

fn uses_forbidden(query: &str, answer: &str) -> bool {
    let Some(captures) = FORBIDDEN.captures(query) else { return false };
    let used = words(answer);
    let is_used = |forbidden: &str| match forbidden.chars().count() {
        1 => used.iter().any(|word| word.contains(forbidden)),
        _ => used.iter().any(|word| word == forbidden),
    };
    QUOTED.captures_iter(&captures[1]).any(|quoted| is_used(&quoted[1].to_lowercase()))
}

fn number(text: &str) -> Option<usize> {
    const NAMES: [&str; 12] =
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    let named = NAMES.iter().position(|name| name.eq_ignore_ascii_case(text)).map(|index| index + 1);
    named.or_else(|| text.parse().ok())
}

fn words(text: &str) -> Vec<String> {
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
    fn the_form_that_was_asked_for_is_checked() {
        for (query, answer, expected) in [
            ("Answer in one sentence.", "It is hot. Very hot.", true),
            ("Answer in one sentence.", "It is hot", false),
            ("Describe rain in at most five words.", "Water that falls from the sky", true),
            ("Describe rain in at most 5 words.", "Water falls from the sky.", false),
            ("Say it in exactly three words.", "It is very hot", true),
            ("Explain a volcano without using the words \"lava\" or \"magma\".", "Lava flows.", true),
            ("Explain a volcano without using the words \"lava\" or \"magma\".", "Rock melts.", false),
            ("Write a line without the letter \"e\".", "Sky and moon", false),
            ("Write a line without the letter \"e\".", "The sky", true),
            ("What is rain?", "Water. It falls.", false),
        ] {
            assert_eq!(ignores_form(query, answer), expected, "{query} {answer}");
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
    }
}
