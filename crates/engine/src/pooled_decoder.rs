//! A decoder whose states represent texts: the residual stream after the last layer, normed as for the logits, of the
//! last token or as the mean of all.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hone_protocol::{ModelFile, with_causes};

use crate::backend::DeviceChoice;
use crate::gguf::Gguf;
use crate::heads::OutputNorm;
use crate::kv_cache::CachedSequence;
use crate::model::{Advance, LoadOptions, Model, ModelError, ModelOptions};
use crate::pooling::Pooling;
use crate::template::TemplateHost;

/// Tokens that are computed at once.
const PIECE_TOKENS: usize = 512;

/// The loaded model.
pub(crate) struct PooledDecoder {
    model: Mutex<Model>,
    norm: OutputNorm,
}

impl PooledDecoder {
    /// Loads the model on the processor, with room for texts of `most_tokens` tokens.
    ///
    /// # Errors
    /// When the file is broken or not supported.
    pub(crate) fn load(file: &ModelFile, most_tokens: usize, templates: &TemplateHost) -> Result<Self, String> {
        let gguf = Gguf::open_region(file).map_err(|error| with_causes(&error))?;
        let options = ModelOptions {
            device: DeviceChoice::Cpu,
            context_length: Some(most_tokens),
            // One for a text, and one for its beginning.
            n_sequences: 2,
            templates: templates.clone(),
            ..ModelOptions::default()
        };
        let load = LoadOptions { states_of_last_layer: true, ..options.into() };
        let model = Model::load(file, load).map_err(|error| with_causes(&error))?;
        let norm = OutputNorm::read(&gguf, model.spec())?;
        Ok(PooledDecoder { model: Mutex::new(model), norm })
    }

    /// Exclusive access to the model.
    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Width of a state.
    pub(crate) fn width(&self) -> usize {
        self.norm.width()
    }

    /// Added to the mean square in norms.
    pub(crate) fn norm_epsilon(&self) -> f32 {
        self.norm.epsilon()
    }

    /// The sum of the states of a text's counted tokens; `begun` holds its first tokens.
    ///
    /// # Errors
    /// When the model fails.
    pub(crate) fn pooled(
        &self,
        model: &mut Model,
        begun: Option<&CachedSequence>,
        tokens: &[u32],
        pooling: Pooling,
    ) -> Result<Vec<f32>, String> {
        let mut sequence = begun.map_or_else(CachedSequence::default, |begun| model.fork(begun));
        let pooled = self.advanced(model, &mut sequence, tokens, pooling);
        model.release(sequence);
        pooled.map_err(|error| with_causes(&error))
    }

    /// A sequence of these tokens, with which texts begin.
    ///
    /// # Errors
    /// When the model fails.
    pub(crate) fn begun(&self, model: &mut Model, tokens: &[u32]) -> Result<CachedSequence, String> {
        let mut sequence = CachedSequence::default();
        for piece in tokens.chunks(PIECE_TOKENS) {
            let entry = Advance { sequence: &mut sequence, tokens: piece, logits: 0..0 };
            if let Err(error) = model.advance(&mut [entry]) {
                model.release(sequence);
                return Err(with_causes(&error));
            }
        }
        Ok(sequence)
    }

    fn advanced(
        &self,
        model: &mut Model,
        sequence: &mut CachedSequence,
        tokens: &[u32],
        pooling: Pooling,
    ) -> Result<Vec<f32>, ModelError> {
        let mut sum = vec![0.0; self.norm.width()];
        let mut n_left = tokens.len();
        for piece in tokens.chunks(PIECE_TOKENS) {
            n_left -= piece.len();
            let logits = counted(pooling, piece.len(), n_left + piece.len() == tokens.len(), n_left == 0);
            let entry = Advance { sequence: &mut *sequence, tokens: piece, logits };
            for row in model.advance(&mut [entry])?.rows_with_states() {
                self.norm.add_normed(row.state, &mut sum);
            }
        }
        Ok(sum)
    }
}

/// The tokens of a piece whose states count.
fn counted(pooling: Pooling, n_tokens: usize, is_first: bool, is_last: bool) -> Range<usize> {
    match pooling {
        Pooling::Mean => 0..n_tokens,
        Pooling::First if is_first => 0..1,
        Pooling::Last if is_last => n_tokens - 1..n_tokens,
        Pooling::First | Pooling::Last => 0..0,
    }
}
