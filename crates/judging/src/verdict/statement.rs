//! A winner stated in a sentence: `B is better because it is right.`, `The winner is B.`
//!
//! Unconstrained judges write like this. The sentence counts only if it is the first or last of the text, and only if
//! all of it is a decision: the words after `is better` can change its meaning (`A is better in style`, `A is
//! better?`). A decision for the other answer anywhere after it cancels it.

use hone_protocol::RespondentId;

use super::FoundVerdict;
use super::letter::names_alone;
use super::tail::is_emphasis;

/// Words for an answer.
const NOUNS: &[&str] = &["response", "answer", "one"];
/// Words that strengthen or weaken a decision without changing it.
const ADVERBS: &[&str] =
    &["clearly", "much", "slightly", "significantly", "considerably", "definitely", "overall", "therefore", "thus"];
/// Words that express a decision.
const BETTER: &[&str] = &["better", "best", "superior", "preferable", "preferred"];
/// Words that begin the reason of a decision.
const REASONS: &[&str] = &["because", "since"];
/// Words that may follow the comma after a decision.
const AFTER_COMMA: &[&str] = &["because", "since", "as", "while", "whereas", "and"];
/// Words that precede the loser of a comparison rather than the winner.
const COMPARED_WITH: &[&str] = &["than", "to", "over", "unlike", "of", "in", "by", "from", "not"];

/// The decisions in the first and in the last sentence of `text`.
pub(super) fn decisions(text: &str) -> impl Iterator<Item = FoundVerdict<RespondentId>> {
    let opening =
        |character: char| is_emphasis(character) || "\"'“‘([#".contains(character) || character.is_whitespace();
    let first = text.len() - text.trim_start_matches(opening).len();
    [first, start_of_last_sentence(text)].into_iter().filter_map(move |start| decision_at(text, start))
}

/// Whether the text after a decision leaves it unchanged.
pub(super) fn is_left_standing(text: &str, decision: &FoundVerdict<RespondentId>) -> bool {
    let rest = &text[decision.place.end..];
    !rest.contains('?') && !decides_otherwise(rest, decision.verdict)
}

fn start_of_last_sentence(text: &str) -> usize {
    let body = text.trim_end_matches(|character: char| !character.is_alphanumeric());
    let ends_sentence = |(at, character): (usize, char)| match character {
        '\n' | '\r' => true,
        '.' | '!' | '?' => body[at + 1..].starts_with(char::is_whitespace),
        _ => false,
    };
    let start = body.char_indices().rev().find(|ending| ends_sentence(*ending)).map_or(0, |(at, _)| at + 1);
    let passes_over = |character: char| character.is_whitespace() || is_emphasis(character);
    text.len() - text[start..].trim_start_matches(passes_over).len()
}

/// The decision that begins at the byte `start`.
fn decision_at(text: &str, start: usize) -> Option<FoundVerdict<RespondentId>> {
    text[start..].starts_with(char::is_alphanumeric).then_some(())?;
    let (verdict, value, end) =
        winner_first(StatementWords::new(text, start)).or_else(|| winner_last(StatementWords::new(text, start)))?;
    Some(FoundVerdict { verdict, place: start..end, value: value..value + 1, is_marked: false })
}

type Decision = (RespondentId, usize, usize);

/// `Response B is clearly the better answer`, `B wins`.
fn winner_first(mut words: StatementWords<'_>) -> Option<Decision> {
    words.take(&["the"]);
    words.take(NOUNS);
    let (winner, value) = words.take_letter()?;
    if !words.take(&["wins"]) {
        words.take(&["is"]).then_some(())?;
        words.take(ADVERBS);
        words.take(&["the"]);
        words.take(ADVERBS);
        let is_winner = words.take(&["winner"]);
        (is_winner || words.take(BETTER)).then_some(())?;
        words.take(NOUNS);
        words.take(&["overall"]);
    }
    let end = words.at;
    if words.take(&["than"]) {
        words.take(NOUNS);
        words.take_letter().filter(|(other, _)| *other != winner)?;
    }
    words.ends_decision().then_some((winner, value, end))
}

/// `The winner is B`, `The better response is Response B`.
fn winner_last(mut words: StatementWords<'_>) -> Option<Decision> {
    words.take(&["the"]);
    if !words.take(&["winner"]) {
        words.take(BETTER).then_some(())?;
        words.take(NOUNS);
    }
    words.take(&["is"]).then_some(())?;
    words.take(ADVERBS);
    words.take(NOUNS);
    let (winner, value) = words.take_letter()?;
    words.ends_decision().then_some((winner, value, words.at))
}

