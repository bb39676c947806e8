//! WordPiece (`tokenizer.ggml.model` = `bert`).
//!
//! A text is normalized and split into words and punctuation as in BERT. Each word is split into the longest pieces
//! from left to right: the first is spelled with ▁ before it, the others bare. A word that cannot be split into pieces
//! is one unknown token.

use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

use super::vocabulary::Entries;
use super::{TokenizerError, special};
use crate::gguf::Gguf;

/// Stands before the first piece of a word.
const WORD_START: char = '▁';

/// The number of the unknown token in the original vocabulary, for files that do not give one.
const UNKNOWN: u32 = 100;

#[derive(Debug)]
pub(super) struct WordPiece {
    normalizer: BertNormalizer,
    unknown: u32,
    /// Bytes of the longest piece: nothing longer needs to be looked up.
    longest: usize,
}

impl WordPiece {
    pub(super) fn from_gguf(gguf: &Gguf, entries: &Entries) -> Result<Self, TokenizerError> {
        let lowercase = gguf.boolean("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strip_accents = gguf.boolean("tokenizer.ggml.normalizer.strip_accents")?;
        let unknown = special::unknown(gguf, entries, UNKNOWN)?;
        Ok(WordPiece {
            normalizer: BertNormalizer::new(true, true, strip_accents, lowercase),
            unknown,
            longest: entries.longest_piece(),
        })
    }

    /// Appends the ids of a stretch of text.
    pub(super) fn encode(&self, text: &str, entries: &Entries, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut normalized = NormalizedString::from(text);
        self.normalizer.normalize(&mut normalized).map_err(TokenizerError::failed)?;
        let mut words = PreTokenizedString::from(normalized.get());
        BertPreTokenizer.pre_tokenize(&mut words).map_err(TokenizerError::failed)?;
        for (word, _, _) in words.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            self.encode_word(word, entries, ids);
        }
        Ok(())
    }

    fn encode_word(&self, word: &str, entries: &Entries, ids: &mut Vec<u32>) {
        let (before, spelled) = (ids.len(), format!("{WORD_START}{word}"));
        let mut rest = spelled.as_str();
        while !rest.is_empty() {
            let Some((id, n_bytes)) = self.longest_piece(rest, entries) else {
                ids.truncate(before);
                ids.push(self.unknown);
                return;
            };
            ids.push(id);
            rest = &rest[n_bytes..];
        }
    }

    /// The longest piece with which a text begins, and its bytes.
    fn longest_piece(&self, text: &str, entries: &Entries) -> Option<(u32, usize)> {
        let most = text.floor_char_boundary(self.longest);
        let ends = text[..most].char_indices().rev().map(|(start, letter)| start + letter.len_utf8());
        ends.into_iter().find_map(|end| Some((entries.id_of(&text[..end])?, end)))
    }
}
