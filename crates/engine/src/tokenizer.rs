//! Converts text to token ids and back, using the vocabulary in a model's own metadata.
//!
//! There are four kinds of vocabulary: BPE with a list of merges (`gpt2`: Llama 3, Qwen, SmolLM, gpt-oss, ModernBERT;
//! `gemma4`), SentencePiece BPE (`llama`: Llama 2, Mistral, Phi-3, Gemma 3), SentencePiece unigrams (`t5`: XLM-RoBERTa)
//! and WordPiece (`bert`). Everything follows llama.cpp, so that a file tokenizes the same in both: special tokens are
//! cut out of the text first, and each stretch of text between them is tokenized on its own.
//!
//! The metadata is not trusted: lists whose lengths disagree, ids outside the vocabulary and merges of tokens that do
//! not exist are errors that name the field. A tokenizer takes a few dozen bytes for every token and merge; their
//! number, their bytes and the length of a special token are limited, far above those of real models.

mod byte_level;
mod merging;
mod pre_tokenizer;
mod sentence_piece;
mod special;
mod unigram;
mod vocabulary;
mod word_piece;

use std::collections::BTreeSet;
use std::ops::Range;

use hone_protocol::{CallFormat, ReasoningTags};
use thiserror::Error;

use crate::gguf::{Gguf, GgufError};
use byte_level::ByteLevel;
use pre_tokenizer::PreTokenizer;
use sentence_piece::SentencePiece;
use special::{Fragment, SpecialIds, SpecialTexts};
use unigram::Unigram;
use vocabulary::{Entries, TokenKind, Vocabulary};
use word_piece::WordPiece;

/// Why a model's tokenizer cannot be built, or a text cannot be tokenized.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// A metadata value is broken.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file has no tokenizer.
    #[error("the file has no {key}: it holds no tokenizer, or was converted by a tool that left it out")]
    Missing {
        /// The metadata key.
        key: &'static str,
    },
    /// The file's tokenizer is of a kind that hone does not know.
    #[error("{key} {found:?} is not supported; supported are {supported}")]
    Unsupported {
        /// The metadata key.
        key: &'static str,
        /// The value in the file.
        found: String,
        /// The supported alternatives.
        supported: String,
    },
    /// The vocabulary is inconsistent.
    #[error("{field} {reason}")]
    Invalid {
        /// The metadata key, with an index if the error concerns one entry.
        field: String,
        /// The problem.
        reason: String,
    },
    /// A text could not be split into words.
    #[error("tokenizing failed: {0}")]
    Failed(String),
}

impl TokenizerError {
    fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        TokenizerError::Invalid { field: field.into(), reason: reason.into() }
    }

    fn failed(error: tokenizers::Error) -> Self {
        TokenizerError::Failed(error.to_string())
    }
}

/// How a text is turned into tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Whether the names of control tokens in the text (`<|im_start|>`) become those tokens. If false, they stay text.
    pub parse_special: bool,
    /// Whether to add the tokens that the metadata asks for (BOS, EOS) around the text.
    pub add_special: bool,
}

/// A model's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    algorithm: Algorithm,
    vocabulary: Vocabulary,
    special_texts: SpecialTexts,
    special_ids: SpecialIds,
}

#[derive(Debug)]
enum Algorithm {
    ByteLevel(ByteLevel),
    SentencePiece(SentencePiece),
    Unigram(Unigram),
    WordPiece(WordPiece),
}

impl Algorithm {
    /// `text` in the vocabulary's spelling.
    fn stored_form(&self, text: &str) -> String {
        match self {
            Algorithm::ByteLevel(byte_level) => byte_level.stored_form(text),
            _ => sentence_piece::stored_form(text),
        }
    }

    /// The bytes of an ordinary token.
    fn bytes_of(&self, stored: &str) -> Vec<u8> {
        match self {
            Algorithm::ByteLevel(byte_level) => byte_level.bytes_of(stored),
            _ => sentence_piece::bytes_of(stored),
        }
    }
}

