//! Documents: records of other parts of hone, such as conversations, that are kept with engrams in a shared database. A
//! name is a path, `FOLDER/NAME`.

use hone_protocol::Timestamp;
use serde_json::Value;

use super::opened::Opened;
use crate::error::MemoryError;
use crate::records::{damaged, document_key, from_json, listed_key, to_json};
use crate::request::{Listed, Update};

impl Opened {
    /// Adds or replaces a document. A new one is [`Update::Missing`] if its name is taken, unless by the same write.
    pub(super) fn put_document(
        &self,
        name: &str,
        listed: &Listed,
        content: &Value,
        is_new: bool,
    ) -> Result<Update, MemoryError> {
        self.write(|draft| {
            if let Some(there) = draft.storage.get(&listed_key(name))? {
                let there: Listed = from_json("a document", &there)?;
                if there.write == listed.write {
                    return Ok(Update::Merged);
                } else if is_new || there.at > listed.at {
                    // A delayed write must not replace a later one.
                    return Ok(if is_new { Update::Missing } else { Update::Merged });
                }
            }
            draft.batch.insert(document_key(name), to_json("a document", content)?);
            draft.batch.insert(listed_key(name), to_json("a document", listed)?);
            Ok(Update::Merged)
        })
    }

    pub(super) fn document(&self, name: &str) -> Result<Option<Value>, MemoryError> {
        let bytes = self.storage.get(&document_key(name))?;
        bytes.map(|bytes| from_json(&format!("the document {name}"), &bytes)).transpose()
    }

    /// The names in a folder, without the folder, and the time of each write.
    pub(super) fn documents(&self, folder: &str) -> Result<Vec<(String, Timestamp)>, MemoryError> {
        let (first, after_last) = (listed_key(&format!("{folder}/")), listed_key(&format!("{folder}0")));
        let read = |(key, listed): (Vec<u8>, Vec<u8>)| {
            let name = key.get(first.len()..).unwrap_or_default().to_vec();
            let name = String::from_utf8(name).map_err(|error| damaged("a document's name", &error.to_string()))?;
            Ok((name, from_json::<Listed>("a document", &listed)?.at))
        };
        self.storage.range(first.clone()..after_last).map(|pair| pair.and_then(read)).collect()
    }

    /// Renames a document; the result is `Missing` if it does not exist, or if the new name is taken.
    pub(super) fn rename_document(&self, name: &str, new_name: &str) -> Result<Update, MemoryError> {
        self.write(|draft| {
            if draft.storage.get(&listed_key(new_name))?.is_some() {
                return Ok(Update::Missing);
            }
            for key_of in [document_key, listed_key] {
                let Some(value) = draft.storage.get(&key_of(name))? else { return Ok(Update::Missing) };
                draft.batch.remove(key_of(name));
                draft.batch.insert(key_of(new_name), value);
            }
            Ok(Update::Merged)
        })
    }

    pub(super) fn remove_document(&self, name: &str) -> Result<Update, MemoryError> {
        self.write(|draft| {
            let is_there = draft.storage.get(&listed_key(name))?.is_some();
            if is_there {
                draft.batch.remove(document_key(name));
                draft.batch.remove(listed_key(name));
            }
            Ok(if is_there { Update::Merged } else { Update::Missing })
        })
    }
}
