//! Classes of English words, and the positions of verbs in a sentence.

use super::forms::is_irregular;
use super::tokens::Token;

const DETERMINERS: [&str; 20] = [
    "a", "an", "the", "this", "that", "these", "those", "my", "your", "his", "her", "its", "our", "their", "each",
    "every", "another", "both", "any", "no",
];
/// Personal pronouns of the third person, which refer to something mentioned before.
const PRONOUNS: [&str; 8] = ["it", "they", "he", "she", "them", "him", "this", "these"];
const OWNERS: [&str; 3] = ["its", "their", "his"];
const OTHER_PRONOUNS: [&str; 14] = [
    "i",
    "we",
    "you",
    "us",
    "me",
    "who",
    "which",
    "whom",
    "there",
    "itself",
    "himself",
    "herself",
    "themselves",
    "one",
];
const BE: [&str; 8] = ["is", "are", "was", "were", "be", "been", "being", "am"];
const AUXILIARIES: [&str; 17] = [
    "has", "have", "had", "do", "does", "did", "will", "would", "shall", "should", "can", "could", "may", "might",
    "must", "cannot", "having",
];
const PREPOSITIONS: [&str; 44] = [
    "in", "on", "at", "of", "to", "from", "with", "without", "by", "for", "into", "onto", "over", "under", "above",
    "below", "before", "after", "during", "until", "since", "against", "between", "among", "through", "across",
    "along", "around", "behind", "beside", "near", "per", "within", "than", "except", "instead", "as", "towards",
    "via", "because", "despite", "like", "inside", "outside",
];
/// Conjunctions and relative pronouns between clauses.
const CONJUNCTIONS: [&str; 20] = [
    "and", "but", "while", "whereas", "although", "though", "because", "when", "whenever", "where", "which", "who",
    "if", "unless", "until", "after", "before", "since", "so", "then",
];
/// Words without content, or that only join words with content.
const EMPTY: [&str; 40] = [
    "and",
    "but",
    "or",
    "also",
    "then",
    "that",
    "so",
    "too",
    "yet",
    "still",
    "now",
    "thus",
    "therefore",
    "however",
    "if",
    "when",
    "while",
    "whereas",
    "although",
    "though",
    "where",
    "whenever",
    "unless",
    "whose",
    "there",
    "what",
    "about",
    "almost",
    "nearly",
    "only",
    "not",
    "never",
    "all",
    "most",
    "some",
    "several",
    "few",
    "little",
    "roughly",
    "often",
];

pub(super) fn is_determiner(token: &Token) -> bool {
    token.is(&DETERMINERS)
}

pub(super) fn is_pronoun(token: &Token) -> bool {
    token.is(&PRONOUNS) || is_owner(token)
}

/// Whether a pronoun is possessive.
pub(super) fn is_owner(token: &Token) -> bool {
    token.is(&OWNERS)
}

pub(super) fn is_be(token: &Token) -> bool {
    token.is(&BE)
}

pub(super) fn is_auxiliary(token: &Token) -> bool {
    let is_month = token.is_name && token.is(&["may"]);
    is_be(token) || (token.is(&AUXILIARIES) && !is_month)
}

pub(super) fn is_preposition(token: &Token) -> bool {
    token.is(&PREPOSITIONS)
}

pub(super) fn is_conjunction(token: &Token) -> bool {
    token.is(&CONJUNCTIONS)
}

