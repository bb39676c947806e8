//! What processes say to each other about the vectors of texts.

use hone_protocol::{EmbedError, TextLength};
use serde::{Deserialize, Serialize};

use crate::embedder::SharedEmbedder;

/// What another process wants to know of some texts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EmbedRequest {
    /// The settings of the model that it would use itself.
    pub(super) settings: String,
    pub(super) texts: Vec<String>,
    pub(super) wanted: Wanted,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Wanted {
    /// The vectors of passages.
    Passages,
    /// The vectors of questions.
    Questions,
    /// The lengths.
    Lengths,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Embedded {
    Vectors(Vec<Vec<f32>>),
    Lengths(Vec<TextLength>),
    Failed(EmbedError),
    /// The model here is another one, or differently set.
    Differs,
}

/// An error of this model.
pub(super) fn failed(embedder: &SharedEmbedder, reason: &str) -> EmbedError {
    EmbedError { model: embedder.name().to_owned(), reason: reason.to_owned() }
}
