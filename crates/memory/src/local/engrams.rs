//! Engrams: adding, reading, updating, removing, counting and verifying.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread;

use crossbeam_channel::Sender;
use hone_protocol::prospect::{CANCELLED, LATE, NO_WORKER, SESSION_CLOSED, STOPPED};
use hone_protocol::{Comparison, Grade, QueryId, Rating};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::backlog::Holding;
use super::opened::{Draft, Opened};
use crate::backlog::{DUE, Due, Lease};
use crate::engram::{Engram, facts_extracted, field, grade_fields, pairwise_fields};
use crate::error::MemoryError;
use crate::filters::{Filters, Whose};
use crate::index::VectorIndex;
use crate::judged::{after_grading, due_after_comparing, due_in, is_final_comparison};
use crate::outline::{Outline, outline_of};
use crate::records::{
    Head, Numbered, StoredVector, damaged, engram_key, from_json, id_of, keys_of_all, sequence_of, shown, to_json,
    vector_key,
};
use crate::request::{StatedFact, Update, Vector};
use crate::statistics::{Statistics, Verification};
use crate::storage::Pairs;
use crate::vetting::vetting_in;

/// Engrams per batch for another thread.
const RECORDS_PER_BATCH: usize = 512;
/// Batches that may wait for that thread.
const BATCHES_AHEAD: usize = 8;
/// Engrams per read.
const READ_AT_ONCE: usize = 64;
/// The most problems that a verification lists.
const MOST_PROBLEMS: usize = 100;

impl Opened {
    pub(super) fn remember(
        &self,
        engram: &Engram,
        vector: Option<Vector>,
        facts: Option<&[StatedFact]>,
        lease: Option<Lease>,
    ) -> Result<u64, MemoryError> {
        let mut fields = fields_of(engram)?;
        if facts.is_some() {
            fields.extend(facts_extracted());
        }
        self.write(|draft| {
            let sequence = match draft.fields(engram.query_id)? {
                Some(stored) if says_all_of(&stored, &fields) => return sequence_of(&stored),
                Some(_) => return Err(MemoryError::Conflict { id: engram.query_id }),
                None => {
                    vector.iter().try_for_each(|vector| draft.settle_dimensions(vector))?;
                    draft.add(engram.query_id, fields, vector, lease)?
                }
            };
            draft.add_facts(engram, facts.unwrap_or_default())?;
            Ok(sequence)
        })
    }

    pub(super) fn set_vector(&self, id: QueryId, vector: Vector) -> Result<Update, MemoryError> {
        self.write(|draft| match draft.fields(id)? {
            Some(stored) => {
                draft.settle_dimensions(&vector)?;
                draft.set_vector(sequence_of(&stored)?, id, Some(vector))?;
                Ok(Update::Merged)
            }
            None => Ok(missing(id, "its vector")),
        })
    }

    pub(super) fn fields(&self, id: QueryId) -> Result<Option<Map<String, Value>>, MemoryError> {
        let bytes = self.storage.get(&engram_key(id))?;
        bytes.map(|bytes| from_json(&format!("engram {id}"), &bytes)).transpose()
    }

    pub(super) fn get(&self, id: QueryId) -> Result<Option<Engram>, MemoryError> {
        let bytes = self.storage.get(&engram_key(id))?;
        bytes.map(|bytes| from_json(&format!("engram {id}"), &bytes)).transpose()
    }

    pub(super) fn update_score(&self, id: QueryId, grade: &Grade) -> Result<Update, MemoryError> {
        let holding = |due: &Due| match grade.judging.failure.as_deref() {
            // The verdict is still expected. One that is compared, too, is free: the other answer may never be graded.
            Some(LATE) if !due.comparison => Holding::AsBefore,
            Some(CANCELLED | SESSION_CLOSED | STOPPED | LATE | NO_WORKER) => Holding::Free,
            // The grader of an answer compares it next.
            _ if due.comparison => Holding::AsBefore,
            _ => Holding::Free,
        };
        self.write(|draft| draft.merge_judged(id, "its score", holding, |stored| after_grading(stored, grade)))
    }

