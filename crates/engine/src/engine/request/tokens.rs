//! A request's tokens, and its place in the KV cache.

use std::mem::take;

use crate::kv_cache::CachedSequence;
use crate::model::{Advance, Model};

/// The tokens of a request, and how many of them the cache holds.
pub(super) struct RequestTokens {
    /// Its part of the cache, if any; during a step it is longer than `n_computed` by the tokens being computed.
    sequence: CachedSequence,
    /// The prompt and the answer so far.
    tokens: Vec<u32>,
    /// Number of them in the cache.
    n_computed: usize,
    /// Number of further tokens that the current step computes, including guesses.
    chunk: usize,
    /// Number of guesses at the end, while a step verifies them.
    n_guessed: usize,
}

impl RequestTokens {
    /// Creates the tokens of a prompt, without a place in the cache yet.
    pub(super) fn new(prompt: Vec<u32>) -> Self {
        RequestTokens { sequence: CachedSequence::default(), tokens: prompt, n_computed: 0, chunk: 0, n_guessed: 0 }
    }

    /// The prompt and the answer so far.
    pub(super) fn all(&self) -> &[u32] {
        &self.tokens
    }

    /// The tokens that the cache holds.
    pub(super) fn computed(&self) -> &[u32] {
        &self.tokens[..self.n_computed]
    }

    pub(super) fn n_uncomputed(&self) -> usize {
        self.tokens.len() - self.n_computed
    }

    pub(super) fn sequence(&self) -> &CachedSequence {
        &self.sequence
    }

    pub(super) fn sequence_mut(&mut self) -> &mut CachedSequence {
        &mut self.sequence
    }

    /// Takes a place in the cache, which already holds the first of its tokens.
    pub(super) fn occupy(&mut self, sequence: CachedSequence) {
        self.n_computed = sequence.n_tokens();
        self.sequence = sequence;
    }

    /// Gives up the place: returns the sequence and the tokens that it holds.
    pub(super) fn leave(&mut self, model: &mut Model) -> (CachedSequence, &[u32]) {
        self.undo_step(model);
        let n_computed = take(&mut self.n_computed);
        (take(&mut self.sequence), &self.tokens[..n_computed])
    }

    /// Begins a step that computes `chunk` of the tokens that are not in the cache yet.
    pub(super) fn begin_step(&mut self, chunk: usize) {
        self.chunk = chunk;
    }

    /// Adds guesses of the next tokens to the step.
    pub(super) fn guess(&mut self, guesses: &[u32]) {
        self.tokens.extend_from_slice(guesses);
        self.n_guessed = guesses.len();
        self.chunk += guesses.len();
    }

    /// Whether the step ends with a token to be chosen.
    pub(super) fn wants_logits(&self) -> bool {
        self.n_computed + self.chunk == self.tokens.len()
    }

    /// The step's input for the model.
    pub(super) fn advance(&mut self) -> Advance<'_> {
        let end = self.n_computed + self.chunk;
        let n_rows = if self.wants_logits() { 1 + self.n_guessed } else { 0 };
        let logits = self.chunk - n_rows..self.chunk;
        Advance { sequence: &mut self.sequence, tokens: &self.tokens[self.n_computed..end], logits }
    }

    /// The step is done; its results for guesses do not count yet. Removes the guesses and returns them.
    pub(super) fn finish_step(&mut self) -> Vec<u32> {
        let n_guessed = take(&mut self.n_guessed);
        self.n_computed += take(&mut self.chunk) - n_guessed;
        self.tokens.split_off(self.tokens.len() - n_guessed)
    }

    pub(super) fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// `n_right` guesses were right, and are already computed. An answer's last token is not, even if it was guessed.
    pub(super) fn accept(&mut self, n_right: usize) {
        self.n_computed = (self.n_computed + n_right).min(self.tokens.len() - 1);
    }

    /// Discards the results of an unfinished step and of wrong guesses. A model that keeps states goes back to the last
    /// state before them, and recomputes the tokens accepted since then.
    pub(super) fn undo_step(&mut self, model: &mut Model) {
        model.truncate(&mut self.sequence, self.n_computed);
        self.n_computed = self.n_computed.min(self.sequence.n_tokens());
        self.tokens.truncate(self.tokens.len() - take(&mut self.n_guessed));
        self.chunk = 0;
    }
}
