//! Vectors of an embedding model that only workers have.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hone_fleet::{Piece, Urgency};
use hone_protocol::{Embed, EmbedError, TextLength};

use super::EMBED;
use super::models::FleetModels;
use crate::embedder::SharedEmbedder;
use crate::running::embed_request::{EmbedRequest, Embedded, Wanted};

/// The maximum number of texts in a request, and their bytes, so that they and their vectors fit into a message.
const MOST_TEXTS: usize = 8;
const MOST_BYTES: usize = 256 << 10;
/// How long to wait for the vectors of passages, and for that of a question, which delays an answer.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_FOR_QUESTIONS: Duration = Duration::from_secs(4);
/// The maximum number of workers tried for a request.
const MOST_CALLS: usize = 3;
/// The longest pause after workers have failed; a pause is twice as long as the failure took.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The workers' embedding model of the same name, if they have it.
pub(crate) fn embedder_of(models: &Arc<FleetModels>, own: &SharedEmbedder) -> Option<Arc<dyn Embed>> {
    models.has(EMBED, own.name()).then(|| -> Arc<dyn Embed> {
        let (models, name, settings) = (Arc::clone(models), own.name().to_owned(), own.settings_elsewhere());
        Arc::new(FleetEmbedder { models, name, settings, rests_until: Mutex::default() })
    })
}

/// The reason for refusing a faulty worker's answer.
const SOMETHING_ELSE: &str = "the worker gave something else";

/// An embedding model of workers.
struct FleetEmbedder {
    models: Arc<FleetModels>,
    name: String,
    /// Everything that its vectors depend on.
    settings: String,
    /// The end of the pause after a failure; no worker is asked before.
    rests_until: Mutex<Option<Instant>>,
}

impl FleetEmbedder {
    /// Asks a worker, unless one has just failed: an answer must not be delayed in vain.
    fn ask(&self, texts: &[&str], wanted: Wanted) -> Result<Embedded, EmbedError> {
        let rests_until = || self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        if rests_until().is_some_and(|until| Instant::now() < until) {
            return Err(self.failed("workers have just failed to".to_owned()));
        }
        let begun = Instant::now();
        let answered = self.ask_workers(texts, wanted);
        *rests_until() = match &answered {
            Ok(_) => None,
            Err(_) => Some(Instant::now() + (2 * begun.elapsed()).min(LONGEST_REST)),
        };
        answered
    }

    fn ask_workers(&self, texts: &[&str], wanted: Wanted) -> Result<Embedded, EmbedError> {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let patience = match wanted {
            Wanted::Questions => PATIENCE_FOR_QUESTIONS,
            Wanted::Passages | Wanted::Lengths => PATIENCE,
        };
        let request = EmbedRequest { settings: self.settings.clone(), texts, wanted };
        let content = serde_json::to_vec(&request).unwrap_or_default();
        let until = Instant::now() + patience;
        let mut reason = String::new();
        for _ in 0..MOST_CALLS {
            if !self.models.can(EMBED, &self.name) {
                return Err(self.failed("no worker that has it can be reached".to_owned()));
            }
            let call = self.models.call(EMBED, &self.name, Urgency::Now, content.clone());
            let call = call.map_err(|unsent| self.failed(unsent.to_string()))?;
            match call.pieces().recv_deadline(until) {
                Ok(Piece::Part { content, .. }) => return self.read(&content),
                Ok(Piece::Lost(why)) => reason = why,
                Ok(Piece::GivenUp(why)) => return Err(self.failed(why)),
                Err(_) => return Err(self.failed(format!("no worker answers within {} s", patience.as_secs()))),
            }
        }
        Err(self.failed(reason))
    }

    fn read(&self, content: &[u8]) -> Result<Embedded, EmbedError> {
        match serde_json::from_slice(content) {
            Ok(Embedded::Failed(error)) => Err(error),
            Ok(Embedded::Differs) => {
                Err(self.failed("the worker's model has another name or other prefixes".to_owned()))
            }
            Ok(embedded) => Ok(embedded),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn vectors(&self, texts: &[&str], wanted: Wanted) -> Result<Vec<Vec<f32>>, EmbedError> {
        match self.ask(texts, wanted)? {
            Embedded::Vectors(vectors) if vectors.len() == texts.len() => Ok(vectors),
            _ => Err(self.failed(SOMETHING_ELSE.to_owned())),
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
        let vectors = portions(texts).map(|some| self.vectors(some, Wanted::Passages));
        Ok(vectors.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
        let lengths = portions(texts).map(|some| match self.ask(some, Wanted::Lengths)? {
            Embedded::Lengths(lengths) if lengths.len() == some.len() => Ok(lengths),
            _ => Err(self.failed(SOMETHING_ELSE.to_owned())),
        });
        Ok(lengths.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(self.vectors(&[question], Wanted::Questions)?.concat())
    }
}

/// Splits texts into portions that fit into a message.
fn portions<'a, 'b>(mut texts: &'a [&'b str]) -> impl Iterator<Item = &'a [&'b str]> {
    std::iter::from_fn(move || {
        let mut n_bytes = 0;
        let fits = |text: &&&str| {
            n_bytes += text.len();
            n_bytes <= MOST_BYTES
        };
        let n_texts = texts.iter().take(MOST_TEXTS).take_while(fits).count().max(1);
        let (portion, rest) = texts.split_at_checked(n_texts)?;
        texts = rest;
        Some(portion)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_neither_too_many_texts_nor_too_long() {
        let long = "x".repeat(MOST_BYTES);
        let texts: Vec<&str> = [["a"; 10].as_slice(), &[&long, "b"]].concat();
        let sizes: Vec<usize> = portions(&texts).map(<[&str]>::len).collect();
        assert_eq!(sizes, [8, 2, 1, 1]);
        assert_eq!(portions(&[]).count(), 0);
    }
}
