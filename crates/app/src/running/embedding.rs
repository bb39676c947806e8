//! The embedding model of a running server, used by another process instead of one of its own.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_protocol::{Embed, EmbedError, TextLength};

use super::embed_request::{EmbedRequest, Embedded, Wanted, failed};
use super::lending::{Lender, embedded, lenders};
use crate::embedder::SharedEmbedder;

/// The maximum number of texts in a request: even a large model embeds this many before the other process counts as
/// stuck.
const MOST_TEXTS: usize = 16;

/// The model of another process, or of this one where no process lends one with the same settings.
pub struct BorrowedEmbedder {
    own: Arc<SharedEmbedder>,
    /// The process that lends one; `None` once it does not.
    lender: Mutex<Option<Arc<Lender>>>,
}

impl BorrowedEmbedder {
    /// Looks for a server of this data folder that is not this process.
    pub fn new(own: Arc<SharedEmbedder>, data_folder: &Path) -> BorrowedEmbedder {
        let other = lenders(data_folder).into_iter().find(|lender| lender.process != std::process::id());
        BorrowedEmbedder { own, lender: Mutex::new(other.map(Arc::new)) }
    }

    /// The answer of another process; `None` if this one has to answer itself.
    fn borrowed(&self, texts: &[&str], wanted: Wanted) -> Option<Embedded> {
        let lender = self.lender().clone()?;
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let answer = embedded(&lender, EmbedRequest { settings: self.own.settings(), texts, wanted });
        let reason = match answer {
            Ok(answer @ (Embedded::Vectors(_) | Embedded::Lengths(_))) => {
                tracing::info!(process = lender.process, "the embedding model of a server is used");
                return Some(answer);
            }
            Ok(Embedded::Differs) => "its model is another one".to_owned(),
            Ok(Embedded::Failed(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(reason, "the server does not embed");
        *self.lender() = None;
        None
    }

    fn lender(&self) -> MutexGuard<'_, Option<Arc<Lender>>> {
        self.lender.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut vectors = Vec::with_capacity(texts.len());
        for some in texts.chunks(MOST_TEXTS) {
            match self.borrowed(some, Wanted::Passages) {
                Some(Embedded::Vectors(borrowed)) if borrowed.len() == some.len() => vectors.extend(borrowed),
                _ => {
                    vectors.extend(self.opened()?.embed(&texts[vectors.len()..])?);
                    break;
                }
            }
        }
        Ok(vectors)
    }

    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
        match self.borrowed(texts, Wanted::Lengths) {
            Some(Embedded::Lengths(lengths)) => Ok(lengths),
            _ => self.opened()?.lengths(texts),
        }
    }

    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        match self.borrowed(&[question], Wanted::Questions) {
            Some(Embedded::Vectors(mut vectors)) if vectors.len() == 1 => Ok(vectors.remove(0)),
            _ => self.opened()?.embed_query(question),
        }
    }
}
