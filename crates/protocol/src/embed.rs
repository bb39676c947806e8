//! Texts as vectors.

use thiserror::Error;

/// Turns texts into vectors whose cosine says how alike the texts are in meaning.
pub trait Embed: Send + Sync {
    /// The model's name. Vectors of different models cannot be compared.
    fn model(&self) -> &str;

    /// A vector of length 1 for each text, in the order of the texts, all with the same number of dimensions. Of a text
    /// that is too long for the model, only the beginning counts.
    ///
    /// # Errors
    /// When the model cannot be loaded or run.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// Why there are no vectors.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot embed with {model:?}: {reason}")]
pub struct EmbedError {
    /// The model.
    pub model: String,
    /// What went wrong.
    pub reason: String,
}
