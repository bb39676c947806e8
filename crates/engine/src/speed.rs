//! Measures how fast a model runs, as llama-bench does: a prompt of so many tokens, or so many tokens generated from an
//! empty context. The tokens are arbitrary; sampling is not part of what is measured.

use std::time::Instant;

use crate::kv_cache::CachedSequence;
use crate::model::{Advance, Model, ModelError};

/// The most tokens that one step of a prompt computes.
const PROMPT_CHUNK: usize = 512;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedTest {
    /// A prompt of so many tokens is processed.
    Prompt(usize),
    /// So many tokens are generated, one after the other.
    Generation(usize),
}

impl SpeedTest {
    /// Tokens that a run computes.
    pub fn n_tokens(self) -> usize {
        match self {
            SpeedTest::Prompt(n_tokens) | SpeedTest::Generation(n_tokens) => n_tokens,
        }
    }

    /// The short name that llama-bench gives it: `pp512`, `tg128`.
    pub fn name(self) -> String {
        match self {
            SpeedTest::Prompt(n_tokens) => format!("pp{n_tokens}"),
            SpeedTest::Generation(n_tokens) => format!("tg{n_tokens}"),
        }
    }

    /// Runs the test once and returns tokens per second.
    ///
    /// # Errors
    /// When the model's context is too short for it, or the model fails.
    pub fn run(self, model: &mut Model) -> Result<f64, ModelError> {
        let mut sequence = CachedSequence::default();
        let start = Instant::now();
        let result = match self {
            SpeedTest::Prompt(n_tokens) => prompt(model, &mut sequence, n_tokens),
            SpeedTest::Generation(n_tokens) => generation(model, &mut sequence, n_tokens),
        };
        let seconds = start.elapsed().as_secs_f64();
        model.release(sequence);
        result.map(|()| self.n_tokens() as f64 / seconds)
    }
}

fn prompt(model: &mut Model, sequence: &mut CachedSequence, n_tokens: usize) -> Result<(), ModelError> {
    let tokens: Vec<u32> = (0..n_tokens).map(|index| arbitrary_token(model, index)).collect();
    let n_chunks = tokens.len().div_ceil(PROMPT_CHUNK);
    for (index, chunk) in tokens.chunks(PROMPT_CHUNK).enumerate() {
        let logits = if index + 1 == n_chunks { chunk.len() - 1..chunk.len() } else { 0..0 };
        model.advance(&mut [Advance { sequence, tokens: chunk, logits }])?;
    }
    Ok(())
}

fn generation(model: &mut Model, sequence: &mut CachedSequence, n_tokens: usize) -> Result<(), ModelError> {
    for index in 0..n_tokens {
        let tokens = [arbitrary_token(model, index)];
        model.advance(&mut [Advance { sequence, tokens: &tokens, logits: 0..1 }])?;
    }
    Ok(())
}

/// Tokens from all over the vocabulary, the same in every run.
fn arbitrary_token(model: &Model, index: usize) -> u32 {
    (index.wrapping_mul(7919) % model.spec().vocab_size) as u32
}
