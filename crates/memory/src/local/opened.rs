//! Open storage and index, and the path of every write.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hone_protocol::{QueryId, Timestamp};

use super::recent_events::RecentEvents;
use crate::commits::Commits;
use crate::error::MemoryError;
use crate::files::{INDEX_FILE, Purpose, STORAGE_FOLDER, write_file};
use crate::fresh_store::finish_interrupted;
use crate::index::VectorIndex;
use crate::lock::lock;
use crate::options::MemoryOptions;
use crate::records::{
    Change, FORMAT, HEAD_KEY, Head, Numbered, StoredVector, from_json, keys_of_all, model_key, to_json, vector_key,
};
use crate::request::Vector;
use crate::storage::{Batch, DiskStorage, PostgresStorage, Storage, of_io};
use crate::words::WordIndex;

/// The number of changes to vectors that are kept in a database, for processes that have not seen them yet.
const KEPT_CHANGES: u64 = 10_000;

/// Open storage and index.
pub(super) struct Opened {
    folder: PathBuf,
    pub(super) storage: Box<dyn Storage>,
    /// The index of vectors, loaded on first use: requests that only read engrams do not wait for it.
    index: Mutex<Option<VectorIndex>>,
    embedding_model: String,
    /// The index of words, once a search has needed it.
    pub(super) words: Mutex<Option<WordIndex>>,
    /// Held while writing. With a database, which others also write to, it is this process's latest knowledge.
    head: Mutex<Head>,
    pub(super) recent_events: Mutex<RecentEvents>,
    commits: Commits,
    changes_until_save: u64,
    /// Held while saving the index.
    saving: Mutex<()>,
}

/// A write in preparation; nothing takes effect until it is complete.
pub(super) struct Draft<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) batch: Batch,
    pub(super) head: Head,
    vectors: Vec<(Change, Option<StoredVector>)>,
    /// Texts that were added or removed, by sequence number.
    pub(super) texts: Vec<(u64, Option<String>)>,
    /// Dimensions of embedding models that this draft sets or has read.
    dimensions: BTreeMap<String, usize>,
    /// The embedding model whose vectors have changed their dimensions.
    resettled_model: Option<String>,
}

impl Opened {
    pub(super) fn open(folder: &Path, options: &MemoryOptions) -> Result<Opened, MemoryError> {
        let storage: Box<dyn Storage> = match &options.url {
            Some(url) => Box::new(PostgresStorage::connect(url)?),
            None => {
                finish_interrupted(folder)?;
                Box::new(DiskStorage::open(&folder.join(STORAGE_FOLDER), options.reserved_bytes)?)
            }
        };
        let head = head_in(&*storage)?;
        if head.format > FORMAT {
            let (folder, format) = (folder.to_owned(), head.format);
            return Err(MemoryError::LaterFormat { folder, format, known: FORMAT });
        }
        Ok(Opened {
            folder: folder.to_owned(),
            storage,
            index: Mutex::default(),
            embedding_model: options.embedding_model.clone(),
            words: Mutex::default(),
            head: Mutex::new(head),
            recent_events: Mutex::default(),
            commits: Commits::default(),
            changes_until_save: options.changes_until_save,
            saving: Mutex::new(()),
        })
    }

    pub(super) fn is_broken(&self) -> bool {
        self.storage.is_broken()
    }

    pub(super) fn head(&self) -> Result<Head, MemoryError> {
        match self.storage.database() {
            Some(_) => head_in(&*self.storage),
            None => Ok(*lock(&self.head)),
        }
    }

    /// Passes the index of vectors to `work`, reading it on first use. `head` is the one held while writing; without
    /// it, the caller must not write.
    ///
    /// # Errors
    /// As `work`, and when the index has to be rebuilt and storage cannot be read.
    pub(super) fn with_index<R>(
        &self,
        head: Option<&Head>,
        work: impl FnOnce(&VectorIndex) -> Result<R, MemoryError>,
    ) -> Result<R, MemoryError> {
        if self.storage.database().is_some() {
            return self.with_shared_index(work);
        }
        if let Some(index) = lock(&self.index).as_ref() {
            return work(index);
        }
        // The head's lock prevents writes during the read.
        let guard = head.is_none().then(|| lock(&self.head));
        let head = head.or(guard.as_deref()).copied().unwrap_or_default();
        let mut index = lock(&self.index);
        if let Some(index) = index.as_ref() {
            return work(index);
        }
        let file = self.folder.join(INDEX_FILE);
        let opened = open_index(&*self.storage, &head, file, &self.embedding_model)?;
        drop(guard);
        work(index.insert(opened))
    }