    pub(super) fn annotate_pairwise(&self, comparison: &Comparison) -> Result<[Update; 2], MemoryError> {
        let [(a, of_a), (b, of_b)] = pairwise_fields(comparison);
        self.write(|draft| {
            let what = "what it was compared with";
            let is_final = is_final_comparison(draft.fields(b)?.as_ref(), comparison);
            let said = |fields: Map<String, Value>| if is_final { fields } else { Map::new() };
            let of_a = said(of_a);
            let updated_a = match of_a.is_empty() {
                true => draft.fields(a)?.map_or(Update::Missing, |_| Update::Merged),
                false => draft.merge(a, of_a, what)?,
            };
            let updated_b = draft.merge_judged(
                b,
                what,
                |_| Holding::Free,
                |stored| {
                    let mut fields = said(of_b);
                    fields.extend(due_after_comparing(stored, comparison));
                    fields
                },
            )?;
            Ok([updated_a, updated_b])
        })
    }

    pub(super) fn annotate_feedback(&self, id: QueryId, rating: Option<Rating>) -> Result<Update, MemoryError> {
        let rating = serde_json::to_value(rating).map_err(|error| damaged("a rating", &error.to_string()))?;
        self.write(|draft| draft.merge(id, field("user_feedback", rating), "what a person thinks of it"))
    }

    pub(super) fn annotate_meaning(
        &self,
        id: QueryId,
        intent: Option<String>,
        entities: Vec<String>,
    ) -> Result<Update, MemoryError> {
        let mut fields = field("intent", intent.into());
        fields.insert("entities".to_owned(), entities.into());
        self.write(|draft| draft.merge(id, fields, "what it is about"))
    }

    /// Removes engrams with their facts and notes; returns the result for each, and the ids of all removed engrams.
    pub(super) fn remove(&self, ids: &[QueryId]) -> Result<(Vec<Update>, Vec<QueryId>), MemoryError> {
        self.write(|draft| {
            let mut removed = Vec::new();
            let updates: Vec<Update> = ids.iter().map(|id| draft.remove(*id)).collect::<Result<_, _>>()?;
            for (id, _) in ids.iter().zip(&updates).filter(|(_, update)| **update == Update::Merged) {
                removed.push(*id);
                removed.extend(draft.remove_facts(*id)?);
            }
            draft.remove_notes(&mut removed)?;
            draft.blank_events(&removed)?;
            Ok((updates, removed))
        })
    }

    /// The latest `n` that the filters accept, latest first.
    pub(super) fn list(&self, filters: &Filters, n: usize) -> Result<Vec<Engram>, MemoryError> {
        let mut found = Vec::new();
        for engram in self.latest_first() {
            if found.len() >= n {
                break;
            }
            found.extend(Some(engram?).filter(|engram| filters.accept(engram)));
        }
        Ok(found)
    }

    /// The first `n` engrams without a vector of `model`, oldest first.
    pub(super) fn without_vector(&self, model: &str, n: usize) -> Result<Vec<Engram>, MemoryError> {
        let (mut found, mut sequences) = (Vec::new(), self.storage.range(all_sequences()));
        while found.len() < n {
            let batch = sequences.by_ref().take(READ_AT_ONCE).collect::<Result<Vec<_>, _>>()?;
            if batch.is_empty() {
                break;
            }
            let ids = batch.iter().map(|(_, id)| id_of(id)).collect::<Result<Vec<_>, _>>()?;
            let lacks = |vector: &Option<StoredVector>| vector.as_ref().is_none_or(|vector| vector.model != model);
            let vectors = self.all_vectors(&ids)?;
            let lacking: Vec<QueryId> =
                ids.into_iter().zip(vectors).filter(|(_, vector)| lacks(vector)).map(|(id, _)| id).collect();
            found.extend(self.get_all(&lacking)?.into_iter().flatten());
        }
        found.truncate(n);
        Ok(found)
    }

