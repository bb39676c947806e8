//! How well texts fit a query, read from a model's head.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Scores texts by how well they answer a query: a cross-encoder, or a reward model that reads a question and an answer.
pub trait Rerank: Send + Sync {
    /// The model's name. Scores of different models cannot be compared.
    fn model(&self) -> &str;

    /// The names of the head's outputs, in their order; empty if the model does not say them.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    fn labels(&self) -> Result<Vec<String>, RerankError>;

    /// How well each text fits the query, in the order of the texts; `is_over` says whether nobody wants to know it any more.
    ///
    /// # Errors
    /// When the model cannot be loaded or run, the query alone is too long for it, or it is over.
    fn rerank(&self, query: &str, texts: &[&str], is_over: &dyn Fn() -> bool) -> Result<Vec<Relevance>, RerankError>;
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
pub enum RerankError {
    /// The texts cannot be scored.
    #[error("cannot rerank with {model:?}: {reason}")]
    Request {
        /// The model's name.
        model: String,
        /// The reason.
        reason: String,
    },
    /// The model cannot be loaded or run.
    #[error("cannot rerank with {model:?}: {reason}")]
    Model {
        /// Its name.
        model: String,
        /// The reason.
        reason: String,
    },
    /// Nobody wants to know the scores any more.
    #[error("the reranking was stopped")]
    Stopped,
}
