//! Research at the gate to long-term memory.

use hone_memory::{Engram, EngramKind};
use hone_protocol::{ContentType, CriticMode, QueryId};

use super::Research;
use super::document::PassagePlace;
use crate::gatekeeping::{Decided, Gatekeeper};
use crate::notes::{ModelWriter, NoteError};
use crate::remembering::Rememberer;

impl Research {
    /// Remembers the answer as an engram linked to the recalled engrams that it cites, and has the gatekeeper decide
    /// about it. Without an answer, nothing is remembered.
    ///
    /// # Errors
    /// When memory fails, or a hard gate cannot ask its critic now; nothing is remembered then.
    pub fn remember(
        &self,
        writer: &ModelWriter<'_>,
        rememberer: &Rememberer,
        gatekeeper: &Gatekeeper<'_>,
    ) -> Result<Option<(Engram, Decided)>, NoteError> {
        let Some(answer) = &self.answer else { return Ok(None) };
        if gatekeeper.mode(ContentType::Research)? == CriticMode::Hard
            && let Some(refusal) = gatekeeper.refusal(ContentType::Research)?
        {
            return Err(NoteError::Refused(refusal));
        }
        let question = self.question.clone();
        let note = writer.note(EngramKind::Research, question, answer, self.timings, self.recalled());
        rememberer.remember(note.clone(), None)?;
        let decided = gatekeeper.decide(&note, ContentType::Research, &self.context())?;
        Ok(Some((note, decided)))
    }

    /// The engrams that the answer cites, without repetitions.
    fn recalled(&self) -> Vec<QueryId> {
        let mut ids = Vec::new();
        for place in self.claims.iter().flat_map(|claim| &claim.citations) {
            if let PassagePlace::Memory { id } = place
                && !ids.contains(id)
            {
                ids.push(*id);
            }
        }
        ids
    }
}
