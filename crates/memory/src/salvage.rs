//! Collects recoverable data from every source: memory's log, its backups, its events, and the caller's engrams.
//!
//! The first source that has an engram provides it; the others add its missing parts (a grade, a rating). A forgotten
//! answer is not restored if any source shows that it was forgotten.

use std::collections::{BTreeMap, BTreeSet};

use hone_protocol::{Envelope, Payload, QueryId, RespondentId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::backlog::{DUE, Due};
use crate::backup::Backup;
use crate::engram::{Engram, field, grade_fields, pairwise_fields};
use crate::judged::{after_grading, is_final_comparison, still_due};
use crate::records::{StoredVector, id_of};
use crate::request::Vector;
use crate::storage::log::{LogContent, Record};

/// The source of an engram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In storage itself.
    Storage,
    /// In a backup.
    Backup,
    /// The event log, which has the question and the answer.
    Events,
    /// The caller, for example from saved conversations.
    Elsewhere,
}

/// The recoverable data.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    pub(crate) engrams: BTreeMap<QueryId, (Source, Map<String, Value>)>,
    pub(crate) vectors: BTreeMap<QueryId, Vector>,
    /// Events by their ids, with their numbers.
    pub(crate) events: BTreeMap<String, (u64, Value)>,
    /// Engrams that existed once.
    known: BTreeSet<QueryId>,
    forgotten: BTreeSet<QueryId>,
}

impl Salvage {
    /// Adds the contents of the log.
    pub(crate) fn add_log(&mut self, content: LogContent) {
        self.forgotten.extend(content.removed.iter().filter_map(|key| id_in_key(key, b'e')));
        let mut vectors = Vec::new();
        // The latest value counts.
        for Record { key, value, .. } in content.records.into_iter().rev() {
            let is_kind = |kind: u8| key.as_ref().is_none_or(|key| key.first() == Some(&kind));
            if is_kind(b'e')
                && let Some((id, engram)) = engram_in(&value)
            {
                self.add_engram(id, engram, Source::Storage);
            } else if is_kind(b'x')
                && let Some((id, event)) = event_in(&value)
            {
                let number = key.as_ref().and_then(|key| Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?)));
                self.events.entry(id).or_insert((number.unwrap_or(u64::MAX), event));
            } else if is_kind(b'v')
                && let Ok(vector) = StoredVector::from_bytes(&value)
            {
                vectors.push((key.as_deref().and_then(|key| id_in_key(key, b'v')), vector));
            } else if is_kind(b's') && value.len() == 16 {
                self.known.extend(id_of(&value));
            }
        }
        let by_sequence: BTreeMap<u64, QueryId> =
            self.engrams.iter().map(|(id, (_, engram))| (sequence_in(engram), *id)).collect();
        for (id, StoredVector { sequence, model, values }) in vectors {
            if let Some(id) = id.or_else(|| by_sequence.get(&sequence).copied()) {
                self.known.insert(id);
                self.vectors.entry(id).or_insert(Vector { model, values });
            }
        }
    }

    /// Adds the contents of a backup.
    pub(crate) fn add_backup(&mut self, backup: Backup) {
        for engram in backup.engrams {
            if let Some((id, engram)) = checked(engram) {
                self.add_engram(id, engram, Source::Backup);
            }
        }
        for (number, event) in backup.events {
            if let Some(id) = text(&event, "id") {
                self.events.entry(id).or_insert((number, event));
            }
        }
    }

    /// Adds the contents of the events, once all of them have been found.
    pub(crate) fn add_what_events_say(&mut self) {
        let mut events: Vec<(u64, Envelope)> = self.events.values().filter_map(parsed).collect();
        events.sort_by_key(|(number, event)| (*number, event.at));
        let mut annotations = BTreeMap::new();
        let mut responses = Vec::new();
        for (_, event) in events {
            match &event.payload {
                Payload::ResponseGeneration(response) => match event.query_id {
                    Some(id) if response.query.is_empty() && response.answer.is_empty() => {
                        self.forgotten.insert(id);
                    }
                    Some(_) if response.finish_reason.is_none() && response.answer.trim().is_empty() => {}
                    _ => responses.extend(engram_of(&event)),
                },
                _ => annotate(&mut annotations, &event),
            }
        }
        for (id, engram) in responses {
            self.known.insert(id);
            self.add_engram(id, engram, Source::Events);
        }
        for (id, fields) in annotations {
            if let Some((_, engram)) = self.engrams.get_mut(&id) {
                complete(engram, fields);
                engram.extend(still_due(engram));
            }
        }
    }

    /// Adds an engram, or completes the one that is already there.
    pub(crate) fn add_engram(&mut self, id: QueryId, fields: Map<String, Value>, source: Source) {
        if self.forgotten.contains(&id) {
            return;
        }
        self.known.insert(id);
        match self.engrams.get_mut(&id) {
            Some((_, engram)) => complete(engram, fields),
            None => drop(self.engrams.insert(id, (source, fields))),
        }
    }

    /// Adds an engram that the caller has.
    pub(crate) fn add_from_elsewhere(&mut self, engram: &Engram) {
        if let Some(fields) = fields_of(engram) {
            self.add_engram(engram.query_id, fields, Source::Elsewhere);
        }
    }

    /// Whether an engram with that id existed once.
    pub(crate) fn knows(&self, id: QueryId) -> bool {
        self.known.contains(&id)
    }

    /// Whether storage itself has every engram.
    pub(crate) fn is_all_stored(&self) -> bool {
        self.engrams.values().all(|(source, _)| *source == Source::Storage)
    }

    /// Removes forgotten engrams, and returns the ids of engrams that existed and could not be saved.
    pub(crate) fn settle(&mut self) -> Vec<QueryId> {
        // An answer that was removed and remembered again is in storage; other sources have the removed one.
        self.engrams.retain(|id, (source, _)| *source == Source::Storage || !self.forgotten.contains(id));
        self.vectors.retain(|id, _| self.engrams.contains_key(id));
        let is_lost = |id: &&QueryId| !self.engrams.contains_key(id) && !self.forgotten.contains(id);
        self.known.iter().filter(is_lost).copied().collect()
    }

    /// The engrams in order: first those with a sequence number, then the others by time.
    pub(crate) fn engrams_in_order(&self) -> Vec<(QueryId, &Map<String, Value>)> {
        let mut engrams: Vec<_> = self.engrams.iter().map(|(id, (_, engram))| (*id, engram)).collect();
        engrams.sort_by_key(|(id, engram)| {
            let sequence = Some(sequence_in(engram)).filter(|sequence| *sequence > 0);
            (sequence.unwrap_or(u64::MAX), engram.get("at").and_then(Value::as_u64), *id)
        });
        engrams
    }

    /// The events in order, with unique numbers.
    pub(crate) fn events_in_order(&self) -> Vec<(u64, &Value)> {
        let mut events: Vec<_> = self.events.values().collect();
        events.sort_by_key(|(number, event)| (*number, event.get("at").and_then(Value::as_u64)));
        let mut last = 0;
        let numbered = events.into_iter().map(|(number, event)| {
            last = if *number == u64::MAX { last + 1 } else { (*number).max(last + 1) };
            (last, event)
        });
        numbered.collect()
    }
}