    pub(super) fn statistics(&self) -> Result<Statistics, MemoryError> {
        let mut statistics = Statistics {
            storage_bytes: self.storage.n_bytes()?,
            events: self.head()?.last_event,
            ..self.tallies(Whose::Everyones)?
        };
        let mut dimensions: BTreeMap<String, Option<usize>> = BTreeMap::new();
        for record in self.storage.range(keys_of_all(b'v')) {
            let vector = StoredVector::from_bytes(&record?.1)?;
            if !dimensions.contains_key(&vector.model) {
                dimensions.insert(vector.model.clone(), self.dimensions(&vector.model)?);
            }
            if Some(vector.values.len()) == dimensions[&vector.model] {
                *statistics.vectors.entry(vector.model).or_default() += 1;
            }
        }
        if self.storage.database().is_some() {
            statistics.indexed_model = self.indexed_model().to_owned();
            statistics.indexed_vectors = statistics.vectors.get(self.indexed_model()).copied().unwrap_or_default();
            return Ok(statistics);
        }
        self.with_index(None, |index| {
            statistics.indexed_model = index.model().to_owned();
            statistics.indexed_vectors = index.len() as u64;
            statistics.index_memory_bytes = index.memory_bytes();
            statistics.index_file_bytes = index.file_bytes();
            Ok(statistics)
        })
    }

    /// The statistics of an owner's engrams, without those of storage and index.
    pub(super) fn tallies(&self, whose: Whose) -> Result<Statistics, MemoryError> {
        let mut statistics = Statistics::default();
        for engram in self.latest_first() {
            let engram = engram?;
            if whose.includes(engram.owner) {
                statistics.count(&engram);
            }
        }
        statistics.conclude();
        Ok(statistics)
    }

    /// Every answer without its texts, in the order of the ids.
    pub(super) fn outlines(&self, whose: Whose, with_feedback: bool) -> Result<Vec<Outline>, MemoryError> {
        thread::scope(|scope| {
            let (sender, receiver) = crossbeam_channel::bounded::<Vec<Vec<u8>>>(BATCHES_AHEAD);
            let decode = move || {
                let records = receiver.iter().flatten();
                records.filter_map(|bytes| outline_of(&bytes, whose, with_feedback).transpose()).collect()
            };
            // While this thread reads from disk, the other one decodes.
            let decoder = thread::Builder::new().name("hone-outlines".to_owned()).spawn_scoped(scope, decode);
            let decoder = decoder.map_err(|error| damaged("a thread", &error.to_string()))?;
            let read = self.send_engrams(&sender);
            drop(sender);
            let outlines = decoder.join().unwrap_or_else(|panic| resume_unwind(panic));
            read.and(outlines)
        })
    }

    /// Sends every engram as stored, until the receiver is gone.
    fn send_engrams(&self, sender: &Sender<Vec<Vec<u8>>>) -> Result<(), MemoryError> {
        let mut batch = Vec::with_capacity(RECORDS_PER_BATCH);
        for record in self.storage.range(keys_of_all(b'e')) {
            batch.push(record?.1);
            if batch.len() == RECORDS_PER_BATCH
                && sender.send(std::mem::replace(&mut batch, Vec::with_capacity(RECORDS_PER_BATCH))).is_err()
            {
                return Ok(());
            }
        }
        // Without a receiver, the error is the decoder's.
        let _ = sender.send(batch);
        Ok(())
    }

