//! Texts as vectors.

use serde::{Deserialize, Serialize};
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

    /// How long each text is for the model, in the order of the texts.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError>;

    /// The vector of a question that texts are searched with. Some models are trained to be told the one from the
    /// other.
    ///
    /// # Errors
    /// When the model cannot be loaded or computed.
    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        let vectors = self.embed(&[question])?;
        let none = || EmbedError { model: self.model().to_owned(), reason: "it gave no vector".to_owned() };
        vectors.into_iter().next().ok_or_else(none)
    }
}

/// How long a text is for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextLength {
    /// The tokens that the model reads of it.
    pub tokens: usize,
    /// Whether the text is longer than that.
    pub is_cut: bool,
}

/// Why there are no vectors.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
#[error("cannot embed with {model:?}: {reason}")]
pub struct EmbedError {
    /// The model.
    pub model: String,
    /// What went wrong.
    pub reason: String,
}
