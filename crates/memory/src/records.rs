//! The keys in storage and their values. In a database, a kind of key is a table, see [`crate::storage`].
//!
//! | key | value |
//! | --- | --- |
//! | `h` | [`Head`] as JSON |
//! | `e` id | an engram as JSON |
//! | `s` sequence | the id of that engram |
//! | `v` id | [`StoredVector`] |
//! | `c` change | [`Change`]: an engram whose vector was added, replaced or removed |
//! | `m` model | the number of dimensions of that embedding model's vectors; any other vectors count as missing |
//! | `x` event | an envelope as JSON |
//! | `d` sequence | the id of an engram with pending work, and the process that works on it, as JSON |
//! | `q` critique | the figures of a critique, as JSON |
//! | `o` | the mode that a person has set for every gate, as JSON |
//! | `t` name | a document, such as a conversation, as JSON |
//! | `i` name | the time of that document's last write, as JSON |
//! | `l` holder | the end of its lease, as JSON |
//!
//! Numbers in keys are 8 bytes, most significant first, so that they sort; in values they are least significant first.

use std::borrow::Cow;

use hone_protocol::{HolderId, QueryId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::MemoryError;

/// The format version of storage.
pub(crate) const FORMAT: u64 = 1;

/// The head's key.
pub(crate) const HEAD_KEY: &[u8] = b"h";

/// The key of the critic's override.
pub(crate) const OVERRIDE_KEY: &[u8] = b"o";

/// The counters. A number is assigned once, and never reused after its record was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The format version of storage.
    pub(crate) format: u64,
    /// The sequence number of the last engram.
    pub(crate) last_engram: u64,
    /// The number of the last change to a vector.
    pub(crate) last_change: u64,
    /// Changes up to this one are no longer recorded: an index on disk includes them.
    pub(crate) forgotten_changes: u64,
    /// The number of the last event.
    pub(crate) last_event: u64,
    /// The number of the last critique.
    #[serde(default)]
    pub(crate) last_critique: u64,
}

impl Default for Head {
    fn default() -> Self {
        Head { format: FORMAT, last_engram: 0, last_change: 0, forgotten_changes: 0, last_event: 0, last_critique: 0 }
    }
}

/// A kind of numbered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbered {
    Engram,
    Change,
    Event,
    /// The pending work of the engram with this sequence number.
    Due,
    Critique,
}

impl Numbered {
    /// The key of the record with this number.
    pub(crate) fn key(self, number: u64) -> Vec<u8> {
        [&[self.kind()], number.to_be_bytes().as_slice()].concat()
    }

    /// The first byte of its keys.
    pub(crate) fn kind(self) -> u8 {
        match self {
            Numbered::Engram => b's',
            Numbered::Change => b'c',
            Numbered::Event => b'x',
            Numbered::Due => b'd',
            Numbered::Critique => b'q',
        }
    }
}

/// The number in the key of a numbered record.
pub(crate) fn number_of(key: &[u8]) -> Result<u64, MemoryError> {
    match key.get(1..).and_then(|number| number.try_into().ok()) {
        Some(number) => Ok(u64::from_be_bytes(number)),
        None => Err(damaged("a key", "it has no number")),
    }
}

/// The key of an engram.
pub(crate) fn engram_key(id: QueryId) -> Vec<u8> {
    [b"e", id.as_bytes().as_slice()].concat()
}

/// The key of an engram's vector.
pub(crate) fn vector_key(id: QueryId) -> Vec<u8> {
    [b"v", id.as_bytes().as_slice()].concat()
}

/// The key of the lease of a process.
pub(crate) fn lease_key(holder: HolderId) -> Vec<u8> {
    [b"l", holder.as_bytes().as_slice()].concat()
}

/// The key of an embedding model's dimensions.
pub(crate) fn model_key(model: &str) -> Vec<u8> {
    [b"m", model.as_bytes()].concat()
}

/// The key of a document's content.
pub(crate) fn document_key(name: &str) -> Vec<u8> {
    [b"t", name.as_bytes()].concat()
}

/// The key of a document's list entry.
pub(crate) fn listed_key(name: &str) -> Vec<u8> {
    [b"i", name.as_bytes()].concat()
}

/// The keys of every vector, or every engram, in order.
pub(crate) fn keys_of_all(kind: u8) -> std::ops::Range<Vec<u8>> {
    vec![kind]..vec![kind + 1]
}