/// Whether `text`, which follows a decision for `winner`, decides for the other answer, or ends a sentence with its
/// name.
fn decides_otherwise(text: &str, winner: RespondentId) -> bool {
    let other = if winner == RespondentId::A { 'B' } else { 'A' };
    if names_alone(text, other) {
        return true;
    }
    let mut words = StatementWords::new(text, 0);
    let mut previous = "";
    loop {
        let start = words.at;
        let Some((word, at)) = words.next() else { return false };
        let decision = decision_at(text, at).filter(|found| found.verdict != winner);
        let is_other = letter(word).is_some_and(|named| named != winner);
        let is_named = is_other && words.ends_sentence() && !is_one_of(previous, COMPARED_WITH);
        if decision.is_some() || is_named {
            return true;
        }
        let begins_sentence = text[start..at].contains(['.', '!', ';', '\n', '\r']);
        if begins_sentence || !is_one_of(word, NOUNS) {
            previous = word;
        }
    }
}

/// The words of a text, starting at a byte offset.
#[derive(Clone, Copy)]
struct StatementWords<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> StatementWords<'a> {
    fn new(text: &'a str, at: usize) -> StatementWords<'a> {
        StatementWords { text, at }
    }

    /// The next word, regardless of the characters before it, and its start.
    fn next(&mut self) -> Option<(&'a str, usize)> {
        let start = self.at + self.text[self.at..].find(char::is_alphanumeric)?;
        Some((self.word_at(start), start))
    }

    /// Takes the word that starts at `start`.
    fn word_at(&mut self, start: usize) -> &'a str {
        let rest = &self.text[start..];
        let length = rest.find(|character: char| !character.is_alphanumeric()).unwrap_or(rest.len());
        self.at = start + length;
        &rest[..length]
    }

    /// The next word, if only spaces and emphasis precede it.
    fn peek(&self) -> Option<(&'a str, StatementWords<'a>)> {
        let rest = &self.text[self.at..];
        let passes_over =
            |character: char| character == ' ' || is_emphasis(character) || "\"'“”[]()".contains(character);
        let start = self.text.len() - rest.trim_start_matches(passes_over).len();
        let mut after = *self;
        let word = after.word_at(start);
        (!word.is_empty()).then_some((word, after))
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let found = self.peek().filter(|(word, _)| is_one_of(word, wanted));
        found.is_some_and(|(_, after)| {
            *self = after;
            true
        })
    }

    fn take_letter(&mut self) -> Option<(RespondentId, usize)> {
        let (word, after) = self.peek()?;
        let winner = letter(word)?;
        *self = after;
        Some((winner, after.at - word.len()))
    }

    /// Whether a decision can end here: with its sentence, or where its reason begins.
    fn ends_decision(&self) -> bool {
        let rest = self.rest();
        let goes_on_with = |words: &[&str]| self.peek().is_some_and(|(word, _)| is_one_of(word, words));
        let after_comma = || {
            let comma = self.text.len() - rest.len() + 1;
            StatementWords::new(self.text, comma).peek().is_some_and(|(word, _)| is_one_of(word, AFTER_COMMA))
        };
        self.ends_sentence()
            || goes_on_with(REASONS)
            || rest.starts_with([':', '–', '—'])
            || rest.starts_with("- ")
            || (rest.starts_with(',') && after_comma())
    }

    fn ends_sentence(&self) -> bool {
        let rest = self.rest();
        let mut characters = rest.chars();
        match characters.next() {
            None | Some('\n' | '\r' | ';' | '。') => true,
            Some('.' | '!') => {
                characters.next().is_none_or(|next| !next.is_alphanumeric() && !matches!(next, '.' | '?'))
            }
            Some('<') => rest.starts_with("</s>") || rest.starts_with("<|"),
            Some(_) => false,
        }
    }

    /// The rest, without leading spaces, emphasis and closing quotation marks.
    fn rest(&self) -> &'a str {
        let passes_over = |character: char| {
            matches!(character, ' ' | '\t' | '"' | '\'' | '”' | '’' | ')' | ']') || is_emphasis(character)
        };
        self.text[self.at..].trim_start_matches(passes_over)
    }
}

/// The answer that a word names. `a` is only an English word.
fn letter(word: &str) -> Option<RespondentId> {
    match word {
        "A" => Some(RespondentId::A),
        "B" => Some(RespondentId::B),
        _ => None,
    }
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|wanted| wanted.eq_ignore_ascii_case(word))
}
