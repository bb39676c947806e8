//! Guesses with the model's own head.
//!
//! It continues the request's sequence: its keys and values are in the blocks of the sequence, and a step writes them
//! anew for the tokens that it computes. After wrong guesses, the first tokens of the next step may be missing there;
//! the guesses may then be worse.

use super::Guess;
use crate::kv_cache::CachedSequence;
use crate::model::Model;

/// A model's head, as it guesses for one request.
pub(crate) struct Head<'a> {
    pub(crate) model: &'a mut Model,
    pub(crate) sequence: &'a mut CachedSequence,
    /// The model's output for the last token but one; empty if it has no head.
    pub(crate) hidden: &'a [f32],
}

impl Guess for Head<'_> {
    fn relative_cost(&self) -> f32 {
        self.model.head_cost()
    }

    fn guess(&mut self, tokens: &[u32], most: usize, drafted: &mut Vec<u32>) {
        if let Err(error) = self.model.predict(self.sequence, tokens, self.hidden, most, drafted) {
            tracing::debug!(%error, "the head guesses nothing");
            drafted.clear();
        }
    }
}
