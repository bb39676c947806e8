//! Texts as vectors.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Turns texts into vectors whose cosine measures how similar the texts are in meaning.
pub trait Embed: Send + Sync {
    /// The model's name. Vectors of different models cannot be compared.
    fn model(&self) -> &str;

    /// A vector of length 1 for each text, in the order of the texts, all with the same number of dimensions. If a text
    /// is too long for the model, only its beginning counts.
    ///
    /// # Errors
    /// When the model cannot be loaded or run.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// The length of each text for the model, in the order of the texts.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError>;

    /// The vector of a question for searching texts. Some models are trained to treat questions differently from texts.
    ///
    /// # Errors
    /// When the model cannot be loaded or computed.
    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        let vectors = self.embed(&[question])?;
        let none = || EmbedError { model: self.model().to_owned(), reason: "it gave no vector".to_owned() };
        vectors.into_iter().next().ok_or_else(none)
    }
}

/// The length of a text for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextLength {
    /// The tokens of the text that the model reads.
    pub tokens: usize,
    /// Whether the text is longer than that.
    pub is_cut: bool,
}

/// The error of an embedding.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
#[error("cannot embed with {model:?}: {reason}")]
pub struct EmbedError {
    /// The model.
    pub model: String,
    /// The cause.
    pub reason: String,
}
