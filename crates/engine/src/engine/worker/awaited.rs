//! Models that are to come into memory, and the requests that wait for them.

use std::time::Duration;

use hone_protocol::{GenerateError, Lane, ModelFile, with_causes};

use super::Worker;
use super::loading::warn_of_draft;
use super::source::ModelSource;
use crate::engine::submission::Submission;
use crate::scheduler::ModelId;
use crate::scheduler::residency::Admission;

/// What loading is guessed to take, for those who are told to try again: some time to begin with, and the reading.
const LOADING_SECONDS: f64 = 1.0;
const LOADING_BYTES_PER_SECOND: f64 = 1e9;

/// A model that is not in memory, and who waits for it.
pub(super) struct AwaitedModel {
    pub(super) source: ModelSource,
    pub(super) waiting: Vec<Submission>,
}

impl AwaitedModel {
    /// As urgent as the most urgent request.
    fn lane(&self) -> Lane {
        self.waiting.iter().map(Submission::lane).min().unwrap_or(Lane::Batch)
    }
}

/// How long loading may take.
fn loading_time(file: &ModelFile) -> Duration {
    Duration::from_secs_f64(LOADING_SECONDS + file.length as f64 / LOADING_BYTES_PER_SECOND)
}

impl Worker {
    /// Lets a request wait for its model, which is not in memory.
    pub(super) fn wait_for_model(&mut self, submission: Submission) {
        let (file, lane) = (submission.file().clone(), submission.lane());
        let (queued, limit) = (self.n_waiting(lane), self.options.scheduler.queue_limits[lane as usize]);
        // What is parked had been taken already.
        if queued >= limit && !matches!(submission, Submission::Parked(..)) {
            self.scheduler.refuse(lane);
            return submission.fail(GenerateError::Busy { lane, queued, retry_after: loading_time(&file) });
        }
        if self.awaited_model(&file).is_none() {
            match ModelSource::read(file.clone(), submission.model(), &self.options, &*self.locator) {
                Ok(source) => self.awaited.push(AwaitedModel { source, waiting: Vec::new() }),
                // Where the file is damaged, what its header makes of that is of no interest.
                Err(error) => {
                    let damage = self.locator.verify(&file).err().map(|damage| damage.to_string());
                    let reason = damage.unwrap_or_else(|| with_causes(&error));
                    return self.refuse_all(vec![submission], &reason);
                }
            }
        }
        if let Some(awaited) = self.awaited_model(&file) {
            awaited.waiting.push(submission);
        }
    }

    /// A model that is on its way or waits for memory.
    fn awaited_model(&mut self, file: &ModelFile) -> Option<&mut AwaitedModel> {
        let loading = self.loading.iter_mut().map(|loading| &mut loading.awaited);
        loading.chain(&mut self.awaited).find(|awaited| awaited.source.file == *file)
    }

    /// Requests of a lane that wait for models.
    fn n_waiting(&self, lane: Lane) -> usize {
        let loading = self.loading.iter().map(|loading| &loading.awaited);
        let waiting = loading.chain(&self.awaited).flat_map(|awaited| &awaited.waiting);
        waiting.filter(|submission| submission.lane() == lane).count()
    }

    /// Has models loaded that there is memory for now, the most urgent first. One that has to wait holds up those that are
    /// as urgent, so that a large model is not passed by small ones for ever.
    pub(super) fn load_awaited(&mut self) {
        self.note_urgency();
        if self.awaited.is_empty() {
            return;
        }
        self.drop_cancelled_waiting();
        self.awaited.sort_by_key(AwaitedModel::lane);
        let (mut held_up, mut held) = (None, Vec::new());
        for awaited in std::mem::take(&mut self.awaited) {
            let lane = awaited.lane();
            let waits = if held_up == Some(lane) { Some(awaited) } else { self.load_if_admitted(awaited, lane) };
            if let Some(awaited) = waits {
                held_up = Some(lane);
                held.push(awaited);
            }
        }
        // Those that have had to leave meanwhile wait behind them.
        held.append(&mut self.awaited);
        self.awaited = held;
    }

    /// Begins to load a model where it is admitted; returns it where it has to wait.
    fn load_if_admitted(&mut self, mut awaited: AwaitedModel, lane: Lane) -> Option<AwaitedModel> {
        let id = ModelId(self.n_models);
        let demand = awaited.source.demand;
        // What can be had without taking memory from others, and from others' requests, comes before a larger cache.
        let residency = &self.residency;
        let rooms = [residency.free(), residency.attainable(Lane::Batch), residency.attainable(lane)];
        let room = rooms.into_iter().find(|room| demand.within(*room).0.total() <= *room).unwrap_or(rooms[2]);
        let (memory, positions) = demand.within(room);
        let unloaded = match self.residency.admit(id, memory, lane, self.now()) {
            Ok(Admission::Now(unloaded)) => unloaded,
            Ok(Admission::Later) => return Some(awaited),
            Err(error) if let Some(draft) = awaited.source.draft.take() => {
                warn_of_draft(&draft.path.display().to_string(), &format!("with it, {error}"));
                awaited.source.demand = demand.alone();
                return self.load_if_admitted(awaited, lane);
            }
            Err(error) => {
                self.refuse_all(awaited.waiting, &error.to_string());
                return None;
            }
        };
        self.n_models += 1;
        self.residency.set_pinned(id, awaited.source.is_pinned);
        unloaded.into_iter().for_each(|id| self.unload(id));
        self.begin_loading(id, awaited, lane, positions);
        None
    }

    /// Takes memory from a model. Requests that it has wait until it is loaded again.
    pub(super) fn unload(&mut self, id: ModelId) {
        let parked = self.scheduler.park(id, self.now());
        let Some(mut model) = self.forget(id) else { return };
        let waiting: Vec<Submission> = parked
            .into_iter()
            .filter_map(|parked| {
                model.take_off(parked.id()).map(|request| Submission::Parked(Box::new(request), parked))
            })
            .collect();
        if !waiting.is_empty() {
            tracing::debug!(model = model.source.name, n_requests = waiting.len(), "makes room for something urgent");
            self.awaited.push(AwaitedModel { source: model.source.clone(), waiting });
        }
        self.let_go(model);
    }

    /// Tells requests that their model cannot be had.
    pub(super) fn refuse_all(&mut self, waiting: Vec<Submission>, reason: &str) {
        for submission in waiting {
            submission.fail(GenerateError::Model { model: submission.model().to_owned(), reason: reason.to_owned() });
            if let Submission::Parked(_, parked) = &submission {
                self.scheduler.fail_parked(parked);
            }
        }
    }

    fn drop_cancelled_waiting(&mut self) {
        for awaited in &mut self.awaited {
            let cancelled = awaited.waiting.extract_if(.., |submission| submission.is_cancelled());
            for submission in cancelled {
                if let Submission::Parked(_, parked) = &submission {
                    self.scheduler.cancel_parked(parked);
                }
            }
        }
        self.awaited.retain(|awaited| !awaited.waiting.is_empty());
    }
}