pub(super) fn is_number(token: &Token) -> bool {
    token.text.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Whether a word only joins others or refers to them.
pub(super) fn is_function_word(token: &Token) -> bool {
    let is_pronoun = is_pronoun(token) || token.is(&OTHER_PRONOUNS);
    token.is_mark()
        || is_determiner(token)
        || is_pronoun
        || is_auxiliary(token)
        || is_preposition(token)
        || token.is(&EMPTY)
}

/// Whether the word may be the participle of a verb, by its form.
pub(super) fn is_participle(token: &Token) -> bool {
    let has_ending = token.text.len() > 4
        && token.text.ends_with("ed")
        && !token.is(&["exceed", "proceed", "succeed", "indeed", "hundred"]);
    has_ending
        || is_irregular(&token.text)
        || token.is(&["cut", "put", "set", "read", "let", "cost", "hit", "shut", "found"])
}

/// The position of a clause's first finite verb.
pub(super) fn first_verb(clause: &[Token]) -> Option<usize> {
    let have_verbs = beginnings_with_verbs(clause);
    (0..clause.len()).find(|at| is_verb_behind(clause, *at, have_verbs[*at]))
}

/// Whether the word here is a finite verb, judging by its form and its neighbours.
pub(super) fn is_verb(clause: &[Token], at: usize) -> bool {
    let Some(before) = clause.get(..at) else { return false };
    is_verb_behind(clause, at, first_verb(before).is_some())
}

/// For each number of words, whether a clause that ended there would have a finite verb.
fn beginnings_with_verbs(clause: &[Token]) -> Vec<bool> {
    // Whether a word is a verb depends on the two after it, so only the last three of a beginning are uncertain.
    const UNCERTAIN: usize = 3;
    let (mut found, mut have_verbs) = (false, vec![false]);
    for end in 1..=clause.len() {
        let beginning = &clause[..end];
        let from = end.saturating_sub(UNCERTAIN);
        found = found || (from > 0 && is_verb_behind(beginning, from - 1, have_verbs[from - 1]));
        have_verbs.push(found || (from..end).any(|at| is_verb_behind(beginning, at, have_verbs[at])));
    }
    have_verbs
}

/// Whether the word here is a finite verb, given whether the words before it contain one.
fn is_verb_behind(clause: &[Token], at: usize, has_verb: bool) -> bool {
    let Some(token) = clause.get(at) else { return false };
    if is_auxiliary(token) {
        return !token.is(&["be", "been", "being", "having"]);
    }
    if is_function_word(token) || is_number(token) || token.is_possessive {
        return false;
    }
    let is_adverb = |token: &&Token| token.text.ends_with("ly") || token.is(&["also", "then", "never", "not", "first"]);
    let before = clause[..at].iter().rev().find(|token| !is_adverb(token));
    let next = clause.get(at + 1);
    if token.is(&["again", "away", "here", "together", "ago"]) {
        return false;
    }
    let is_attribute = before.is_some_and(|before| {
        is_determiner(before) || is_owner(before) || before.is_possessive || is_preposition(before) || is_number(before)
    });
    if is_attribute || before.is_some_and(is_be) {
        return false;
    }
    if is_participle(token) {
        // "The mill, built in 1792" and "the mill built by Anna" are not statements about the mill yet.
        let has_agent = next.is_some_and(|next| next.is(&["by"])) && !clause.get(at + 2).is_some_and(is_number);
        let is_reduced = has_agent || before.is_some_and(|before| before.is(&[","]));
        return before.is_some() && (!is_reduced || has_verb);
    }
    is_present(clause, at, before, has_verb)
}

/// Whether the word is a verb in the present tense: `covers` after a noun, `breed` after a plural, `knead` at the
/// beginning.
fn is_present(clause: &[Token], at: usize, before: Option<&Token>, has_verb: bool) -> bool {
    let (token, next) = (&clause[at], clause.get(at + 1));
    let opens = |next: &Token| is_determiner(next) || is_number(next) || is_pronoun(next);
    let begins = before.is_none_or(|before| before.is(&["and", "but", ",", ";", ":", "please"]));
    let is_many = clause[..at].iter().any(|token| is_number(token) || token.is(&["these", "those", "all", "many"]));
    let has_s = is_plain_s(token);
    if before.is_some_and(is_pronoun) {
        return (has_s && next.is_some()) || (before.is_some_and(|before| before.is(&["they"])) && !token.is_name);
    }
    let Some(next) = next else { return !has_s && !token.is_name && !is_many && before.is_some_and(is_plural) };
    if begins {
        return (opens(next) && (at > 0 || !has_s)) || (at > 0 && has_s && is_preposition(next));
    }
    let Some(before) = before.filter(|before| !before.is_mark() && !is_conjunction(before)) else { return false };
    // In "Arctic terns breed in the north", the verb is the word before the preposition.
    let is_verb_next = !is_function_word(next) && !is_plain_s(next) && clause.get(at + 2).is_none_or(is_function_word);
    match (has_s, is_plural(before)) {
        (true, false) => {
            !is_many
                && (!next.is(&["of"]) || token.is(&["consists"]))
                && !is_auxiliary(next)
                && !next.is_mark()
                && !is_verb_next
        }
        (false, true) => !has_verb && !next.is_mark(),
        _ => false,
    }
}

/// Whether a word is a noun in the plural, by its form.
pub(super) fn is_plural(token: &Token) -> bool {
    let is_noun = !is_function_word(token) && !token.is_possessive;
    is_noun && (is_plain_s(token) || token.is(&["people", "children", "men", "women", "both"]))
}

fn is_plain_s(token: &Token) -> bool {
    token.text.len() > 3 && token.text.ends_with('s') && !["ss", "us", "is"].iter().any(|end| token.text.ends_with(end))
}

/// The number of tokens of a phrase with a preposition or of time before the subject: "in 1888 the orchestra", "after a
/// year, it".
pub(super) fn fronted(tokens: &[Token]) -> usize {
    let is_time = |token: &Token| token.is(&["once", "twice", "every", "each", "last", "next"]);
    if !tokens.first().is_some_and(|first| is_preposition(first) || is_time(first)) {
        return 0;
    }
    let comma = tokens.iter().position(|token| token.is(&[","]));
    let subject = || tokens.iter().skip(2).position(|token| is_determiner(token) || is_pronoun(token)).map(|at| at + 2);
    let end = comma.or_else(|| subject().filter(|_| is_preposition(&tokens[0]))).unwrap_or(0);
    match tokens.get(end..) {
        Some([comma, rest @ ..]) if comma.is_mark() && fronted(rest) > 0 => end + 1 + fronted(rest),
        _ => end,
    }
}
