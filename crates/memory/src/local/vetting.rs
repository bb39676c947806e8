//! Decisions of critics and people about engrams, each in one write.

use hone_protocol::{CriticMode, Envelope, QueryId, Timestamp, VettingState};
use serde_json::{Map, Value};

use super::engrams::missing;
use super::opened::{Draft, Opened};
use crate::error::MemoryError;
use crate::records::{Numbered, OVERRIDE_KEY, damaged, from_json, to_json};
use crate::request::Update;
use crate::vetting::{CritiqueRecord, Ruling, VETTING, Vetting, vetting_in};

/// The result of a decision, and the number of its event; `None` if nothing has changed.
pub(super) type Decided = (Update, Option<u64>);

impl Opened {
    /// Sets the state of an unreviewed engram. An earlier decision stands.
    pub(super) fn vet(&self, id: QueryId, vetting: &Vetting, event: &Envelope) -> Result<Decided, MemoryError> {
        self.write(|draft| {
            let Some(stored) = draft.fields(id)? else { return Ok((missing(id, "what a critic says of it"), None)) };
            let before = vetting_in(&stored)?;
            if before.state != VettingState::Unreviewed || before == *vetting {
                return Ok((Update::Merged, None));
            }
            draft.set_vetting(id, stored, vetting)?;
            draft.add_critique(id, vetting)?;
            Ok((Update::Merged, Some(draft.add_event(event)?)))
        })
    }

    /// Stores a person's ruling on a block: a wrongly blocked engram counts as reviewed.
    pub(super) fn rule(&self, id: QueryId, ruling: Ruling, event: &Envelope) -> Result<Decided, MemoryError> {
        self.write(|draft| {
            let Some(stored) = draft.fields(id)? else { return Ok((missing(id, "what a person says of it"), None)) };
            let before = vetting_in(&stored)?;
            let state = if ruling.is_right { VettingState::Blocked } else { VettingState::Reviewed };
            let vetting = Vetting { state, ruling: Some(ruling), ..before.clone() };
            if vetting == before {
                return Ok((Update::Merged, None));
            }
            draft.set_vetting(id, stored, &vetting)?;
            draft.rule_on_records(id, ruling)?;
            Ok((Update::Merged, Some(draft.add_event(event)?)))
        })
    }

    /// The figures of every critique since then, oldest first.
    pub(super) fn critiques(&self, since: Option<Timestamp>) -> Result<Vec<CritiqueRecord>, MemoryError> {
        let mut found = Vec::new();
        // Latest first, to read no more than necessary; a clock that was set back hides as little as possible.
        for record in self.storage.range_back(all_critiques()) {
            let record: CritiqueRecord = from_json("a critique", &record?.1)?;
            if since.is_some_and(|since| record.at < since) {
                break;
            }
            found.push(record);
        }
        found.reverse();
        Ok(found)
    }

    /// The mode that a person has set for every gate.
    pub(super) fn critic_override(&self) -> Result<Option<CriticMode>, MemoryError> {
        let bytes = self.storage.get(OVERRIDE_KEY)?;
        bytes.map(|bytes| from_json("the critic's override", &bytes)).transpose()
    }

    pub(super) fn set_critic_override(&self, mode: Option<CriticMode>, event: &Envelope) -> Result<u64, MemoryError> {
        self.write(|draft| {
            match mode {
                Some(mode) => draft.batch.insert(OVERRIDE_KEY.to_vec(), to_json("the critic's override", &mode)?),
                None => draft.batch.remove(OVERRIDE_KEY.to_vec()),
            }
            draft.add_event(event)
        })
    }
}

impl Draft<'_> {
    fn set_vetting(
        &mut self,
        id: QueryId,
        mut stored: Map<String, Value>,
        vetting: &Vetting,
    ) -> Result<(), MemoryError> {
        let value = serde_json::to_value(vetting).map_err(|error| damaged("a critique", &error.to_string()))?;
        stored.insert(VETTING.to_owned(), value);
        self.put(id, &stored)
    }

    /// Adds the figures of an engram's critique, if it has one.
    pub(super) fn add_critique(&mut self, id: QueryId, vetting: &Vetting) -> Result<(), MemoryError> {
        let Some(record) = CritiqueRecord::of(id, vetting) else { return Ok(()) };
        self.head.last_critique += 1;
        self.batch.insert(Numbered::Critique.key(self.head.last_critique), to_json("a critique", &record)?);
        Ok(())
    }

    fn rule_on_records(&mut self, id: QueryId, ruling: Ruling) -> Result<(), MemoryError> {
        for record in self.storage.range(all_critiques()) {
            let (key, bytes) = record?;
            let record: CritiqueRecord = from_json("a critique", &bytes)?;
            if record.query_id == id && record.should_block {
                let record = CritiqueRecord { ruling: Some(ruling), ..record };
                self.batch.insert(key, to_json("a critique", &record)?);
            }
        }
        Ok(())
    }
}

fn all_critiques() -> std::ops::RangeInclusive<Vec<u8>> {
    Numbered::Critique.key(0)..=Numbered::Critique.key(u64::MAX)
}
