//! Writing the saved parts of a damaged memory into a new one, and checking a memory that may be intact.

use serde_json::{Map, Value};

use super::Local;
use super::opened::Opened;
use crate::error::MemoryError;
use crate::records::{Numbered, to_json};
use crate::request::Vector;
use crate::salvage::Salvage;
use crate::statistics::{Statistics, Verification};

/// Records per write.
const WRITTEN_AT_ONCE: usize = 64;

impl Local {
    /// The contents of memory, and the result of a consistency check.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn look(&self) -> Result<(Statistics, Verification), MemoryError> {
        self.with_opened(|opened| Ok((opened.statistics()?, opened.verify()?)))
    }

    /// Writes the saved parts into an empty memory; returns the number of vectors.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn restore(&self, salvage: &Salvage) -> Result<u64, MemoryError> {
        self.with_opened(|opened| {
            let mut n_vectors = 0;
            for engrams in salvage.engrams_in_order().chunks(WRITTEN_AT_ONCE) {
                n_vectors += opened.restore_engrams(salvage, engrams)?;
            }
            let events = salvage.events_in_order();
            events.chunks(WRITTEN_AT_ONCE).try_for_each(|events| opened.restore_events(events))?;
            Ok(n_vectors)
        })
    }
}

impl Opened {
    fn restore_engrams(
        &self,
        salvage: &Salvage,
        engrams: &[(hone_protocol::QueryId, &Map<String, Value>)],
    ) -> Result<u64, MemoryError> {
        self.write(|draft| {
            let mut n_vectors = 0;
            for (id, engram) in engrams {
                // A vector whose dimensions differ from earlier ones belongs to an earlier model of the same name.
                let mut fits = |vector: &&Vector| draft.fits(vector).unwrap_or(false);
                let vector = salvage.vectors.get(id).filter(&mut fits).cloned();
                n_vectors += u64::from(vector.is_some());
                draft.add(*id, (*engram).clone(), vector, None)?;
            }
            Ok(n_vectors)
        })
    }

    fn restore_events(&self, events: &[(u64, &Value)]) -> Result<(), MemoryError> {
        self.write(|draft| {
            for (number, event) in events {
                draft.batch.insert(Numbered::Event.key(*number), to_json("an event", event)?);
                draft.head.last_event = draft.head.last_event.max(*number);
            }
            Ok(())
        })
    }
}
