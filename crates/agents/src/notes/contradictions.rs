//! Facts that a person has stated differently at different times: "My dog is called Rex" and later "My dog is called
//! Max".

use hone_protocol::Timestamp;
use serde::Serialize;

use crate::settings::MemorySettings;

/// A person's statement, with its vector of length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct StatedFact {
    /// The statement.
    pub text: String,
    /// When.
    pub at: Timestamp,
    /// Whether it states a change.
    pub is_update: bool,
    /// Its vector; empty without one.
    pub vector: Vec<f32>,
}

/// Two statements that cannot both hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// The earlier statement.
    pub earlier: String,
    /// The later one, which prevails.
    pub later: String,
}

/// Words before a value of which there can be only one.
const BEFORE_VALUES: [&str; 30] = [
    "is", "are", "am", "was", "were", "im", "called", "named", "name", "lives", "live", "living", "in", "at", "on",
    "to", "for", "works", "work", "costs", "starts", "ends", "weighs", "opens", "use", "uses", "drive", "drives",
    "takes", "pay",
];

/// Words without content.
const EMPTY: [&str; 28] = [
    "a", "an", "the", "my", "our", "i", "we", "me", "now", "is", "are", "was", "were", "am", "im", "to", "in", "at",
    "on", "of", "and", "it", "has", "have", "just", "actually", "from", "s",
];

/// Words that a later statement may add without changing its topic.
const CHANGE: [&str; 8] = ["now", "actually", "no", "longer", "anymore", "instead", "just", "currently"];

/// Whether two statements contradict each other: either the later one states a change, is about the same topic and
/// shares a word, or both have the same words except for one value. `hone memory eval` measures the accuracy.
pub fn contradiction(earlier: &StatedFact, later: &StatedFact, settings: &MemorySettings) -> Option<Contradiction> {
    let (before, after) = (words(&earlier.text), words(&later.text));
    let similarity = cosine(&earlier.vector, &later.vector);
    let is_changed = later.is_update && similarity >= settings.changed_statement && shares_a_word(&before, &after);
    let differs = before != after && (is_changed || has_other_value(&before, &after));
    differs.then(|| Contradiction { earlier: earlier.text.clone(), later: later.text.clone() })
}

/// The words of a statement, in lower case, without those that express a change.
fn words(text: &str) -> Vec<String> {
    let text = text.to_lowercase().replace(['\'', '’'], "");
    let words = text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.filter(|word| !CHANGE.contains(word)).map(str::to_owned).collect()
}

fn shares_a_word(a: &[String], b: &[String]) -> bool {
    a.iter().any(|word| !EMPTY.contains(&word.as_str()) && b.contains(word))
}

/// Whether the words before and after a differing value are the same.
fn has_other_value(a: &[String], b: &[String]) -> bool {
    let shorter = a.len().min(b.len());
    let before = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let after = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count().min(shorter - before);
    let values = [&a[before..a.len() - after], &b[before..b.len() - after]];
    let names_the_same = a[..before].iter().chain(&a[a.len() - after..]).any(|word| !EMPTY.contains(&word.as_str()));
    let is_before_value = before.checked_sub(1).is_some_and(|last| BEFORE_VALUES.contains(&a[last].as_str()));
    before >= 2 && names_the_same && is_before_value && values.iter().all(|value| (1..=4).contains(&value.len()))
}

/// The cosine of two vectors of length 1; 0 if their dimensions differ.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() { 0.0 } else { a.iter().zip(b).map(|(a, b)| a * b).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::settings_for_tests;

    fn stated(text: &str, is_update: bool, vector: [f32; 2]) -> StatedFact {
        StatedFact { text: text.to_owned(), at: Timestamp(1), is_update, vector: vector.to_vec() }
    }

    #[test]
    fn one_value_in_the_place_of_another() {
        let check = |a: &str, b: &str, expected: bool| {
            let [a, b] = [a, b].map(|text| stated(text, false, [1.0, 0.0]));
            assert_eq!(contradiction(&a, &b, &settings_for_tests()).is_some(), expected, "{a:?} {b:?}");
        };
        check("My dog is called Rex", "my dog is called Max", true);
        check("My dog is called Rex", "My dog is now called Max!", true);
        check("I live in Berlin", "I live in New York", true);
        check("The meeting is on Tuesday at nine", "The meeting is on Friday at nine", true);
        check("My dog is called Rex", "My cat is called Max", false);
        check("My dog is called Rex", "My dog is called Rex.", false);
        check("I like apples", "I like pears", false);
        check("My dog is called Rex", "My dog is called Rex and he bites", false);
        check("I live in Berlin", "We used to live in Hamburg with our two dogs", false);
    }

    #[test]
    fn a_change_is_about_the_same_thing() {
        let earlier = stated("I use helix as my editor", false, [1.0, 0.0]);
        let check = |later: &str, vector, expected: bool| {
            let later = stated(later, true, vector);
            assert_eq!(contradiction(&earlier, &later, &settings_for_tests()).is_some(), expected, "{later:?}");
        };
        check("switched my editor to zed", [0.6, 0.8], true);
        check("switched to zed", [0.6, 0.8], false);
        check("switched my editor to zed", [0.0, 1.0], false);
    }
}
