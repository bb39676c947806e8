//! Export and import of engrams as lines.

use std::collections::{BTreeMap, HashSet};

use hone_protocol::QueryId;
use serde_json::{Map, Value};

use super::opened::{Opened, other_dimensions};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::records::{Numbered, StoredVector, damaged, from_json, id_of, number_of, show_zeros, to_json};
use crate::request::{ExportedEngram, Reply, Standing, Vector};

impl Opened {
    /// At most `n` engrams after a sequence number, oldest first, and the last sequence number examined.
    pub(super) fn export(&self, after: u64, n: usize) -> Result<Reply, MemoryError> {
        let (mut ids, mut last) = (Vec::new(), after);
        for record in self.storage.range(Numbered::Engram.key(after + 1)..=Numbered::Engram.key(u64::MAX)).take(n) {
            let (key, value) = record?;
            last = number_of(&key)?;
            ids.push(id_of(&value)?);
        }
        Ok(Reply::Exported { engrams: self.these(&ids)?, last })
    }

    /// The existing ones among these engrams.
    pub(super) fn these(&self, ids: &[QueryId]) -> Result<Vec<ExportedEngram>, MemoryError> {
        let (fields, vectors) = (self.all_fields(ids)?, self.all_vectors(ids)?);
        // Engrams removed in the meantime are left out.
        let exported = |(engram, vector): (Option<Map<String, Value>>, Option<StoredVector>)| {
            let vector = vector.map(|stored| Vector { model: stored.model, values: stored.values });
            Some(ExportedEngram { engram: engram?, vector })
        };
        Ok(fields.into_iter().zip(vectors).filter_map(exported).collect())
    }

    /// The relation of each line to memory.
    pub(super) fn compare(&self, engrams: &[ExportedEngram]) -> Result<Vec<Standing>, MemoryError> {
        Ok(self.standings(engrams)?.into_iter().map(|(_, standing)| standing).collect())
    }

    /// Adds the new ones, in order, and returns their number.
    pub(super) fn import(&self, engrams: &[ExportedEngram]) -> Result<u64, MemoryError> {
        self.write(|draft| {
            let mut n_imported = 0;
            for (exported, (id, standing)) in engrams.iter().zip(self.standings(engrams)?) {
                match standing {
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

    /// At most `n` events after a number, as stored.
    pub(super) fn export_events(&self, after: u64, n: usize) -> Result<Vec<(u64, Value)>, MemoryError> {
        let range = Numbered::Event.key(after + 1)..=Numbered::Event.key(u64::MAX);
        let read = |(key, value): (Vec<u8>, Vec<u8>)| Ok((number_of(&key)?, from_json("an event", &value)?));
        self.storage.range(range).take(n).map(|pair| pair.and_then(read)).collect()
    }

    /// Adds missing events, under their numbers if these are free and higher than all others; returns the number of
    /// added events.
    pub(super) fn import_events(&self, events: &[(u64, Value)]) -> Result<u64, MemoryError> {
        self.write(|draft| {
            let mut known = self.known_events(events)?;
            let mut n_added = 0;
            for (number, event) in events {
                let id = event.get("id").and_then(Value::as_str).unwrap_or_default();
                if known.insert(id.to_owned()) {
                    draft.head.last_event = (*number).max(draft.head.last_event + 1);
                    draft.batch.insert(Numbered::Event.key(draft.head.last_event), to_json("an event", event)?);
                    n_added += 1;
                }
            }
            Ok(n_added)
        })
    }

    /// The ids of the existing ones among these events.
    fn known_events(&self, events: &[(u64, Value)]) -> Result<HashSet<String>, MemoryError> {
        let id_of = |event: &Value| event.get("id").and_then(Value::as_str).map(str::to_owned);
        let ids: Vec<String> = events.iter().filter_map(|(_, event)| id_of(event)).collect();
        if let Some(database) = self.storage.database() {
            return database.known_events(&ids);
        }
        let keys: Vec<Vec<u8>> = events.iter().map(|(number, _)| Numbered::Event.key(*number)).collect();
        let stored = self.storage.get_all(&keys)?;
        let read = |stored: &Vec<u8>| from_json::<Value>("an event", stored).map(|event| id_of(&event));
        let at_their_places: Vec<Option<Option<String>>> =
            stored.iter().map(|stored| stored.as_ref().map(read).transpose()).collect::<Result<_, _>>()?;
        let are_others = at_their_places
            .iter()
            .zip(events)
            .any(|(stored, (_, event))| stored.as_ref().is_some_and(|stored| *stored != id_of(event)));
        if !are_others {
            return Ok(at_their_places.into_iter().flatten().flatten().collect());
        }
        // The log has events of its own, so they may be anywhere.
        let all = self.storage.range(Numbered::Event.key(0)..=Numbered::Event.key(u64::MAX));
        let wanted: HashSet<String> = ids.into_iter().collect();
        let mut known = HashSet::new();
        for pair in all {
            known.extend(id_of(&from_json("an event", &pair?.1)?).filter(|id| wanted.contains(id)));
        }
        Ok(known)
    }

    /// The ids of these engrams, and the relation of each to memory.
    fn standings(&self, engrams: &[ExportedEngram]) -> Result<Vec<(QueryId, Standing)>, MemoryError> {
        let ids = engrams.iter().map(|exported| id_in(&exported.engram)).collect::<Result<Vec<_>, _>>()?;
        let mut dimensions: BTreeMap<&str, Option<usize>> = BTreeMap::new();
        for vector in engrams.iter().filter_map(|exported| exported.vector.as_ref()) {
            if !dimensions.contains_key(vector.model.as_str()) {
                dimensions.insert(&vector.model, self.dimensions(&vector.model)?);
            }
        }
        let standing = |(exported, stored): (&ExportedEngram, Option<Map<String, Value>>)| match stored {
            Some(stored) => standing_beside(&stored, exported),
            None => standing_of_new(exported.vector.as_ref(), &dimensions),
        };
        let standings: Vec<Standing> = engrams.iter().zip(self.all_fields(&ids)?).map(standing).collect();
        Ok(ids.into_iter().zip(standings).collect())
    }
}

/// The relation to memory of an engram whose id exists.
fn standing_beside(stored: &Map<String, Value>, exported: &ExportedEngram) -> Standing {
    // Annotations that were added since the export stay.
    let of = |fields: &Map<String, Value>, name: &str| fields.get(name).cloned().map(show_zeros);
    let is_same = WRITTEN_ONCE.iter().all(|name| of(stored, name) == of(&exported.engram, name));
    if is_same { Standing::AlreadyThere } else { Standing::Refused("another engram has its id".to_owned()) }
}

/// The relation to memory of a new engram; `dimensions` are those of the models' vectors.
fn standing_of_new(vector: Option<&Vector>, dimensions: &BTreeMap<&str, Option<usize>>) -> Standing {
    let known = vector.and_then(|vector| Some((vector, dimensions.get(vector.model.as_str()).copied().flatten()?)));
    match known {
        Some((vector, known)) if known != vector.values.len() => {
            Standing::Refused(other_dimensions(vector, known).to_string())
        }
        _ => Standing::New,
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
/// The reason why it is not valid.
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