/// Converts 16 bytes to an id.
pub(crate) fn id_of(bytes: &[u8]) -> Result<QueryId, MemoryError> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| damaged("an id", "it is not 16 bytes long"))?;
    Ok(QueryId::from_bits(u128::from_be_bytes(bytes)))
}

/// An engram's vector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredVector {
    /// The engram's sequence number.
    pub(crate) sequence: u64,
    /// The embedding model.
    pub(crate) model: String,
    /// The vector, of length 1.
    pub(crate) values: Vec<f32>,
}

impl StoredVector {
    /// Whether it can be compared with others of its model, which have these dimensions.
    pub(crate) fn is_of(&self, model: &str, dimensions: Option<usize>) -> bool {
        self.model == model && Some(self.values.len()) == dimensions
    }

    /// The bytes: sequence (8), length of the model's name (4), name, values as 32-bit floats.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + self.model.len() + 4 * self.values.len());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend((self.model.len() as u32).to_le_bytes());
        bytes.extend(self.model.as_bytes());
        bytes.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    /// Parses the output of [`StoredVector::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<StoredVector, MemoryError> {
        let read = || {
            let (sequence, rest) = bytes.split_first_chunk::<8>()?;
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let (model, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            let (values, remainder) = rest.as_chunks::<4>();
            let values = values.iter().map(|value| f32::from_le_bytes(*value)).collect();
            let model = String::from_utf8(model.to_vec()).ok()?;
            remainder.is_empty().then_some(StoredVector { sequence: u64::from_le_bytes(*sequence), model, values })
        };
        read().ok_or_else(|| damaged("a vector", "its length is wrong"))
    }
}

/// An engram whose vector was added, replaced or removed; the current vector is stored with the engram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The engram's sequence number.
    pub(crate) sequence: u64,
    /// The engram's id.
    pub(crate) id: QueryId,
}

impl Change {
    /// The bytes: sequence (8), id (16).
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.sequence.to_le_bytes().as_slice(), self.id.as_bytes()].concat()
    }

    /// Parses the output of [`Change::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Change, MemoryError> {
        let (sequence, id) = bytes.split_first_chunk::<8>().ok_or_else(|| damaged("a change", "it is too short"))?;
        Ok(Change { sequence: u64::from_le_bytes(*sequence), id: id_of(id)? })
    }
}

/// The sequence number in an engram's fields.
pub(crate) fn sequence_of(fields: &Map<String, Value>) -> Result<u64, MemoryError> {
    let sequence = fields.get("sequence").and_then(Value::as_u64);
    sequence.ok_or_else(|| damaged("an engram", "it has no sequence number"))
}

/// Parses a JSON record.
pub(crate) fn from_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, MemoryError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(what, &error.to_string()))
}

/// Serializes a JSON record.
pub(crate) fn to_json<T: Serialize>(what: &str, record: &T) -> Result<Vec<u8>, MemoryError> {
    serde_json::to_vec(record).map_err(|error| damaged(what, &error.to_string()))
}

/// A record of JSON without the character 0, which a database cannot keep: its visible symbol replaces it, so that a
/// record is the same in every kind of storage.
pub(crate) fn shown(bytes: &[u8]) -> Result<Cow<'_, [u8]>, MemoryError> {
    // Most records are not parsed for this.
    if !bytes.windows(ZERO.len()).any(|part| part == ZERO) {
        return Ok(Cow::Borrowed(bytes));
    }
    let value = show_zeros(from_json("a record", bytes)?);
    to_json("a record", &value).map(Cow::Owned)
}

/// The character 0 in JSON.
const ZERO: &[u8] = b"\\u0000";

pub(crate) fn show_zeros(value: Value) -> Value {
    let shown = |text: String| if text.contains('\0') { text.replace('\0', "\u{2400}") } else { text };
    match value {
        Value::String(text) => Value::String(shown(text)),
        Value::Array(items) => Value::Array(items.into_iter().map(show_zeros).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (shown(name), show_zeros(value))).collect())
        }
        other => other,
    }
}

/// The error for a record that cannot be read or written.
pub(crate) fn damaged(record: &str, reason: &str) -> MemoryError {
    MemoryError::Damaged { record: record.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_a_database_refuses_is_shown() {
        let shown = |bytes: &[u8]| String::from_utf8(shown(bytes).unwrap().into_owned()).unwrap();
        assert_eq!(shown(br#"{"a\u0000": "b\u0000c", "d": ["\\u0000"]}"#), r#"{"a␀":"b␀c","d":["\\u0000"]}"#);
        assert_eq!(shown(br#"{"a":  1.0}"#), r#"{"a":  1.0}"#);
    }
}
