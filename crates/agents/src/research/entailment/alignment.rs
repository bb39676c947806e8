//! Whether a source's statement contains a claim's statement: each of its words in some form, each in its place.

use std::collections::BTreeSet;
use std::ops::Range;

use super::forms::Form;
use super::statement::{Qualifier, Statement, Value, Word};

/// Prepositions that mean more than that two things belong together; the others are interchangeable.
const DIRECTIONS: [&str; 19] = [
    "to", "from", "into", "onto", "before", "after", "above", "below", "over", "under", "against", "until", "since",
    "by", "without", "than", "except", "instead", "because",
];
/// Verbs that introduce reported speech or thought, which is not stated as fact.
const REPORTING: [&str; 27] = [
    "expect",
    "believe",
    "claim",
    "allege",
    "think",
    "say",
    "suggest",
    "suppose",
    "predict",
    "rumour",
    "assume",
    "hope",
    "fear",
    "plan",
    "propose",
    "intend",
    "according",
    "deny",
    "doubt",
    "dispute",
    "refute",
    "stop",
    "avoid",
    "consider",
    "refuse",
    "pretend",
    "imagine",
];
/// Words that change the meaning of the noun after them: the former mayor, the vice president.
const CHANGING: [&str; 14] = [
    "former",
    "ex",
    "vice",
    "deputy",
    "acting",
    "future",
    "alleged",
    "fake",
    "proposed",
    "planned",
    "assistant",
    "honorary",
    "so-called",
    "would-be",
];
/// Words of time, which may occur anywhere in a clause.
const TIMES: [&str; 16] = [
    "year",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "daily",
    "weekly",
    "once",
    "twice",
    "last",
    "next",
    "today",
    "yesterday",
    "later",
];

/// Whether the source's statement contains the claim's.
pub(super) fn stands_in(claim: &Statement, source: &Statement) -> bool {
    if claim.lead.is_some() && claim.lead != source.lead || claim.open != source.open {
        return false;
    }
    let Some(places) = places(&claim.words, &source.words) else { return false };
    let match_ = Match { claim: &claim.words, source: &source.words, places: &places };
    match_.has_order()
        && match_.has_owners()
        && match_.has_qualifiers()
        && match_.has_prepositions()
        && match_.has_numbers()
        && match_.skips_nothing()
}

/// The position of each of the claim's words in the source, if it has all of them.
fn places(claim: &[Word], source: &[Word]) -> Option<Vec<usize>> {
    let mut places: Vec<usize> = Vec::new();
    for word in claim {
        let is_place = |at: &usize| !places.contains(at) && is_same(&word.value, &source[*at].value);
        let next = places.last().map_or(0, |last| last + 1);
        let place = (next..source.len()).find(is_place).or_else(|| (0..next.min(source.len())).find(is_place))?;
        places.push(place);
    }
    (!places.is_empty()).then_some(places)
}

fn is_same(claim: &Value, source: &Value) -> bool {
    match (claim, source) {
        (Value::Text(claim), Value::Text(source)) => claim.may_stand_for(source),
        (Value::Number(claim), Value::Number(source)) => claim == source,
        (Value::Date { day, month, year }, Value::Date { day: of_day, month: of_month, year: of_year }) => {
            let is_known = |said: &Option<String>, known: &Option<String>| said.is_none() || said == known;
            is_known(day, of_day) && is_known(year, of_year) && (month.is_none() || month == of_month)
        }
        _ => false,
    }
}

struct Match<'a> {
    claim: &'a [Word],
    source: &'a [Word],
    places: &'a [usize],
}

