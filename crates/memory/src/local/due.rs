//! Applying the due list.

use std::io;
use std::path::Path;

use hone_protocol::EnvelopeId;
use serde_json::Value;

use super::Local;
use crate::attempts::attempts;
use crate::due::{self, DueList};
use crate::error::MemoryError;
use crate::lock::lock;
use crate::request::{Listed, Reply, Request, Update};
use crate::storage::of_io;

impl Local {
    /// Applies the requests of the due list in order. The first one that still fails stays on the list, and so do all
    /// later ones; requests that can never succeed are set aside.
    ///
    /// # Errors
    /// The reason why a request is still due.
    pub(super) fn take_in_due(&self) -> Result<(), MemoryError> {
        let due = lock(&self.due);
        let of_io = |error: io::Error| of_io(due.folder(), &error);
        let files = due.files().map_err(of_io)?;
        if files.is_empty() {
            return Ok(());
        }
        // Other processes that use the same database have the same list.
        let _alone = if self.options.url.is_some() { Some(due.lock().map_err(of_io)?) } else { None };
        let files = due.files().map_err(of_io)?;
        for file in &files {
            self.take_in(&due, file)?;
        }
        tracing::info!(n_taken = files.len(), "the due list was applied");
        due.finish().map_err(of_io)
    }

    /// The number of requests that are due.
    pub(super) fn n_due(&self) -> u64 {
        lock(&self.due).files().map_or(0, |files| files.len() as u64)
    }

    /// Whether the request reads a document that is itself on the due list.
    pub(super) fn is_due(&self, request: &Request) -> bool {
        let Request::Document { name } = request else { return false };
        let writes_it = |kept: &Request| matches!(kept, Request::PutDocument { name: written, .. } if written == name);
        let files = lock(&self.due).files().unwrap_or_default();
        files.iter().any(|file| matches!(due::read(file), Ok(Ok(kept)) if writes_it(&kept)))
    }

    fn take_in(&self, due: &DueList, file: &Path) -> Result<(), MemoryError> {
        let of_io = |error: io::Error| of_io(due.folder(), &error);
        let kept = match due::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            kept => kept.map_err(of_io)?,
        };
        let refusal = match kept.map(|request| self.answer_kept(&request)) {
            Ok(Ok(())) => return due.remove(file).map_err(of_io),
            Ok(Err(error)) if error.may_pass() => return Err(error),
            Ok(Err(error)) => error.to_string(),
            Err(reason) => reason,
        };
        tracing::error!(file = %file.display(), refusal, "a request on the due list cannot be applied and was set aside");
        due.set_aside(file).map_err(of_io)
    }

    fn answer_kept(&self, request: &Request) -> Result<(), MemoryError> {
        let reply = self.answer_now(request, true)?;
        match (request, reply) {
            (Request::PutDocument { name, listed, content, .. }, Reply::Updates(updates))
                if updates == [Update::Missing] =>
            {
                self.merge_document(name, listed, content)
            }
            _ => Ok(()),
        }
    }

    /// Writes a document that another process has written or removed since.
    fn merge_document(&self, name: &str, kept: &Listed, content: &Value) -> Result<(), MemoryError> {
        for () in attempts() {
            let (listed, merged, replaced) = match self.with_opened(|opened| opened.document(name))? {
                None => (kept.clone(), Some(content.clone()), None),
                Some((stored, theirs)) => {
                    let versions = (content.clone(), theirs);
                    let (later, earlier) = if stored.at > kept.at { (versions.1, versions.0) } else { versions };
                    // A later request that replaces `kept.write` must be merged as well, so this is another write.
                    let listed = Listed { at: kept.at, write: EnvelopeId::fresh() };
                    (listed, (self.options.merge_documents)(later, earlier), Some(stored.write))
                }
            };
            let merged = merged.ok_or_else(|| MemoryError::Unmerged { document: name.to_owned() })?;
            let is_new = replaced.is_none();
            let update = self.with_opened(|opened| opened.put_document(name, &listed, &merged, is_new, replaced))?;
            if update != Update::Missing {
                return Ok(());
            }
        }
        Err(MemoryError::Busy { document: name.to_owned() })
    }
}