    /// Reads everything and checks its consistency.
    pub(super) fn verify(&self) -> Result<Verification, MemoryError> {
        self.write(|draft| {
            let mut verification = Verification::default();
            self.verify_engrams(&draft.head, &mut verification)?;
            self.verify_vectors(&draft.head, &mut verification)?;
            let n_sequences = self.storage.range(all_sequences()).count() as u64;
            if n_sequences != verification.engrams {
                let problem = format!("{n_sequences} sequence numbers of {} engrams", verification.engrams);
                verification.problems.push(problem);
            }
            self.verify_index(&draft.head, &mut verification)?;
            verification.problems.truncate(MOST_PROBLEMS);
            Ok(verification)
        })
    }

    fn verify_index(&self, head: &Head, verification: &mut Verification) -> Result<(), MemoryError> {
        let (n_indexed, last_change) =
            self.with_index(Some(head), |index| Ok((index.len() as u64, index.last_change())))?;
        verification.indexed = n_indexed;
        if (n_indexed, last_change) != (verification.vectors, head.last_change) {
            let problem = format!("{} of {} vectors are indexed", verification.indexed, verification.vectors);
            verification.problems.push(problem);
        }
        Ok(())
    }

    fn verify_engrams(&self, head: &Head, verification: &mut Verification) -> Result<(), MemoryError> {
        for record in self.storage.range(keys_of_all(b'e')) {
            let (key, bytes) = record?;
            let id = id_of(&key[1..])?;
            verification.engrams += 1;
            let problem = match from_json::<Engram>("it", &bytes) {
                Err(error) => error.to_string(),
                Ok(engram) if engram.query_id != id => "it has another id".to_owned(),
                Ok(engram) if engram.sequence > head.last_engram => "its sequence number is too high".to_owned(),
                Ok(engram) => match self.storage.get(&Numbered::Engram.key(engram.sequence))? {
                    Some(named) if named == id.as_bytes() && self.is_filed(&engram)? => continue,
                    Some(named) if named == id.as_bytes() => "its grade is due, but not in the backlog".to_owned(),
                    _ => "its sequence number refers to another engram".to_owned(),
                },
            };
            verification.problems.push(format!("engram {id}: {problem}"));
        }
        Ok(())
    }

    fn verify_vectors(&self, head: &Head, verification: &mut Verification) -> Result<(), MemoryError> {
        self.with_index(Some(head), |index| self.verify_against(index, verification))
    }

    fn verify_against(&self, index: &VectorIndex, verification: &mut Verification) -> Result<(), MemoryError> {
        let dimensions = self.dimensions(index.model())?;
        for record in self.storage.range(keys_of_all(b'v')) {
            let (key, bytes) = record?;
            let id = id_of(&key[1..])?;
            let vector = StoredVector::from_bytes(&bytes)?;
            let engram = self.get(id)?;
            if engram.is_none_or(|engram| engram.sequence != vector.sequence) {
                verification.problems.push(format!("the vector of engram {id} belongs to another engram"));
            }
            if vector.is_of(index.model(), dimensions) {
                verification.vectors += 1;
                if !index.holds(vector.sequence, &vector.values) {
                    verification.problems.push(format!("the vector of engram {id} is not in the index"));
                }
            }
        }
        Ok(())
    }

