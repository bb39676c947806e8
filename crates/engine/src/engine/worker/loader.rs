//! Loads and unloads models, and holds the requests that wait for them.
//!
//! Each model is loaded by a thread of its own, while the others run. A prefix computed with a departing model is saved
//! by another thread; the next load waits until that thread has freed its memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use hone_protocol::{GenerateError, GenerationEvent, Lane, LocateModel, ModelFile, with_causes};

use super::resident::ResidentModel;
use super::residents::Residents;
use super::saved_prefixes::SavedPrefixes;
use super::source::{ModelSource, Portion, warn_of_draft};
use super::verified::Verified;
use crate::backend::LoadProgress;
use crate::backend::native::ComputeThreads;
use crate::engine::status::{ModelState, ModelStatus};
use crate::engine::submission::{LoadedTexts, Submission};
use crate::engine::{EngineOptions, Event};
use crate::kv_cache::BLOCK_TOKENS;
use crate::model::{LoadOptions, Model, ModelError};
use crate::scheduler::cost::CostModel;
use crate::scheduler::{Admission, ModelId, ModelTraits, Scheduler};
use crate::speculation::draft_model::DraftModel;

/// Estimated loading time for requests that are told to try again: a fixed part, plus the time to read the file.
const LOADING_SECONDS: f64 = 1.0;
const LOADING_BYTES_PER_SECOND: f64 = 1e9;

/// Loads and unloads models.
pub(super) struct Loader {
    options: EngineOptions,
    locator: Arc<dyn LocateModel>,
    /// The texts of the models in memory, for callers that prepare requests.
    texts: LoadedTexts,
    events: Sender<Event>,
    threads: ComputeThreads,
    awaited: Vec<AwaitedModel>,
    loading: Vec<LoadingModel>,
    /// Threads that save the prefixes of departing models.
    leaving: Vec<JoinHandle<()>>,
    /// Models that leave as soon as they are idle.
    released: Vec<ModelId>,
    n_models: u32,
}

/// A model that is not in memory, and the requests that wait for it.
struct AwaitedModel {
    source: ModelSource,
    waiting: Vec<Submission>,
}

/// A model that is being loaded.
struct LoadingModel {
    id: ModelId,
    awaited: AwaitedModel,
    thread: JoinHandle<()>,
}

/// The result of a loading thread.
pub(in crate::engine) struct Loaded {
    id: ModelId,
    model: Result<(Model, Option<DraftModel>), String>,
}

impl AwaitedModel {
    /// The lane of its most urgent request.
    fn lane(&self) -> Lane {
        self.waiting.iter().map(Submission::lane).min().unwrap_or(Lane::Batch)
    }
}

impl Loader {
    pub(super) fn new(
        options: EngineOptions,
        locator: Arc<dyn LocateModel>,
        texts: LoadedTexts,
        events: Sender<Event>,
    ) -> Self {
        Loader {
            threads: ComputeThreads::new(options.model.n_threads),
            options,
            locator,
            texts,
            events,
            awaited: Vec::new(),
            loading: Vec::new(),
            leaving: Vec::new(),
            released: Vec::new(),
            n_models: 0,
        }
    }

    /// Whether no request waits for a model.
    pub(super) fn is_idle(&self) -> bool {
        self.awaited.is_empty() && self.loading.is_empty()
    }

