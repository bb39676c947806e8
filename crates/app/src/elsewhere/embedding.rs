//! Vectors of an embedding model that only workers have.

use std::sync::Arc;
use std::time::Duration;

use hone_fleet::{Piece, Urgency};
use hone_protocol::{Embed, EmbedError, TextLength};

use super::EMBED;
use super::models::FleetModels;
use crate::embedder::SharedEmbedder;
use crate::running::embed_request::{EmbedRequest, Embedded, Wanted};

/// The most texts of a request: their vectors fit into a message.
const MOST_TEXTS: usize = 16;
/// How long vectors are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The embedding model of workers that has the name of this one, if they have it.
pub(crate) fn embedder_of(models: &Arc<FleetModels>, own: &SharedEmbedder) -> Option<Arc<dyn Embed>> {
    models.has(EMBED, own.name()).then(|| -> Arc<dyn Embed> {
        let (models, name, settings) = (Arc::clone(models), own.name().to_owned(), own.settings_elsewhere());
        Arc::new(FleetEmbedder { models, name, settings })
    })
}

/// An embedding model of workers.
struct FleetEmbedder {
    models: Arc<FleetModels>,
    name: String,
    /// What its vectors depend on.
    settings: String,
}

impl FleetEmbedder {
    fn ask(&self, texts: &[&str], wanted: Wanted) -> Result<Embedded, EmbedError> {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let request = EmbedRequest { settings: self.settings.clone(), texts, wanted };
        let content = serde_json::to_vec(&request).unwrap_or_default();
        let call = self.models.call(EMBED, &self.name, Urgency::Now, content);
        let call = call.map_err(|unsent| self.failed(unsent.to_string()))?;
        match call.pieces().recv_timeout(PATIENCE) {
            Ok(Piece::Part { content, .. }) => match serde_json::from_slice(&content) {
                Ok(Embedded::Failed(error)) => Err(error),
                Ok(Embedded::Differs) => Err(self.failed("the worker's model has other prefixes".to_owned())),
                Ok(embedded) => Ok(embedded),
                Err(error) => Err(self.failed(error.to_string())),
            },
            Ok(Piece::Lost(reason) | Piece::GivenUp(reason)) => Err(self.failed(reason)),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn vectors(&self, texts: &[&str], wanted: Wanted) -> Result<Vec<Vec<f32>>, EmbedError> {
        match self.ask(texts, wanted)? {
            Embedded::Vectors(vectors) if vectors.len() == texts.len() => Ok(vectors),
            _ => Err(self.failed("the worker gave something else".to_owned())),
        }
    }

    fn failed(&self, reason: String) -> EmbedError {
        EmbedError { model: self.name.clone(), reason }
    }
}

impl Embed for FleetEmbedder {
    fn model(&self) -> &str {
        &self.name
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vectors = texts.chunks(MOST_TEXTS).map(|some| self.vectors(some, Wanted::Passages));
        Ok(vectors.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
        match self.ask(texts, Wanted::Lengths)? {
            Embedded::Lengths(lengths) if lengths.len() == texts.len() => Ok(lengths),
            _ => Err(self.failed("the worker gave something else".to_owned())),
        }
    }

    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(self.vectors(&[question], Wanted::Questions)?.concat())
    }
}
