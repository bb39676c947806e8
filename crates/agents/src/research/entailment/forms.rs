//! Interchangeable words: forms of one word, and a short list of synonyms.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Irregular verbs, each with its past and its participle if their spelling differs.
const IRREGULAR: &str = "\
    arise arose, bear bore born, beat beaten, become became, begin began begun, bend bent, bind bound, bite bit bitten, \
    blow blew blown, break broke broken, breed bred, bring brought, build built, burn burnt, buy bought, catch caught, \
    choose chose chosen, come came, deal dealt, dig dug, draw drawn drew, drink drank drunk, drive driven drove, \
    eat ate eaten, fall fallen fell, feed fed, feel felt, fight fought, fly flew flown, forbid forbade forbidden, \
    forget forgot forgotten, freeze froze frozen, get got, give gave given, go gone went, grow grew grown, \
    hide hid hidden, hold held, keep kept, know knew known, lay laid, lead led, leave left, lend lent, light lit, \
    lose lost, make made, mean meant, meet met, overtake overtook, pay paid, rebuild rebuilt, ride ridden rode, \
    ring rang, rise risen rose, run ran, say said, see saw seen, seek sought, sell sold, send sent, shake shook shaken, \
    shine shone, shoot shot, show shown, sing sang sung, sink sank sunk, sit sat, sleep slept, speak spoke spoken, \
    spend spent, stand stood, steal stole stolen, strike struck, swear swore sworn, swim swam, take taken took, \
    teach taught, tear tore torn, tell told, think thought, throw threw thrown, understand understood, wake woke, \
    wear wore worn, weave wove woven, win won, withdraw withdrew withdrawn, write written wrote";

/// Irregular plurals.
const PLURALS: [(&str, &str); 8] = [
    ("men", "man"),
    ("women", "woman"),
    ("children", "child"),
    ("feet", "foot"),
    ("teeth", "tooth"),
    ("mice", "mouse"),
    ("halves", "half"),
    ("lives", "life"),
];

/// Words with the same meaning in most factual sentences. The list stays short: a missing pair only leaves a claim
/// unchecked, which does no harm, but a pair that is wrong in some sentence does.
const SYNONYMS: [&str; 46] = [
    "begin start commence",
    "end finish conclude complete",
    "build construct erect",
    "found establish",
    "buy purchase acquire",
    "get receive obtain",
    "need require",
    "allow permit",
    "forbid prohibit ban",
    "use utilize",
    "help assist",
    "happen occur",
    "live reside",
    "repair mend fix",
    "choose select pick",
    "reject refuse decline",
    "rise increase grow climb",
    "fall decrease drop",
    "contain include",
    "produce manufacture",
    "write author",
    "own possess",
    "lead head",
    "show demonstrate",
    "move relocate",
    "ask request",
    "destroy demolish",
    "close shut",
    "big large",
    "small little",
    "fast quick rapid",
    "whole entire",
    "main chief principal primary",
    "annual yearly",
    "wide broad",
    "car automobile",
    "doctor physician",
    "shop store",
    "film movie",
    "ship vessel",
    "journey trip voyage",
    "salary pay wage",
    "employee worker staff",
    "price cost",
    "kilometer km",
    "kilogram kg",
];

/// Endings that change the word class but not the meaning. Endings that name another person or the opposite (employer,
/// employee, harmless) are excluded.
const DERIVATIONS: [&str; 15] =
    ["", "e", "y", "al", "ly", "ion", "ity", "ive", "ment", "ance", "ence", "ness", "ation", "ition", "ally"];
/// The fewest letters that derived words share.
const SHARED: usize = 5;

/// The verbs by their irregular forms.
static VERBS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let verbs = IRREGULAR.split(", ").filter_map(|verb| verb.split_once(' '));
    verbs.flat_map(|(base, forms)| forms.split(' ').map(move |form| (form, base))).collect()
});
/// The synonyms: each word without its inflection, and its line in the list.
static LINES: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    let lines = SYNONYMS.iter().enumerate();
    lines.flat_map(|(at, line)| line.split(' ').map(move |word| (base(word), at))).collect()
});

/// A word in normalized form, for comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Form {
    base: String,
    /// Its line in the list of synonyms.
    synonyms: Option<usize>,
}

