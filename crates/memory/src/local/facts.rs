//! Engrams that depend on others: facts that the user stated, each a separate engram that is added with its exchange
//! and removed with it; and notes, which are removed with their sources.

use hone_protocol::QueryId;

use super::engrams::{fields_of, missing};
use super::opened::{Draft, Opened};
use crate::engram::{Engram, EngramKind, facts_extracted};
use crate::error::MemoryError;
use crate::records::from_json;
use crate::request::{StatedFact, Update};

impl Opened {
    /// Adds the facts of an exchange that was remembered without a search for facts.
    pub(super) fn add_facts(&self, id: QueryId, facts: &[StatedFact]) -> Result<Update, MemoryError> {
        self.write(|draft| {
            let Some(source) = self.get(id)? else { return Ok(missing(id, "what was stated in it")) };
            draft.add_facts(&source, facts)?;
            draft.merge(id, facts_extracted(), "that it was searched for facts")
        })
    }

    /// The first `n` exchanges whose questions were not searched for facts, oldest first.
    pub(super) fn without_facts(&self, n: usize) -> Result<Vec<Engram>, MemoryError> {
        let is_left = |engram: &Engram| engram.kind == EngramKind::Episodic && !engram.facts_extracted;
        let left = self.oldest_first().filter(|engram| engram.as_ref().map_or(true, is_left));
        left.take(n).collect()
    }
}

impl Draft<'_> {
    /// Adds the missing facts.
    pub(super) fn add_facts(&mut self, source: &Engram, facts: &[StatedFact]) -> Result<(), MemoryError> {
        for (number, StatedFact { text, is_update, vector }) in facts.iter().take(Engram::MOST_FACTS).enumerate() {
            let fact = Engram::fact(source, number, text, *is_update);
            if self.fields(fact.query_id)?.is_none() {
                vector.iter().try_for_each(|vector| self.settle_dimensions(vector))?;
                self.add(fact.query_id, fields_of(&fact)?, vector.clone(), None)?;
            }
        }
        Ok(())
    }

    /// Removes the notes made from these engrams, and those made from such notes; adds their ids to `removed`.
    pub(super) fn remove_notes(&mut self, removed: &mut Vec<QueryId>) -> Result<(), MemoryError> {
        let mut notes = Vec::new();
        for record in self.storage.notes() {
            notes.push(from_json::<Engram>("an engram", &record?.1)?);
        }
        loop {
            let is_made_from = |note: &Engram| note.sources.iter().any(|source| removed.contains(source));
            let (made_from, others): (Vec<Engram>, Vec<Engram>) = notes.into_iter().partition(is_made_from);
            if made_from.is_empty() {
                return Ok(());
            }
            for note in made_from {
                self.remove(note.query_id)?;
                removed.push(note.query_id);
            }
            notes = others;
        }
    }

    /// Removes the facts of an exchange, and returns their ids.
    pub(super) fn remove_facts(&mut self, source: QueryId) -> Result<Vec<QueryId>, MemoryError> {
        let mut removed = Vec::new();
        for id in facts_of(source) {
            if self.remove(id)? == Update::Merged {
                removed.push(id);
            }
        }
        Ok(removed)
    }
}

/// These engrams and every fact that could have been stated in them.
pub(super) fn with_facts(ids: &[QueryId]) -> Vec<QueryId> {
    ids.iter().flat_map(|id| std::iter::once(*id).chain(facts_of(*id))).collect()
}

fn facts_of(source: QueryId) -> impl Iterator<Item = QueryId> {
    (0..Engram::MOST_FACTS).map(move |number| Engram::fact_id(source, number))
}
