//! Memory in the process that owns its folder.
//!
//! Every write reads what is there, adds to it and writes it back under one lock, as one batch of storage; it is
//! acknowledged when that batch is durable. The lock is not held while the disk works, so that writes which come meanwhile
//! share the next flush. Where storage fails it is closed, and the next request opens it again: what was acknowledged is
//! on disk, and what was not is gone from memory too.

mod engrams;
mod events;
mod ids;
mod opened;
mod search;
mod transfer;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use crate::error::MemoryError;
use crate::local::events::Watermark;
use crate::local::opened::Opened;
use crate::options::MemoryOptions;
use crate::request::{Reply, Request};
use crate::storage::of_io;

pub(crate) use transfer::parse_line;

/// Memory, with nobody else in its folder.
pub(crate) struct Local {
    folder: PathBuf,
    options: MemoryOptions,
    opened: RwLock<Option<Opened>>,
    /// The last event that is durable.
    watermark: Watermark,
}

impl Local {
    /// Opens what is in `folder`, or creates it.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(crate) fn open(folder: &Path, options: MemoryOptions) -> Result<Local, MemoryError> {
        fs::create_dir_all(folder).map_err(|error| of_io(folder, &error))?;
        let opened = Opened::open(folder, &options)?;
        let watermark = Watermark::new(opened.last_event());
        Ok(Local { folder: folder.to_owned(), options, opened: RwLock::new(Some(opened)), watermark })
    }

    /// Does what is asked. A request that is repeated, because whoever asked did not hear the answer, is not done twice.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub(crate) fn answer(&self, request: &Request, is_repeated: bool) -> Result<Reply, MemoryError> {
        if let Request::AwaitEvents { after, milliseconds, .. } = request {
            self.watermark.wait_past(*after, *milliseconds);
        }
        let reply = match self.try_answer(request, is_repeated) {
            // A failure may have waited in storage for whoever would ask next.
            Err(_) if self.close_broken() => self.try_answer(request, true).inspect_err(|_| {
                self.close_broken();
            }),
            answered => answered,
        }?;
        if let (Request::AppendEvent { .. }, Reply::Number(event)) = (request, &reply) {
            self.watermark.raise(*event);
        }
        Ok(reply)
    }

    fn try_answer(&self, request: &Request, is_repeated: bool) -> Result<Reply, MemoryError> {
        loop {
            let guard = self.opened.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(opened) = guard.as_ref() {
                return self.answer_from(opened, request, is_repeated);
            }
            drop(guard);
            let mut guard = self.opened.write().unwrap_or_else(PoisonError::into_inner);
            if guard.is_none() {
                let opened = Opened::open(&self.folder, &self.options)?;
                self.watermark.raise(opened.last_event());
                *guard = Some(opened);
            }
        }
    }

    /// Closes storage if it is broken, and says whether it was.
    fn close_broken(&self) -> bool {
        let mut guard = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        let is_broken = guard.as_ref().is_some_and(Opened::is_broken);
        if is_broken {
            tracing::warn!(folder = %self.folder.display(), "memory failed and is opened again");
            *guard = None;
        }
        is_broken
    }

    fn answer_from(&self, opened: &Opened, request: &Request, is_repeated: bool) -> Result<Reply, MemoryError> {
        Ok(match request {
            Request::Remember { engram, vector } => Reply::Number(opened.remember(engram, vector.clone())?),
            Request::SetVector { id, vector } => Reply::Updates(vec![opened.set_vector(*id, vector.clone())?]),
            Request::Get { id } => Reply::Engram(opened.get(*id)?.map(Box::new)),
            Request::Fields { id } => Reply::Fields(opened.fields(*id)?),
            Request::UpdateScore { id, grade } => Reply::Updates(vec![opened.update_score(*id, grade)?]),
            Request::AnnotatePairwise { comparison } => Reply::Updates(opened.annotate_pairwise(comparison)?.to_vec()),
            Request::AnnotateFeedback { id, rating } => Reply::Updates(vec![opened.annotate_feedback(*id, *rating)?]),
            Request::AnnotateMeaning { id, intent, entities } => {
                Reply::Updates(vec![opened.annotate_meaning(*id, intent.clone(), entities.clone())?])
            }
            Request::Search { vector, n, filters, ranking } => {
                Reply::Recalled(opened.search(vector.clone(), *n, filters, ranking)?)
            }
            Request::List { filters, n } => Reply::Engrams(opened.list(filters, *n)?),
            Request::Remove { ids } => Reply::Updates(opened.remove(ids)?),
            Request::WithoutVector { model, n } => Reply::Engrams(opened.without_vector(model, *n)?),
            Request::Resolve { prefix } => Reply::Ids(opened.ids_with_prefix(prefix)?),
            Request::Abbreviate { ids } => Reply::Lengths(opened.abbreviate(ids)?),
            Request::Statistics => Reply::Statistics(Box::new(opened.statistics()?)),
            Request::Verify => Reply::Verification(opened.verify()?),
            Request::Export { after, n } => opened.export(*after, *n)?,
            Request::Compare { engrams } => Reply::Standings(opened.compare(engrams)?),
            Request::Import { engrams } => Reply::Number(opened.import(engrams)?),
            Request::AppendEvent { envelope } => Reply::Number(opened.append_event(envelope, is_repeated)?),
            Request::Events { filter, after } => Reply::Events(opened.events(filter, after.unwrap_or(0), u64::MAX)?),
            Request::LastEvent => Reply::Number(self.watermark.last()),
            Request::AwaitEvents { filter, after, .. } => {
                let seen = self.watermark.last().max(*after);
                Reply::News { events: opened.events(filter, *after, seen)?, seen }
            }
        })
    }
}
