//! Export and import of engrams as lines.

use hone_protocol::QueryId;
use serde_json::{Map, Value};

use super::opened::{Opened, other_dimensions};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::records::{Numbered, damaged, id_of, number_of};
use crate::request::{ExportedEngram, Reply, Standing, Vector};

impl Opened {
    /// At most `n` engrams after a sequence number, oldest first, and the last sequence number examined.
    pub(super) fn export(&self, after: u64, n: usize) -> Result<Reply, MemoryError> {
        let (mut engrams, mut last) = (Vec::new(), after);
        for record in self.storage.range(Numbered::Engram.key(after + 1)..=Numbered::Engram.key(u64::MAX)).take(n) {
            let (key, value) = record?;
            last = number_of(&key)?;
            let id = id_of(&value)?;
            // Engrams that are removed meanwhile are left out.
            engrams.extend(self.exported(id)?);
        }
        Ok(Reply::Exported { engrams, last })
    }

    /// Those of these engrams that are there.
    pub(super) fn these(&self, ids: &[QueryId]) -> Result<Vec<ExportedEngram>, MemoryError> {
        ids.iter().filter_map(|id| self.exported(*id).transpose()).collect()
    }

    fn exported(&self, id: QueryId) -> Result<Option<ExportedEngram>, MemoryError> {
        let Some(engram) = self.fields(id)? else { return Ok(None) };
        let vector = self.vector(id)?.map(|stored| Vector { model: stored.model, values: stored.values });
        Ok(Some(ExportedEngram { engram, vector }))
    }

    /// How each of the lines relates to what is remembered.
    pub(super) fn compare(&self, engrams: &[ExportedEngram]) -> Result<Vec<Standing>, MemoryError> {
        engrams.iter().map(|exported| self.standing(id_in(&exported.engram)?, exported)).collect()
    }

    /// Adds the new ones, in order, and returns how many there were.
    pub(super) fn import(&self, engrams: &[ExportedEngram]) -> Result<u64, MemoryError> {
        self.write(|draft| {
            let mut n_imported = 0;
            for exported in engrams {
                let id = id_in(&exported.engram)?;
                match self.standing(id, exported)? {
                    Standing::AlreadyThere => {}
                    Standing::Refused(_) => return Err(MemoryError::Conflict { id }),
                    Standing::New => {
                        draft.add(id, exported.engram.clone(), exported.vector.clone(), None)?;
                        n_imported += 1;
                    }
                }
            }
            Ok(n_imported)
        })
    }

    fn standing(&self, id: QueryId, exported: &ExportedEngram) -> Result<Standing, MemoryError> {
        let Some(stored) = self.fields(id)? else { return self.standing_of_new(exported.vector.as_ref()) };
        // Annotations that were added since the export stay.
        let is_same = WRITTEN_ONCE.iter().all(|name| stored.get(*name) == exported.engram.get(*name));
        let other = "another engram has its id";
        Ok(if is_same { Standing::AlreadyThere } else { Standing::Refused(other.to_owned()) })
    }

    fn standing_of_new(&self, vector: Option<&Vector>) -> Result<Standing, MemoryError> {
        let Some(vector) = vector else { return Ok(Standing::New) };
        match self.dimensions(&vector.model)?.filter(|known| *known != vector.values.len()) {
            None => Ok(Standing::New),
            Some(known) => Ok(Standing::Refused(other_dimensions(vector, known).to_string())),
        }
    }
}

/// Fields of an engram that never change.
const WRITTEN_ONCE: [&str; 7] = ["query", "answer", "at", "session_id", "respondent_id", "model", "correlation_id"];

/// The id in an engram's fields.
fn id_in(fields: &Map<String, Value>) -> Result<QueryId, MemoryError> {
    let id = fields.get("query_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
    id.ok_or_else(|| damaged("an engram", "it has no query_id"))
}

/// Reads a line of an export, and checks that it can be imported.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_line(line: &str) -> Result<(QueryId, ExportedEngram), String> {
    let exported: ExportedEngram = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let engram: Engram =
        serde_json::from_value(Value::Object(exported.engram.clone())).map_err(|error| error.to_string())?;
    if engram.score().is_some_and(|score| !(1..=5).contains(&score)) {
        return Err("its critic_score is not 1 to 5".to_owned());
    }
    let vector = exported.vector.map(Vector::normalized).transpose().map_err(|error| error.to_string())?;
    Ok((engram.query_id, ExportedEngram { vector, ..exported }))
}
