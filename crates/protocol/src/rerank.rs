//! How well texts fit a query, read from a model's head.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Scores texts by how well they answer a query: a cross-encoder, or a reward model that reads a question and an answer.
pub trait Rerank: Send + Sync {
    /// The model's name. Scores of different models cannot be compared.
    fn model(&self) -> &str;

    /// What the outputs of the head are called, in their order; empty if the model does not say it.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    fn labels(&self) -> Result<Vec<String>, RerankError>;

    /// How well each text fits the query, in the order of the texts.
    ///
    /// # Errors
    /// When the model cannot be loaded or run, or the query alone is too long for it.
    fn rerank(&self, query: &str, texts: &[&str]) -> Result<Vec<Relevance>, RerankError>;
}

/// How well a text fits a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relevance {
    /// By which texts are ordered: the first output, or the probability of yes where the outputs are yes and no.
    pub score: f32,
    /// The outputs of the head as the model computes them, one for each label.
    pub outputs: Vec<f32>,
    /// The tokens that the model reads, of the query and the text together.
    pub tokens: usize,
    /// Whether the text is longer than what the model reads of it.
    pub is_cut: bool,
}

/// Why there are no scores.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
#[error("cannot rerank with {model:?}: {reason}")]
pub struct RerankError {
    /// The model.
    pub model: String,
    /// What went wrong.
    pub reason: String,
}