/// Adds the missing fields to an engram. A grade is taken completely or not at all.
fn complete(engram: &mut Map<String, Value>, other: Map<String, Value>) {
    let says_nothing = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    let is_graded = !says_nothing(engram.get("judge"));
    let of_grade = grade_fields(&hone_protocol::Grade::default());
    for (name, value) in other {
        if says_nothing(engram.get(&name)) && !(is_graded && of_grade.contains_key(&name)) {
            engram.insert(name, value);
        }
    }
}

/// The engram described by the event of an answer.
fn engram_of(event: &Envelope) -> Option<(QueryId, Map<String, Value>)> {
    let Payload::ResponseGeneration(response) = &event.payload else { return None };
    let query_id = event.query_id?;
    let engram = Engram {
        at: event.at,
        respondent_id: event.respondent_id.unwrap_or(RespondentId::A),
        correlation_id: event.correlation_id.unwrap_or(query_id),
        owner: event.owner,
        ..Engram::new(query_id, event.session_id, response)
    };
    Some((query_id, fields_of(&engram)?))
}

/// An engram as it is stored, without a sequence number.
fn fields_of(engram: &Engram) -> Option<Map<String, Value>> {
    match serde_json::to_value(engram) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

/// Adds an event's annotations of engrams to those of earlier events.
fn annotate(annotations: &mut BTreeMap<QueryId, Map<String, Value>>, event: &Envelope) {
    match (&event.payload, event.query_id) {
        (Payload::CritiqueResult(critique), Some(id)) => {
            let said = annotations.entry(id).or_default();
            // With a judge, a grade is due until it arrives.
            said.entry(DUE).or_insert_with(|| Due::fresh(false).into_value());
            said.extend(after_grading(said, &critique.grade));
        }
        (Payload::PairwiseResult(comparison), _) if is_final_comparison(None, comparison) => {
            for (id, fields) in pairwise_fields(comparison) {
                annotations.entry(id).or_default().extend(fields);
            }
        }
        (Payload::UserFeedback(feedback), Some(id)) => {
            let rating = serde_json::to_value(feedback.rating).unwrap_or_default();
            annotations.entry(id).or_default().extend(field("user_feedback", rating));
        }
        _ => {}
    }
}

fn parsed((number, event): &(u64, Value)) -> Option<(u64, Envelope)> {
    Some((*number, serde_json::from_value(event.clone()).ok()?))
}

fn engram_in(value: &[u8]) -> Option<(QueryId, Map<String, Value>)> {
    checked(serde_json::from_slice(value).ok()?)
}

/// An engram, if this version can read it.
fn checked(fields: Map<String, Value>) -> Option<(QueryId, Map<String, Value>)> {
    let engram: Engram = serde_json::from_value(Value::Object(fields.clone())).ok()?;
    Some((engram.query_id, fields))
}

fn event_in(value: &[u8]) -> Option<(String, Value)> {
    let event: Value = serde_json::from_slice(value).ok()?;
    event.get("subject")?;
    Some((text(&event, "id")?, event))
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn sequence_in(engram: &Map<String, Value>) -> u64 {
    engram.get("sequence").and_then(Value::as_u64).unwrap_or_default()
}

fn id_in_key(key: &[u8], kind: u8) -> Option<QueryId> {
    let (first, id) = key.split_first()?;
    if *first == kind { id_of(id).ok() } else { None }
}
