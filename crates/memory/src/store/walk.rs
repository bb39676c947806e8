//! Engrams with their vectors, a few at a time.

use hone_protocol::QueryId;
use serde_json::Value;

use super::{MemoryStore, unexpected};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::records::damaged;
use crate::request::{ExportedEngram, Reply, Request};

/// An engram, and its vector by the current embedding model if it has one.
pub type WithVector = (Engram, Option<Vec<f32>>);

impl MemoryStore {
    /// At most `n` engrams of every kind after a sequence number, oldest first, and the number from which to continue;
    /// `None` once there are no more.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn walk(&self, after: u64, n: usize) -> Result<(Vec<WithVector>, Option<u64>), MemoryError> {
        let (engrams, last) =
            expect!(self.ask(Request::Export { after, n }), Reply::Exported { engrams, last } => (engrams, last))?;
        Ok((self.with_vectors(engrams)?, Some(last).filter(|last| *last > after)))
    }

    /// The existing ones among these engrams, in this order.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn these(&self, ids: &[QueryId]) -> Result<Vec<WithVector>, MemoryError> {
        let request = Request::These { ids: ids.to_vec() };
        let engrams = expect!(self.ask(request), Reply::Exported { engrams, .. } => engrams)?;
        self.with_vectors(engrams)
    }

    fn with_vectors(&self, engrams: Vec<ExportedEngram>) -> Result<Vec<WithVector>, MemoryError> {
        let read = |ExportedEngram { engram, vector }: ExportedEngram| {
            let engram: Engram = serde_json::from_value(Value::Object(engram))
                .map_err(|error| damaged("an engram", &error.to_string()))?;
            let vector = vector.filter(|vector| vector.model == *self.embedding_model).map(|vector| vector.values);
            Ok((engram, vector))
        };
        engrams.into_iter().map(read).collect()
    }
}
