//! Whether an answer repeats a text that a critic has blocked.

use std::collections::HashSet;

use hone_memory::words::{is_common, words};
use hone_protocol::RecalledEngram;

/// The share of a sentence's words from which on it counts as repeated.
const SAID_AGAIN: f64 = 0.8;

/// The share of the words of question and answer that both must have to be about the same topic.
const SAME_SUBJECT: f64 = 0.6;

/// Words that turn a statement into its opposite.
const DENIALS: [&str; 8] = ["no", "not", "t", "never", "cannot", "without", "neither", "nor"];

/// Whether an exchange is about the same topic as a blocked one and repeats one of its sentences, in any order and with
/// other words around it. Words of the question do not count as repeated, unless the answer says nothing else. An
/// exchange may be the correction if only one of the two contains a denial, or if it has a name or a number of its own;
/// then it is no repetition.
pub(crate) fn repeats(exchange: &RecalledEngram, blocked: &RecalledEngram) -> bool {
    let (asked, said) = (content(&exchange.query), content(&exchange.answer));
    let all: HashSet<String> = asked.union(&said).cloned().collect();
    let (blocked_asked, blocked_said) = (content(&blocked.query), content(&blocked.answer));
    let about: HashSet<String> = blocked_asked.union(&blocked_said).cloned().collect();
    let denies = |words: &HashSet<String>| DENIALS.iter().any(|denial| words.contains(*denial));
    let adds = names_and_numbers(&exchange.answer).iter().any(|name| !about.contains(name) && !asked.contains(name));
    denies(&said) == denies(&blocked_said)
        && !adds
        && share(&about, &all).max(share(&all, &about)) >= SAME_SUBJECT
        && sentences(&blocked.answer).any(|sentence| {
            let sentence = content(sentence);
            let new: HashSet<String> = sentence.difference(&blocked_asked).cloned().collect();
            let told = if new.is_empty() { &sentence } else { &new };
            let has_its_numbers = told.iter().filter(|word| is_number(word)).all(|number| said.contains(number));
            !told.is_empty() && has_its_numbers && share(told, &said) >= SAID_AGAIN
        })
}

/// Words that begin with a capital letter or contain digits.
fn names_and_numbers(text: &str) -> Vec<String> {
    let is_name = |word: &&str| word.chars().next().is_some_and(char::is_uppercase) || is_number(word);
    let named = text.split(|letter: char| !letter.is_alphanumeric()).filter(is_name);
    named.flat_map(words).filter(|word| !is_common(word)).collect()
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['.', '!', '?', '\n', '。', '！', '？']).map(str::trim).filter(|sentence| !sentence.is_empty())
}

/// The content words.
fn content(text: &str) -> HashSet<String> {
    words(text).filter(|word| !is_common(word) || DENIALS.contains(&word.as_str())).collect()
}

fn is_number(word: &str) -> bool {
    word.chars().any(char::is_numeric)
}

/// The share of the words that are among the others; 0 without words.
fn share(words: &HashSet<String>, of: &HashSet<String>) -> f64 {
    words.intersection(of).count() as f64 / words.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(query: &str, answer: &str) -> RecalledEngram {
        serde_json::from_value(serde_json::json!({
            "query_id": hone_protocol::QueryId::fresh(), "query": query, "answer": answer, "score": null,
            "similarity": 0.9, "relevance": 0.9,
        }))
        .unwrap()
    }

    #[test]
    fn a_falsehood_in_other_words_is_told_from_the_truth() {
        let blocked = exchange("Where is the Eiffel Tower?", "The Eiffel Tower is in Berlin. It was built in 1889.");
        for (query, answer, expected) in [
            ("Where does the Eiffel Tower stand?", "It stands in Berlin.", true),
            ("Where is the Eiffel Tower?", "Berlin", true),
            ("In which city is the Eiffel Tower?", "The Eiffel Tower is in Paris.", false),
            ("When was the Eiffel Tower built?", "In 1887.", false),
            ("Where is the Eiffel Tower?", "It was built in 1889 and stands in Paris.", false),
            ("Where is the Eiffel Tower?", "It is not in Berlin.", false),
            ("Tell me about Berlin.", "Berlin is the capital of Germany.", false),
        ] {
            assert_eq!(repeats(&exchange(query, answer), &blocked), expected, "{query} {answer}");
        }
        let blocked = exchange("How many people live in France?", "About 900 million people live in France.");
        assert!(repeats(
            &exchange("What is the population of France?", "900 million people live in France."),
            &blocked
        ));
        assert!(!repeats(
            &exchange("How many people live in France?", "About 68 million people live in France."),
            &blocked
        ));
        for (falsehood, truth) in [
            ("Tomatoes are not safe to eat.", "Tomatoes are safe to eat."),
            ("Tomatoes are safe to eat.", "Tomatoes are never safe to eat."),
        ] {
            let blocked = exchange("Are tomatoes poisonous?", falsehood);
            assert!(!repeats(&exchange("Are tomatoes poisonous?", truth), &blocked), "{truth}");
            assert!(repeats(&exchange("Are tomatoes poisonous?", falsehood), &blocked), "{falsehood}");
        }
        let blocked = exchange("埃菲尔铁塔在哪里？", "埃菲尔铁塔在柏林。");
        assert!(repeats(&exchange("埃菲尔铁塔在哪个城市？", "铁塔在柏林。"), &blocked));
        assert!(!repeats(&exchange("埃菲尔铁塔在哪个城市？", "在巴黎。"), &blocked));
    }
}
