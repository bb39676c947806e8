//! Explicit form requirements of a question: a number of words or sentences, JSON, words to avoid.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::rules::{pattern, words};

/// A form that a question may require.
struct FormAskedFor {
    /// Matches a question that requires it.
    asks: Regex,
    /// Whether an answer violates it, given the question's match.
    is_missing: fn(&Captures<'_>, &str) -> bool,
}

static FORMS: LazyLock<Vec<FormAskedFor>> = LazyLock::new(|| {
    vec![
        form(r"\b(?:at most|no more than|up to|within|a maximum of) (\w+) words\b", |asked, answer| {
            number(asked).is_some_and(|most| n_words(answer) > most)
        }),
        form(r"\bat least (\w+) words\b", |asked, answer| number(asked).is_some_and(|least| n_words(answer) < least)),
        form(r"\b(?:exactly|in) (\w+) words?\b", |asked, answer| {
            number(asked).is_some_and(|exact| n_words(answer) != exact)
        }),
        form(r"\b(?:with|only) (?:one|a single) word\b", |_, answer| n_words(answer) != 1),
        form(r"\b(?:exactly|in|with|write) (?:exactly )?(\w+) (?:short |plain )?sentences?\b", |asked, answer| {
            number(asked).is_some_and(|exact| count(&SENTENCE_END, answer).max(1) != exact)
        }),
        form(
            r"\b(?:list of (?:exactly )?(\w+) (?:steps|points|items)|(\w+) (?:short )?bullet points)\b",
            |asked, answer| number(asked).is_some_and(|exact| count(&LIST_ITEM, answer) != exact),
        ),
        form(r"(?s)\bjson\b.*\b(?:only|nothing else|no other)\b|\bonly\b.{0,20}\bjson\b", |_, answer| {
            serde_json::from_str::<serde::de::IgnoredAny>(answer).is_err()
        }),
        form(r"\bmarkdown table\b", |_, answer| count(&TABLE_RULE, answer) == 0),
        form(r"\b(?:all|only) (?:in )?lower[- ]case\b", |_, answer| answer.contains(char::is_uppercase)),
        form(r"\b(?:all|only) (?:in )?(?:upper[- ]case|capital letters|capitals)\b", |_, answer| {
            answer.contains(char::is_lowercase)
        }),
        form(r"\bend(?:s|ing)? with a question\b", |_, answer| !answer.trim_end_matches(CLOSING).ends_with('?')),
        form(r"\b(?:no|without) exclamation marks?\b", |_, answer| answer.contains('!')),
        form(r"\b(?:nothing else|no other text|no text outside|no introduction)\b", |_, answer| CHAT.is_match(answer)),
        form(FORBIDDEN, |asked, answer| uses_forbidden(&asked[1], answer)),
    ]
});
const FORBIDDEN: &str = concat!(
    r"\b(?:without|not|never|avoid) (?:us(?:e|ing) )?(?:the )?(?:words?|letters?) ",
    r#"((?:["“][^"”]+["”](?:, | or | and )?)+)"#
);
/// With one of these words, a number of words refers to a part of the answer.
static PART: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:each|every|per|line|body)\b"));
static SENTENCE_END: LazyLock<Regex> = LazyLock::new(|| pattern(r#"[.!?]+["”')]*(?:\s|$)"#));
static LIST_ITEM: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^\s*(?:[-*•]|\d+[.)])\s"));
static TABLE_RULE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^[\s|:]*-{3}[\s|:-]*$"));
static CHAT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)^(?:sure|of course|certainly|here (?:is|are))\b|\blet me know\b|\bhope this helps\b")
});
static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r#"["“]([^"”]+)["”]"#));
/// Characters that may follow the last mark of a sentence.
const CLOSING: &[char] = &['"', '”', ')', ' ', '\n'];

