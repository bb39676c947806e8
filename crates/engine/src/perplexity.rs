//! Perplexity of a text, as llama.cpp defines it.
//!
//! The text's tokens are cut into chunks of one context each, without overlap; an incomplete chunk at the end is left
//! out. In each chunk the first half is context only, and every token of the second half except the first is scored. If
//! the model's metadata asks for a BOS token, it replaces every chunk's first token. The perplexity is the exponential
//! of the mean negative log-probability.
//! (<https://github.com/ggml-org/llama.cpp/blob/master/tools/perplexity/perplexity.cpp>)

use thiserror::Error;

use crate::kv_cache::CachedSequence;
use crate::logprobs::log_sum_exp;
use crate::model::{Advance, Model, ModelError};
use crate::tokenizer::{EncodeOptions, TokenizerError};

/// Tokens that are computed at once.
const PIECE_TOKENS: usize = 512;

/// A perplexity, so far or complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// exp(mean negative log-probability).
    pub value: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Tokens that were scored.
    pub n_scored: usize,
    /// Chunks done.
    pub n_chunks: usize,
    /// Chunks in all.
    pub total_chunks: usize,
}

/// Why a perplexity cannot be computed.
#[derive(Debug, Error)]
pub enum PerplexityError {
    /// The context cannot be used.
    #[error("a context of {context} tokens cannot be used: it must be 4 to {limit}, the model's context")]
    Context {
        /// The requested context.
        context: usize,
        /// The model's context.
        limit: usize,
    },
    /// There is too little text.
    #[error("the text has {n_tokens} tokens and one chunk needs {context}: use a longer text or a smaller context")]
    TooShort {
        /// Tokens of the text.
        n_tokens: usize,
        /// Tokens of a chunk.
        context: usize,
    },
    /// The text could not be tokenized.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Sum of negative log-probabilities, and of their squares.
#[derive(Default)]
struct Score {
    sum: f64,
    sum_of_squares: f64,
    count: usize,
}

/// Computes the perplexity of `text` in chunks of `context` tokens; `progress` is called after every chunk.
///
/// # Errors
/// When the context does not suit the model or the text, or the model fails.
pub fn perplexity(
    model: &mut Model,
    text: &str,
    context: usize,
    mut progress: impl FnMut(&Perplexity),
) -> Result<Perplexity, PerplexityError> {
    let limit = model.context_length();
    if context < 4 || context > limit {
        return Err(PerplexityError::Context { context, limit });
    }
    let mut tokens = model.tokenizer().encode(text, EncodeOptions { parse_special: false, add_special: true })?;
    let total_chunks = tokens.len() / context;
    if total_chunks == 0 {
        return Err(PerplexityError::TooShort { n_tokens: tokens.len(), context });
    }
    let first_token = model.tokenizer().bos().filter(|_| model.tokenizer().adds_bos());
    let mut score = Score::default();
    let mut result = score.perplexity(0, total_chunks);
    for (index, chunk) in tokens.chunks_exact_mut(context).enumerate() {
        if let Some(bos) = first_token {
            chunk[0] = bos;
        }
        score_chunk(model, chunk, &mut score)?;
        result = score.perplexity(index + 1, total_chunks);
        progress(&result);
    }
    Ok(result)
}

/// Scores a chunk in pieces, so that the logits of a long context need not all be in memory at once.
fn score_chunk(model: &mut Model, chunk: &[u32], score: &mut Score) -> Result<(), ModelError> {
    let mut sequence = CachedSequence::default();
    let starts = (0..chunk.len()).step_by(PIECE_TOKENS);
    let result = starts.into_iter().try_for_each(|start| score_piece(model, &mut sequence, chunk, start, score));
    model.release(sequence);
    result
}

fn score_piece(
    model: &mut Model,
    sequence: &mut CachedSequence,
    chunk: &[u32],
    start: usize,
    score: &mut Score,
) -> Result<(), ModelError> {
    let end = chunk.len().min(start + PIECE_TOKENS);
    let first_scored = (chunk.len() / 2).clamp(start, end);
    let last_scored = (chunk.len() - 1).clamp(first_scored, end);
    let logits = first_scored - start..last_scored - start;
    let rows = model.advance(&mut [Advance { sequence, tokens: &chunk[start..end], logits }])?;
    for (logits, next) in rows.rows().zip(&chunk[first_scored + 1..]) {
        score.add(f64::from(log_sum_exp(logits) - logits[*next as usize]));
    }
    Ok(())
}

impl Score {
    fn add(&mut self, negative_logprob: f64) {
        self.sum += negative_logprob;
        self.sum_of_squares += negative_logprob * negative_logprob;
        self.count += 1;
    }

    fn perplexity(&self, n_chunks: usize, total_chunks: usize) -> Perplexity {
        let count = self.count.max(1) as f64;
        let mean = self.sum / count;
        let variance = (self.sum_of_squares / count - mean * mean).max(0.0);
        let standard_error = (variance / (count - 1.0).max(1.0)).sqrt() * mean.exp();
        Perplexity { value: mean.exp(), standard_error, n_scored: self.count, n_chunks, total_chunks }
    }
}