impl Match<'_> {
    fn pairs(&self) -> impl Iterator<Item = (&Word, usize)> {
        self.claim.iter().zip(self.places.iter().copied())
    }

    fn is_matched(&self, at: usize) -> bool {
        self.places.contains(&at)
    }

    /// Whether the words are in the order of the source, except for phrases with a preposition and phrases of time,
    /// which may have moved as a whole.
    fn has_order(&self) -> bool {
        let mut starts = vec![0];
        starts.extend((1..self.places.len()).filter(|at| self.places[*at] < self.places[*at - 1]));
        let has_preposition =
            |at: usize| self.claim[at].preposition.is_some() && self.preposition(self.places[at]).is_some();
        let can_move = |run: usize| {
            let (start, end) = (starts[run], starts.get(run + 1).copied().unwrap_or(self.places.len()));
            let is_owner = self.claim[end - 1].is_possessive && has_preposition(end - 1);
            has_preposition(start) || is_owner || self.claim[start..end].iter().all(is_time)
        };
        (1..starts.len()).all(|run| can_move(run - 1) || can_move(run) || self.is_compound(starts[run]))
    }

    /// Whether the source has this word of the claim as the first part of a compound: "the Bergen office" for "the
    /// office in Bergen".
    fn is_compound(&self, at: usize) -> bool {
        let (head, part) = (self.places[at - 1], self.places[at]);
        let is_joined = matches!(self.claim[at].preposition.as_deref(), Some("in" | "of" | "at" | "for"));
        is_joined && head == part + 1 && self.source[head].follows
    }

    /// Whether every "of" or possessive attaches its word to the same thing as in the source.
    fn has_owners(&self) -> bool {
        self.pairs().enumerate().all(|(at, (word, place))| {
            let is_owner = |words: &[Word], at: usize| words[at].preposition.as_deref() == Some("of");
            let both = word.preposition.as_deref() == Some("of") && is_owner(self.source, place);
            let (said, known) = (owned(self.claim, at), owned(self.source, place));
            !both || said.is_empty() || said.into_iter().any(|at| known.contains(&self.places[at]))
        })
    }

    /// Whether the same words are negated, limited or made possible.
    fn has_qualifiers(&self) -> bool {
        self.pairs().all(|(word, place)| {
            let mut of_source = self.source[place].qualifiers.clone();
            let skipped = (0..place).rev().take_while(|at| !self.is_matched(*at));
            skipped.filter(|at| matches!(self.source[*at].value, Value::Text(_))).for_each(|at| {
                of_source.extend(self.source[at].qualifiers.iter().filter(|qualifier| reaches(**qualifier)));
            });
            word.qualifiers == of_source
        })
    }

    /// Whether every phrase with a direction has the same one in the source, and the first word is not merely part of a
    /// phrase there.
    fn has_prepositions(&self) -> bool {
        self.pairs().enumerate().all(|(at, (word, place))| {
            let (said, known) = (word.preposition.as_deref(), self.preposition(place));
            let is_direction = |preposition: Option<&str>| preposition.is_some_and(|word| DIRECTIONS.contains(&word));
            let is_part = at == 0 && said.is_none() && known.is_some();
            !is_part && (said == known || !(is_direction(said) || is_direction(known)))
        })
    }

    /// The preposition of a word of the source, or of the words directly before it that the claim leaves out.
    fn preposition(&self, place: usize) -> Option<&str> {
        let mut at = place;
        while self.source[at].preposition.is_none() && self.source[at].follows && at > 0 && !self.is_matched(at - 1) {
            at -= 1;
        }
        self.source[at].preposition.as_deref()
    }

    /// Whether each number counts the same thing as in the source, and no other number competes with it.
    fn has_numbers(&self) -> bool {
        let counts = (1..self.claim.len()).all(|at| {
            let is_count = matches!(self.claim[at - 1].value, Value::Number(_)) && self.claim[at].follows;
            let (number, noun) = (self.places[at - 1], self.places[at]);
            !is_count || (noun > number && self.source[number + 1..=noun].iter().all(|word| word.follows))
        });
        let said: Vec<usize> =
            self.places.iter().copied().filter(|at| !matches!(self.source[*at].value, Value::Text(_))).collect();
        let rivals = |number: usize| self.skipped().any(move |other| self.is_rival(other, number));
        counts && !said.into_iter().any(rivals)
    }

    /// Whether an omitted number may be the one that counts the other number's noun.
    fn is_rival(&self, other: usize, number: usize) -> bool {
        let noun = |at: usize| match self.source.get(at + 1) {
            Some(Word { value: Value::Text(noun), follows: true, .. }) => Some(noun),
            _ => None,
        };
        match (&self.source[other].value, &self.source[number].value) {
            (Value::Number(_), Value::Number(_)) => match (noun(other), noun(number)) {
                (Some(other), Some(number)) => Form::may_stand_for(other, number),
                _ => true,
            },
            (Value::Date { .. }, Value::Date { .. }) => true,
            _ => false,
        }
    }

    /// Words of the source that the claim leaves out, between its own words.
    fn skipped(&self) -> impl Iterator<Item = usize> {
        let (first, last) = (self.places.iter().min().copied(), self.places.iter().max().copied());
        (first.unwrap_or(0)..last.unwrap_or(0)).filter(|at| !self.is_matched(*at))
    }

    /// Whether the claim leaves out no name that may be the subject, no verb of saying or thinking, and no word that
    /// changes the meaning of the noun after it.
    fn skips_nothing(&self) -> bool {
        let has_name = self.claim.iter().any(|word| word.is_name);
        let is_other_name = |at: usize| {
            let is_joined = self.source[at].follows && at > 0 && self.source[at - 1].is_name
                || self.source.get(at + 1).is_some_and(|next| next.follows && next.is_name);
            has_name && self.source[at].is_name && self.preposition(at).is_none() && !is_joined
        };
        let is_one_of = |word: &Word, words: &[&str]| match &word.value {
            Value::Text(form) => form.is_one_of(words),
            _ => false,
        };
        let last = self.places.iter().max().copied().unwrap_or(0);
        let is_telling = |word: &Word| is_one_of(word, &REPORTING) || is_one_of(word, &CHANGING);
        let tells = (0..last).any(|at| !self.is_matched(at) && is_telling(&self.source[at]));
        !tells && !self.skipped().any(is_other_name)
    }
}

/// The words to which the word here belongs: the phrase after a possessive, else the word before "of".
fn owned(words: &[Word], at: usize) -> Range<usize> {
    let phrase_end = |at: usize| at + words.iter().skip(at + 1).take_while(|word| word.follows).count();
    let name_end = phrase_end(at);
    match words[name_end].is_possessive {
        true if name_end + 1 < words.len() => name_end + 1..phrase_end(name_end + 1) + 1,
        true => 0..0,
        false => at.saturating_sub(1)..at,
    }
}

/// Whether a qualifier still applies if the word after it is left out: "may also raise".
fn reaches(qualifier: Qualifier) -> bool {
    let of_one_word: BTreeSet<Qualifier> = [
        Qualifier::AtLeast,
        Qualifier::AtMost,
        Qualifier::More,
        Qualifier::Less,
        Qualifier::About,
        Qualifier::Nearly,
        Qualifier::Or,
        Qualifier::Some,
        Qualifier::Few,
    ]
    .into();
    !of_one_word.contains(&qualifier)
}

fn is_time(word: &Word) -> bool {
    match &word.value {
        Value::Text(form) => form.is_one_of(&TIMES),
        Value::Number(_) | Value::Date { .. } => true,
    }
}
