//! Divides sentences into clauses, each with its subject: words that a conjunction, a relative pronoun or a pronoun
//! leaves out are put back.

use super::grammar::{
    first_verb, fronted, is_auxiliary, is_be, is_conjunction, is_function_word, is_number, is_owner, is_participle,
    is_plural, is_preposition, is_pronoun, is_verb,
};
use super::tokens::Token;

/// A clause with one reading of its pronouns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clause {
    /// The conjunction that it depends on, if that means more than "and".
    pub(super) lead: Option<String>,
    /// Its words.
    pub(super) tokens: Vec<Token>,
    /// Whether words of another clause were inserted.
    pub(super) is_completed: bool,
}

/// A noun phrase to which later words may refer.
type Phrase = Vec<Token>;

/// Conjunctions that turn their clause into a condition, a reason or a time.
const BINDING: [&str; 10] = ["if", "unless", "until", "after", "before", "because", "since", "when", "whenever", "so"];
/// Conjunctions that a sentence may begin with, where a comma ends their clause.
const SUBORDINATING: [&str; 14] = [
    "if", "unless", "until", "after", "before", "because", "since", "when", "whenever", "although", "though", "while",
    "whereas", "where",
];
/// Nouns that may refer to a name mentioned before.
const KINDS: [&str; 14] = [
    "city", "town", "village", "country", "state", "island", "river", "company", "firm", "club", "ship", "man",
    "woman", "author",
];
/// The most noun phrases considered as the referent of a pronoun.
const MOST_PHRASES: usize = 8;

/// The clauses of a sentence, each in all of its readings. `phrases` holds the noun phrases of earlier sentences, and
/// is replaced by those of this one.
pub(super) fn clauses(sentence: &[Token], phrases: &mut Vec<Phrase>) -> Vec<Vec<Clause>> {
    let mut found: Vec<Vec<Clause>> = Vec::new();
    let mut own: Vec<Phrase> = Vec::new();
    let mut subject: Option<Phrase> = None;
    let mut begins_with_pronoun = false;
    for segment in segments(sentence) {
        let (lead, tokens) = led(segment);
        let before = found.last().and_then(|clauses| clauses.last()).map(|clause| clause.tokens.as_slice());
        let completed = match lead {
            Some("which" | "who") => before.map(tail),
            Some(_) if lacks_subject(tokens) => subject.clone(),
            _ => None,
        };
        // In "files are rotated daily and deleted after a month", the second verb is passive, too.
        let is_passive =
            lead == Some("and") && tokens.first().is_some_and(is_participle) && before.is_some_and(is_passive);
        let whole: Vec<Token> = completed.iter().flatten().chain(tokens).cloned().collect();
        let keeps = |lead: &&str| BINDING.contains(lead);
        let lead = lead.filter(keeps).map(str::to_owned);
        let plain = Clause { lead, tokens: whole, is_completed: completed.is_some() };
        let candidates: Vec<&Phrase> = own.iter().rev().chain(phrases.iter().rev()).take(MOST_PHRASES).collect();
        let readings = readings(&plain, &candidates);
        let resolved = readings.first().map_or(plain.tokens.as_slice(), |reading| reading.tokens.as_slice());
        begins_with_pronoun |= found.is_empty() && plain.tokens.first().is_some_and(is_pronoun);
        let others = [object(resolved), tail(resolved)].into_iter().filter(|phrase| is_referent(phrase));
        own.splice(0..0, others);
        subject = Some(subject_of(resolved)).filter(|subject| !subject.is_empty());
        own.extend(subject.clone().filter(|subject| is_referent(subject)));
        let passive = is_passive.then(|| {
            let tokens = [completed.as_deref().unwrap_or_default(), &[word("was")], tokens].concat();
            Clause { tokens, ..plain.clone() }
        });
        found.push(passive.into_iter().chain(readings).chain([plain]).collect());
    }
    if !begins_with_pronoun {
        phrases.clear();
    }
    phrases.extend(own);
    found
}

