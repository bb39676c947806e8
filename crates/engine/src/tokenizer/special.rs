//! Special tokens: their ids, and the places of their names in a text.

use std::collections::BTreeSet;
use std::ops::Range;

use super::TokenizerError;
use super::vocabulary::{Entries, NO_TURN_ENDS, TOKENS, TURN_ENDS, TokenKind};
use crate::gguf::Gguf;

/// The key of the unknown token.
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";

/// The ids of the tokens that begin, separate and end texts.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecialIds {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) separator: Option<u32>,
    /// Whether BOS is added before a text by default.
    pub(super) adds_bos: bool,
    /// Whether EOS is added after a text by default.
    pub(super) adds_eos: bool,
    /// Whether the separator is added between two texts by default.
    pub(super) adds_separator: bool,
    /// Every token that ends the model's turn.
    pub(super) end_of_generation: BTreeSet<u32>,
}

impl SpecialIds {
    /// Reads the metadata; `defaults` applies where it says nothing.
    pub(super) fn from_gguf(gguf: &Gguf, entries: &Entries, defaults: SpecialIds) -> Result<Self, TokenizerError> {
        let id = |key: &str| read_id(gguf, key, entries.len());
        let or_default =
            |found: Option<u32>, default: Option<u32>| found.or(default).filter(|id| (*id as usize) < entries.len());
        let bos = or_default(id("tokenizer.ggml.bos_token_id")?, defaults.bos);
        let eos = or_default(id("tokenizer.ggml.eos_token_id")?, defaults.eos);
        // The misspelling is part of the format.
        let separator = or_default(id("tokenizer.ggml.seperator_token_id")?, defaults.separator);
        let has = |name: &&str| entries.id_of(name).is_some();
        let ends_less = |text: &str| NO_TURN_ENDS.iter().any(|(name, others)| *name == text && others.iter().all(has));
        let ends_turn = |text: &str, kind| kind == TokenKind::Control && TURN_ENDS.contains(&text) && !ends_less(text);
        let named = entries.iter().filter(|(_, text, kind)| ends_turn(text, *kind));
        let mut end_of_generation: BTreeSet<u32> = named.map(|(id, ..)| id).collect();
        end_of_generation.extend(eos);
        end_of_generation.extend(id("tokenizer.ggml.eot_token_id")?);
        end_of_generation.extend(id("tokenizer.ggml.eom_token_id")?);
        Ok(SpecialIds {
            bos,
            eos,
            separator,
            adds_bos: gguf.boolean("tokenizer.ggml.add_bos_token")?.unwrap_or(defaults.adds_bos),
            adds_eos: gguf.boolean("tokenizer.ggml.add_eos_token")?.unwrap_or(defaults.adds_eos),
            adds_separator: gguf.boolean("tokenizer.ggml.add_sep_token")?.unwrap_or(defaults.adds_separator),
            end_of_generation,
        })
    }
}

/// The unknown token; `default` is its id in files that do not give one.
pub(super) fn unknown(gguf: &Gguf, entries: &Entries, default: u32) -> Result<u32, TokenizerError> {
    match read_id(gguf, UNKNOWN, entries.len())? {
        Some(id) => Ok(id),
        None if (default as usize) < entries.len() => Ok(default),
        None => {
            let reason = format!("is missing, and the vocabulary of {} tokens has no token {default}", entries.len());
            Err(TokenizerError::invalid(UNKNOWN, reason))
        }
    }
}

impl SpecialIds {
    /// The token before a text.
    pub(super) fn beginning(&self) -> Option<u32> {
        self.bos.filter(|_| self.adds_bos)
    }

    /// The token after a text.
    pub(super) fn end(&self) -> Option<u32> {
        self.eos.or(self.separator).filter(|_| self.adds_eos)
    }

    /// The token between two texts, besides the end of the first.
    pub(super) fn between(&self) -> Option<u32> {
        self.separator.filter(|_| self.adds_separator)
    }
}

/// The token id under `key`, if there is one.
pub(super) fn read_id(gguf: &Gguf, key: &str, n_tokens: usize) -> Result<Option<u32>, TokenizerError> {
    let Some(id) = gguf.unsigned(key)? else { return Ok(None) };
    match u32::try_from(id) {
        Ok(small) if id < n_tokens as u64 => Ok(Some(small)),
        _ => Err(TokenizerError::invalid(key, format!("is {id} where the vocabulary has {n_tokens} tokens"))),
    }
}

/// A stretch of text, or the token whose name was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    Token(u32),
    Text(&'t str),
}

/// Finds the names of special tokens.
#[derive(Debug)]
pub(super) struct SpecialTexts {
    /// User-defined tokens, which are recognized in every text.
    always: Names,
    /// User-defined and control tokens.
    all: Names,
    /// The characters of control tokens' names, in both cases.
    control_letters: BTreeSet<char>,
    /// Whether white space after a control token is dropped (Phi-3).
    strips_space_after: bool,
}

/// Control tokens of Phi-3 after which white space stays.
const KEEP_SPACE_AFTER: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// Maximum bytes of a special token's name. Names in well-known models have up to about fifty.
const MAX_NAME_BYTES: usize = 1024;

