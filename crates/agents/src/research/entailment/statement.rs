//! The content of a clause, word by word, in the order of an active sentence.

use std::collections::BTreeSet;

use super::clauses::Clause;
use super::forms::Form;
use super::grammar::{
    first_verb, fronted, is_be, is_conjunction, is_determiner, is_function_word, is_number, is_participle,
    is_preposition, is_verb,
};
use super::numbers::{date, month, plain_figure};
use super::tokens::Token;

/// A clause as a sequence of content words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    pub(super) lead: Option<String>,
    pub(super) words: Vec<Word>,
    /// Qualifiers of no word of the clause, as in "but cats are not".
    pub(super) open: BTreeSet<Qualifier>,
}

/// A content word, and the information about it from function words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    pub(super) value: Value,
    /// The preposition before it, or before the words directly before it.
    pub(super) preposition: Option<String>,
    pub(super) qualifiers: BTreeSet<Qualifier>,
    pub(super) is_name: bool,
    /// Whether it ends with a possessive: the thing that belongs to it follows.
    pub(super) is_possessive: bool,
    /// Whether the preceding word is also the preceding one in the sentence.
    pub(super) follows: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(Form),
    Number(String),
    Date { day: Option<String>, month: Option<&'static str>, year: Option<String> },
}

/// Classes of words that change the meaning of the next word. Two sentences are only equivalent if these match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Qualifier {
    Not,
    AtLeast,
    AtMost,
    More,
    Less,
    About,
    Nearly,
    All,
    Most,
    Some,
    Few,
    Only,
    Or,
    Possibly,
    Necessarily,
    Hypothetically,
    Future,
    Often,
    Always,
    Rarely,
}

/// Qualifying phrases, the longest first.
const QUALIFIERS: [(&str, Qualifier); 66] = [
    ("no more than", Qualifier::AtMost),
    ("not more than", Qualifier::AtMost),
    ("no fewer than", Qualifier::AtLeast),
    ("no less than", Qualifier::AtLeast),
    ("not less than", Qualifier::AtLeast),
    ("a maximum of", Qualifier::AtMost),
    ("a minimum of", Qualifier::AtLeast),
    ("as many as", Qualifier::AtMost),
    ("as much as", Qualifier::AtMost),
    ("at least", Qualifier::AtLeast),
    ("at most", Qualifier::AtMost),
    ("up to", Qualifier::AtMost),
    ("more than", Qualifier::More),
    ("less than", Qualifier::Less),
    ("fewer than", Qualifier::Less),
    ("no longer", Qualifier::Not),
    ("no one", Qualifier::Not),
    ("not", Qualifier::Not),
    ("no", Qualifier::Not),
    ("never", Qualifier::Not),
    ("none", Qualifier::Not),
    ("neither", Qualifier::Not),
    ("nor", Qualifier::Not),
    ("will", Qualifier::Future),
    ("nobody", Qualifier::Not),
    ("nothing", Qualifier::Not),
    ("without", Qualifier::Not),
    ("hardly", Qualifier::Nearly),
    ("barely", Qualifier::Nearly),
    ("almost", Qualifier::Nearly),
    ("nearly", Qualifier::Nearly),
    ("about", Qualifier::About),
    ("approximately", Qualifier::About),
    ("roughly", Qualifier::About),
    ("all", Qualifier::All),
    ("every", Qualifier::All),
    ("each", Qualifier::All),
    ("most", Qualifier::Most),
    ("some", Qualifier::Some),
    ("several", Qualifier::Some),
    ("few", Qualifier::Few),
    ("little", Qualifier::Few),
    ("only", Qualifier::Only),
    ("solely", Qualifier::Only),
    ("exclusively", Qualifier::Only),
    ("or", Qualifier::Or),
    ("either", Qualifier::Or),
    ("may", Qualifier::Possibly),
    ("might", Qualifier::Possibly),
    ("can", Qualifier::Possibly),
    ("could", Qualifier::Possibly),
    ("perhaps", Qualifier::Possibly),
    ("possibly", Qualifier::Possibly),
    ("probably", Qualifier::Possibly),
    ("must", Qualifier::Necessarily),
    ("should", Qualifier::Necessarily),
    ("shall", Qualifier::Necessarily),
    ("would", Qualifier::Hypothetically),
    ("often", Qualifier::Often),
    ("usually", Qualifier::Often),
    ("generally", Qualifier::Often),
    ("sometimes", Qualifier::Some),
    ("always", Qualifier::Always),
    ("rarely", Qualifier::Rarely),
    ("seldom", Qualifier::Rarely),
    ("cannot", Qualifier::Not),
];
/// Prepositions that are kept if another one follows: "instead of", "before 5 on".
const STRONG: [&str; 6] = ["instead", "except", "without", "than", "from", "before"];
/// Units of measure after "by", where the phrase does not name an agent.
const MEASURES: [&str; 8] = ["percent", "votes", "vote", "points", "point", "metres", "meters", "degrees"];

