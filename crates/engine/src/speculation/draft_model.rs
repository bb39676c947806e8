//! A second, smaller model that guesses the first one's next tokens.
//!
//! It must have the same vocabulary. For every request it keeps its own sequence, which it synchronizes with the
//! request on each call: wrong guesses are dropped, and the tokens that replaced them are computed. If it is far behind
//! (a new request's prompt), it catches up over several steps, so that none of them takes long. It can never fail a
//! request: on an error, it guesses nothing.

use std::collections::BTreeMap;

use thiserror::Error;

use super::Guess;
use crate::kv_cache::CachedSequence;
use crate::model::{Advance, Model, ModelError};
use crate::sampler::argmax;
use crate::scheduler::RequestId;
use crate::tokenizer::Tokenizer;

/// Maximum number of tokens that it catches up per step.
const CATCH_UP: usize = 256;

/// A model cannot guess for another one with a different vocabulary.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum VocabularyDiffers {
    #[error("its vocabulary has {ours} tokens and that of the model {theirs}")]
    Size { ours: usize, theirs: usize },
    #[error("token {token} of its vocabulary is {ours:?} and that of the model {theirs:?}")]
    Token { token: u32, ours: String, theirs: String },
}

/// A model that guesses.
pub(crate) struct DraftModel {
    model: Model,
    relative_cost: f32,
    sequences: BTreeMap<RequestId, Behind>,
}

/// A draft model, as it guesses for one request.
pub(crate) struct OfRequest<'a> {
    pub(crate) model: &'a mut DraftModel,
    pub(crate) request: RequestId,
}

impl Guess for OfRequest<'_> {
    fn relative_cost(&self) -> f32 {
        self.model.relative_cost
    }

    fn guess(&mut self, tokens: &[u32], most: usize, drafted: &mut Vec<u32>) {
        self.model.draft(self.request, tokens, most, drafted);
    }
}

/// The computed part of a request.
#[derive(Default)]
struct Behind {
    sequence: CachedSequence,
    tokens: Vec<u32>,
}

impl DraftModel {
    /// Lets `model` guess for a model with the vocabulary of `tokenizer`. A token of `model` takes `relative_cost` of
    /// the time of one of the other model.
    pub(crate) fn new(model: Model, relative_cost: f32, tokenizer: &Tokenizer) -> Result<Self, VocabularyDiffers> {
        check_vocabulary(model.tokenizer(), tokenizer)?;
        Ok(DraftModel { model, relative_cost, sequences: BTreeMap::new() })
    }

    /// Appends up to `most` tokens to `drafted` that may follow the request's `tokens`.
    fn draft(&mut self, request: RequestId, tokens: &[u32], most: usize, drafted: &mut Vec<u32>) {
        if tokens.is_empty() || most == 0 || tokens.len() + most > self.model.context_length() {
            return;
        }
        let mut behind = self.sequences.remove(&request).unwrap_or_default();
        match self.try_draft(&mut behind, tokens, most, drafted) {
            Ok(()) => drop(self.sequences.insert(request, behind)),
            Err(error) => {
                tracing::debug!(%error, "the draft model guesses nothing");
                drafted.clear();
                self.model.release(behind.sequence);
            }
        }
    }

    /// A request is over or paused.
    pub(crate) fn forget(&mut self, request: RequestId) {
        if let Some(behind) = self.sequences.remove(&request) {
            self.model.release(behind.sequence);
        }
    }

    fn try_draft(
        &mut self,
        behind: &mut Behind,
        tokens: &[u32],
        most: usize,
        drafted: &mut Vec<u32>,
    ) -> Result<(), ModelError> {
        // The last token is always computed, because the token after it is wanted.
        let n_common = std::iter::zip(&tokens[..tokens.len() - 1], &behind.tokens).take_while(|(a, b)| a == b).count();
        self.model.truncate(&mut behind.sequence, n_common);
        let n_common = behind.sequence.n_tokens();
        behind.tokens.truncate(n_common);
        let missing = &tokens[n_common..];
        let mut next = self.compute(behind, &missing[..missing.len().min(CATCH_UP)])?;
        if missing.len() > CATCH_UP {
            return Ok(());
        }
        while !self.model.tokenizer().is_end_of_generation(next) {
            drafted.push(next);
            if drafted.len() == most {
                break;
            }
            next = self.compute(behind, &[next])?;
        }
        Ok(())
    }

    /// Appends tokens to a sequence and returns the likeliest next token.
    fn compute(&mut self, behind: &mut Behind, tokens: &[u32]) -> Result<u32, ModelError> {
        let n_tokens = self.model.tokenizer().n_tokens();
        let logits = tokens.len() - 1..tokens.len();
        let logits = self.model.advance(&mut [Advance { sequence: &mut behind.sequence, tokens, logits }])?;
        behind.tokens.extend_from_slice(tokens);
        Ok(logits.rows().next().map_or(0, |row| argmax(&row[..n_tokens])))
    }
}

/// Guesses are token ids, so the same ids must stand for the same tokens.
fn check_vocabulary(ours: &Tokenizer, theirs: &Tokenizer) -> Result<(), VocabularyDiffers> {
    if ours.n_tokens() != theirs.n_tokens() {
        return Err(VocabularyDiffers::Size { ours: ours.n_tokens(), theirs: theirs.n_tokens() });
    }
    let mut tokens = 0..ours.n_tokens() as u32;
    match tokens.find(|token| ours.token_bytes(*token) != theirs.token_bytes(*token)) {
        Some(token) => {
            let text = |tokenizer: &Tokenizer| String::from_utf8_lossy(tokenizer.token_bytes(token)).into_owned();
            Err(VocabularyDiffers::Token { token, ours: text(ours), theirs: text(theirs) })
        }
        None => Ok(()),
    }
}
