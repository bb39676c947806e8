//! The embedding model of a running server, used by another process instead of one of its own.

use std::path::PathBuf;
use std::sync::Arc;

use hone_protocol::{Embed, EmbedError, TextLength};

use super::embed_request::{EmbedRequest, Embedded, Wanted, failed};
use super::lending::{embedded, lenders};
use crate::embedder::SharedEmbedder;

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