impl Statement {
    /// The statement of a clause.
    pub(super) fn of(clause: &Clause) -> Statement {
        Statement::read(clause.lead.clone(), &active(&clause.tokens))
    }

    /// The statement with both sides of "is" swapped, if the clause has no other verb: "the engineer was Strauss" means
    /// "Strauss was the engineer".
    pub(super) fn turned(clause: &Clause) -> Option<Statement> {
        let verb = first_verb(&clause.tokens).filter(|at| is_be(&clause.tokens[*at]))?;
        let (left, right) = (&clause.tokens[..verb], &clause.tokens[verb + 1..]);
        let is_definite = |side: &[Token]| side.first().is_some_and(|first| first.is(&["the"]) || first.is_name);
        let names = is_definite(left) && (is_definite(right) || right.iter().any(|token| token.is_possessive));
        let turned = [right, &clause.tokens[verb..=verb], left].concat();
        names.then(|| Statement::read(clause.lead.clone(), &turned))
    }

    fn read(lead: Option<String>, tokens: &[Token]) -> Statement {
        let mut words: Vec<Word> = Vec::new();
        let mut qualifiers = BTreeSet::new();
        let mut preposition: Option<String> = None;
        let mut follows = false;
        let mut at = 0;
        while at < tokens.len() {
            let token = &tokens[at];
            if let Some((n_tokens, qualifier)) = qualifier(&tokens[at..]) {
                qualifiers.insert(qualifier);
                if token.is(&["cannot"]) {
                    qualifiers.insert(Qualifier::Possibly);
                }
                if token.is(&["without"]) {
                    preposition = Some(token.text.clone());
                }
                at += n_tokens;
                follows = false;
            } else if let Some((n_tokens, value)) = value(&tokens[at..]) {
                let (preposition, qualifiers) = (preposition.take(), std::mem::take(&mut qualifiers));
                let &Token { is_name, is_possessive, .. } = token;
                let is_passive = at > 0 && is_be(&tokens[at - 1]) && is_participle(token);
                let is_verb = is_passive || is_verb(tokens, at);
                let follows_here = follows && !is_verb;
                words.push(Word { value, preposition, qualifiers, is_name, is_possessive, follows: follows_here });
                if is_possessive {
                    own(&mut words);
                }
                at += n_tokens;
                follows = !is_possessive && !is_verb;
            } else {
                if is_preposition(token) && !preposition.as_deref().is_some_and(|open| STRONG.contains(&open)) {
                    preposition = Some(token.text.clone());
                }
                at += 1;
                follows = false;
            }
        }
        Statement { lead, words, open: qualifiers }
    }
}

/// Gives the last phrase the preposition "of", unless it has another one: "the bridge's towers" are the towers of the
/// bridge.
fn own(words: &mut [Word]) {
    let start = words.iter().rposition(|word| !word.follows);
    if let Some(word) = start.and_then(|start| words.get_mut(start)) {
        word.preposition.get_or_insert_with(|| "of".to_owned());
    }
}

/// The qualifier at the beginning of the tokens, and its length in tokens.
fn qualifier(tokens: &[Token]) -> Option<(usize, Qualifier)> {
    let begins = |phrase: &str| {
        let words: Vec<&str> = phrase.split(' ').collect();
        let is_here = words.len() <= tokens.len() && words.iter().zip(tokens).all(|(word, token)| token.text == *word);
        is_here.then_some(words.len())
    };
    if tokens[0].is_name && tokens[0].is(&["may"]) {
        return None;
    }
    let is_number_next = tokens.get(1).is_some_and(is_number);
    match tokens[0].text.as_str() {
        "some" | "around" if is_number_next => return Some((1, Qualifier::About)),
        "over" | "above" if is_number_next => return Some((1, Qualifier::More)),
        "under" | "below" if is_number_next => return Some((1, Qualifier::Less)),
        "one" if tokens.get(1).is_some_and(|next| next.is(&["of"])) => return Some((1, Qualifier::Some)),
        _ => {}
    }
    QUALIFIERS.iter().find_map(|(phrase, qualifier)| Some((begins(phrase)?, *qualifier)))
}

/// The word, number or date at the beginning of the tokens, and its length in tokens.
fn value(tokens: &[Token]) -> Option<(usize, Value)> {
    let token = &tokens[0];
    if let Some(date) = dated(tokens) {
        return Some(date);
    }
    if is_number(token) {
        let digits = token.text.trim_end_matches(|letter: char| letter.is_alphabetic());
        let is_ordinal = ["st", "nd", "rd", "th"].contains(&&token.text[digits.len()..]);
        let is_plain = digits.len() == token.text.len() || is_ordinal;
        let is_simple = digits.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | ','));
        return Some(match is_plain && is_simple {
            true if is_year(digits) && !counts(tokens) => (1, year_alone(digits)),
            true => (1, Value::Number(plain_figure(digits))),
            false => (1, Value::Text(Form::of(&token.text))),
        });
    }
    let is_one = token.is(&["one"]) && tokens.get(1).is_some_and(|next| !is_function_word(next));
    match is_one {
        true => Some((1, Value::Number("1".to_owned()))),
        false => (!is_function_word(token)).then(|| (1, Value::Text(Form::of(&token.text)))),
    }
}

