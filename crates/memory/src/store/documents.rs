//! Documents stored with engrams.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hone_protocol::{EnvelopeId, Timestamp};
use serde_json::Value;

use super::{MemoryStore, unexpected};
use crate::attempts::attempts;
use crate::error::MemoryError;
use crate::lock::lock;
use crate::request::{Listed, Reply, Request, Update};

/// Documents that are held in memory while a database is unreachable.
const MOST_RECENT: usize = 64;

/// A folder of documents in a memory: JSON under names without `/`.
///
/// Recently read or written documents stay readable while the memory is unreachable.
#[derive(Clone)]
pub struct Documents {
    store: MemoryStore,
    folder: String,
    /// Documents, the latest at the end.
    recent: Arc<Mutex<VecDeque<Recent>>>,
}

/// A document that was read or written here.
struct Recent {
    path: String,
    stored: Stored,
}

/// A document's content, and the write that it comes from.
type Stored = (EnvelopeId, Value);

impl MemoryStore {
    /// The documents in a folder, which may be empty. A folder's name may contain `/`.
    pub fn documents(&self, folder: &str) -> Documents {
        Documents { store: self.clone(), folder: folder.to_owned(), recent: Arc::default() }
    }
}

impl Documents {
    /// The documents in a subfolder of this folder.
    pub fn folder(&self, name: &str) -> Documents {
        Documents { folder: self.path(name), ..self.clone() }
    }

    /// Adds or replaces a document. A store that [keeps](MemoryStore::keeping) requests writes it later if necessary,
    /// unless it has been replaced by then.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, name: &str, content: Value) -> Result<Update, MemoryError> {
        self.put(name, content, false, None)
    }

    /// Replaces a document with an edited version; returns whether it exists. `edit` is given the stored version; if
    /// another process writes the document in the meantime, it is called again with that one. While memory is
    /// unreachable, it is given the last version read or written here, and the document is written later, even if it has
    /// been removed by then; with a version that another process has written by then, it is
    /// [merged](crate::MemoryOptions::merge_documents).
    ///
    /// # Errors
    /// When it cannot be read or written, when other processes write it during every attempt, or with an error of
    /// `edit`.
    pub fn edit<E: From<MemoryError>>(&self, name: &str, edit: impl Fn(Value) -> Result<Value, E>) -> Result<bool, E> {
        for () in attempts() {
            let (replaced, content) = match self.read(name) {
                Ok(Some(stored)) => stored,
                Ok(None) => return Ok(false),
                Err(error) => match self.known(name) {
                    Some(known) if error.may_pass() => known,
                    _ => return Err(error.into()),
                },
            };
            if self.put(name, edit(content)?, false, Some(replaced))? != Update::Missing {
                return Ok(true);
            }
        }
        Err(MemoryError::Busy { document: self.path(name) }.into())
    }

    /// Adds a document; the result is `Missing` if the name is taken. If it is written later, it is merged with one of that
    /// name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_new(&self, name: &str, content: Value) -> Result<Update, MemoryError> {
        self.put(name, content, true, None)
    }

    fn put(
        &self,
        name: &str,
        content: Value,
        is_new: bool,
        replaced: Option<EnvelopeId>,
    ) -> Result<Update, MemoryError> {
        let (name, write) = (self.path(name), EnvelopeId::fresh());
        let listed = Listed { at: Timestamp::now(), write };
        let request = Request::PutDocument { name: name.clone(), listed, content: content.clone(), is_new, replaced };
        let update = self.store.update_or_keep(request)?;
        if update != Update::Missing {
            self.note(name, Some((write, content)));
        }
        Ok(update)
    }

    /// Holds a recently read or written document; `None` forgets it.
    fn note(&self, path: String, stored: Option<Stored>) {
        let mut recent = lock(&self.recent);
        recent.retain(|known| known.path != path);
        recent.extend(stored.map(|stored| Recent { path, stored }));
        if recent.len() > MOST_RECENT {
            recent.pop_front();
        }
    }

    /// A document's content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(&self, name: &str) -> Result<Option<Value>, MemoryError> {
        match self.read(name) {
            Ok(stored) => Ok(stored.map(|(_, content)| content)),
            Err(error) => self.known(name).map(|(_, content)| Some(content)).ok_or(error),
        }
    }

    fn read(&self, name: &str) -> Result<Option<Stored>, MemoryError> {
        let name = self.path(name);
        let stored =
            expect!(self.store.ask(Request::Document { name: name.clone() }), Reply::Document(stored) => stored)?;
        self.note(name, stored.clone());
        Ok(stored)
    }

    /// The version that was read or written here last, if it is still held.
    fn known(&self, name: &str) -> Option<Stored> {
        let (path, recent) = (self.path(name), lock(&self.recent));
        recent.iter().find(|known| known.path == path).map(|known| known.stored.clone())
    }

    /// The names in order, with the time of each document's last write. Subfolders are left out.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn entries(&self) -> Result<Vec<(String, Timestamp)>, MemoryError> {
        let request = Request::Documents { folder: self.folder.clone() };
        let entries = expect!(self.store.ask(request), Reply::Documents(entries) => entries)?;
        Ok(entries.into_iter().filter(|(name, _)| !name.contains('/')).collect())
    }

    /// The names of the subfolders that hold documents, without duplicates.
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

    /// Renames a document; the result is `Missing` if it does not exist, or if the new name is taken.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn rename(&self, name: &str, new_name: &str) -> Result<Update, MemoryError> {
        self.note(self.path(name), None);
        self.store.update(Request::RenameDocument { name: self.path(name), new_name: self.path(new_name) })
    }

    /// Removes a document.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<Update, MemoryError> {
        self.note(self.path(name), None);
        self.store.update(Request::RemoveDocument { name: self.path(name) })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}
