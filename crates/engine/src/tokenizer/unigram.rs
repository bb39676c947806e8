//! SentencePiece unigrams (`tokenizer.ggml.model` = `t5`; XLM-RoBERTa).
//!
//! A text is normalized, ▁ replaces white space, and of all ways to cut the text into pieces the one with the largest
//! sum of scores is taken (<https://arxiv.org/abs/1804.10959>).

mod charsmap;

use self::charsmap::Charsmap;
use super::vocabulary::{self, Entries, TokenKind};
use super::{TokenizerError, special};
use crate::gguf::Gguf;

const SCORES: &str = "tokenizer.ggml.scores";

/// Stands for white space.
const SPACE: char = '▁';

/// A letter that is not a piece costs this much more than the worst piece.
const UNKNOWN_PENALTY: f64 = 10.0;

/// The number of the unknown token in T5's vocabulary, for files that do not give one.
const UNKNOWN: u32 = 2;

#[derive(Debug)]
pub(super) struct Unigram {
    charsmap: Option<Charsmap>,
    scores: Vec<f32>,
    unknown: u32,
    unknown_score: f64,
    /// Bytes of the longest piece.
    longest: usize,
    adds_space_prefix: bool,
    /// Whether a run of white space counts as one.
    merges_spaces: bool,
}

/// The best way to cut the text up to a place.
#[derive(Clone, Copy)]
struct Cut {
    score: f64,
    /// The last piece.
    id: u32,
    /// Where it begins.
    start: usize,
}

impl Unigram {
    pub(super) fn from_gguf(gguf: &Gguf, entries: &Entries) -> Result<Self, TokenizerError> {
        let scores = gguf.floats(SCORES)?.ok_or(TokenizerError::Missing { key: SCORES })?;
        vocabulary::check_length(SCORES, scores.len(), entries.len())?;
        let ordinary = entries.iter().filter(|(_, _, kind)| *kind == TokenKind::Normal);
        let worst = ordinary.map(|(id, ..)| f64::from(scores[id as usize])).fold(f64::MAX, f64::min);
        let unknown = special::unknown(gguf, entries, UNKNOWN)?;
        Ok(Unigram {
            charsmap: Charsmap::from_gguf(gguf)?,
            unknown,
            unknown_score: if worst == f64::MAX { 0.0 } else { worst } - UNKNOWN_PENALTY,
            longest: entries.longest_piece(),
            adds_space_prefix: gguf.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
            merges_spaces: gguf.boolean("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(true),
            scores,
        })
    }

    pub(super) fn adds_space_prefix(&self) -> bool {
        self.adds_space_prefix
    }

    /// Appends the ids of a stretch of text.
    pub(super) fn encode(&self, text: &str, entries: &Entries, ids: &mut Vec<u32>) {
        let text = self.spelled(text);
        let cuts = self.cuts(&text, entries);
        let first = ids.len();
        let mut end = text.len();
        while end > 0 {
            let Cut { id, start, .. } = cuts[end];
            // Unknown letters side by side are one token.
            if !(id == self.unknown && ids.len() > first && ids.last() == Some(&id)) {
                ids.push(id);
            }
            end = start;
        }
        ids[first..].reverse();
    }

    /// The text as the vocabulary spells it.
    fn spelled(&self, text: &str) -> String {
        let normalized = match &self.charsmap {
            Some(charsmap) => charsmap.normalized(text),
            None => text.to_owned(),
        };
        let mut spelled = String::with_capacity(normalized.len() + SPACE.len_utf8());
        let (mut is_in_word, mut has_prefix) = (false, false);
        for letter in normalized.chars() {
            if letter == ' ' {
                is_in_word = false;
                if !self.merges_spaces {
                    spelled.push(SPACE);
                }
                continue;
            }
            if !is_in_word && (self.merges_spaces || self.adds_space_prefix && !has_prefix) {
                spelled.push(SPACE);
                has_prefix = true;
            }
            is_in_word = true;
            spelled.push(letter);
        }
        spelled
    }

    /// For every place of the text, the best way to cut the text before it.
    fn cuts(&self, text: &str, entries: &Entries) -> Vec<Cut> {
        let mut cuts = vec![Cut { score: f64::NEG_INFINITY, id: self.unknown, start: 0 }; text.len() + 1];
        cuts[0].score = 0.0;
        for (start, letter) in text.char_indices() {
            let before = cuts[start].score;
            let mut is_known = false;
            let most = text.floor_char_boundary(start + self.longest);
            let ends =
                text[start..most.max(start)].char_indices().map(|(place, letter)| start + place + letter.len_utf8());
            for end in ends {
                let Some((id, score)) = self.piece(&text[start..end], entries) else { continue };
                is_known |= end == start + letter.len_utf8();
                improve(&mut cuts[end], Cut { score: before + score, id, start });
            }
            if !is_known {
                let cut = Cut { score: before + self.unknown_score, id: self.unknown, start };
                improve(&mut cuts[start + letter.len_utf8()], cut);
            }
        }
        cuts
    }

    /// The piece with this spelling, and its score.
    fn piece(&self, spelled: &str, entries: &Entries) -> Option<(u32, f64)> {
        let id = entries.id_of(spelled)?;
        match entries.kind(id) {
            TokenKind::Normal | TokenKind::Unused => Some((id, f64::from(self.scores[id as usize]))),
            TokenKind::UserDefined => Some((id, 0.0)),
            TokenKind::Unknown | TokenKind::Control | TokenKind::Byte => None,
        }
    }
}

fn improve(cut: &mut Cut, other: Cut) {
    if other.score > cut.score {
        *cut = other;
    }
}
