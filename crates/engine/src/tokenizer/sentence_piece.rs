//! SentencePiece BPE (`tokenizer.ggml.model` = `llama`).
//!
//! The vocabulary has no list of merges: two neighbouring pieces are joined where the joined piece is in the vocabulary,
//! the one with the best score first and the leftmost of equals. As a list of merges that is every way to cut a piece in
//! two, ranked by the piece's score. Of a piece that can be cut in several ways the longer left half comes first: that
//! is what "leftmost first" leaves behind in a run of repeated letters. Characters that are no piece become the tokens of
//! their bytes.

use tokenizers::models::bpe::{BPE, Merges, Vocab};

use super::vocabulary::{self, Entry};
use super::{TokenizerError, merge, special};
use crate::gguf::Gguf;

const SCORES: &str = "tokenizer.ggml.scores";
/// What stands for a space in the vocabulary.
const SPACE: char = '▁';

#[derive(Debug)]
pub(super) struct SentencePiece {
    bpe: BPE,
    adds_space_prefix: bool,
    /// Whether no piece holds a line break beside another character, so that nothing is ever joined across the end of a
    /// line and each line can be tokenized on its own.
    lines_stand_alone: bool,
}

impl SentencePiece {
    pub(super) fn from_gguf(gguf: &Gguf, entries: &[Entry<'_>]) -> Result<Self, TokenizerError> {
        let scores = gguf.floats(SCORES)?.ok_or(TokenizerError::Missing { key: SCORES })?;
        vocabulary::check_length(SCORES, scores.len(), entries.len())?;
        let ids = vocabulary::ids_by_text(entries)?;
        let merges = merges_by_score(entries, &scores, &ids);
        let unknown = special::read_id(gguf, "tokenizer.ggml.unknown_token_id", entries.len())?.unwrap_or(0);
        let bpe = BPE::builder()
            .vocab_and_merges(ids, merges)
            .byte_fallback(true)
            .unk_token(entries[unknown as usize].text.to_string())
            .fuse_unk(true)
            .cache_capacity(0)
            .build()
            .map_err(TokenizerError::failed)?;
        let adds_space_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let is_mixed = |text: &str| text.contains('\n') && text.chars().any(|letter| letter != '\n');
        let lines_stand_alone = !entries.iter().any(|entry| is_mixed(&entry.text));
        Ok(SentencePiece { bpe, adds_space_prefix, lines_stand_alone })
    }

    pub(super) fn bpe(&self) -> &BPE {
        &self.bpe
    }

    pub(super) fn adds_space_prefix(&self) -> bool {
        self.adds_space_prefix
    }

    /// Appends the ids of a stretch of text; `follows_token` says whether it is the first or comes after a special token.
    pub(super) fn encode(&self, text: &str, follows_token: bool, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let prefix = if follows_token && self.adds_space_prefix { " " } else { "" };
        let text = stored_form(&format!("{prefix}{text}"));
        if self.lines_stand_alone {
            return lines_and_breaks(&text).try_for_each(|part| merge(&self.bpe, part, ids));
        }
        merge(&self.bpe, &text, ids)
    }
}

/// Runs of line breaks, and what lies between them.
fn lines_and_breaks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_break = rest.chars().next()? == '\n';
        let end = rest.find(|letter| (letter == '\n') != is_break).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        rest = tail;
        Some(part)
    })
}

/// How the vocabulary spells `text`.
pub(super) fn stored_form(text: &str) -> String {
    text.replace(' ', SPACE.encode_utf8(&mut [0; 4]))
}

/// The bytes of an ordinary piece.
pub(super) fn bytes_of(piece: &str) -> Vec<u8> {
    piece.replace(SPACE, " ").into_bytes()
}

/// Longer pieces are never merged. None of a sound vocabulary is as long, and every cut of a piece costs as much as the
/// piece is long.
const MAX_MERGED_BYTES: usize = 1024;

fn merges_by_score(entries: &[Entry<'_>], scores: &[f32], ids: &Vocab) -> Merges {
    let mut ranked = Vec::new();
    for (entry, score) in entries.iter().zip(scores) {
        let text = entry.text.as_ref();
        if text.len() > MAX_MERGED_BYTES {
            continue;
        }
        for (cut, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(cut);
            if ids.contains_key(left) && ids.contains_key(right) {
                ranked.push((*score, left, right));
            }
        }
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.1.len().cmp(&a.1.len())));
    ranked.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect()
}
