//! The tokens of texts for models with a tokenizer of ours.

use hone_protocol::{TextLength, with_causes};

use crate::tokenizer::{EncodeOptions, Tokenizer};

/// Maximum number of tokens of a text that are used. Such models take more, but passages are shorter, and memory is
/// limited.
pub(super) const MAX_TOKENS: usize = 2048;

/// At most this many tokens of a text, and whether they are only its beginning.
///
/// # Errors
/// When the text has none.
pub(super) fn of_text(tokenizer: &Tokenizer, most: usize, text: &str) -> Result<(Vec<u32>, bool), String> {
    let options = EncodeOptions { parse_special: false, add_special: true };
    let mut tokens = tokenizer.encode(text, options).map_err(|error| with_causes(&error))?;
    let is_cut = tokens.len() > most;
    if is_cut {
        // The token that ends every text ends this one, too.
        let end = tokens.last().copied().filter(|last| tokenizer.is_control(*last));
        tokens.truncate(most - usize::from(end.is_some()));
        tokens.extend(end);
    }
    if tokens.is_empty() {
        tokens.extend(tokenizer.eos().or(tokenizer.bos()));
    }
    match tokens.is_empty() {
        true => Err("an empty text has no tokens".to_owned()),
        false => Ok((tokens, is_cut)),
    }
}

/// How many tokens of each text are used.
///
/// # Errors
/// As for [`of_text`].
pub(super) fn lengths(tokenizer: &Tokenizer, most: usize, texts: &[&str]) -> Result<Vec<TextLength>, String> {
    let length = |text: &&str| {
        of_text(tokenizer, most, text).map(|(tokens, is_cut)| TextLength { tokens: tokens.len(), is_cut })
    };
    texts.iter().map(length).collect()
}