impl SpecialTexts {
    pub(super) fn new(gguf: &Gguf, entries: &Entries) -> Result<Self, TokenizerError> {
        let model = gguf.string("general.name")?.unwrap_or_default().to_lowercase();
        Ok(SpecialTexts {
            always: Names::new(entries, &[TokenKind::UserDefined])?,
            all: Names::new(entries, &[TokenKind::UserDefined, TokenKind::Control, TokenKind::Unknown])?,
            control_letters: control_letters(entries),
            strips_space_after: model.contains("phi-3") || model.contains("phi3"),
        })
    }

    pub(super) fn control_letters(&self) -> &BTreeSet<char> {
        &self.control_letters
    }

    /// Cuts `text` at the names of special tokens: always at user-defined ones, and at control tokens if
    /// `parse_control` is set and the name touches none of the `literal` ranges, which are in ascending order.
    pub(super) fn cut<'t>(
        &self,
        entries: &Entries,
        text: &'t str,
        parse_control: bool,
        literal: &[Range<usize>],
    ) -> Vec<Fragment<'t>> {
        let names = if parse_control { &self.all } else { &self.always };
        let mut fragments = Vec::new();
        let (mut text_start, mut search_start) = (0, 0);
        while let Some((id, place)) = names.find(entries, text, search_start) {
            let is_control = entries.kind(id) != TokenKind::UserDefined;
            if is_control && touches(&place, literal) {
                let first = text[place.start..].chars().next().map_or(1, char::len_utf8);
                search_start = place.start + first;
                continue;
            }
            if text_start < place.start {
                fragments.push(Fragment::Text(&text[text_start..place.start]));
            }
            fragments.push(Fragment::Token(id));
            text_start = place.end;
            if self.strips_space_after && !KEEP_SPACE_AFTER.contains(&entries.text(id)) {
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

    /// The byte ranges of control token names in `text`.
    pub(super) fn control_names_in(&self, entries: &Entries, text: &str) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        let mut search_start = 0;
        while let Some((id, place)) = self.all.find(entries, text, search_start) {
            search_start = place.end;
            if entries.kind(id) != TokenKind::UserDefined {
                places.push(place);
            }
        }
        places
    }
}

fn control_letters(entries: &Entries) -> BTreeSet<char> {
    let control = entries.iter().filter(|(_, _, kind)| matches!(kind, TokenKind::Control | TokenKind::Unknown));
    let mut letters = BTreeSet::new();
    for letter in control.flat_map(|(_, text, _)| text.chars()) {
        if letters.insert(letter) {
            letters.extend(letter.to_lowercase().chain(letter.to_uppercase()));
        }
    }
    letters
}

fn touches(place: &Range<usize>, ascending: &[Range<usize>]) -> bool {
    let next = ascending.partition_point(|range| range.end <= place.start);
    ascending.get(next).is_some_and(|range| range.start < place.end)
}

/// The names of some tokens, searchable in a text.
///
/// An automaton over them (`aho-corasick`) would find them in fewer steps, but takes fifty times their bytes: gigabytes
/// for a file with half a million of them.
#[derive(Debug)]
struct Names {
    /// The tokens, in the order of their names' bytes.
    sorted: Vec<u32>,
    /// Whether any name begins with this byte.
    begins: [bool; 256],
}

impl Names {
    fn new(entries: &Entries, kinds: &[TokenKind]) -> Result<Self, TokenizerError> {
        let chosen = entries.iter().filter(|(_, _, kind)| kinds.contains(kind));
        let mut sorted = Vec::new();
        let mut begins = [false; 256];
        for (id, text, _) in chosen {
            if text.len() > MAX_NAME_BYTES {
                let reason = format!("has {} bytes: a special token may have {MAX_NAME_BYTES}", text.len());
                return Err(TokenizerError::invalid(format!("{TOKENS}[{id}]"), reason));
            }
            text.bytes().take(1).for_each(|first| begins[usize::from(first)] = true);
            sorted.push(id);
        }
        sorted.sort_unstable_by_key(|id| entries.spelled(*id));
        Ok(Names { sorted, begins })
    }

    /// The first place at or after `start` where a name occurs, and the longest name there.
    fn find(&self, entries: &Entries, text: &str, start: usize) -> Option<(u32, Range<usize>)> {
        let bytes = text.as_bytes();
        let places = (start..bytes.len()).filter(|place| self.begins[usize::from(bytes[*place])]);
        let mut found = places.filter_map(|place| {
            let id = self.longest_at(entries, &bytes[place..])?;
            Some((id, place..place + entries.spelled(id).len()))
        });
        found.next()
    }

    /// The longest name that `bytes` begins with.
    fn longest_at(&self, entries: &Entries, bytes: &[u8]) -> Option<u32> {
        let (mut candidates, mut longest) = (self.sorted.as_slice(), None);
        for (depth, byte) in bytes.iter().enumerate() {
            // A name that ends here sorts before those that continue.
            let letter = |id: &u32| entries.spelled(*id).get(depth).copied();
            let start = candidates.partition_point(|id| letter(id).is_none_or(|letter| letter < *byte));
            let n_fitting = candidates[start..].partition_point(|id| letter(id) == Some(*byte));
            candidates = &candidates[start..start + n_fitting];
            let Some(first) = candidates.first() else { break };
            if entries.spelled(*first).len() == depth + 1 {
                longest = Some(*first);
            }
        }
        longest
    }
}