/// The clause with one of its pronouns replaced by each noun phrase before it, and part of a name by the whole name.
fn readings(plain: &Clause, candidates: &[&Phrase]) -> Vec<Clause> {
    let replaced = |at: usize, phrase: &Phrase| {
        let mut phrase = phrase.clone();
        let is_owner = is_owner(&plain.tokens[at]) || plain.tokens[at].is_possessive;
        phrase.last_mut().into_iter().for_each(|last| last.is_possessive = is_owner);
        let n_replaced = if is_kind_of_name(&plain.tokens[at..]) { 2 } else { 1 };
        let tokens = [&plain.tokens[..at], &phrase, &plain.tokens[at + n_replaced..]].concat();
        Clause { tokens, is_completed: true, ..plain.clone() }
    };
    let places = 0..plain.tokens.len();
    // As a subject, a pronoun refers to the preceding subject, or the nearest phrase that agrees.
    let most = |at: usize| if at == 0 && is_pronoun(&plain.tokens[0]) { 1 } else { candidates.len() };
    let stand_for =
        |at: usize| candidates.iter().filter(move |phrase| stands_for(&plain.tokens, at, phrase)).take(most(at));
    places.flat_map(|at| stand_for(at).map(move |phrase| replaced(at, phrase))).collect()
}

/// Whether a pronoun may refer to the phrase at all.
fn is_referent(phrase: &[Token]) -> bool {
    let names = phrase.iter().any(|token| !is_function_word(token) && !is_number(token));
    names && !phrase.iter().any(is_pronoun)
}

/// Whether the word at this place is a pronoun, or the only word here of this name.
fn stands_for(clause: &[Token], at: usize, phrase: &[Token]) -> bool {
    let is_alone = |token: &Token| {
        !clause.iter().any(|other| other.is_name && *other.text != token.text && phrase.contains(other))
    };
    let is_name = |token: &Token| token.is_name || is_preposition(token);
    let is_whole_name = phrase.len() > 1 && phrase.iter().all(is_name);
    let is_part = |token: &Token| phrase.iter().any(|other| other.is_name && other.text == token.text);
    if is_kind_of_name(&clause[at..]) {
        let is_first_word = |token: &Token| phrase.len() == 1 && !is_plural(token) && !is_number(token);
        return phrase.iter().all(|token| is_name(token) || is_first_word(token));
    }
    (is_pronoun(&clause[at]) && agrees(&clause[at], phrase))
        || (is_whole_name && is_part(&clause[at]) && is_alone(&clause[at]))
}

/// Whether the tokens begin with a noun that refers to a name, such as "the city".
fn is_kind_of_name(tokens: &[Token]) -> bool {
    let [the, kind, rest @ ..] = tokens else { return false };
    the.is(&["the"]) && kind.is(&KINDS) && !rest.first().is_some_and(|next| next.is(&["of"]))
}

/// Whether a pronoun may refer to a phrase, by number and person.
fn agrees(pronoun: &Token, phrase: &[Token]) -> bool {
    let is_many = phrase.iter().any(|token| token.is(&["and"]) || is_plural(token));
    match pronoun.text.as_str() {
        "they" | "them" | "their" | "these" => is_many,
        "he" | "she" | "him" | "his" => phrase.iter().any(|token| token.is_name),
        _ => {
            !phrase.iter().any(|token| token.is(&["and"]))
                && !phrase.last().is_some_and(|last| is_plural(last) && !last.is_name)
        }
    }
}

/// Divides a sentence at conjunctions with verbs on both sides, and at semicolons, colons, brackets and dashes.
fn segments(sentence: &[Token]) -> Vec<&[Token]> {
    let mut found = Vec::new();
    let mut start = 0;
    for at in 1..sentence.len() {
        let token = &sentence[at];
        let is_behind_condition = token.is(&[","]) && sentence[start].is(&SUBORDINATING);
        let is_between =
            |divides: bool| divides && has_verb(&sentence[start..at]) && may_be_clause(until_next(&sentence[at + 1..]));
        if is_hard_mark(token) || is_between(is_conjunction(token) || is_behind_condition) {
            found.push(&sentence[start..at]);
            start = if is_conjunction(token) { at } else { at + 1 };
        }
    }
    found.push(&sentence[start.min(sentence.len())..]);
    found.retain(|segment| segment.iter().any(|token| !token.is_mark()));
    found
}