    /// Like [`Opened::with_index`], for a database that cannot compare vectors. The index is kept in memory only, and
    /// follows the changes of other processes.
    fn with_shared_index<R>(
        &self,
        work: impl FnOnce(&VectorIndex) -> Result<R, MemoryError>,
    ) -> Result<R, MemoryError> {
        let head = self.head()?;
        let mut guard = lock(&self.index);
        let index = match guard.take().filter(|index| index.last_change() >= head.forgotten_changes) {
            Some(index) => catch_up(&*self.storage, &head, index)?,
            None => rebuild(&*self.storage, &head, self.folder.join(INDEX_FILE), &self.embedding_model)?,
        };
        work(guard.insert(index))
    }

    /// The current time; with a database, its clock's, since the clocks of machines differ.
    pub(super) fn now(&self) -> Result<Timestamp, MemoryError> {
        now_of(&*self.storage)
    }

    /// The embedding model whose vectors are indexed.
    pub(super) fn indexed_model(&self) -> &str {
        &self.embedding_model
    }

    /// Applies the changes that `build` prepares as one write. When this returns, the write is durable, and so is
    /// everything that `build` has read.
    pub(super) fn write<R>(&self, build: impl FnOnce(&mut Draft) -> Result<R, MemoryError>) -> Result<R, MemoryError> {
        let mut head = lock(&self.head);
        let write = self.storage.begin()?;
        *head = write.head().unwrap_or(*head);
        let mut draft = Draft::new(&*self.storage, *head);
        let result = build(&mut draft)?;
        if self.storage.database().is_some() {
            draft.limit_changes()?;
        }
        let Draft { mut batch, head: new_head, vectors, texts, resettled_model, .. } = draft;
        if !batch.is_empty() {
            batch.insert(HEAD_KEY.to_vec(), to_json("the head of memory", &new_head)?);
            write.apply(batch, &texts)?;
            let first_change = head.last_change + 1;
            *head = new_head;
            match resettled_model {
                // The index of a database catches up on its next use.
                _ if self.storage.database().is_some() => {}
                Some(model) if model == self.embedding_model => self.rebuild_index(&new_head)?,
                _ => self.update_index(&new_head, first_change, vectors)?,
            }
            self.update_words(&texts);
        }
        let write = self.commits.applied();
        drop(head);
        self.commits.wait(write, || self.storage.flush())?;
        self.save_index_when_due();
        Ok(result)
    }

    /// The dimensions of the vectors of an embedding model; `None` if it never had one.
    pub(super) fn dimensions(&self, model: &str) -> Result<Option<usize>, MemoryError> {
        dimensions_of(&*self.storage, model)
    }

    fn update_index(
        &self,
        head: &Head,
        first_change: u64,
        vectors: Vec<(Change, Option<StoredVector>)>,
    ) -> Result<(), MemoryError> {
        if vectors.is_empty() {
            return Ok(());
        }
        let mut guard = lock(&self.index);
        let Some(index) = guard.as_mut() else {
            // An index read now includes the changes, which are on record.
            drop(guard);
            return self.with_index(Some(head), |_| Ok(())).inspect_err(|_| self.storage.mark_broken());
        };
        for (number, (change, vector)) in (first_change..).zip(vectors) {
            let of_model = vector.filter(|vector| vector.model == index.model());
            let updated = index.set(change.sequence, of_model.as_ref().map(|vector| vector.values.as_slice()), number);
            // An index that lacks a change must not be used, let alone saved.
            updated.inspect_err(|_| self.storage.mark_broken())?;
        }
        Ok(())
    }

    fn update_words(&self, texts: &[(u64, Option<String>)]) {
        if let Some(words) = lock(&self.words).as_mut() {
            texts.iter().for_each(|(sequence, text)| words.set(*sequence, text.as_deref()));
        }
    }

    fn rebuild_index(&self, head: &Head) -> Result<(), MemoryError> {
        let mut guard = lock(&self.index);
        let Some(index) = guard.as_mut() else { return Ok(()) };
        let (file, model) = (index.file().to_owned(), index.model().to_owned());
        *index = rebuild(&*self.storage, head, file, &model).inspect_err(|_| self.storage.mark_broken())?;
        Ok(())
    }

