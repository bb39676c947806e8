//! All models in memory, and the scheduler that decides which of them runs next.

use std::time::{Duration, Instant};

use hone_protocol::ModelFile;

use super::resident::ResidentModel;
use crate::scheduler::{ModelId, ModelTraits, ParkedRequest, RequestId, Scheduler, Turn};

/// The models in memory. The scheduler knows the same ones: models are added to and removed from both here.
pub(super) struct Residents {
    pub(super) scheduler: Scheduler,
    models: Vec<ResidentModel>,
    /// The zero of the scheduler's time.
    started: Instant,
}

impl Residents {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Residents { scheduler, models: Vec::new(), started: Instant::now() }
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ResidentModel> {
        self.models.iter()
    }

    /// A model and the scheduler.
    pub(super) fn get(&mut self, id: ModelId) -> Option<(&mut ResidentModel, &mut Scheduler)> {
        self.models.iter_mut().find(|model| model.id == id).map(|model| (model, &mut self.scheduler))
    }

    /// The model of a request, and the scheduler.
    pub(super) fn of_request(&mut self, id: RequestId) -> Option<(&mut ResidentModel, &mut Scheduler)> {
        self.models.iter_mut().find(|model| model.has(id)).map(|model| (model, &mut self.scheduler))
    }

    pub(super) fn of_file(&self, file: &ModelFile) -> Option<&ResidentModel> {
        self.models.iter().find(|model| model.source.file == *file)
    }

    pub(super) fn add(&mut self, model: ResidentModel, traits: ModelTraits) {
        let now = self.now();
        self.scheduler.add_model(model.id, traits, now);
        self.models.push(model);
    }

    /// Removes a model and detaches its requests.
    pub(super) fn remove(&mut self, id: ModelId) -> Option<(ResidentModel, Vec<ParkedRequest>)> {
        let parked = self.scheduler.park(id, self.now());
        self.scheduler.remove_model(id);
        let index = self.models.iter().position(|model| model.id == id)?;
        Some((self.models.swap_remove(index), parked))
    }

    /// Drops cancelled requests.
    pub(super) fn drop_cancelled(&mut self) {
        for model in &mut self.models {
            for id in model.cancelled() {
                self.scheduler.cancel(id);
                model.retire(id);
            }
        }
    }

    /// Decides which requests have a place in the KV caches.
    pub(super) fn turn(&mut self) -> Turn {
        for model in &self.models {
            self.scheduler.set_pinned_blocks(model.id, model.model.cache_usage().pinned);
        }
        self.scheduler.turn(self.now())
    }

    /// Saves the prefixes that are worth saving, at shutdown.
    pub(super) fn save_prefixes(&mut self) {
        self.models.iter_mut().for_each(ResidentModel::save_prefix);
    }
}
