//! The list of tokens: the purpose of each, and the bytes that it stands for.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::TokenizerError;
use crate::gguf::Gguf;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";

/// The purpose of a token (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TokenKind {
    Normal,
    /// Used for text that no other token fits.
    Unknown,
    /// Steers the model; not recognized in a text unless requested.
    Control,
    /// Recognized in every text before anything else.
    UserDefined,
    /// Has an id but no meaning.
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

/// Names that mark turns in well-known chat formats. Some converters write them as user-defined tokens, which are
/// recognized in every text, or as ordinary ones, which are recognized in none. Here they are control tokens;
/// otherwise, a user could end a turn by typing its name, or no turn would end.
const TURN_MARKERS: [&str; 23] = [
    "<|im_start|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<start_of_turn>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<bos>",
    // gpt-oss
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    // Gemma 4
    "<|turn>",
    "<|think|>",
    "<|channel>",
    "<channel|>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<tool_response|>",
    "<|\"|>",
];

/// Names of control tokens that end the model's turn, whatever the metadata says (as in llama.cpp), unless there are
/// [other ends](NO_TURN_ENDS).
pub(super) const TURN_ENDS: [&str; 22] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
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
    "[e~[",
];

/// Names from [`TURN_ENDS`] that end only a part of the turn if the vocabulary has all of these (gpt-oss; Solar Open),
/// or that are ordinary text (Gemma 4).
pub(super) const NO_TURN_ENDS: [(&str, &[&str]); 3] = [
    ("<|end|>", &["<|return|>", "<|call|>"]),
    ("<|end|>", &["<|flush|>", "<|calls|>"]),
    ("</s>", &["<|tool_response>"]),
];

/// Names that are also found in ordinary texts.
const ALSO_TEXT: [&str; 6] = ["</s>", "<eos>", "<bos>", "[EOS]", "[e~[", "<|\"|>"];

/// Maximum total bytes of all tokens' texts. The largest known vocabularies have three million.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// Maximum bytes of a piece in searches that try every length; pieces of well-known models have up to about fifty.
const MAX_PIECE_BYTES: usize = 256;

/// Concatenated texts.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    /// The end of each text.
    ends: Vec<u32>,
}

impl Texts {
    fn with_capacity(n_texts: usize, n_bytes: usize) -> Self {
        Texts { bytes: Vec::with_capacity(n_bytes), ends: Vec::with_capacity(n_texts) }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The bytes of a text; empty if it does not exist.
    fn get(&self, index: u32) -> &[u8] {
        let index = index as usize;
        let Some(end) = self.ends.get(index) else { return &[] };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..*end as usize]
    }
}

/// Every token as the metadata gives it: its text in the vocabulary's own spelling (`Ġyes`, `▁yes`), and its purpose.
#[derive(Debug)]
pub(super) struct Entries {
    texts: Texts,
    kinds: Vec<TokenKind>,
    /// The ids, looked up by their texts.
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Entries {
    /// Reads the list of tokens.
    pub(super) fn read(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let texts = gguf.each_string(TOKENS)?.ok_or(TokenizerError::Missing { key: TOKENS })?;
        let (n_tokens, n_bytes) = (texts.len(), texts.n_bytes());
        if n_tokens == 0 {
            return Err(TokenizerError::invalid(TOKENS, "has 0 entries"));
        }
        if n_bytes > MAX_TEXT_BYTES {
            let reason = format!("has {n_bytes} bytes of text: the limit is {MAX_TEXT_BYTES}");
            return Err(TokenizerError::invalid(TOKENS, reason));
        }
        let mut entries = Entries {
            texts: Texts::with_capacity(n_tokens, n_bytes),
            kinds: read_kinds(gguf, n_tokens)?,
            ids: HashTable::with_capacity(n_tokens),
            hasher: DefaultHashBuilder::default(),
        };
        for (id, text) in (0u32..).zip(texts) {
            entries.add(id, text?)?;
        }
        Ok(entries)
    }

    fn add(&mut self, id: u32, text: &str) -> Result<(), TokenizerError> {
        let kind = &mut self.kinds[id as usize];
        if text.is_empty() {
            *kind = TokenKind::Unused;
        } else if is_marker(text, *kind) {
            *kind = TokenKind::Control;
        }
        let name = if text.is_empty() { Cow::Owned(format!("[EMPTY_{id}]")) } else { Cow::Borrowed(text) };
        if let Some(first) = self.id_of(&name) {
            let reason = format!("is {name:?}, as {TOKENS}[{first}] is");
            return Err(TokenizerError::invalid(format!("{TOKENS}[{id}]"), reason));
        }
        self.texts.push(name.as_bytes());
        let (texts, hasher) = (&self.texts, &self.hasher);
        self.ids.insert_unique(hasher.hash_one(name.as_bytes()), id, |id| hasher.hash_one(texts.get(*id)));
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Bytes of the longest text.
    pub(super) fn longest(&self) -> usize {
        self.iter().map(|(_, text, _)| text.len()).max().unwrap_or(0)
    }

    /// Bytes of the longest piece in searches that try every length.
    pub(super) fn longest_piece(&self) -> usize {
        self.longest().min(MAX_PIECE_BYTES)
    }

    /// Ids, texts and kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        (0u32..).zip(&self.kinds).map(|(id, kind)| (id, self.text(id), *kind))
    }

    /// A token's text in the vocabulary's own spelling.
    pub(super) fn text(&self, id: u32) -> &str {
        // They were valid UTF-8 when read.
        std::str::from_utf8(self.texts.get(id)).unwrap_or_default()
    }

    /// A token's text as bytes.
    pub(super) fn spelled(&self, id: u32) -> &[u8] {
        self.texts.get(id)
    }

    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    /// The token with a text.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(text.as_bytes());
        self.ids.find(hash, |id| self.texts.get(*id) == text.as_bytes()).copied()
    }
}

/// Whether a token of this kind becomes a control token because of its name. Ordinary tokens do, unless their names
/// also occur in ordinary texts.
fn is_marker(text: &str, kind: TokenKind) -> bool {
    let is_named = TURN_MARKERS.contains(&text) || TURN_ENDS.contains(&text);
    match kind {
        TokenKind::UserDefined => is_named,
        TokenKind::Normal => is_named && !ALSO_TEXT.contains(&text),
        _ => false,
    }
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

/// The spelling of a byte's token.
pub(super) fn byte_token_text(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

fn byte_of_token_text(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The bytes of every token.
#[derive(Debug)]
pub(super) struct Vocabulary {
    entries: Entries,
    bytes: Texts,
}

impl Vocabulary {
    /// Takes the bytes of ordinary tokens from `bytes_of`, which decodes the vocabulary's spelling.
    pub(super) fn new(entries: Entries, bytes_of: impl Fn(&str) -> Vec<u8>) -> Result<Self, TokenizerError> {
        let mut bytes = Texts::with_capacity(entries.len(), entries.texts.bytes.len());
        for (id, text, kind) in entries.iter() {
            match kind {
                TokenKind::Normal => bytes.push(&bytes_of(text)),
                TokenKind::Byte => bytes.push(&[byte_of_token_text(text).ok_or_else(|| {
                    let reason = format!("is {text:?}, which is not a byte: it must look like <0x0A>");
                    TokenizerError::invalid(format!("{TOKENS}[{id}]"), reason)
                })?]),
                TokenKind::Unused => bytes.push(&[]),
                TokenKind::Unknown | TokenKind::Control | TokenKind::UserDefined => bytes.push(text.as_bytes()),
            }
        }
        Ok(Vocabulary { entries, bytes })
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id)
    }
}
