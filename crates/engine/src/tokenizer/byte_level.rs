//! BPE with a ranked list of merges (`tokenizer.ggml.model` = `gpt2` or `gemma4`).
//!
//! The pre-tokenizer first splits a text into words, then each word's pieces are merged according to the vocabulary's
//! list. The pieces are bytes, and the vocabulary is spelled in 256 printable characters, one for each (a space is
//! `Ġ`); or, with Gemma 4, characters in a SentencePiece vocabulary's spelling.

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::merging::{Piece, merge};
use super::pre_tokenizer::{PreTokenizer, Spelling};
use super::vocabulary::{self, Entries};
use super::{TokenizerError, sentence_piece};
use crate::gguf::Gguf;

const MERGES: &str = "tokenizer.ggml.merges";

/// Maximum number of merges. The largest known vocabularies have about 600 000.
const MAX_MERGES: usize = 1 << 20;

/// Stands for the missing token of a piece.
const NO_TOKEN: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct ByteLevel {
    /// Maps a pair of tokens to the rank of their merge and the token that it yields.
    merges: Merges,
    pre_tokenizer: PreTokenizer,
}

type Merges = HashMap<(u32, u32), (u32, u32)>;

impl ByteLevel {
    /// Reads the vocabulary.
    pub(super) fn new(gguf: &Gguf, entries: &Entries, pre_tokenizer: PreTokenizer) -> Result<Self, TokenizerError> {
        Ok(ByteLevel { merges: read_merges(gguf, entries)?, pre_tokenizer })
    }

    /// Appends the ids of a stretch of text.
    pub(super) fn encode(&self, text: &str, entries: &Entries, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut pieces = Vec::new();
        for word in self.pre_tokenizer.words(text)? {
            let word = &text[word];
            let stored = self.stored_form(word);
            match entries.id_of(&stored).filter(|_| self.pre_tokenizer.keeps_whole(word)) {
                Some(id) => ids.push(id),
                None => self.encode_word(&stored, entries, &mut pieces, ids),
            }
        }
        Ok(())
    }

    /// Appends the ids of a word. Bytes without a token are left out.
    fn encode_word(&self, stored: &str, entries: &Entries, pieces: &mut Vec<Piece>, ids: &mut Vec<u32>) {
        let piece = |(start, letter): (usize, char)| {
            let range = start..start + letter.len_utf8();
            let id = entries.id_of(&stored[range.clone()]);
            Piece::new(range, id.unwrap_or(NO_TOKEN))
        };
        pieces.clear();
        pieces.extend(stored.char_indices().map(piece));
        merge(pieces, |left, right| self.merges.get(&(left.id, right.id)).copied());
        for piece in pieces {
            match piece.id {
                NO_TOKEN => ids.extend(self.byte_tokens(&stored[piece.range()], entries)),
                id => ids.push(id),
            }
        }
    }

    /// The tokens of the bytes of a character that is not a token.
    fn byte_tokens(&self, stored: &str, entries: &Entries) -> impl Iterator<Item = u32> {
        let bytes = if self.pre_tokenizer.spelling() == Spelling::Characters { stored.as_bytes() } else { &[] };
        bytes.iter().filter_map(|byte| entries.id_of(&vocabulary::byte_token_text(*byte)))
    }

    /// `text` in the vocabulary's spelling.
    pub(super) fn stored_form(&self, text: &str) -> String {
        match self.pre_tokenizer.spelling() {
            Spelling::Bytes => text.bytes().map(|byte| ALPHABET[usize::from(byte)]).collect(),
            Spelling::Characters => sentence_piece::stored_form(text),
        }
    }

    /// The bytes of an ordinary token.
    pub(super) fn bytes_of(&self, stored: &str) -> Vec<u8> {
        match self.pre_tokenizer.spelling() {
            Spelling::Bytes => bytes_of(stored),
            Spelling::Characters => sentence_piece::bytes_of(stored),
        }
    }
}

/// The bytes of a token in the alphabet. A token that is not spelled in it stands for itself.
fn bytes_of(stored: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = stored.chars().map(byte_of).collect();
    bytes.unwrap_or_else(|| stored.as_bytes().to_vec())
}

fn byte_of(letter: char) -> Option<u8> {
    let code = letter as usize;
    BYTES.get(code).copied().flatten()
}

/// The character of each byte, as GPT-2 defined it: printable bytes of Latin-1 stand for themselves; the others map, in
/// order, to the characters from U+0100 on.
static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut replacements = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) => char::from(byte),
        byte => replacements.next().unwrap_or(char::from(byte)),
    })
});

/// The byte of each character, up to the last in the alphabet.
static BYTES: LazyLock<Vec<Option<u8>>> = LazyLock::new(|| {
    let mut bytes = vec![None; 512];
    for (byte, letter) in (0u8..=255).zip(ALPHABET.iter()) {
        bytes[*letter as usize] = Some(byte);
    }
    bytes
});

fn read_merges(gguf: &Gguf, entries: &Entries) -> Result<Merges, TokenizerError> {
    let lines = gguf.each_string(MERGES)?.ok_or(TokenizerError::Missing { key: MERGES })?;
    if lines.len() > MAX_MERGES {
        let reason = format!("has {} entries: the limit is {MAX_MERGES}", lines.len());
        return Err(TokenizerError::invalid(MERGES, reason));
    }
    let mut merges = Merges::with_capacity(lines.len());
    for (rank, line) in (0u32..).zip(lines) {
        let (pair, joined) = read_merge(rank, line?, entries)?;
        merges.entry(pair).or_insert((rank, joined));
    }
    Ok(merges)
}

/// The two tokens, and their merged token.
fn read_merge(rank: u32, line: &str, entries: &Entries) -> Result<((u32, u32), u32), TokenizerError> {
    let invalid = |reason: String| TokenizerError::invalid(format!("{MERGES}[{rank}]"), reason);
    // The left half may itself begin with a space.
    let cut = line.char_indices().skip(1).find(|(_, letter)| *letter == ' ').map(|(place, _)| place);
    let Some(cut) = cut else {
        return Err(invalid(format!("is {line:?}: it must be two tokens with a space between")));
    };
    let (left, right) = (&line[..cut], &line[cut + 1..]);
    let id = |token: &str| {
        let missing = || invalid(format!("is {line:?}, and the vocabulary has no token {token:?}"));
        entries.id_of(token).ok_or_else(missing)
    };
    Ok(((id(left)?, id(right)?), id(&format!("{left}{right}"))?))
}
