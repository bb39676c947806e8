//! Documents beside engrams.

use hone_protocol::{EnvelopeId, Timestamp};
use serde_json::Value;

use super::{MemoryStore, unexpected};
use crate::error::MemoryError;
use crate::request::{Listed, Reply, Request, Update};

/// A folder of documents in a memory: JSON under names that hold no `/`.
#[derive(Clone)]
pub struct Documents {
    store: MemoryStore,
    folder: String,
}

impl MemoryStore {
    /// The documents in a folder, of which there may be none. A folder's name may hold `/`.
    pub fn documents(&self, folder: &str) -> Documents {
        Documents { store: self.clone(), folder: folder.to_owned() }
    }
}

impl Documents {
    /// Those in a folder of this folder.
    pub fn folder(&self, name: &str) -> Documents {
        self.store.documents(&self.path(name))
    }

    /// Adds or replaces a document. A store that [keeps](MemoryStore::keeping) writes it later if it has to.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, name: &str, content: Value) -> Result<Update, MemoryError> {
        self.put(name, content, false)
    }

    /// Adds a document, unless there is one of this name: it is `Missing` then.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_new(&self, name: &str, content: Value) -> Result<Update, MemoryError> {
        self.put(name, content, true)
    }

    fn put(&self, name: &str, content: Value, is_new: bool) -> Result<Update, MemoryError> {
        let listed = Listed { at: Timestamp::now(), write: EnvelopeId::fresh() };
        self.store.update_or_keep(Request::PutDocument { name: self.path(name), listed, content, is_new })
    }

    /// A document's content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(&self, name: &str) -> Result<Option<Value>, MemoryError> {
        expect!(self.store.ask(Request::Document { name: self.path(name) }), Reply::Document(content) => content)
    }

    /// The names, and when each document was written, in the order of the names. Folders in this one are left out.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn entries(&self) -> Result<Vec<(String, Timestamp)>, MemoryError> {
        let request = Request::Documents { folder: self.folder.clone() };
        let entries = expect!(self.store.ask(request), Reply::Documents(entries) => entries)?;
        Ok(entries.into_iter().filter(|(name, _)| !name.contains('/')).collect())
    }

    /// The names of the folders in this one that hold documents, each once.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn folders(&self) -> Result<Vec<String>, MemoryError> {
        let request = Request::Documents { folder: self.folder.clone() };
        let entries = expect!(self.store.ask(request), Reply::Documents(entries) => entries)?;
        let mut folders: Vec<String> =
            entries.iter().filter_map(|(name, _)| Some(name.split_once('/')?.0.to_owned())).collect();
        folders.dedup();
        Ok(folders)
    }

    /// Gives a document another name, in place of one that has it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn rename(&self, name: &str, new_name: &str) -> Result<Update, MemoryError> {
        self.store.update(Request::RenameDocument { name: self.path(name), new_name: self.path(new_name) })
    }

    /// Removes a document.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<Update, MemoryError> {
        self.store.update(Request::RemoveDocument { name: self.path(name) })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}
