//! How well texts fit a query, read from a model's head.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Scores texts by how well they answer a query: a cross-encoder, or a reward model that reads question and answer.
pub trait Rerank: Send + Sync {
    /// The model's name. Scores of different models cannot be compared.
    fn model(&self) -> &str;

    /// The names of the head's outputs, in their order; empty if the model does not name them.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    fn labels(&self) -> Result<Vec<String>, RerankError>;

    /// How well each text fits the query, in the order of the texts; `is_over` returns true once the scores are no
    /// longer wanted.
    ///
    /// # Errors
    /// When the model cannot be loaded or run, the query alone is too long for it, or `is_over` returns true.
    fn rerank(&self, query: &str, texts: &[&str], is_over: &dyn Fn() -> bool) -> Result<Vec<Relevance>, RerankError>;
}

/// How well a text fits a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relevance {
    /// The sort key: the first output, or the probability of yes if the outputs are yes and no.
    pub score: f32,
    /// The outputs of the head as the model computes them, one for each label.
    pub outputs: Vec<f32>,
    /// The tokens of the query and the text together that the model reads.
    pub tokens: usize,
    /// Whether the model reads only a part of the text.
    pub is_cut: bool,
}

/// The error of a reranking.
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
    /// The scores are no longer wanted.
    #[error("the reranking was stopped")]
    Stopped,
}