    /// Lets a request wait for its model, which is not in memory.
    pub(super) fn wait_for_model(&mut self, submission: Submission, scheduler: &mut Scheduler) {
        // Cancelled requests make room for this one.
        self.drop_cancelled(scheduler);
        let (file, lane) = (submission.file().clone(), submission.lane());
        let (queued, limit) = (self.n_waiting(lane), self.options.scheduler.queue_limits[lane as usize]);
        // Parked requests were accepted earlier.
        if queued >= limit && !matches!(submission, Submission::Parked(..)) {
            scheduler.refuse(lane);
            return submission.fail(GenerateError::Busy { lane, queued, retry_after: loading_time(&file) });
        }
        if let Some(awaited) = self.awaited_model(&file) {
            return awaited.waiting.push(submission);
        }
        match ModelSource::read(file.clone(), submission.model(), &self.options, &*self.locator) {
            Ok(source) if source.gives_rewards && !submission.wants_reward() => {
                refuse_all(vec![submission], &ModelError::Head.to_string(), scheduler);
            }
            Ok(source) => self.awaited.push(AwaitedModel { source, waiting: vec![submission] }),
            // If the file is damaged, errors derived from its header do not matter.
            Err(error) => {
                let damage = self.locator.verify(&file).err().map(|damage| damage.to_string());
                refuse_all(vec![submission], &damage.unwrap_or_else(|| with_causes(&error)), scheduler);
            }
        }
    }

    /// A model that is being loaded or waits for memory.
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

    /// Loads the models that now fit into memory, the most urgent first. One that has to wait holds up equally urgent
    /// ones, so that small models do not overtake a large one indefinitely.
    pub(super) fn load_awaited(&mut self, residents: &mut Residents) {
        self.drop_cancelled(&mut residents.scheduler);
        self.awaited.sort_by_key(AwaitedModel::lane);
        let (mut held_up, mut held) = (None, Vec::new());
        for awaited in std::mem::take(&mut self.awaited) {
            let lane = awaited.lane();
            let waits =
                if held_up == Some(lane) { Some(awaited) } else { self.load_if_admitted(awaited, lane, residents) };
            if let Some(awaited) = waits {
                held_up = Some(lane);
                held.push(awaited);
            }
        }
        // Models that had to leave in the meantime wait behind them.
        held.append(&mut self.awaited);
        self.awaited = held;
    }

    /// Drops cancelled requests. A model that is being loaded is kept even if no request is left: the next request
    /// finds it in memory.
    fn drop_cancelled(&mut self, scheduler: &mut Scheduler) {
        let loading = self.loading.iter_mut().map(|loading| &mut loading.awaited);
        for awaited in loading.chain(&mut self.awaited) {
            let cancelled = awaited.waiting.extract_if(.., |submission| submission.is_cancelled());
            for submission in cancelled {
                if let Submission::Parked(_, parked) = &submission {
                    scheduler.cancel_parked(parked);
                }
            }
        }
        self.awaited.retain(|awaited| !awaited.waiting.is_empty());
    }

    /// Begins to load a model if it is admitted; returns it if it has to wait.
    fn load_if_admitted(
        &mut self,
        mut awaited: AwaitedModel,
        lane: Lane,
        residents: &mut Residents,
    ) -> Option<AwaitedModel> {
        let id = ModelId(self.n_models);
        let ModelSource { demand, is_pinned, .. } = awaited.source.clone();
        let scheduler = &mut residents.scheduler;
        // Free memory is used first, then the memory of idle models, then that of models with requests; a larger cache
        // comes last. Experts stay in the file only if all of that does not suffice.
        let attainable = scheduler.attainable_memory(lane);
        let rooms = [scheduler.free_memory(), scheduler.attainable_memory(Lane::Batch), attainable];
        // A model that fits whole takes turns with the others, and is not divided because they are in use.
        let largest = if demand.may_be_divided() { scheduler.most_memory() } else { attainable };
        let room = rooms.into_iter().find(|room| demand.fits(*room)).unwrap_or(largest);
        let portion = demand.within(room);
        let memory = portion.memory;
        if let Some(free) = self.options.processor_memory.filter(|free| portion.beside_card > *free) {
            let [needed, free] = [portion.beside_card, free].map(|n_bytes| n_bytes.div_ceil(1 << 20));
            let reason = format!(
                "its layers that do not fit into the GPU's memory need {needed} MiB beside it, and {free} MiB are \
                 available: a smaller model or a shorter context (engine.context) needs less"
            );
            refuse_all(awaited.waiting, &reason, scheduler);
            return None;
        }
        let unloaded = match scheduler.admit_model(id, memory, is_pinned, lane) {
            Ok(Admission::Now(unloaded)) => unloaded,
            Ok(Admission::Later) => return Some(awaited),
            Err(error) if let Some(draft) = awaited.source.draft.take() => {
                warn_of_draft(&draft.path.display().to_string(), &format!("with it, {error}"));
                awaited.source.demand = demand.alone();
                return self.load_if_admitted(awaited, lane, residents);
            }
            Err(error) => {
                refuse_all(awaited.waiting, &error.to_string(), scheduler);
                return None;
            }
        };
        self.n_models += 1;
        unloaded.into_iter().for_each(|id| self.unload(id, residents));
        self.begin_loading(id, awaited, lane, portion, &mut residents.scheduler);
        None
    }

