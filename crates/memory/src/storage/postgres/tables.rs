//! The table of each kind of key, and the representation of its keys and values.

use std::ops::Bound;

use hone_protocol::{QueryId, hexadecimal};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::super::KeyRange;
use crate::error::MemoryError;
use crate::records::{Change, StoredVector, damaged};

/// A table, in which a row is a record.
pub(super) struct Table {
    /// The first byte of the keys.
    pub(super) kind: u8,
    pub(super) name: &'static str,
    /// The column of the key, and its type.
    pub(super) key: &'static str,
    pub(super) key_type: &'static str,
    /// The column of the value, if it is JSON.
    pub(super) column: &'static str,
    /// The selected columns for [`Table::value`].
    pub(super) columns: &'static str,
    /// A record's value.
    pub(super) value: fn(&PgRow) -> sqlx::Result<Vec<u8>>,
}

/// The name of a value without a number or an id.
const ONLY: &str = "critic_override";

const TABLES: [Table; 13] = [
    json(b'h', "hone.heads", "'head'", "text", "head", "head::text AS value"),
    json(b'e', "hone.engrams", "id", "uuid", "fields", "fields::text AS value"),
    Table {
        kind: b's',
        name: "hone.engrams",
        key: "sequence",
        key_type: "bigint",
        column: "id",
        columns: "id::text AS value",
        value: id_in,
    },
    Table {
        kind: b'v',
        name: "hone.vectors",
        key: "id",
        key_type: "uuid",
        column: "model",
        columns: "sequence, model, \"values\"",
        value: vector_in,
    },
    Table {
        kind: b'c',
        name: "hone.changes",
        key: "number",
        key_type: "bigint",
        column: "id",
        columns: "sequence, id::text AS id",
        value: change_in,
    },
    json(b'm', "hone.models", "model", "text", "dimensions", "dimensions::text AS value"),
    json(b'x', "hone.events", "number", "bigint", "event", "event::text AS value"),
    json(b'd', "hone.due", "sequence", "bigint", "filed", "filed::text AS value"),
    json(b'q', "hone.critiques", "number", "bigint", "critique", "critique::text AS value"),
    json(b'o', "hone.settings", "name", "text", "value", "value::text AS value"),
    json(b't', "hone.documents", "name", "text", "content", "content::text AS value"),
    json(b'i', "hone.document_times", "name", "text", "written", "written::text AS value"),
    json(b'l', "hone.leases", "holder", "uuid", "term", "term::text AS value"),
];

const fn json(
    kind: u8,
    name: &'static str,
    key: &'static str,
    key_type: &'static str,
    column: &'static str,
    columns: &'static str,
) -> Table {
    Table { kind, name, key, key_type, column, columns, value: json_in }
}

/// The table of the records with this key.
pub(super) fn of_key(key: &[u8]) -> Result<&'static Table, MemoryError> {
    let table = key.first().and_then(|kind| TABLES.iter().find(|table| table.kind == *kind));
    table.ok_or_else(|| damaged("a key", "it is of no known kind"))
}

/// The table of the records in this range.
pub(super) fn of_range(range: &KeyRange) -> Result<&'static Table, MemoryError> {
    match &range.low {
        Bound::Included(key) | Bound::Excluded(key) => of_key(key),
        Bound::Unbounded => Err(damaged("a range of keys", "it has no beginning")),
    }
}

/// The text of a key in its column.
pub(super) fn text_of(table: &Table, key: &[u8]) -> Result<String, MemoryError> {
    let rest = &key[1.min(key.len())..];
    match (table.kind, table.key_type) {
        // Each role has one row.
        (b'h', _) => Ok("head".to_owned()),
        (b'o', _) => Ok(ONLY.to_owned()),
        (_, "uuid") => Ok(hexadecimal(rest)),
        (_, "bigint") => {
            let number = rest.try_into().map(u64::from_be_bytes).map_err(|_| damaged("a key", "it has no number"))?;
            Ok(i64::try_from(number).unwrap_or(i64::MAX).to_string())
        }
        _ => String::from_utf8(rest.to_vec()).map_err(|error| damaged("a key", &error.to_string())),
    }
}

/// The key for a text in its column.
pub(super) fn key_of(table: &Table, text: &str) -> Result<Vec<u8>, MemoryError> {
    let rest = match (table.kind, table.key_type) {
        (b'h' | b'o', _) => Vec::new(),
        (_, "uuid") => id_from(text)?.as_bytes().to_vec(),
        (_, "bigint") => {
            let number: u64 = text.parse().map_err(|_| damaged("a key", "it is not a number"))?;
            number.to_be_bytes().to_vec()
        }
        _ => text.as_bytes().to_vec(),
    };
    Ok([&[table.kind], rest.as_slice()].concat())
}

fn id_from(text: &str) -> Result<QueryId, MemoryError> {
    text.parse().map_err(|_| damaged("a key", "it is not an id"))
}

fn json_in(row: &PgRow) -> sqlx::Result<Vec<u8>> {
    row.try_get("value").map(String::into_bytes)
}

fn id_in(row: &PgRow) -> sqlx::Result<Vec<u8>> {
    let id: String = row.try_get("value")?;
    let id = id_from(&id).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(id.as_bytes().to_vec())
}

fn vector_in(row: &PgRow) -> sqlx::Result<Vec<u8>> {
    let (sequence, model) = (row.try_get::<i64, _>("sequence")?, row.try_get("model")?);
    Ok(StoredVector { sequence: sequence.cast_unsigned(), model, values: row.try_get("values")? }.to_bytes())
}

fn change_in(row: &PgRow) -> sqlx::Result<Vec<u8>> {
    let (sequence, id) = (row.try_get::<i64, _>("sequence")?, row.try_get::<String, _>("id")?);
    let id = id_from(&id).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Change { sequence: sequence.cast_unsigned(), id }.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{HEAD_KEY, Numbered, OVERRIDE_KEY, engram_key, model_key, vector_key};

    #[test]
    fn keys_are_read_as_they_were_written() {
        let id = QueryId::from_bits(0x0199_0000_0000_7000_8000_0000_0000_0012);
        let numbered = [Numbered::Engram, Numbered::Change, Numbered::Event, Numbered::Due, Numbered::Critique];
        let mut keys: Vec<Vec<u8>> = numbered.into_iter().map(|kind| kind.key(9)).collect();
        keys.extend([engram_key(id), vector_key(id), model_key("a model's name"), OVERRIDE_KEY.to_vec()]);
        for key in keys {
            let table = of_key(&key).unwrap();
            assert_eq!(key_of(table, &text_of(table, &key).unwrap()).unwrap(), key);
        }
        assert!(of_key(HEAD_KEY).is_ok() && of_key(b"?").is_err() && of_key(b"").is_err());
    }
}
