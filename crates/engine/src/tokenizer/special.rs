//! Special tokens: which ids they have, and where their names stand in a text.

use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::TokenizerError;
use super::vocabulary::{Entry, TURN_ENDS, TokenKind};
use crate::gguf::Gguf;

/// The ids of the tokens that begin and end texts.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecialIds {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// Whether BOS stands before a text by itself.
    pub(super) adds_bos: bool,
    /// Whether EOS stands after a text by itself.
    pub(super) adds_eos: bool,
    /// Every token that ends the model's turn.
    pub(super) end_of_generation: BTreeSet<u32>,
}

impl SpecialIds {
    /// Reads what the metadata says; `defaults` stands where it says nothing.
    pub(super) fn from_gguf(gguf: &Gguf, entries: &[Entry<'_>], defaults: SpecialIds) -> Result<Self, TokenizerError> {
        let id = |key: &str| read_id(gguf, key, entries.len());
        let bos = id("tokenizer.ggml.bos_token_id")?.or(defaults.bos).filter(|id| (*id as usize) < entries.len());
        let eos = id("tokenizer.ggml.eos_token_id")?.or(defaults.eos).filter(|id| (*id as usize) < entries.len());
        let named = (0u32..).zip(entries).filter(|(_, entry)| ends_turn(entry)).map(|(id, _)| id);
        let mut end_of_generation: BTreeSet<u32> = named.collect();
        end_of_generation.extend(eos);
        end_of_generation.extend(id("tokenizer.ggml.eot_token_id")?);
        end_of_generation.extend(id("tokenizer.ggml.eom_token_id")?);
        Ok(SpecialIds {
            bos,
            eos,
            adds_bos: gguf.boolean("tokenizer.ggml.add_bos_token")?.unwrap_or(defaults.adds_bos),
            adds_eos: gguf.boolean("tokenizer.ggml.add_eos_token")?.unwrap_or(defaults.adds_eos),
            end_of_generation,
        })
    }
}

fn ends_turn(entry: &Entry<'_>) -> bool {
    entry.kind == TokenKind::Control && TURN_ENDS.contains(&entry.text.as_ref())
}

/// The token id under `key`, if there is one.
pub(super) fn read_id(gguf: &Gguf, key: &str, n_tokens: usize) -> Result<Option<u32>, TokenizerError> {
    let Some(id) = gguf.unsigned(key)? else { return Ok(None) };
    match u32::try_from(id) {
        Ok(small) if id < n_tokens as u64 => Ok(Some(small)),
        _ => Err(TokenizerError::invalid(key, format!("is {id} where the vocabulary has {n_tokens} tokens"))),
    }
}

/// A stretch of text, or the token whose name stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    Token(u32),
    Text(&'t str),
}

/// Finds the names of special tokens.
#[derive(Debug)]
pub(super) struct SpecialTexts {
    /// User-defined tokens, which are found in every text.
    always: Names,
    /// Those and the control tokens.
    all: Names,
    /// The characters of control tokens' names, in every case.
    control_letters: BTreeSet<char>,
    /// Whether white space after a control token is dropped (Phi-3).
    strips_space_after: bool,
}

#[derive(Debug)]
struct Names {
    automaton: AhoCorasick,
    tokens: Vec<Name>,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    id: u32,
    is_control: bool,
    strips_space_after: bool,
}

/// Control tokens of Phi-3 after which white space stays.
const KEEP_SPACE_AFTER: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

impl SpecialTexts {
    pub(super) fn new(gguf: &Gguf, entries: &[Entry<'_>]) -> Result<Self, TokenizerError> {
        let model = gguf.string("general.name")?.unwrap_or_default().to_lowercase();
        let strips_space_after = model.contains("phi-3") || model.contains("phi3");
        let names = |kinds: &[TokenKind]| Names::new(entries, kinds, strips_space_after);
        Ok(SpecialTexts {
            always: names(&[TokenKind::UserDefined])?,
            all: names(&[TokenKind::UserDefined, TokenKind::Control, TokenKind::Unknown])?,
            control_letters: control_letters(entries),
            strips_space_after,
        })
    }

    pub(super) fn control_letters(&self) -> &BTreeSet<char> {
        &self.control_letters
    }

    /// Cuts `text` at the names of special tokens: of user-defined ones always, of control tokens where `parse_control`
    /// is on and the name touches none of the `literal` ranges, which lie in ascending order.
    pub(super) fn cut<'t>(&self, text: &'t str, parse_control: bool, literal: &[Range<usize>]) -> Vec<Fragment<'t>> {
        let names = if parse_control { &self.all } else { &self.always };
        let mut fragments = Vec::new();
        let (mut text_start, mut search_start) = (0, 0);
        while let Some((name, place)) = names.find(text, search_start) {
            if name.is_control && touches(&place, literal) {
                let first = text[place.start..].chars().next().map_or(1, char::len_utf8);
                search_start = place.start + first;
                continue;
            }
            if text_start < place.start {
                fragments.push(Fragment::Text(&text[text_start..place.start]));
            }
            fragments.push(Fragment::Token(name.id));
            text_start = place.end;
            if self.strips_space_after && name.strips_space_after {
                let rest = text[text_start..].trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
                text_start = text.len() - rest.len();
            }
            search_start = text_start;
        }
        if text_start < text.len() {
            fragments.push(Fragment::Text(&text[text_start..]));
        }
        fragments
    }

    /// Where the names of control tokens stand in `text`.
    pub(super) fn control_names_in(&self, text: &str) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        let mut search_start = 0;
        while let Some((name, place)) = self.all.find(text, search_start) {
            search_start = place.end;
            if name.is_control {
                places.push(place);
            }
        }
        places
    }
}

fn control_letters(entries: &[Entry<'_>]) -> BTreeSet<char> {
    let control = entries.iter().filter(|entry| matches!(entry.kind, TokenKind::Control | TokenKind::Unknown));
    let letters: BTreeSet<char> = control.flat_map(|entry| entry.text.chars()).collect();
    let in_every_case =
        |letter: char| std::iter::once(letter).chain(letter.to_lowercase()).chain(letter.to_uppercase());
    letters.into_iter().flat_map(in_every_case).collect()
}

fn touches(place: &Range<usize>, ascending: &[Range<usize>]) -> bool {
    let next = ascending.partition_point(|range| range.end <= place.start);
    ascending.get(next).is_some_and(|range| range.start < place.end)
}

impl Names {
    fn new(entries: &[Entry<'_>], kinds: &[TokenKind], strips_space_after: bool) -> Result<Self, TokenizerError> {
        let chosen = || (0u32..).zip(entries).filter(|(_, entry)| kinds.contains(&entry.kind));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(chosen().map(|(_, entry)| entry.text.as_bytes()))
            .map_err(|error| TokenizerError::Failed(error.to_string()))?;
        let name = |(id, entry): (u32, &Entry<'_>)| Name {
            id,
            is_control: entry.kind != TokenKind::UserDefined,
            strips_space_after: strips_space_after && !KEEP_SPACE_AFTER.contains(&entry.text.as_ref()),
        };
        Ok(Names { automaton, tokens: chosen().map(name).collect() })
    }

    fn find(&self, text: &str, start: usize) -> Option<(Name, Range<usize>)> {
        let found = self.automaton.find(Input::new(text).span(start..text.len()))?;
        Some((self.tokens[found.pattern().as_usize()], found.range()))
    }
}