    /// Begins to load an admitted model. If that fails, the waiting requests are told.
    fn begin_loading(
        &mut self,
        id: ModelId,
        awaited: AwaitedModel,
        lane: Lane,
        portion: Portion,
        scheduler: &mut Scheduler,
    ) {
        // Alongside steps that are as urgent, a single low-priority thread does the loading.
        let is_beside = scheduler.urgency().is_some_and(|urgency| urgency <= lane);
        let load = LoadOptions {
            progress: self.progress(id),
            threads: Some(self.threads.clone()),
            n_loading: is_beside.then_some(1),
            cache_positions: Some(portion.positions),
            expert_bytes: portion.expert_bytes,
            n_gpu_layers: portion.n_gpu_layers,
            with_head: awaited.source.with_head,
            with_reward_head: awaited.source.gives_rewards,
            ..self.options.model.clone().into()
        };
        if let Some(kept) = portion.expert_bytes {
            awaited.source.warn_of_experts(kept);
        }
        if let Some(n_layers) = portion.n_gpu_layers {
            awaited.source.warn_of_division(n_layers);
        }
        match self.spawn_loading(id, &awaited.source, load, is_beside) {
            Ok(thread) => {
                tracing::debug!(model = awaited.source.name, "loading");
                self.loading.push(LoadingModel { id, awaited, thread });
            }
            Err(error) => {
                scheduler.remove_model(id);
                refuse_all(awaited.waiting, &error.to_string(), scheduler);
            }
        }
    }

    /// Tells the engine how much of a model is in memory.
    fn progress(&self, id: ModelId) -> LoadProgress {
        let events = self.events.clone();
        LoadProgress::told_to(move |done, total| {
            // Without an engine, no one waits for the model.
            let _ = events.send(Event::Loading(id, done, total));
        })
    }

    /// Tells the requests that wait for a model how much of it is in memory.
    pub(super) fn tell_progress(&self, id: ModelId, done: u64, total: u64) {
        let loading = self.loading.iter().filter(|loading| loading.id == id);
        let callers = loading.flat_map(|loading| &loading.awaited.waiting).filter_map(Submission::caller);
        callers.for_each(|caller| caller.send(GenerationEvent::Loading { done, total }));
    }

    fn spawn_loading(
        &mut self,
        id: ModelId,
        source: &ModelSource,
        load: LoadOptions,
        gives_way: bool,
    ) -> std::io::Result<JoinHandle<()>> {
        let (events, locator) = (self.events.clone(), self.locator.clone());
        let (file, draft) = (source.file.clone(), source.draft.clone());
        let leaving = std::mem::take(&mut self.leaving);
        std::thread::Builder::new().name("hone-load".into()).spawn(move || {
            if gives_way {
                give_way();
            }
            // This model needs their memory.
            leaving.into_iter().for_each(wait_for);
            let loaded = catch_unwind(AssertUnwindSafe(|| {
                let model = Verified { locator: &*locator, load: &load }.load(&file)?;
                // A draft that is divided would be no faster than the model.
                let whole = LoadOptions { n_gpu_layers: None, ..load };
                let verified = Verified { locator: &*locator, load: &whole };
                let draft = draft.and_then(|draft| load_draft(&draft, &file, &model, &verified));
                Ok((model, draft))
            }));
            let bug = || Err("loading failed unexpectedly: this is a bug in hone".to_owned());
            let model = loaded.unwrap_or_else(|_| bug());
            // Without an engine, no one waits for the model.
            let _ = events.send(Event::Loaded(Box::new(Loaded { id, model })));
        })
    }