    fn save_index_when_due(&self) {
        if self.storage.database().is_some() {
            return;
        }
        let is_due =
            |index: &VectorIndex| index.unsaved_changes() >= self.changes_until_save.max(index.len() as u64 / 8);
        let is_due = lock(&self.index).as_ref().is_some_and(is_due);
        if is_due {
            self.save_index();
        }
    }

    /// Writes the index to its file. A failure only makes the next opening slower.
    fn save_index(&self) {
        // If another thread is saving it, that save includes these changes, or a later call will save them.
        let Ok(_saving) = self.saving.try_lock() else { return };
        if let Err(error) = self.try_save_index() {
            tracing::warn!(folder = %self.folder.display(), %error, "the index of vectors is not saved");
        }
    }

    fn try_save_index(&self) -> Result<(), MemoryError> {
        let (file, bytes, change) = {
            // Nothing is written meanwhile, and the index includes only durable changes: after a crash, the number of a
            // lost change is used again, for another change.
            let _head = lock(&self.head);
            self.storage.flush()?;
            let guard = lock(&self.index);
            let Some(index) = guard.as_ref() else { return Ok(()) };
            (index.file().to_owned(), index.to_bytes()?, index.last_change())
        };
        self.storage.check_room(bytes.len() as u64)?;
        write_file(&file, Purpose::Index, &bytes).map_err(|error| of_io(&self.folder, &error))?;
        lock(&self.index).iter_mut().for_each(|index| index.saved(change));
        self.write(|draft| draft.forget_changes(change))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.storage.database().is_some() {
            return;
        }
        let has_unsaved = lock(&self.index).as_ref().is_some_and(|index| index.unsaved_changes() > 0);
        if has_unsaved && !self.is_broken() {
            self.save_index();
        }
    }
}

