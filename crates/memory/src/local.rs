//! Memory in the process that owns its folder.
//!
//! Every write reads the current records, adds to them and writes them back under one lock, as one batch of storage; it
//! is acknowledged once that batch is durable. The lock is released before the flush, so that writes that arrive
//! meanwhile share the next one. If storage fails it is closed, and the next request opens it again: acknowledged
//! writes are on disk, and others are gone from memory too.

mod backlog;
mod backup;
mod documents;
mod due;
mod engrams;
mod events;
mod facts;
mod forgetting;
mod ids;
mod opened;
mod recall;
mod recent_events;
mod restore;
mod search;
mod transfer;
mod vetting;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use crate::due::DueList;
use crate::error::MemoryError;
use crate::filters::Whose;
use crate::local::events::Watermark;
use crate::local::facts::with_facts;
use crate::local::opened::Opened;
use crate::local::vetting::Decided;
use crate::lock::lock;
use crate::options::MemoryOptions;
use crate::request::{Reply, Request};
use crate::storage::Heard;

pub(crate) use transfer::parse_line;

/// The pause before a database that could not be opened is tried again.
const BETWEEN_OPENINGS: Duration = Duration::from_millis(500);

/// Memory whose folder no other process has open.
pub(crate) struct Local {
    folder: PathBuf,
    options: MemoryOptions,
    opened: RwLock<Option<Opened>>,
    /// The last durable event.
    watermark: Arc<Watermark>,
    /// The time of and the reason for the last failure to open a database.
    failure: Mutex<Option<(Instant, MemoryError)>>,
    /// The due list. Its lock is held while it is applied.
    due: Mutex<DueList>,
}

impl Local {
    /// The memory in an existing `folder`, not yet open; [`Local::open`] or the first request opens it.
    pub(crate) fn closed(folder: &Path, options: MemoryOptions) -> Local {
        let (watermark, due) = (Arc::new(Watermark::new(0)), Mutex::new(DueList::new(folder)));
        let (opened, failure) = (RwLock::default(), Mutex::default());
        Local { folder: folder.to_owned(), options, opened, watermark, failure, due }
    }