impl Tokenizer {
    /// Builds the tokenizer that the file's metadata describes. The file needs no tensors.
    ///
    /// # Errors
    /// When the file has no tokenizer, or one that is inconsistent or of an unsupported kind.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.model";
        const SUPPORTED: &str =
            "gpt2 (byte-level BPE), gemma4, llama (SentencePiece BPE), t5 (unigrams) and bert (WordPiece)";
        let model = gguf.string(KEY)?.ok_or(TokenizerError::Missing { key: KEY })?;
        let build = match model {
            "gpt2" => Self::byte_level,
            "gemma4" => Self::gemma4,
            "llama" => Self::sentence_piece,
            "t5" => Self::unigram,
            "bert" => Self::word_piece,
            other => {
                return Err(TokenizerError::Unsupported {
                    key: KEY,
                    found: other.to_owned(),
                    supported: SUPPORTED.to_owned(),
                });
            }
        };
        build(gguf)
    }

    fn byte_level(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::merged(gguf, PreTokenizer::from_gguf(gguf)?)
    }

    fn gemma4(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let mut tokenizer = Self::merged(gguf, PreTokenizer::named("gemma4")?)?;
        // Some Gemma 4 files say that texts begin without BOS, but the model writes nonsense after such a text.
        tokenizer.special_ids.adds_bos = true;
        Ok(tokenizer)
    }

    fn merged(gguf: &Gguf, pre_tokenizer: PreTokenizer) -> Result<Self, TokenizerError> {
        let entries = Entries::read(gguf)?;
        let defaults = SpecialIds { adds_bos: pre_tokenizer.adds_bos(), ..SpecialIds::default() };
        let algorithm = Algorithm::ByteLevel(ByteLevel::new(gguf, &entries, pre_tokenizer)?);
        Self::complete(gguf, algorithm, entries, defaults)
    }

    fn sentence_piece(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let entries = Entries::read(gguf)?;
        let sentence_piece = SentencePiece::from_gguf(gguf, &entries)?;
        let defaults = SpecialIds { bos: Some(1), eos: Some(2), adds_bos: true, ..SpecialIds::default() };
        Self::complete(gguf, Algorithm::SentencePiece(sentence_piece), entries, defaults)
    }

    fn unigram(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let entries = Entries::read(gguf)?;
        let unigram = Unigram::from_gguf(gguf, &entries)?;
        let defaults = SpecialIds { eos: Some(1), adds_eos: true, ..SpecialIds::default() };
        Self::complete(gguf, Algorithm::Unigram(unigram), entries, defaults)
    }

    fn word_piece(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let entries = Entries::read(gguf)?;
        let word_piece = WordPiece::from_gguf(gguf, &entries)?;
        // Files without these ids use those of the original BERT.
        let begins = special::read_id(gguf, "tokenizer.ggml.cls_token_id", entries.len())?.or(Some(101));
        let defaults = SpecialIds {
            bos: begins,
            separator: Some(102),
            adds_bos: true,
            adds_separator: true,
            ..SpecialIds::default()
        };
        Self::complete(gguf, Algorithm::WordPiece(word_piece), entries, defaults)
    }

    fn complete(
        gguf: &Gguf,
        algorithm: Algorithm,
        entries: Entries,
        defaults: SpecialIds,
    ) -> Result<Self, TokenizerError> {
        let special_ids = SpecialIds::from_gguf(gguf, &entries, defaults)?;
        let special_texts = SpecialTexts::new(gguf, &entries)?;
        let vocabulary = Vocabulary::new(entries, |stored| algorithm.bytes_of(stored))?;
        Ok(Tokenizer { algorithm, vocabulary, special_texts, special_ids })
    }

    fn entries(&self) -> &Entries {
        self.vocabulary.entries()
    }

    /// The token ids of `text`.
    ///
    /// # Errors
    /// When the text cannot be split into words; no text is known for which this happens.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TokenizerError> {
        let (before, after) = if options.add_special { self.around() } else { (None, None) };
        let mut ids = Vec::from_iter(before);
        self.encode_fragments(&self.special_texts.cut(self.entries(), text, options.parse_special, &[]), &mut ids)?;
        ids.extend(after);
        Ok(ids)
    }

    /// The tokens before and after a text.
    fn around(&self) -> (Option<u32>, Option<u32>) {
        let ids = &self.special_ids;
        match self.algorithm {
            // BERT has both, whatever its metadata says.
            Algorithm::WordPiece(_) => (ids.bos, ids.separator),
            _ => (ids.beginning(), ids.end()),
        }
    }

    /// The token ids of two texts, for models that compare the second with the first.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`].
    pub(crate) fn encode_pair(&self, first: &str, second: &str) -> Result<Vec<u32>, TokenizerError> {
        let special = &self.special_ids;
        let mut ids = Vec::from_iter(special.beginning());
        self.encode_fragments(&self.special_texts.cut(self.entries(), first, false, &[]), &mut ids)?;
        ids.extend(special.end());
        ids.extend(special.between());
        self.encode_fragments(&self.special_texts.cut(self.entries(), second, false, &[]), &mut ids)?;
        ids.extend(special.end());
        Ok(ids)
    }

    /// The token ids of `text` with nothing added. Names of control tokens become those tokens, except where they touch
    /// one of the `literal` byte ranges.
    pub(crate) fn encode_template(&self, text: &str, literal: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        self.encode_fragments(&self.special_texts.cut(self.entries(), text, true, literal), &mut ids)?;
        Ok(ids)
    }

    /// The token ids of `text`. Names of control tokens become those tokens, except where they touch one of the
    /// `literal` byte ranges. A single BOS comes first if the metadata asks for it.
    pub(crate) fn encode_prompt(&self, text: &str, literal: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let fragments = self.special_texts.cut(self.entries(), text, true, literal);
        if let Some(bos) = self.special_ids.beginning()
            && fragments.first() != Some(&Fragment::Token(bos))
        {
            ids.push(bos);
        }
        self.encode_fragments(&fragments, &mut ids)?;
        Ok(ids)
    }

    fn encode_fragments(&self, fragments: &[Fragment<'_>], ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut follows_token = true;
        for fragment in fragments {
            match fragment {
                Fragment::Token(id) => ids.push(*id),
                Fragment::Text(text) => match &self.algorithm {
                    Algorithm::ByteLevel(byte_level) => byte_level.encode(text, self.entries(), ids)?,
                    Algorithm::SentencePiece(pieces) => pieces.encode(text, follows_token, self.entries(), ids),
                    Algorithm::Unigram(pieces) => pieces.encode(text, self.entries(), ids),
                    Algorithm::WordPiece(pieces) => pieces.encode(text, self.entries(), ids)?,
                },
            }
            follows_token = matches!(fragment, Fragment::Token(_));
        }
        Ok(())
    }

    /// The text of `tokens`. Bytes that are not UTF-8 become U+FFFD. Control tokens are left out unless `show_special`.
    /// The space that a SentencePiece vocabulary puts before a text is removed.
    pub fn decode(&self, tokens: &[u32], show_special: bool) -> String {
        let mut bytes = Vec::new();
        let mut leading_space = self.adds_space_prefix();
        for id in tokens.iter().copied().filter(|id| show_special || !self.is_control(*id)) {
            let token = self.token_bytes(id);
            let prefix: &[u8] = if leading_space { b" " } else { b"" };
            bytes.extend_from_slice(token.strip_prefix(prefix).unwrap_or(token));
            leading_space = false;
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token stands for, which may be a part of a character. For a control token they are its name; an
    /// unused or unknown id has none.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// Whether a token belongs to a tag that begins or ends reasoning.
    pub(crate) fn is_reasoning_tag(&self, id: u32) -> bool {
        std::str::from_utf8(self.token_bytes(id)).is_ok_and(ReasoningTags::has)
    }

    /// Whether a token marks a tool call or a part of one.
    pub(crate) fn is_call_mark(&self, id: u32) -> bool {
        std::str::from_utf8(self.token_bytes(id)).is_ok_and(CallFormat::has)
    }

    /// The token that stands for exactly `text`: `" yes"`, `"\n"`, or the name of a control token.
    pub fn token_with_text(&self, text: &str) -> Option<u32> {
        let stored = self.algorithm.stored_form(text);
        let byte_form = match text.as_bytes() {
            [byte] => vocabulary::byte_token_text(*byte),
            _ => String::new(),
        };
        [stored.as_str(), text, &byte_form]
            .into_iter()
            .filter_map(|candidate| self.entries().id_of(candidate))
            .find(|id| self.token_bytes(*id) == text.as_bytes())
    }

    /// Number of tokens. A model may have more rows of logits than this.
    pub fn n_tokens(&self) -> usize {
        self.entries().len()
    }

    /// The token that begins a text, if there is one.
    pub fn bos(&self) -> Option<u32> {
        self.special_ids.bos
    }

    /// The token that ends a text, if there is one.
    pub fn eos(&self) -> Option<u32> {
        self.special_ids.eos
    }

    /// Whether [`Tokenizer::encode`] puts BOS in front when special tokens are to be added.
    pub(crate) fn adds_bos(&self) -> bool {
        self.special_ids.beginning().is_some()
    }

    /// Whether a token steers the model and is not part of the text (`<|im_start|>`, `<s>`, `<unk>`).
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.entries().kind(id), TokenKind::Control | TokenKind::Unknown)
    }

    /// Whether a token ends the model's turn.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.special_ids.end_of_generation.contains(&id)
    }

    /// Every token that ends the model's turn, in ascending order.
    pub fn end_of_generation_tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.special_ids.end_of_generation.iter().copied()
    }

    /// Whether the vocabulary is a SentencePiece one.
    pub(crate) fn is_sentence_piece(&self) -> bool {
        matches!(self.algorithm, Algorithm::SentencePiece(_))
    }

    /// The byte ranges of control token names in `text`.
    pub(crate) fn control_names_in(&self, text: &str) -> Vec<Range<usize>> {
        self.special_texts.control_names_in(self.entries(), text)
    }

    /// The control tokens that `text` yields, except for names that touch one of the `literal` byte ranges.
    pub(crate) fn control_tokens_in(&self, text: &str, literal: &[Range<usize>]) -> Vec<u32> {
        let fragments = self.special_texts.cut(self.entries(), text, true, literal);
        let token = |fragment| if let Fragment::Token(id) = fragment { Some(id) } else { None };
        fragments.into_iter().filter_map(token).filter(|id| self.is_control(*id)).collect()
    }

    /// All characters that occur in control tokens' names, in both cases.
    pub(crate) fn control_letters(&self) -> &BTreeSet<char> {
        self.special_texts.control_letters()
    }

    fn adds_space_prefix(&self) -> bool {
        match &self.algorithm {
            Algorithm::SentencePiece(pieces) => pieces.adds_space_prefix(),
            Algorithm::Unigram(pieces) => pieces.adds_space_prefix(),
            Algorithm::WordPiece(_) => true,
            Algorithm::ByteLevel(_) => false,
        }
    }
}