fn form(asks: &str, is_missing: fn(&Captures<'_>, &str) -> bool) -> FormAskedFor {
    FormAskedFor { asks: pattern(&format!("(?i){asks}")), is_missing }
}

/// Whether the answer violates a form that the question requires.
pub(super) fn ignores_form(query: &str, answer: &str) -> bool {
    let speaks_of_parts = PART.is_match(query);
    FORMS.iter().any(|form| {
        let is_missing = |asked: Captures<'_>| {
            let is_of_part = speaks_of_parts && asked[0].to_lowercase().ends_with("words");
            !is_of_part && (form.is_missing)(&asked, answer)
        };
        form.asks.captures(query).is_some_and(is_missing)
    })
}

fn uses_forbidden(forbidden: &str, answer: &str) -> bool {
    let used = words(answer);
    let is_used = |forbidden: &str| match forbidden.chars().count() {
        1 => used.iter().any(|word| word.contains(forbidden)),
        _ => used.iter().any(|word| word == forbidden),
    };
    QUOTED.captures_iter(forbidden).any(|quoted| is_used(&quoted[1].to_lowercase()))
}

fn n_words(answer: &str) -> usize {
    answer.split_whitespace().count()
}

fn count(pattern: &Regex, answer: &str) -> usize {
    pattern.find_iter(answer).count()
}

/// The number that a question names, in digits or in words.
fn number(asked: &Captures<'_>) -> Option<usize> {
    const NAMES: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
        sixteen seventeen eighteen nineteen twenty";
    const TENS: &str = "thirty forty fifty sixty";
    let text = asked.iter().skip(1).flatten().next()?.as_str().to_lowercase();
    let place_in = |names: &str| names.split(' ').position(|name| name == text);
    let below = place_in(NAMES).map(|index| index + 1);
    let tens = || place_in(TENS).map(|index| 10 * (index + 3));
    below.or_else(tens).or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_that_was_asked_for_is_checked() {
        for (query, answer, expected) in [
            ("Answer in one sentence.", "It is hot. Very hot.", true),
            ("Answer in one sentence.", "It is hot", false),
            ("Write exactly three sentences.", "It is hot. Very.", true),
            ("Describe rain in at most five words.", "Water that falls from the sky", true),
            ("Describe rain in at most 5 words.", "Water falls from the sky.", false),
            ("List the steps. Each step has at most two words.", "1. Pour the water.", false),
            ("Say it in exactly three words.", "It is very hot", true),
            ("Describe it in exactly twenty words.", "It is very hot", true),
            ("Write at least five words.", "It is hot", true),
            ("Answer with one word: is it hot?", "Yes, it is.", true),
            ("Summarise as three bullet points.", "- a\n- b\n- c", false),
            ("Summarise as three bullet points.", "a, b and c", true),
            ("Make a numbered list of exactly two steps.", "1. a\n2. b\n3. c", true),
            ("Reply with a JSON object only.", "{\"a\": 1}", false),
            ("Reply with a JSON object only.", "Sure! {\"a\": 1}", true),
            ("Make a Markdown table.", "| a | b |\n|---|---|\n| 1 | 2 |", false),
            ("Make a Markdown table.", "a: 1, b: 2", true),
            ("Name it, all in lower case.", "Harp", true),
            ("Explain it, and end with a question.", "It is hot. Do you see?", false),
            ("Explain it, and end with a question.", "It is hot.", true),
            ("Write a notice, no exclamation marks.", "Hot!", true),
            ("Write a line and nothing else.", "Here is a line: hot.", true),
            ("Explain a volcano without using the words \"lava\" or \"magma\".", "Lava flows.", true),
            ("Explain a volcano without using the words \"lava\" or \"magma\".", "Rock melts.", false),
            ("Explain it. Do not use the words \"hot\" or \"lava\".", "It is hot.", true),
            ("Write a line without the letter \"e\".", "Sky and moon", false),
            ("Write a line without the letter \"e\".", "The sky", true),
            ("What is rain?", "Water. It falls.", false),
        ] {
            assert_eq!(ignores_form(query, answer), expected, "{query} {answer}");
        }
    }
}
