//! A model that is read when it is first used, after its files were checked.

use std::sync::{Arc, Mutex, PoisonError};

use hone_protocol::ModelFile;

/// Checks a file's bytes against the installed ones; the error gives the reason.
pub type Verify = Box<dyn Fn(&ModelFile) -> Result<(), String> + Send + Sync>;

/// A model, once it is loaded.
pub(crate) struct Lazy<T: ?Sized> {
    loaded: Mutex<Option<Arc<T>>>,
    verify: Option<Verify>,
}

impl<T: ?Sized> Lazy<T> {
    pub(crate) fn verified_by(verify: Option<Verify>) -> Lazy<T> {
        Lazy { loaded: Mutex::new(None), verify }
    }

    /// The model; loaded now if it has not been loaded yet, or the last attempt failed.
    ///
    /// # Errors
    /// When a file differs from the installed one, or cannot be loaded.
    pub(crate) fn get<'f>(
        &self,
        files: impl IntoIterator<Item = &'f ModelFile>,
        load: impl FnOnce() -> Result<Arc<T>, String>,
    ) -> Result<Arc<T>, String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = &*loaded {
            return Ok(Arc::clone(model));
        }
        if let Some(verify) = &self.verify {
            files.into_iter().try_for_each(verify)?;
        }
        Ok(Arc::clone(loaded.insert(load()?)))
    }
}