    /// A model has been loaded, or loading failed: returns the requests that wait for it, or tells them.
    pub(super) fn finish(&mut self, loaded: Loaded, residents: &mut Residents) -> Vec<Submission> {
        let Some(index) = self.loading.iter().position(|loading| loading.id == loaded.id) else { return Vec::new() };
        let LoadingModel { id, awaited: AwaitedModel { source, waiting }, thread } = self.loading.swap_remove(index);
        wait_for(thread);
        match loaded.model {
            Ok((model, draft)) => {
                tracing::debug!(model = source.name, "loaded");
                self.add(id, source, model, draft, residents);
                waiting
            }
            Err(reason) => {
                residents.scheduler.remove_model(id);
                refuse_all(waiting, &reason, &mut residents.scheduler);
                Vec::new()
            }
        }
    }

    fn add(
        &self,
        id: ModelId,
        source: ModelSource,
        model: Model,
        draft: Option<DraftModel>,
        residents: &mut Residents,
    ) {
        let traits = ModelTraits {
            kv_blocks: model.cache_positions() / BLOCK_TOKENS,
            slices: model.n_slices(),
            cost: CostModel::for_weights(source.file.size()),
        };
        if draft.is_none()
            && source.draft.is_some()
            && let Some(memory) = residents.scheduler.memory(id)
        {
            residents.scheduler.set_memory(id, source.demand.without_draft(memory, model.cache_positions()));
        }
        self.texts.insert(source.file.clone(), model.text().clone());
        let saved = self.options.prefix_folder.as_ref().map(|folder| SavedPrefixes::open(folder, &source.file, &model));
        let saved = saved.transpose().unwrap_or_else(|error| {
            tracing::debug!(%error, "saved prefixes of earlier conversations are unavailable");
            None
        });
        let mut resident = ResidentModel::new(id, source, model);
        (resident.draft, resident.saved) = (draft, saved);
        residents.add(resident, traits);
    }

    /// Unloads models that have been idle for long enough, or are to leave as soon as they are idle.
    pub(super) fn unload_idle(&mut self, residents: &mut Residents) {
        let (scheduler, now) = (&residents.scheduler, residents.now());
        let mut leaving = self.released_and_idle(residents);
        let expired = self.options.keep_alive.map(|keep_alive| scheduler.expired_models(keep_alive, now));
        leaving.extend(expired.into_iter().flatten().filter(|id| !self.released.contains(id)));
        for id in leaving {
            self.unload(id, residents);
        }
    }

    /// The idle models that are to leave as soon as they are idle.
    fn released_and_idle(&self, residents: &Residents) -> Vec<ModelId> {
        let mut idle = residents.scheduler.expired_models(Duration::ZERO, residents.now());
        idle.retain(|id| self.released.contains(id));
        idle
    }

    /// Unloads the model of this name as soon as it is no longer in use.
    pub(super) fn release(&mut self, name: &str, residents: &mut Residents) {
        self.released.retain(|id| residents.iter().any(|model| model.id == *id));
        self.released.extend(residents.iter().filter(|model| model.source.name == name).map(|model| model.id));
        residents.drop_cancelled();
        self.unload_idle(residents);
    }

    /// Time until the next idle model is to be unloaded.
    pub(super) fn next_expiry(&self, residents: &Residents) -> Option<Duration> {
        if !self.released_and_idle(residents).is_empty() {
            return Some(Duration::ZERO);
        }
        let expiry = residents.scheduler.next_expiry(self.options.keep_alive?)?;
        Some(expiry.saturating_sub(residents.now()))
    }

