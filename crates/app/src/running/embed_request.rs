//! Requests for the vectors of texts between processes, on one machine or over a bus.

use hone_protocol::{EmbedError, TextLength};
use serde::{Deserialize, Serialize};

use crate::embedder::SharedEmbedder;

/// A request for the vectors or lengths of texts.
#[derive(Debug, Serialize, Deserialize)]
pub struct EmbedRequest {
    /// The settings of the model that the sender would use itself.
    pub(crate) settings: String,
    pub(crate) texts: Vec<String>,
    pub(crate) wanted: Wanted,
}

/// The kind of answer that is wanted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// The vectors of passages.
    Passages,
    /// The vectors of questions.
    Questions,
    /// The lengths of texts.
    Lengths,
}

impl EmbedRequest {
    /// Answers with a model of this process.
    pub(crate) fn answered_by(&self, embedder: &SharedEmbedder) -> Embedded {
        if self.settings != embedder.settings() && self.settings != embedder.settings_elsewhere() {
            return Embedded::Differs;
        }
        let texts: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        let answered = embedder.open().map_err(|error| failed(embedder, &format!("{error:#}"))).and_then(|embedder| {
            Ok(match self.wanted {
                Wanted::Passages => Embedded::Vectors(embedder.embed(&texts)?),
                Wanted::Questions => {
                    Embedded::Vectors(texts.iter().map(|text| embedder.embed_query(text)).collect::<Result<_, _>>()?)
                }
                Wanted::Lengths => Embedded::Lengths(embedder.lengths(&texts)?),
            })
        });
        answered.unwrap_or_else(Embedded::Failed)
    }
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Embedded {
    Vectors(Vec<Vec<f32>>),
    Lengths(Vec<TextLength>),
    Failed(EmbedError),
    /// The model here is another one, or has other settings.
    Differs,
}

/// An error of this model.
pub(super) fn failed(embedder: &SharedEmbedder, reason: &str) -> EmbedError {
    EmbedError { model: embedder.name().to_owned(), reason: reason.to_owned() }
}
