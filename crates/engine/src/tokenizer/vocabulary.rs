//! The list of tokens: what each is for, and the bytes that it stands for.

use std::borrow::Cow;

use tokenizers::models::bpe::Vocab;

use super::TokenizerError;
use crate::gguf::Gguf;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";

/// What a token is for (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Normal,
    /// Stands where nothing else fits.
    Unknown,
    /// Steers the model; never found in a text unless asked for.
    Control,
    /// Found in every text before anything else is looked for.
    UserDefined,
    /// Has an id and no meaning.
    Unused,
    /// One byte, written `<0xXX>`.
    Byte,
}

impl TokenKind {
    fn from_id(id: i64) -> Self {
        match id {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            6 => TokenKind::Byte,
            _ => TokenKind::Unused,
        }
    }
}

/// One token as the metadata gives it.
#[derive(Clone, Debug)]
pub(super) struct Entry<'g> {
    /// In the vocabulary's own spelling (`Ġyes`, `▁yes`).
    pub(super) text: Cow<'g, str>,
    pub(super) kind: TokenKind,
}

/// Names that mark turns in well-known chat formats. Some converters write them as user-defined tokens, which every text
/// may contain; they are control tokens here, or a user could end a turn by typing its name.
const TURN_MARKERS: [&str; 9] = [
    "<|im_start|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<start_of_turn>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<bos>",
];

/// Names of control tokens that end the model's turn, whatever the metadata says (as llama.cpp has it).
pub(super) const TURN_ENDS: [&str; 17] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
];

/// Reads the list of tokens.
pub(super) fn read(gguf: &Gguf) -> Result<Vec<Entry<'_>>, TokenizerError> {
    let texts = gguf.strings(TOKENS)?.ok_or(TokenizerError::Missing { key: TOKENS })?;
    if texts.is_empty() || u32::try_from(texts.len()).is_err() {
        return Err(TokenizerError::invalid(TOKENS, format!("has {} entries", texts.len())));
    }
    let kinds = read_kinds(gguf, texts.len())?;
    Ok(texts.into_iter().zip(kinds).enumerate().map(|(id, (text, kind))| entry(id, text, kind)).collect())
}

fn read_kinds(gguf: &Gguf, n_tokens: usize) -> Result<Vec<TokenKind>, TokenizerError> {
    let Some(types) = gguf.integers(TOKEN_TYPES)? else { return Ok(vec![TokenKind::Normal; n_tokens]) };
    check_length(TOKEN_TYPES, types.len(), n_tokens)?;
    Ok(types.into_iter().map(TokenKind::from_id).collect())
}

/// Checks that a list has an entry for every token.
pub(super) fn check_length(key: &str, length: usize, n_tokens: usize) -> Result<(), TokenizerError> {
    if length == n_tokens {
        return Ok(());
    }
    Err(TokenizerError::invalid(key, format!("has {length} entries where {TOKENS} has {n_tokens}")))
}

fn entry(id: usize, text: &str, kind: TokenKind) -> Entry<'_> {
    match kind {
        _ if text.is_empty() => Entry { text: format!("[EMPTY_{id}]").into(), kind: TokenKind::Unused },
        TokenKind::UserDefined if TURN_MARKERS.contains(&text) || TURN_ENDS.contains(&text) => {
            Entry { text: text.into(), kind: TokenKind::Control }
        }
        _ => Entry { text: text.into(), kind },
    }
}

/// The ids by text.
pub(super) fn ids_by_text(entries: &[Entry<'_>]) -> Result<Vocab, TokenizerError> {
    let mut ids = Vocab::with_capacity(entries.len());
    for (id, entry) in entries.iter().enumerate() {
        if let Some(first) = ids.insert(entry.text.clone().into_owned(), id as u32) {
            let reason = format!("is {:?}, as {TOKENS}[{first}] is", entry.text);
            return Err(TokenizerError::invalid(format!("{TOKENS}[{id}]"), reason));
        }
    }
    Ok(ids)
}

/// How the token of a byte is written.
pub(super) fn byte_token_text(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

fn byte_of_token_text(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The bytes and the kind of every token.
#[derive(Debug)]
pub(super) struct Vocabulary {
    kinds: Vec<TokenKind>,
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<usize>,
}

impl Vocabulary {
    /// Takes the bytes of ordinary tokens from `bytes_of`, which knows the vocabulary's spelling.
    pub(super) fn new(entries: &[Entry<'_>], bytes_of: impl Fn(&str) -> Vec<u8>) -> Result<Self, TokenizerError> {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(entries.len());
        for (id, entry) in entries.iter().enumerate() {
            match entry.kind {
                TokenKind::Normal => bytes.extend(bytes_of(&entry.text)),
                TokenKind::Byte => bytes.push(byte_of_token_text(&entry.text).ok_or_else(|| {
                    let reason = format!("is {:?}, which is no byte: it must look like <0x0A>", entry.text);
                    TokenizerError::invalid(format!("{TOKENS}[{id}]"), reason)
                })?),
                TokenKind::Unused => {}
                TokenKind::Unknown | TokenKind::Control | TokenKind::UserDefined => {
                    bytes.extend_from_slice(entry.text.as_bytes());
                }
            }
            ends.push(bytes.len());
        }
        Ok(Vocabulary { kinds: entries.iter().map(|entry| entry.kind).collect(), bytes, ends })
    }

    pub(super) fn n_tokens(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..*end]
    }
}