    /// Every engram, oldest first. Engrams removed in the meantime are left out.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = Result<Engram, MemoryError>> + '_ {
        self.in_batches(self.storage.range(all_sequences()))
    }

    fn latest_first(&self) -> impl Iterator<Item = Result<Engram, MemoryError>> + '_ {
        self.in_batches(self.storage.range_back(all_sequences()))
    }

    /// The engrams with these sequence numbers, read many at a time.
    fn in_batches<'a>(&'a self, mut sequences: Pairs<'a>) -> impl Iterator<Item = Result<Engram, MemoryError>> + 'a {
        let batches = std::iter::from_fn(move || {
            let batch: Result<Vec<_>, _> = sequences.by_ref().take(READ_AT_ONCE).collect();
            let read = |batch: Vec<(Vec<u8>, Vec<u8>)>| {
                let ids = batch.iter().map(|(_, id)| id_of(id)).collect::<Result<Vec<_>, _>>()?;
                self.get_all(&ids)
            };
            match batch {
                Ok(batch) if batch.is_empty() => None,
                batch => Some(batch.and_then(read)),
            }
        });
        batches.flat_map(|batch| match batch {
            Ok(engrams) => engrams.into_iter().flatten().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        })
    }

    /// The engrams with these ids, in their order.
    pub(super) fn get_all(&self, ids: &[QueryId]) -> Result<Vec<Option<Engram>>, MemoryError> {
        self.read_all(ids)
    }

    /// All fields of the engrams with these ids, in their order.
    pub(super) fn all_fields(&self, ids: &[QueryId]) -> Result<Vec<Option<Map<String, Value>>>, MemoryError> {
        self.read_all(ids)
    }

    fn read_all<T: DeserializeOwned>(&self, ids: &[QueryId]) -> Result<Vec<Option<T>>, MemoryError> {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| engram_key(*id)).collect();
        let read = |(id, bytes): (&QueryId, Option<Vec<u8>>)| {
            bytes.map(|bytes| from_json(&format!("engram {id}"), &bytes)).transpose()
        };
        ids.iter().zip(self.storage.get_all(&keys)?).map(read).collect()
    }

    /// The vectors of the engrams with these ids; `None` also for those not comparable with the others of their models.
    pub(super) fn all_vectors(&self, ids: &[QueryId]) -> Result<Vec<Option<StoredVector>>, MemoryError> {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| vector_key(*id)).collect();
        let mut dimensions: BTreeMap<String, Option<usize>> = BTreeMap::new();
        let mut vectors = Vec::with_capacity(ids.len());
        for bytes in self.storage.get_all(&keys)? {
            let vector = bytes.map(|bytes| StoredVector::from_bytes(&bytes)).transpose()?;
            if let Some(vector) = vector.as_ref().filter(|vector| !dimensions.contains_key(&vector.model)) {
                dimensions.insert(vector.model.clone(), self.dimensions(&vector.model)?);
            }
            let is_comparable = |vector: &StoredVector| dimensions[&vector.model] == Some(vector.values.len());
            vectors.push(vector.filter(is_comparable));
        }
        Ok(vectors)
    }

    /// The vectors of the engrams with these ids, if they are of this model with these dimensions.
    pub(super) fn vectors(
        &self,
        ids: &[QueryId],
        model: &str,
        dimensions: Option<usize>,
    ) -> Result<Vec<Option<StoredVector>>, MemoryError> {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| vector_key(*id)).collect();
        let read = |bytes: Option<Vec<u8>>| {
            let vector = bytes.map(|bytes| StoredVector::from_bytes(&bytes)).transpose()?;
            Ok(vector.filter(|vector| vector.is_of(model, dimensions)))
        };
        self.storage.get_all(&keys)?.into_iter().map(read).collect()
    }
}

