//! The engine of a running server, used by another process instead of one of its own.

use std::path::{Path, absolute};
use std::sync::{Arc, Mutex, PoisonError};

use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation};

pub use super::lending::Lender;
use super::lending::lenders;
use crate::progress::Progress;

/// Starts an engine of this process.
type Start = Box<dyn Fn() -> anyhow::Result<Arc<dyn Generate>> + Send + Sync>;

/// The engine of another process. Once that process is gone, this one starts its own.
pub struct BorrowedEngine {
    lender: Lender,
    own: Mutex<Option<Arc<dyn Generate>>>,
    start: Start,
    progress: Arc<dyn Progress>,
}

impl Lender {
    /// The server whose engine has these settings, if one runs; the user is told.
    pub fn find(data_folder: &Path, settings: &str, progress: &dyn Progress) -> Option<Lender> {
        let (same, others): (Vec<_>, Vec<_>) =
            lenders(data_folder).into_iter().partition(|lender| lender.settings == settings);
        match (same.into_iter().next(), others.first()) {
            (Some(lender), _) => {
                progress.note(&format!("the engine of the server in process {} is used", lender.process));
                Some(lender)
            }
            (None, Some(other)) => {
                let process = other.process;
                progress.note(&format!("the server in process {process} has other engine settings and is not used"));
                None
            }
            (None, None) => None,
        }
    }
}

impl BorrowedEngine {
    /// The engine of `lender`, or, once that is gone, the one that `start` starts.
    pub fn new(lender: Lender, start: Start, progress: Arc<dyn Progress>) -> BorrowedEngine {
        BorrowedEngine { lender, own: Mutex::default(), start, progress }
    }

    fn own(&self) -> Option<Arc<dyn Generate>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start_own(&self) -> Result<Arc<dyn Generate>, GenerateError> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.is_none() {
            self.progress.note("the server has ended: this process loads its own model");
            *own = Some((self.start)().map_err(|error| GenerateError::Failed(format!("{error:#}")))?);
        }
        own.clone().ok_or(GenerateError::Stopped)
    }
}

impl Generate for BorrowedEngine {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        if let Some(own) = self.own() {
            return own.generate(request);
        }
        let sent = GenerateRequest { model: located(&request.model), ..request };
        match self.lender.begin(&sent) {
            Ok(generation) => Ok(generation),
            Err(error) => {
                tracing::debug!(%error, "the server cannot be reached");
                self.start_own()?.generate(sent)
            }
        }
    }
}

/// A model's name, made valid for another process, which may have been started in another folder.
fn located(model: &str) -> String {
    let path = Path::new(model);
    let absolute = path.is_file().then(|| absolute(path).ok()).flatten();
    absolute.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or_else(|| model.to_owned())
}
