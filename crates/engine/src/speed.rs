//! Measures how fast a model runs, as llama-bench does: a prompt of `n` tokens, or `n` generated tokens, for one
//! sequence or several side by side, from an empty context or at some depth. The tokens are arbitrary; sampling is not
//! measured.

use std::time::Instant;

use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorInfo};
use crate::kv_cache::CachedSequence;
use crate::model::{Advance, Model, ModelError};
use crate::reuse::recycled;

/// The most tokens that one step of a prompt computes.
const PROMPT_CHUNK: usize = 512;

/// A measurement to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedTest {
    /// The work of every sequence.
    pub work: Work,
    /// Tokens that precede the measurement in every sequence; computing them is not measured.
    pub depth: usize,
    /// Sequences side by side; at least one.
    pub batch: usize,
}

/// The work of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A prompt of this many tokens is processed.
    Prompt(usize),
    /// This many tokens are generated, one after the other.
    Generation(usize),
}

impl SpeedTest {
    /// Tokens per sequence that a run computes.
    pub fn n_tokens(&self) -> usize {
        match self.work {
            Work::Prompt(n_tokens) | Work::Generation(n_tokens) => n_tokens,
        }
    }

    /// Positions of a sequence at the end of a run.
    pub fn n_positions(&self) -> usize {
        self.depth + self.n_tokens()
    }

    /// The name llama-bench gives it, extended for batches: `pp512`, `tg64 @ d2048`, `tg32 x8`.
    pub fn name(&self) -> String {
        let work = match self.work {
            Work::Prompt(n_tokens) => format!("pp{n_tokens}"),
            Work::Generation(n_tokens) => format!("tg{n_tokens}"),
        };
        let depth = if self.depth > 0 { format!(" @ d{}", self.depth) } else { String::new() };
        let batch = if self.batch > 1 { format!(" x{}", self.batch) } else { String::new() };
        work + &depth + &batch
    }

    /// Runs the test once unmeasured, which touches weights and allocates buffers, and then `repetitions` times.
    /// Returns the tokens per second of all sequences together, for each run. `progress` is told how many runs are
    /// done.
    ///
    /// # Errors
    /// When the model's context or its cache is too small for it, or the model fails.
    pub fn run(
        &self,
        model: &mut Model,
        repetitions: usize,
        mut progress: impl FnMut(usize),
    ) -> Result<Vec<f64>, ModelError> {
        let mut sequences: Vec<CachedSequence> = (0..self.batch).map(|_| CachedSequence::default()).collect();
        let mut samples = Vec::with_capacity(repetitions);
        let mut run_all = || {
            sequences.iter_mut().try_for_each(|sequence| prompt(model, std::slice::from_mut(sequence), self.depth))?;
            for repetition in 0..=repetitions {
                let seconds = self.run_once(model, &mut sequences)?;
                if repetition > 0 {
                    samples.push((self.batch * self.n_tokens()) as f64 / seconds);
                    progress(repetition);
                }
                sequences.iter_mut().for_each(|sequence| model.truncate(sequence, self.depth));
            }
            Ok(())
        };
        let result = run_all();
        sequences.into_iter().for_each(|sequence| model.release(sequence));
        result.map(|()| samples)
    }

    fn run_once(&self, model: &mut Model, sequences: &mut [CachedSequence]) -> Result<f64, ModelError> {
        let start = Instant::now();
        match self.work {
            Work::Prompt(n_tokens) => prompt(model, sequences, n_tokens)?,
            Work::Generation(n_tokens) => generation(model, sequences, n_tokens)?,
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Bytes of a model's weights read per generated token, so that memory bandwidth limits generation speed: all except
/// tables of which only a row is read, experts that are not chosen, and blocks that predict further tokens.
pub fn bytes_per_token(gguf: &Gguf, spec: &DecoderSpec) -> u64 {
    let bytes = |tensor: &TensorInfo| {
        let n_bytes = tensor.n_bytes as u64;
        let block = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        match (&*tensor.name, spec.experts) {
            ("token_embd.weight", _) if !spec.tied_embeddings => 0,
            ("per_layer_token_embd.weight", _) => 0,
            _ if block.is_some_and(|block| block >= spec.layers.len()) => 0,
            (name, Some(experts)) if name.ends_with("_exps.weight") => {
                n_bytes * experts.n_used as u64 / experts.n_experts as u64
            }
            _ => n_bytes,
        }
    };
    gguf.tensors().map(bytes).sum()
}

/// Appends this many tokens to every sequence, and computes the logits of the last.
fn prompt(model: &mut Model, sequences: &mut [CachedSequence], n_tokens: usize) -> Result<(), ModelError> {
    let tokens: Vec<u32> = (0..n_tokens).map(|index| arbitrary_token(model, index)).collect();
    let chunk_tokens = (PROMPT_CHUNK / sequences.len().max(1)).max(1);
    let n_chunks = tokens.len().div_ceil(chunk_tokens);
    for (index, chunk) in tokens.chunks(chunk_tokens).enumerate() {
        let logits = if index + 1 == n_chunks { chunk.len() - 1..chunk.len() } else { 0..0 };
        let entry = |sequence| Advance { sequence, tokens: chunk, logits: logits.clone() };
        model.advance(&mut sequences.iter_mut().map(entry).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn generation(model: &mut Model, sequences: &mut [CachedSequence], n_tokens: usize) -> Result<(), ModelError> {
    let mut memory: Vec<Advance<'static>> = Vec::new();
    for index in 0..n_tokens {
        let tokens = [arbitrary_token(model, index)];
        let mut entries = recycled(memory);
        entries.extend(sequences.iter_mut().map(|sequence| Advance { sequence, tokens: &tokens, logits: 0..1 }));
        model.advance(&mut entries)?;
        memory = recycled(entries);
    }
    Ok(())
}

/// Tokens from all over the vocabulary, the same in every run.
fn arbitrary_token(model: &Model, index: usize) -> u32 {
    (index.wrapping_mul(7919) % model.spec().vocab_size) as u32
}