impl Draft<'_> {
    pub(super) fn fields(&self, id: QueryId) -> Result<Option<Map<String, Value>>, MemoryError> {
        let bytes = self.storage.get(&engram_key(id))?;
        bytes.map(|bytes| from_json(&format!("engram {id}"), &bytes)).transpose()
    }

    /// Adds a new engram and assigns its sequence number. The holder of the lease claims its pending work.
    pub(super) fn add(
        &mut self,
        id: QueryId,
        mut fields: Map<String, Value>,
        vector: Option<Vector>,
        lease: Option<Lease>,
    ) -> Result<u64, MemoryError> {
        self.head.last_engram += 1;
        let sequence = self.head.last_engram;
        fields.insert("sequence".to_owned(), sequence.into());
        self.put(id, &fields)?;
        self.batch.insert(Numbered::Engram.key(sequence), id.as_bytes().to_vec());
        if due_in(&fields).is_some() {
            self.file(id, &fields, lease.into())?;
        }
        self.add_critique(id, &vetting_in(&fields)?)?;
        self.texts.push((sequence, Some(text_of(&fields))));
        if vector.is_some() {
            self.set_vector(sequence, id, vector)?;
        }
        Ok(sequence)
    }

    /// Sets fields of an engram; all others stay, including those that this version does not know.
    pub(super) fn merge(&mut self, id: QueryId, fields: Map<String, Value>, what: &str) -> Result<Update, MemoryError> {
        let Some(mut stored) = self.fields(id)? else { return Ok(missing(id, what)) };
        let is_news = fields.iter().any(|(name, value)| stored.get(name) != Some(value));
        if is_news {
            stored.extend(fields);
            self.put(id, &stored)?;
        }
        Ok(Update::Merged)
    }

    /// Applies the changes of a judge's verdict to the fields of an engram, and keeps the backlog in step.
    fn merge_judged(
        &mut self,
        id: QueryId,
        what: &str,
        holding: impl FnOnce(&Due) -> Holding,
        changes: impl FnOnce(&Map<String, Value>) -> Map<String, Value>,
    ) -> Result<Update, MemoryError> {
        let Some(mut stored) = self.fields(id)? else { return Ok(missing(id, what)) };
        let fields = changes(&stored);
        let is_about_due = fields.contains_key(DUE);
        if fields.iter().any(|(name, value)| stored.get(name) != Some(value)) {
            stored.extend(fields);
            self.put(id, &stored)?;
        }
        if is_about_due {
            let holding = holding(&due_in(&stored).unwrap_or_default());
            self.file(id, &stored, holding)?;
        }
        Ok(Update::Merged)
    }

    /// Writes all fields of an engram.
    pub(super) fn put(&mut self, id: QueryId, fields: &Map<String, Value>) -> Result<(), MemoryError> {
        self.batch.insert(engram_key(id), to_json("an engram", fields)?);
        Ok(())
    }

    pub(super) fn remove(&mut self, id: QueryId) -> Result<Update, MemoryError> {
        let Some(stored) = self.fields(id)? else { return Ok(Update::Missing) };
        let sequence = sequence_of(&stored)?;
        self.batch.remove(engram_key(id));
        self.batch.remove(Numbered::Engram.key(sequence));
        if due_in(&stored).is_some() {
            self.batch.remove(Numbered::Due.key(sequence));
        }
        self.texts.push((sequence, None));
        if self.storage.get(&vector_key(id))?.is_some() {
            self.set_vector(sequence, id, None)?;
        }
        Ok(Update::Merged)
    }
}

pub(super) fn missing(id: QueryId, what: &str) -> Update {
    tracing::warn!(%id, "the engram does not exist: {what} is not remembered");
    Update::Missing
}

/// The text of an engram for the index of words; empty if this version cannot read it.
fn text_of(fields: &Map<String, Value>) -> String {
    serde_json::from_value(Value::Object(fields.clone())).map_or_else(|_| String::new(), |engram: Engram| engram.text())
}

/// The keys of all engrams by sequence number.
pub(super) fn all_sequences() -> std::ops::RangeInclusive<Vec<u8>> {
    Numbered::Engram.key(0)..=Numbered::Engram.key(u64::MAX)
}

pub(super) fn fields_of(engram: &Engram) -> Result<Map<String, Value>, MemoryError> {
    from_json("an engram", &shown(&to_json("an engram", engram)?)?)
}

/// Whether a remembered engram has all of `fields`. Fields added since then do not count, nor do the pending work and
/// the grade, which change: it is the same answer, remembered again by a process that did not receive the
/// acknowledgement.
fn says_all_of(stored: &Map<String, Value>, fields: &Map<String, Value>) -> bool {
    let says_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let of_grade = grade_fields(&Grade::default());
    fields
        .iter()
        .filter(|(name, value)| {
            *name != "sequence" && *name != DUE && !of_grade.contains_key(*name) && !says_nothing(value)
        })
        .all(|(name, value)| stored.get(name) == Some(value))
}
