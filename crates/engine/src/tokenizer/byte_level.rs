//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`).
//!
//! The vocabulary is spelled in 256 printable characters, one for each byte (a space is `Ġ`). A text is first cut into
//! words by the pre-tokenizer, then each word's bytes are merged by the vocabulary's ranked list.

use std::sync::LazyLock;

use tokenizers::models::bpe::{BPE, Merges, Vocab};

use super::pre_tokenizer::PreTokenizer;
use super::vocabulary::{self, Entry};
use super::{TokenizerError, merge};
use crate::gguf::Gguf;

const MERGES: &str = "tokenizer.ggml.merges";

#[derive(Debug)]
pub(super) struct ByteLevel {
    bpe: BPE,
    pre_tokenizer: PreTokenizer,
}

impl ByteLevel {
    /// Reads it, and whether BOS stands before a text where the metadata does not say.
    pub(super) fn from_gguf(gguf: &Gguf, entries: &[Entry<'_>]) -> Result<(Self, bool), TokenizerError> {
        let pre_tokenizer = PreTokenizer::from_gguf(gguf)?;
        let ids = vocabulary::ids_by_text(entries)?;
        let merges = read_merges(gguf, &ids)?;
        let bpe = BPE::builder()
            .vocab_and_merges(ids, merges)
            .ignore_merges(pre_tokenizer.ignores_merges())
            .build()
            .map_err(TokenizerError::failed)?;
        let adds_bos = pre_tokenizer.adds_bos();
        Ok((ByteLevel { bpe, pre_tokenizer }, adds_bos))
    }

    pub(super) fn bpe(&self) -> &BPE {
        &self.bpe
    }

    /// Appends the ids of a stretch of text.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        for word in self.pre_tokenizer.words(text)? {
            merge(&self.bpe, &stored_form(&text[word]), ids)?;
        }
        Ok(())
    }
}

/// How the vocabulary spells `text`.
pub(super) fn stored_form(text: &str) -> String {
    text.bytes().map(|byte| ALPHABET[usize::from(byte)]).collect()
}

/// The bytes of an ordinary token. One that is not spelled in the alphabet stands for itself.
pub(super) fn bytes_of(stored: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = stored.chars().map(byte_of).collect();
    bytes.unwrap_or_else(|| stored.as_bytes().to_vec())
}

fn byte_of(letter: char) -> Option<u8> {
    let code = letter as usize;
    BYTES.get(code).copied().flatten()
}

/// The character of each byte, as GPT-2 defined it: printable bytes of Latin-1 stand for themselves, the others for the
/// characters from U+0100 on, in order.
static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut replacements = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) => char::from(byte),
        byte => replacements.next().unwrap_or(char::from(byte)),
    })
});

/// The byte of each character up to the last of the alphabet.
static BYTES: LazyLock<Vec<Option<u8>>> = LazyLock::new(|| {
    let mut bytes = vec![None; 512];
    for (byte, letter) in (0u8..=255).zip(ALPHABET.iter()) {
        bytes[*letter as usize] = Some(byte);
    }
    bytes
});

fn read_merges(gguf: &Gguf, ids: &Vocab) -> Result<Merges, TokenizerError> {
    let lines = gguf.strings(MERGES)?.ok_or(TokenizerError::Missing { key: MERGES })?;
    lines.iter().enumerate().map(|(rank, line)| read_merge(rank, line, ids)).collect()
}

fn read_merge(rank: usize, line: &str, ids: &Vocab) -> Result<(String, String), TokenizerError> {
    let invalid = |reason: String| TokenizerError::invalid(format!("{MERGES}[{rank}]"), reason);
    // The left half may itself begin with a space.
    let cut = line.char_indices().skip(1).find(|(_, letter)| *letter == ' ').map(|(place, _)| place);
    let Some(cut) = cut else {
        return Err(invalid(format!("is {line:?}: it must be two tokens with a space between")));
    };
    let (left, right) = (&line[..cut], &line[cut + 1..]);
    match [left, right, &format!("{left}{right}")].into_iter().find(|token| !ids.contains_key(*token)) {
        Some(missing) => Err(invalid(format!("is {line:?}, and the vocabulary has no token {missing:?}"))),
        None => Ok((left.to_owned(), right.to_owned())),
    }
}