impl Form {
    /// The form of a word in lower case.
    pub(super) fn of(word: &str) -> Form {
        let base = base(word);
        let synonyms = LINES.get(&base).copied();
        Form { base, synonyms }
    }

    /// Whether the words are interchangeable.
    pub(super) fn may_stand_for(&self, other: &Form) -> bool {
        let are_synonyms = self.synonyms.is_some() && self.synonyms == other.synonyms;
        self.base == other.base || are_synonyms || is_derived(&self.base, &other.base)
    }

    /// Whether it is a form of one of these words.
    pub(super) fn is_one_of(&self, words: &[&str]) -> bool {
        words.iter().any(|word| base(word) == self.base)
    }
}

/// A word without its inflection, in American spelling.
fn base(word: &str) -> String {
    let plural = PLURALS.iter().find(|(form, _)| *form == word).map(|(_, singular)| *singular);
    let word = plural.or_else(|| irregular(word)).unwrap_or(word);
    let word = word.replace("isation", "ization");
    let word = match word.strip_suffix("tre").or_else(|| word.strip_suffix("tres")) {
        Some(start) if start.len() > 1 => format!("{start}ter"),
        _ => word,
    };
    let stem = stem(&word);
    let stem =
        stem.strip_suffix("our").filter(|start| start.len() > 2).map_or(stem.clone(), |start| format!("{start}or"));
    stem.strip_suffix("is").filter(|start| start.len() > 3).map_or(stem.clone(), |start| format!("{start}iz"))
}

/// The stem of a regular form: `bake`, `baked` and `baking` have the stem `bak`.
fn stem(word: &str) -> String {
    let letters = word.chars().count();
    if letters < 4 || !word.is_ascii() {
        return word.to_owned();
    }
    if let Some(start) = word.strip_suffix("ies").or_else(|| word.strip_suffix("ied")).filter(|start| start.len() > 1) {
        return format!("{start}y");
    }
    let past = word.strip_suffix("ed").or_else(|| word.strip_suffix("ing"));
    if let Some(start) = past.filter(|start| start.len() > 2 && start.contains(['a', 'e', 'i', 'o', 'u', 'y'])) {
        let last = start.chars().last();
        let is_doubled = start.chars().rev().nth(1) == last && !matches!(last, Some('l' | 's' | 'z' | 'e' | 'o'));
        let start = if is_doubled { &start[..start.len() - 1] } else { start };
        return start.strip_suffix('e').unwrap_or(start).to_owned();
    }
    let is_plural = word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    let singular = if is_plural { &word[..word.len() - 1] } else { word };
    let hissing = ["sse", "xe", "che", "she", "ze"].iter().any(|end| is_plural && singular.ends_with(end));
    let singular = if hissing { &singular[..singular.len() - 1] } else { singular };
    singular.strip_suffix('e').unwrap_or(singular).to_owned()
}

fn is_derived(a: &str, b: &str) -> bool {
    let same: usize = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let rest = |word: &str| word.get(same..).is_some_and(|rest| DERIVATIONS.contains(&rest));
    same >= SHARED && rest(a) && rest(b)
}

/// Whether a word is the past or the participle of a verb that is not regular.
pub(super) fn is_irregular(word: &str) -> bool {
    irregular(word).is_some()
}

/// The verb of an irregular form.
fn irregular(form: &str) -> Option<&'static str> {
    VERBS.get(form).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_and_synonyms_stand_for_each_other() {
        let check = |a: &str, b: &str, expected: bool| {
            assert_eq!(Form::of(a).may_stand_for(&Form::of(b)), expected, "{a} and {b}");
        };
        for (a, b) in [
            ("bake", "baking"),
            ("stopped", "stops"),
            ("led", "leads"),
            ("parties", "party"),
            ("metres", "meter"),
            ("colour", "colors"),
            ("organised", "organizes"),
            ("construction", "constructed"),
            ("bought", "acquires"),
            ("discoveries", "discovered"),
        ] {
            check(a, b, true);
        }
        for (a, b) in [("employer", "employee"), ("harmless", "harm"), ("large", "largest"), ("north", "south")] {
            check(a, b, false);
        }
    }
}