fn is_year(digits: &str) -> bool {
    digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_digit()) && ("1000".."2200").contains(&digits)
}

/// Whether a number is followed by the noun that it counts.
fn counts(tokens: &[Token]) -> bool {
    tokens.get(1).is_some_and(|next| !is_function_word(next) && !is_participle(next))
}

fn year_alone(digits: &str) -> Value {
    Value::Date { day: None, month: None, year: Some(digits.to_owned()) }
}

/// The date with a month at the beginning of the tokens.
fn dated(tokens: &[Token]) -> Option<(usize, Value)> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    if let Some((year, month, day)) = date(text(0)) {
        let (day, year) = (Some(plain_figure(day)), Some(year.to_owned()));
        return Some((1, Value::Date { day, month: Some(month), year }));
    }
    let day = |at: usize| {
        let digits = text(at).trim_end_matches(|letter: char| letter.is_alphabetic());
        digits.parse::<u8>().ok().filter(|day| (1..=31).contains(day)).map(|day| day.to_string())
    };
    let month = |at: usize| month(text(at)).filter(|_| tokens[at].text != "may" || tokens[at].is_name);
    let year = |at: usize| {
        let at = at + usize::from(text(at) == ",");
        is_year(text(at)).then(|| (at + 1, text(at).to_owned()))
    };
    let (day, month, behind) = match (day(0), month(0), tokens.len() > 1) {
        (Some(day), _, true) => (Some(day), month(1)?, 2),
        (_, Some(month), _) => match day(1) {
            Some(day) => (Some(day), month, 2),
            None => (None, month, 1),
        },
        _ => return None,
    };
    let (n_tokens, year) = year(behind).map_or((behind, None), |(n_tokens, year)| (n_tokens, Some(year)));
    Some((n_tokens, Value::Date { day, month: Some(month), year }))
}

/// The clause with a passive verb made active: "the mill was built by Anna in 1792" becomes "Anna built the mill in
/// 1792", and "the mill was built" becomes "built the mill".
fn active(tokens: &[Token]) -> Vec<Token> {
    let Some((be, participle)) = passive_verb(tokens) else { return tokens.to_vec() };
    let (patient, verb, rest) = (&tokens[..be], &tokens[be..=participle], &tokens[participle + 1..]);
    let (before, agent, after) = match agent(rest) {
        Some((by, end)) => (&rest[..by], &rest[by + 1..end], &rest[end..]),
        None => (rest, &rest[..0], &rest[..0]),
    };
    let (fronted, patient) = patient.split_at(fronted(patient));
    let (modals, patient) = match patient.iter().rposition(is_modal) {
        Some(at) if at + 1 == patient.len() => (&patient[at..], &patient[..at]),
        _ => (&patient[..0], patient),
    };
    [agent, modals, verb, patient, before, after, fronted].concat()
}

fn is_modal(token: &Token) -> bool {
    token.is(&[
        "may", "might", "can", "could", "must", "should", "shall", "will", "would", "cannot", "has", "have", "had",
    ])
}

/// The positions of a form of "be" and its participle.
fn passive_verb(tokens: &[Token]) -> Option<(usize, usize)> {
    let is_between = |token: &&Token| {
        is_be(token)
            || token.text.ends_with("ly")
            || token.is(&["not", "never", "also", "first", "then", "now", "only"])
    };
    (0..tokens.len()).filter(|at| is_be(&tokens[*at])).find_map(|be| {
        let participle = be + 1 + tokens[be + 1..].iter().take_while(is_between).count();
        let start = be - tokens[..be].iter().rev().take_while(|token| token.is(&["not", "never"])).count();
        tokens.get(participle).filter(|token| is_participle(token)).map(|_| (start, participle))
    })
}

/// The positions of "by" and of the end of the agent that it introduces.
fn agent(rest: &[Token]) -> Option<(usize, usize)> {
    let by = rest.iter().position(|token| token.is(&["by"]))?;
    let ends = |token: &Token| {
        token.is_mark()
            || (is_preposition(token) && !token.is(&["of"]))
            || (is_conjunction(token) && !token.is(&["and"]))
    };
    let end = rest[by + 1..].iter().position(ends).map_or(rest.len(), |at| by + 1 + at);
    let agent = &rest[by + 1..end];
    let is_measure = agent.iter().any(|token| token.is(&MEASURES)) || (agent.len() == 1 && is_number(&agent[0]));
    let is_person = agent.first().is_some_and(|first| is_determiner(first) || !first.text.ends_with("ing"));
    (is_person && !is_measure).then_some((by, end))
}