    /// Opens or creates memory and applies the due list. Requests wait meanwhile.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(crate) fn open(&self) -> Result<(), MemoryError> {
        self.with_opened(|_| Ok(()))?;
        if let Err(error) = self.take_in_due() {
            tracing::warn!(%error, "the due list is not applied yet");
        }
        Ok(())
    }

    /// Answers a request. A repeated request, whose sender did not receive the answer, is not applied twice.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub(crate) fn answer(&self, request: &Request, is_repeated: bool) -> Result<Reply, MemoryError> {
        if let Request::AwaitEvents { after, milliseconds, .. } = request {
            self.with_opened(|opened| {
                let database = opened.storage.database();
                database.iter().for_each(|database| database.on_events(&|| raising(&self.watermark)));
                Ok(())
            })?;
            self.watermark.wait_past(*after, *milliseconds);
        }
        match self.take_in_due() {
            // The request may be about an answer that is itself on the due list.
            Err(error) if request.can_be_kept() || self.is_due(request) => return Err(error),
            _ => {}
        }
        self.answer_now(request, is_repeated)
    }

    fn answer_now(&self, request: &Request, is_repeated: bool) -> Result<Reply, MemoryError> {
        let mut reply = self.try_answer(request, is_repeated);
        if self.close_broken() && reply.is_err() {
            // An earlier failure may show only in the next request.
            reply = self.try_answer(request, true);
            self.close_broken();
        }
        let reply = reply?;
        if let (Request::AppendEvent { .. }, Reply::Number(event)) = (request, &reply) {
            self.watermark.raise(*event);
        }
        Ok(reply)
    }

    /// Wakes every caller that waits for events, and makes later ones return at once.
    pub(crate) fn stop_waiting(&self) {
        self.watermark.close();
    }

    fn try_answer(&self, request: &Request, is_repeated: bool) -> Result<Reply, MemoryError> {
        let mut reply = self.with_opened(|opened| self.answer_from(opened, request, is_repeated))?;
        if let (Request::Statistics { whose: Whose::Everyones }, Reply::Statistics(statistics)) = (request, &mut reply)
        {
            // Not while storage is in use: a thread that applies the due list may wait for that.
            statistics.due = self.n_due();
        }
        Ok(reply)
    }

    fn with_opened<R>(&self, work: impl FnOnce(&Opened) -> Result<R, MemoryError>) -> Result<R, MemoryError> {
        loop {
            let guard = self.opened.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(opened) = guard.as_ref() {
                return work(opened);
            }
            drop(guard);
            let mut guard = self.opened.write().unwrap_or_else(PoisonError::into_inner);
            if guard.is_none() {
                let opened = self.try_to_open()?;
                self.watermark.raise(opened.last_event()?);
                *guard = Some(opened);
            }
        }
    }

    /// Opens storage. Callers that waited during a failed attempt get its error instead of a new attempt.
    fn try_to_open(&self) -> Result<Opened, MemoryError> {
        let mut failure = lock(&self.failure);
        if let Some((at, error)) = failure.as_ref()
            && at.elapsed() < BETWEEN_OPENINGS
        {
            return Err(error.clone());
        }
        let opened = Opened::open(&self.folder, &self.options);
        let is_remote = self.options.url.is_some();
        *failure = opened.as_ref().err().filter(|_| is_remote).map(|error| (Instant::now(), error.clone()));
        opened
    }

    /// Closes storage if it is broken; returns whether it was.
    fn close_broken(&self) -> bool {
        let is_sound = |opened: &Option<Opened>| !opened.as_ref().is_some_and(Opened::is_broken);
        if is_sound(&self.opened.read().unwrap_or_else(PoisonError::into_inner)) {
            return false;
        }
        let mut guard = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        let is_broken = guard.as_ref().is_some_and(Opened::is_broken);
        if is_broken {
            match &self.options.url {
                Some(_) => tracing::debug!("the database failed and will be connected again"),
                None => tracing::warn!(folder = %self.folder.display(), "storage failed and will be reopened"),
            }
            *guard = None;
        }
        is_broken
    }

    fn answer_from(&self, opened: &Opened, request: &Request, is_repeated: bool) -> Result<Reply, MemoryError> {
        Ok(match request {
            Request::Remember { engram, vector, facts, lease } => {
                Reply::Number(opened.remember(engram, vector.clone(), facts.as_deref(), *lease)?)
            }
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
                Reply::Recalled(opened.search(vector, *n, filters, ranking)?)
            }
            Request::Recall { question, n, filters, ranking } => {
                Reply::Recalled(opened.recall(question, *n, filters, ranking)?)
            }
            Request::List { filters, n } => Reply::Engrams(opened.list(filters, *n)?),
            Request::Remove { ids } => {
                let (updates, mut removed) = opened.remove(ids)?;
                removed.extend(with_facts(ids));
                self.forget_in_backups(&removed);
                Reply::Updates(updates)
            }
            Request::WithoutVector { model, n } => Reply::Engrams(opened.without_vector(model, *n)?),
            Request::WithoutFacts { n } => Reply::Engrams(opened.without_facts(*n)?),
            Request::AddFacts { id, facts } => Reply::Updates(vec![opened.add_facts(*id, facts)?]),
            Request::Resolve { prefix } => Reply::Ids(opened.ids_with_prefix(prefix)?),
            Request::Abbreviate { ids } => Reply::Lengths(opened.abbreviate(ids)?),
            Request::Statistics { whose } => Reply::Statistics(Box::new(match whose {
                Whose::Everyones => opened.statistics()?,
                Whose::Of(_) => opened.tallies(*whose)?,
            })),
            Request::Outlines { whose, with_feedback } => Reply::Outlines(opened.outlines(*whose, *with_feedback)?),
            Request::Verify => Reply::Verification(opened.verify()?),
            Request::Export { after, n } => opened.export(*after, *n)?,
            Request::These { ids } => Reply::Exported { engrams: opened.these(ids)?, last: 0 },
            Request::Compare { engrams } => Reply::Standings(opened.compare(engrams)?),
            Request::Import { engrams } => Reply::Number(opened.import(engrams)?),
            Request::AppendEvent { envelope } => Reply::Number(opened.append_event(envelope, is_repeated)?),
            Request::Events { filter, after } => Reply::Events(opened.events(filter, after.unwrap_or(0), u64::MAX)?),
            Request::LastEvent => Reply::Number(self.last_event(opened)?),
            Request::AwaitEvents { filter, after, .. } => {
                let seen = self.last_event(opened)?.max(*after);
                Reply::News { events: opened.events(filter, *after, seen)?, seen }
            }
            Request::Backlog => Reply::Backlog(opened.backlog()?),
            Request::Claim { lease, wanted } => Reply::Engrams(opened.claim(*lease, wanted)?),
            Request::Renew { lease } => Reply::Number(opened.renew(*lease)?),
            Request::Release { holder } => Reply::Number(opened.release(*holder)?),
            Request::MakeDue { ids } => Reply::Updates(opened.make_due(ids)?),
            Request::Vet { id, vetting, event } => self.decided(opened.vet(*id, vetting, event)?),
            Request::Rule { id, ruling, event } => self.decided(opened.rule(*id, *ruling, event)?),
            Request::PutDocument { name, listed, content, is_new, replaced } => {
                Reply::Updates(vec![opened.put_document(name, listed, content, *is_new, *replaced)?])
            }
            Request::Document { name } => {
                Reply::Document(opened.document(name)?.map(|(listed, content)| (listed.write, content)))
            }
            Request::Documents { folder } => Reply::Documents(opened.documents(folder)?),
            Request::RenameDocument { name, new_name } => Reply::Updates(vec![opened.rename_document(name, new_name)?]),
            Request::RemoveDocument { name } => Reply::Updates(vec![opened.remove_document(name)?]),
            Request::ExportEvents { after, n } => Reply::ExportedEvents(opened.export_events(*after, *n)?),
            Request::ImportEvents { events } => Reply::Number(opened.import_events(events)?),
            Request::Critiques { since } => Reply::Critiques(opened.critiques(*since)?),
            Request::CriticOverride => Reply::CriticOverride(opened.critic_override()?),
            Request::SetCriticOverride { mode, event } => {
                let number = opened.set_critic_override(*mode, event)?;
                self.watermark.raise(number);
                Reply::Number(number)
            }
        })
    }

    /// The number of the last durable event.
    fn last_event(&self, opened: &Opened) -> Result<u64, MemoryError> {
        match opened.storage.database() {
            Some(_) => opened.last_event(),
            None => Ok(self.watermark.last()),
        }
    }

    fn decided(&self, (update, event): Decided) -> Reply {
        event.iter().for_each(|number| self.watermark.raise(*number));
        Reply::Updates(vec![update])
    }
}

/// Raises the watermark with the events of other processes, for as long as the watermark exists.
fn raising(watermark: &Arc<Watermark>) -> Heard {
    let watermark: Weak<Watermark> = Arc::downgrade(watermark);
    Box::new(move |event| watermark.upgrade().inspect(|watermark| watermark.raise(event)).is_some())
}
