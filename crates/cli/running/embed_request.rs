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

/// Answers a request with the model of this process.
pub(super) fn answer(request: &EmbedRequest, embedder: &SharedEmbedder) -> Embedded {
    if request.settings != embedder.settings() {
        return Embedded::Differs;
    }
    let texts: Vec<&str> = request.texts.iter().map(String::as_str).collect();
    let answered = embedder.open().map_err(|error| failed(embedder, &format!("{error:#}"))).and_then(|embedder| {
        Ok(match request.wanted {
            Wanted::Passages => Embedded::Vectors(embedder.embed(&texts)?),
            Wanted::Questions => {
                Embedded::Vectors(texts.iter().map(|text| embedder.embed_query(text)).collect::<Result<_, _>>()?)
            }
            Wanted::Lengths => Embedded::Lengths(embedder.lengths(&texts)?),
        })
    });
    answered.unwrap_or_else(Embedded::Failed)
}

/// An error of this model.
pub(super) fn failed(embedder: &SharedEmbedder, reason: &str) -> EmbedError {
    EmbedError { model: embedder.name().to_owned(), reason: reason.to_owned() }
}
