//! The embedding model of a running server, used by another process instead of one of its own.

use std::path::PathBuf;
use std::sync::Arc;

use hone_protocol::{Embed, EmbedError, TextLength};
use serde::{Deserialize, Serialize};

use super::lending::{embedded, lenders};
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

fn failed(embedder: &SharedEmbedder, reason: &str) -> EmbedError {
    EmbedError { model: embedder.name().to_owned(), reason: reason.to_owned() }
}

/// The model of another process, or of this one where no process lends one with the same settings.
pub(crate) struct BorrowedEmbedder {
    own: Arc<SharedEmbedder>,
    data_folder: PathBuf,
}

impl BorrowedEmbedder {
    /// Asks the servers of this data folder first.
    pub(crate) fn new(own: Arc<SharedEmbedder>, data_folder: PathBuf) -> BorrowedEmbedder {
        BorrowedEmbedder { own, data_folder }
    }

    /// What another process answers; `None` if this one has to answer itself.
    fn borrowed(&self, texts: &[&str], wanted: Wanted) -> Option<Embedded> {
        lenders(&self.data_folder).iter().find_map(|lender| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            let answer = embedded(lender, EmbedRequest { settings: self.own.settings(), texts, wanted });
            let answer = answer.inspect_err(|error| tracing::debug!(%error, "the server does not embed")).ok();
            let answer = answer.filter(|answer| !matches!(answer, Embedded::Differs))?;
            tracing::info!(process = lender.process, "the embedding model of a server is used");
            Some(answer)
        })
    }

    fn opened(&self) -> Result<Arc<dyn Embed>, EmbedError> {
        self.own.open().map_err(|error| failed(&self.own, &format!("{error:#}")))
    }
}

impl Embed for BorrowedEmbedder {
    fn model(&self) -> &str {
        self.own.name()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        match self.borrowed(texts, Wanted::Passages) {
            Some(Embedded::Vectors(vectors)) => Ok(vectors),
            Some(Embedded::Failed(error)) => Err(error),
            _ => self.opened()?.embed(texts),
        }
    }

    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
        match self.borrowed(texts, Wanted::Lengths) {
            Some(Embedded::Lengths(lengths)) => Ok(lengths),
            Some(Embedded::Failed(error)) => Err(error),
            _ => self.opened()?.lengths(texts),
        }
    }

    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        match self.borrowed(&[question], Wanted::Questions) {
            Some(Embedded::Vectors(mut vectors)) if vectors.len() == 1 => Ok(vectors.remove(0)),
            Some(Embedded::Failed(error)) => Err(error),
            _ => self.opened()?.embed_query(question),
        }
    }
}