fn is_hard_mark(token: &Token) -> bool {
    token.is(&[";", ":", "(", ")", "–", "—"])
}

fn has_verb(tokens: &[Token]) -> bool {
    first_verb(tokens).is_some()
}

/// Whether the words have a verb, or would have one after a subject: "burned down in 1871".
fn may_be_clause(tokens: &[Token]) -> bool {
    has_verb(tokens) || is_verb(&[&[pronoun()], tokens].concat(), 1)
}

/// The words before the next conjunction that is followed by a verb.
fn until_next(tokens: &[Token]) -> &[Token] {
    let ends = |at: &usize| {
        let token = &tokens[*at];
        let is_behind_comma = *at > 0 && tokens[at - 1].is(&[","]);
        let leads_verb = tokens.get(at + 1).is_some_and(|next| is_auxiliary(next) || is_participle(next));
        let ends_clause = is_behind_comma || leads_verb || has_verb(&tokens[..*at]);
        is_hard_mark(token) || (is_conjunction(token) && ends_clause)
    };
    &tokens[..(0..tokens.len()).find(ends).unwrap_or(tokens.len())]
}

/// A segment without surrounding marks, and the conjunction at its beginning.
fn led(segment: &[Token]) -> (Option<&str>, &[Token]) {
    let mut tokens = segment;
    while let [first, rest @ ..] = tokens
        && first.is_mark()
    {
        tokens = rest;
    }
    while let [rest @ .., last] = tokens
        && last.is_mark()
    {
        tokens = rest;
    }
    match tokens {
        [first, rest @ ..] if is_conjunction(first) && may_be_clause(until_comma(rest)) => (Some(&first.text), rest),
        _ => (None, tokens),
    }
}

/// The words before a comma: in "after twelve weeks, sales fell" the words that "after" governs.
fn until_comma(tokens: &[Token]) -> &[Token] {
    &tokens[..tokens.iter().position(|token| token.is(&[","])).unwrap_or(tokens.len())]
}

fn lacks_subject(tokens: &[Token]) -> bool {
    let is_adverb = |token: &Token| token.text.ends_with("ly") || token.is(&["also", "then", "later", "not", "never"]);
    let first = tokens.iter().position(|token| !is_adverb(token));
    first.is_some_and(|at| {
        let is_verb_behind = is_verb(&[&[pronoun()], &tokens[at..]].concat(), 1);
        is_auxiliary(&tokens[at])
            || is_participle(&tokens[at])
            || first_verb(tokens) == Some(at)
            || (is_verb_behind && !has_verb(tokens))
    })
}

fn pronoun() -> Token {
    word("it")
}

fn word(text: &str) -> Token {
    Token { text: text.to_owned(), is_name: false, is_possessive: false }
}

fn is_passive(clause: &[Token]) -> bool {
    clause.windows(2).any(|pair| is_be(&pair[0]) && is_participle(&pair[1]))
}

/// The words before the verb, without a fronted phrase.
fn subject_of(clause: &[Token]) -> Phrase {
    let before = &clause[..first_verb(clause).unwrap_or(0)];
    let subject = &before[fronted(before)..];
    subject[usize::from(subject.first().is_some_and(Token::is_mark))..].to_vec()
}

/// The words after the verb, up to a comma or a preposition other than "of".
fn object(clause: &[Token]) -> Phrase {
    let Some(verb) = first_verb(clause) else { return Vec::new() };
    let is_group = |token: &&Token| is_auxiliary(token) || is_participle(token) || token.is(&["not", "only"]);
    let rest = &clause[verb + 1..];
    let rest = &rest[rest.iter().take_while(is_group).count()..];
    let ends = |token: &Token| token.is_mark() || (is_preposition(token) && !token.is(&["of"]));
    rest[..rest.iter().position(ends).unwrap_or(rest.len())].to_vec()
}

/// The last noun phrase: the words after the last verb, preposition or comma.
fn tail(clause: &[Token]) -> Phrase {
    let begins = |at: &usize| {
        let token = &clause[*at];
        token.is_mark() || (is_preposition(token) && !token.is(&["of"])) || is_verb(clause, *at)
    };
    let start = (0..clause.len()).rev().find(begins).map_or(0, |at| at + 1);
    clause[start..].to_vec()
}