    /// Unloads a model. Its requests wait until it is loaded again.
    fn unload(&mut self, id: ModelId, residents: &mut Residents) {
        let Some((mut model, parked)) = residents.remove(id) else { return };
        self.texts.remove(&model.source.file);
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
        self.save(model);
    }

    /// Saves the prefix computed with a model, if it is worth saving, and drops the model.
    fn save(&mut self, mut model: ResidentModel) {
        if !model.saves_prefix() {
            return;
        }
        // Writing it takes longer than other requests should wait for their next tokens.
        let leave = move || model.save_prefix();
        self.leaving.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name("hone-leave".into()).spawn(leave) {
            Ok(thread) => self.leaving.push(thread),
            Err(error) => tracing::warn!(%error, "the computed prefix of the conversation is not saved"),
        }
    }

    /// Drops a model whose state is unknown; its requests fail.
    pub(super) fn drop_broken(&mut self, id: ModelId, error: &GenerateError, residents: &mut Residents) {
        let Some((mut model, parked)) = residents.remove(id) else { return };
        parked.iter().for_each(|parked| residents.scheduler.fail_parked(parked));
        self.texts.remove(&model.source.file);
        model.fail_all(error);
    }

    /// Models that are being loaded, and those that wait for memory.
    pub(super) fn status(&self, scheduler: &Scheduler) -> Vec<ModelStatus> {
        let status = |state, memory, awaited: &AwaitedModel| {
            ModelStatus::awaited(&awaited.source.name, state, memory, awaited.waiting.len())
        };
        let loading = self.loading.iter().map(|loading| {
            status(ModelState::Loading, scheduler.memory(loading.id).unwrap_or_default(), &loading.awaited)
        });
        let waiting =
            self.awaited.iter().map(|one| status(ModelState::Waiting, one.source.demand.whole_within(0).memory, one));
        loading.chain(waiting).collect()
    }

    /// Waits until everything is saved.
    pub(super) fn join(self) {
        self.leaving.into_iter().for_each(wait_for);
    }
}

/// Estimated loading time of a file.
fn loading_time(file: &ModelFile) -> Duration {
    Duration::from_secs_f64(LOADING_SECONDS + file.size() as f64 / LOADING_BYTES_PER_SECOND)
}

/// Tells requests that their model is unavailable.
fn refuse_all(waiting: Vec<Submission>, reason: &str, scheduler: &mut Scheduler) {
    for submission in waiting {
        submission.fail(GenerateError::Model { model: submission.model().to_owned(), reason: reason.to_owned() });
        if let Submission::Parked(_, parked) = &submission {
            scheduler.fail_parked(parked);
        }
    }
}

/// Waits for a thread to end. If it panicked, the panic has already been printed.
fn wait_for(thread: JoinHandle<()>) {
    let _ = thread.join();
}

/// Lowers the priority of this thread, and of threads it starts, so that they yield to more urgent ones.
#[cfg(target_os = "linux")]
fn give_way() {
    /// Gives the thread a tenth of the normal scheduling weight.
    const NICENESS: i32 = 10;
    // On Linux this affects the calling thread only.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "loading does not give way to running requests");
    }
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}

/// Loads the model that drafts for `model`. A failure is only a warning: `model` answers without it.
fn load_draft(file: &ModelFile, model_file: &ModelFile, model: &Model, verified: &Verified<'_>) -> Option<DraftModel> {
    let relative_cost = file.size() as f32 / model_file.size().max(1) as f32;
    let draft = verified
        .load(file)
        .and_then(|draft| DraftModel::new(draft, relative_cost, model.tokenizer()).map_err(|error| error.to_string()));
    draft.inspect_err(|reason| warn_of_draft(&file.path.display().to_string(), reason)).ok()
}
