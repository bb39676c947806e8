//! Documents: records of other parts of hone, such as conversations, that are kept with engrams in a shared database. A
//! name is a path, `FOLDER/NAME`.

use hone_protocol::{EnvelopeId, Timestamp};
use serde_json::Value;

use super::opened::Opened;
use crate::error::MemoryError;
use crate::records::{damaged, document_key, from_json, listed_key, to_json};
use crate::request::{Listed, Update};

impl Opened {
    /// Adds or replaces a document. The result is [`Update::Missing`] if `is_new` and the name is taken, or if the stored
    /// document does not come from the write `replaced`. Repeating a write gives [`Update::Merged`].
    pub(super) fn put_document(
        &self,
        name: &str,
        listed: &Listed,
        content: &Value,
        is_new: bool,
        replaced: Option<EnvelopeId>,
    ) -> Result<Update, MemoryError> {
        self.write(|draft| {
            let there = draft.storage.get(&listed_key(name))?;
            let there: Option<Listed> = there.map(|there| from_json("a document", &there)).transpose()?;
            let mut listed = listed.clone();
            match &there {
                Some(there) if there.write == listed.write => return Ok(Update::Merged),
                Some(_) if is_new => return Ok(Update::Missing),
                _ if replaced.is_some() && replaced != there.as_ref().map(|there| there.write) => {
                    return Ok(Update::Missing);
                }
                // The machines' clocks may differ.
                Some(there) if replaced.is_some() => listed.at = listed.at.max(Timestamp(there.at.0 + 1)),
                // A delayed write must not replace a later one.
                Some(there) if there.at > listed.at => return Ok(Update::Merged),
                _ => {}
            }
            draft.batch.insert(document_key(name), to_json("a document", content)?);
            draft.batch.insert(listed_key(name), to_json("a document", &listed)?);
            Ok(Update::Merged)
        })
    }

    /// The content with its list entry.
    pub(super) fn document(&self, name: &str) -> Result<Option<(Listed, Value)>, MemoryError> {
        let what = format!("the document {name}");
        // The entry is read first: if another one comes in between, the caller's edit names the old write and is refused.
        let Some(listed) = self.storage.get(&listed_key(name))? else { return Ok(None) };
        let Some(bytes) = self.storage.get(&document_key(name))? else { return Ok(None) };
        Ok(Some((from_json(&what, &listed)?, from_json(&what, &bytes)?)))
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