impl<'a> Draft<'a> {
    fn new(storage: &'a dyn Storage, head: Head) -> Draft<'a> {
        let (batch, vectors, dimensions) = (Batch::default(), Vec::new(), BTreeMap::new());
        Draft { storage, batch, head, vectors, texts: Vec::new(), dimensions, resettled_model: None }
    }

    /// Sets the dimensions of a model to those of a vector that the model has just made. Vectors with other dimensions,
    /// which were imported or made by an earlier model of the same name, count as missing from then on.
    pub(super) fn settle_dimensions(&mut self, vector: &Vector) -> Result<(), MemoryError> {
        let dimensions = vector.values.len();
        if let Some(known) = self.known_dimensions(&vector.model)?.filter(|known| *known != dimensions) {
            tracing::warn!(
                model = vector.model,
                known,
                dimensions,
                "the model's dimensions have changed: vectors have to be computed again"
            );
            self.record_dimensions(vector)?;
            self.resettled_model = Some(vector.model.clone());
        }
        Ok(())
    }

    /// Replaces or removes an engram's vector.
    pub(super) fn set_vector(&mut self, sequence: u64, id: QueryId, vector: Option<Vector>) -> Result<(), MemoryError> {
        let vector = match vector {
            Some(vector) => {
                self.check_dimensions(&vector)?;
                Some(StoredVector { sequence, model: vector.model, values: vector.values })
            }
            None => None,
        };
        match &vector {
            Some(vector) => self.batch.insert(vector_key(id), vector.to_bytes()),
            None => self.batch.remove(vector_key(id)),
        }
        let change = Change { sequence, id };
        self.head.last_change += 1;
        self.batch.insert(Numbered::Change.key(self.head.last_change), change.to_bytes());
        self.vectors.push((change, vector));
        Ok(())
    }

    /// Whether a vector has the same dimensions as the others of its model.
    pub(super) fn fits(&mut self, vector: &Vector) -> Result<bool, MemoryError> {
        Ok(self.known_dimensions(&vector.model)?.is_none_or(|known| known == vector.values.len()))
    }

    fn check_dimensions(&mut self, vector: &Vector) -> Result<(), MemoryError> {
        match self.known_dimensions(&vector.model)? {
            Some(known) if known != vector.values.len() => Err(other_dimensions(vector, known)),
            Some(_) => Ok(()),
            None => self.record_dimensions(vector),
        }
    }

    fn known_dimensions(&mut self, model: &str) -> Result<Option<usize>, MemoryError> {
        if let Some(known) = self.dimensions.get(model) {
            return Ok(Some(*known));
        }
        let known = dimensions_of(self.storage, model)?;
        self.dimensions.extend(known.map(|known| (model.to_owned(), known)));
        Ok(known)
    }

    fn record_dimensions(&mut self, vector: &Vector) -> Result<(), MemoryError> {
        let dimensions = vector.values.len();
        self.batch.insert(model_key(&vector.model), to_json("a model's dimensions", &dimensions)?);
        self.dimensions.insert(vector.model.clone(), dimensions);
        Ok(())
    }

    /// Forgets changes that every process has probably seen; a process that has not seen them makes a new index.
    fn limit_changes(&mut self) -> Result<(), MemoryError> {
        if self.resettled_model.is_some() {
            self.forget_changes(self.head.last_change)
        } else if self.head.last_change - self.head.forgotten_changes > 2 * KEPT_CHANGES {
            self.forget_changes(self.head.last_change - KEPT_CHANGES)
        } else {
            Ok(())
        }
    }

    fn forget_changes(&mut self, last: u64) -> Result<(), MemoryError> {
        for record in self.storage.range(Numbered::Change.key(0)..=Numbered::Change.key(last)) {
            self.batch.remove(record?.0);
        }
        self.head.forgotten_changes = self.head.forgotten_changes.max(last);
        Ok(())
    }
}

/// See [`Opened::now`].
pub(super) fn now_of(storage: &dyn Storage) -> Result<Timestamp, MemoryError> {
    storage.database().map_or_else(|| Ok(Timestamp::now()), |database| database.now())
}

fn head_in(storage: &dyn Storage) -> Result<Head, MemoryError> {
    match storage.get(HEAD_KEY)? {
        Some(bytes) => from_json("the head of memory", &bytes),
        None => Ok(Head::default()),
    }
}

fn dimensions_of(storage: &dyn Storage, model: &str) -> Result<Option<usize>, MemoryError> {
    let bytes = storage.get(&model_key(model))?;
    bytes.map(|bytes| from_json("a model's dimensions", &bytes)).transpose()
}

/// The error for a vector whose dimensions differ from the others of its model.
pub(super) fn other_dimensions(vector: &Vector, known: usize) -> MemoryError {
    let reason = format!("has {} dimensions, but the stored ones have {known}", vector.values.len());
    MemoryError::Vector { model: vector.model.clone(), reason }
}

/// The saved index with later changes added, or a rebuilt one.
fn open_index(storage: &dyn Storage, head: &Head, file: PathBuf, model: &str) -> Result<VectorIndex, MemoryError> {
    let is_new = head.last_change == 0;
    let reason = match VectorIndex::load(file.clone(), model, dimensions_of(storage, model)?) {
        Ok(index) if index.last_change() > head.last_change => {
            "it includes changes that storage does not have".to_owned()
        }
        Ok(index) if index.last_change() < head.forgotten_changes => {
            "it is older than the changes on record".to_owned()
        }
        Ok(index) => match catch_up(storage, head, index) {
            Ok(index) => return Ok(index),
            Err(error) => error.to_string(),
        },
        Err(reason) => reason,
    };
    if !is_new {
        tracing::info!(%reason, "the index of vectors is rebuilt");
    }
    rebuild(storage, head, file, model)
}

fn catch_up(storage: &dyn Storage, head: &Head, mut index: VectorIndex) -> Result<VectorIndex, MemoryError> {
    let dimensions = dimensions_of(storage, index.model())?;
    for record in storage.range(Numbered::Change.key(index.last_change() + 1)..=Numbered::Change.key(u64::MAX)) {
        let change = Change::from_bytes(&record?.1)?;
        let bytes = storage.get(&vector_key(change.id))?;
        let vector = bytes.map(|bytes| StoredVector::from_bytes(&bytes)).transpose()?;
        // An engram that was removed and remembered again has a new sequence number.
        let vector =
            vector.filter(|vector| vector.is_of(index.model(), dimensions) && vector.sequence == change.sequence);
        index.set(change.sequence, vector.as_ref().map(|vector| vector.values.as_slice()), 0)?;
    }
    index.caught_up(head.last_change);
    Ok(index)
}

fn rebuild(storage: &dyn Storage, head: &Head, file: PathBuf, model: &str) -> Result<VectorIndex, MemoryError> {
    let dimensions = dimensions_of(storage, model)?;
    let mut index = VectorIndex::empty(file, model, dimensions);
    for record in storage.range(keys_of_all(b'v')) {
        let vector = StoredVector::from_bytes(&record?.1)?;
        if vector.is_of(model, dimensions) {
            index.set(vector.sequence, Some(&vector.values), 0)?;
        }
    }
    index.caught_up(head.last_change);
    Ok(index)
}
