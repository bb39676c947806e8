//! SentencePiece BPE (`tokenizer.ggml.model` = `llama`).
//!
//! The vocabulary has no list of merges: two neighbouring pieces are joined if the joined piece is in the vocabulary,
//! the one with the best score first and the leftmost among equals. Characters without a piece become the tokens of
//! their bytes.

use super::merging::{Piece, merge};
use super::vocabulary::{self, Entries};
use super::{TokenizerError, special};
use crate::gguf::Gguf;

const SCORES: &str = "tokenizer.ggml.scores";
/// Represents a space in the vocabulary.
const SPACE: char = '▁';

#[derive(Debug)]
pub(super) struct SentencePiece {
    scores: Vec<f32>,
    /// The token of each byte, if the vocabulary has it.
    byte_tokens: Vec<Option<u32>>,
    /// The unknown token.
    unknown: u32,
    /// Bytes of the longest piece: nothing longer needs to be looked up.
    longest: usize,
    adds_space_prefix: bool,
    /// Whether no piece combines a line break with another character, so that nothing is ever joined across the end of
    /// a line and each line can be tokenized on its own.
    lines_stand_alone: bool,
}

impl SentencePiece {
    pub(super) fn from_gguf(gguf: &Gguf, entries: &Entries) -> Result<Self, TokenizerError> {
        let scores = gguf.floats(SCORES)?.ok_or(TokenizerError::Missing { key: SCORES })?;
        vocabulary::check_length(SCORES, scores.len(), entries.len())?;
        let unknown = special::unknown(gguf, entries, 0)?;
        let is_mixed = |text: &str| text.contains('\n') && text.chars().any(|letter| letter != '\n');
        Ok(SentencePiece {
            scores,
            byte_tokens: (0..=255).map(|byte| entries.id_of(&vocabulary::byte_token_text(byte))).collect(),
            unknown,
            longest: entries.longest(),
            adds_space_prefix: gguf.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
            lines_stand_alone: !entries.iter().any(|(_, text, _)| is_mixed(text)),
        })
    }

    pub(super) fn adds_space_prefix(&self) -> bool {
        self.adds_space_prefix
    }

    /// Appends the ids of a stretch of text; `follows_token` says whether it comes after a special token or at the
    /// start.
    pub(super) fn encode(&self, text: &str, follows_token: bool, entries: &Entries, ids: &mut Vec<u32>) {
        let prefix = if follows_token && self.adds_space_prefix { " " } else { "" };
        let text = stored_form(&format!("{prefix}{text}"));
        if self.lines_stand_alone {
            return lines_and_breaks(&text).for_each(|part| self.encode_part(part, entries, ids));
        }
        self.encode_part(&text, entries, ids);
    }

    fn encode_part(&self, part: &str, entries: &Entries, ids: &mut Vec<u32>) {
        let piece = |(start, letter): (usize, char)| Piece::new(start..start + letter.len_utf8(), self.unknown);
        let mut pieces: Vec<Piece> = part.char_indices().map(piece).collect();
        merge(&mut pieces, |left, right| {
            let joined = left.range().start..right.range().end;
            let id = entries.id_of(&part[Some(joined).filter(|joined| joined.len() <= self.longest)?])?;
            Some((rank(self.scores[id as usize]), id))
        });
        let mut follows_unknown = false;
        for piece in pieces {
            let text = &part[piece.range()];
            let known = entries.id_of(text).map(|id| vec![id]).or_else(|| self.tokens_of_bytes(text));
            // Adjacent unknown characters are one token.
            let is_unknown = known.is_none();
            ids.extend(known.unwrap_or_default());
            ids.extend(Some(self.unknown).filter(|_| is_unknown && !follows_unknown));
            follows_unknown = is_unknown;
        }
    }

    fn tokens_of_bytes(&self, text: &str) -> Option<Vec<u32>> {
        text.bytes().map(|byte| self.byte_tokens[usize::from(byte)]).collect()
    }
}

/// Maps a score to a rank that is lower for better scores.
fn rank(score: f32) -> u32 {
    let bits = score.to_bits();
    if bits >> 31 == 1 { bits } else { !bits & !(1 << 31) }
}

/// Splits a text into runs of line breaks and the text between them.
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

/// `text` in the vocabulary's spelling.
pub(super) fn stored_form(text: &str) -> String {
    text.replace(' ', SPACE.encode_utf8(&mut [0; 4]))
}

/// The bytes of an ordinary piece.
pub(super) fn bytes_of(piece: &str) -> Vec<u8> {
    piece.replace(SPACE, " ").into_bytes()
}
