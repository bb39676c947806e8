//! The embedding model, opened once for all its users, and rerankers.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use hone_engine::{Embedder, FileUse, Prefixes, Reranker, Verify, check_file};
use hone_models::{InstalledModel, Store};
use hone_protocol::{Embed, LocateModel};

use crate::workers::templates;

/// The configured embedder.
pub struct SharedEmbedder {
    name: String,
    prefixes: Prefixes,
    store: Arc<Store>,
    opened: Mutex<Option<Arc<dyn Embed>>>,
}

impl SharedEmbedder {
    /// The model of this name, or in this folder, with these prefixes for questions and passages. It need not be
    /// installed yet.
    pub fn new(name: &str, prefixes: Prefixes, store: Arc<Store>) -> SharedEmbedder {
        SharedEmbedder { name: name.to_owned(), prefixes, store, opened: Mutex::default() }
    }

    /// Its configured name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Everything that its vectors depend on, for comparison between processes.
    pub fn settings(&self) -> String {
        // A relative path means another file in another folder.
        let path = std::fs::canonicalize(&self.name).ok();
        format!("{} {:?}", path.map_or(self.name.clone(), |path| path.display().to_string()), self.prefixes)
    }

    /// These settings for comparison with another machine, where a path means nothing.
    pub(crate) fn settings_elsewhere(&self) -> String {
        format!("{} {:?}", self.name, self.prefixes)
    }

    /// The model. It is loaded on first use.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn open(&self) -> anyhow::Result<Arc<dyn Embed>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(embedder) => Ok(Arc::clone(embedder)),
            None => Ok(Arc::clone(opened.insert(Arc::new(self.find()?)))),
        }
    }

    fn find(&self) -> anyhow::Result<Embedder> {
        let (name, prefixes) = (&self.name, self.prefixes.clone());
        let folder = Path::new(name);
        if folder.is_dir() {
            return Ok(Embedder::in_folder(name, folder)?.with_prefixes(prefixes));
        }
        let model = self.store.show(name)?;
        let embedder = match model.gguf() {
            Some(file) => Embedder::of_gguf(name, file),
            None => Embedder::open(name, model.files.into_iter().map(|file| (file.name, file.location)))?,
        };
        Ok(embedder.with_prefixes(prefixes).verified_by(verify(&self.store)))
    }
}

/// A reranker. It is loaded on first use.
///
/// # Errors
/// When it is not in a GGUF file, or has no head.
pub(crate) fn reranker(name: &str, model: &InstalledModel, store: &Arc<Store>) -> anyhow::Result<Reranker> {
    let file = model.gguf().with_context(|| format!("the model {name:?} is not in a GGUF file"))?;
    let host = templates::host()?;
    match check_file(&file, &host).with_context(|| format!("model {name:?} cannot be run"))? {
        FileUse::Scores => Ok(Reranker::new(name, file, host, verify(store))),
        _ => bail!("model {name:?} has no head (cls.output.weight) that scores texts"),
    }
}

/// Checks files against the hashes that the store has of them.
fn verify(store: &Arc<Store>) -> Verify {
    let store = Arc::clone(store);
    Box::new(move |file| store.verify(file).map_err(|error| error.to_string()))
}
