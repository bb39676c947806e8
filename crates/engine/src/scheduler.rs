//! Schedules requests of three lanes and several models on one device.
//!
//! The scheduler is pure. It is told events and the time (a request arrives, a step is done), and answers with
//! decisions: a [`Turn`] says which requests get or lose a place in the KV cache, a [`StepPlan`] which tokens of which
//! requests the next step computes. It owns no tensors, no clock and no threads, so every rule can be tested with
//! simulated time.
//!
//! A step runs one model and mixes prompts and answers of several requests. The rules, by precedence:
//!
//! - **Interactive work comes first at every step.** Less urgent work fills the gaps, in chunks that fit a time budget
//!   according to the model's [cost model](cost), so that interactive work never waits longer than one chunk. If a
//!   model can be suspended inside a step, the chunk is a slice of the step rather than the whole step.
//! - **Nothing starves.** A lane below the one that runs earns a share of the time. When it has earned a chunk it is
//!   given one, but never two in a row while more urgent work waits. If it uses the same model, it joins the step with
//!   as many tokens as it has earned the time for.
//! - **Sessions take turns** within a lane: the one that has been given the least time comes first.
//! - **The KV cache is reserved** for everything a request may need before it starts. A request that finds no room
//!   pauses less urgent ones, which lose their place in the cache and later continue after the text they had generated;
//!   after [`SchedulerSettings::patience`] in the queue a request can no longer be paused.
//! - **Pinned prefixes keep their blocks** as long as the requests fit into the rest of the cache.
//! - **One memory budget** covers the weights and KV caches of all models. A model is admitted before it is loaded;
//!   idle models are unloaded to make room, the least recently used first.
//! - **A model may be unloaded** while less urgent requests wait or run on it, if another is needed sooner. Its
//!   requests are [parked](Scheduler::park), and return when it does.
//! - **A time limit leaves time for the conclusion** of a request that says how long its conclusion is: a prompt that
//!   takes too long is refused early, and the free part of an answer is ended.
//! - **Queues are bounded.** If a lane's queue is full, a request is refused with an estimate of when to try again.
//!
//! The order of calls: [`Scheduler::turn`], then [`Scheduler::start`] or [`Scheduler::follow`] for every request that
//! it names, then [`Scheduler::plan`], and after the step [`Scheduler::step_done`] or [`Scheduler::step_suspended`].

mod admission;
pub(crate) mod cost;
mod estimate;
mod lanes;
pub(crate) mod metrics;
mod plan;
mod request;
mod residency;
mod shortage;
mod step;
mod step_builder;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use hone_protocol::Lane;
use thiserror::Error;

use crate::kv_cache::BLOCK_TOKENS;
use cost::CostModel;
use lanes::Lanes;
use metrics::Metrics;
use request::{Request, RequestPhase};
use step::{RunningStep, SuspendedStep};

pub(crate) use admission::Turn;
pub(crate) use plan::{Pause, RequestProgress, StepKind, StepPlan};
pub(crate) use request::{Arrival, ParkedRequest};
pub(crate) use residency::{Admission, ModelMemory};
pub(crate) use shortage::LAST_SENTENCE_TOKENS;

/// Identifies a request. Later ones have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub u64);

/// Identifies a loaded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ModelId(pub u32);

/// How the device is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerSettings {
    /// Maximum time that less urgent work should hold the device at once.
    pub chunk: Duration,
    /// Maximum time that a part of an interactive prompt should delay other interactive requests' next tokens.
    pub interactive_chunk: Duration,
    /// Maximum time that a part of an interactive prompt should take if it delays no other request: cancellations and
    /// new requests wait at most this long.
    pub longest_step: Duration,
    /// Maximum number of prompt tokens in a step.
    pub prefill_tokens: usize,
    /// Maximum number of requests per model that hold a place in its KV cache at once.
    pub sequences: usize,
    /// Share of the time guaranteed to the background lane, however much interactive work there is; below 1.
    pub background_share: f64,
    /// Share of the time guaranteed to the batch lane, however much other work there is; below 1.
    pub batch_share: f64,
    /// How long a request waits for a place in the KV cache before it goes ahead of all others and can no longer be
    /// paused.
    pub patience: Duration,
    /// Maximum number of requests that wait for a place in the KV cache, in the order of [`Lane::ALL`].
    pub queue_limits: [usize; Lane::ALL.len()],
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        SchedulerSettings {
            chunk: Duration::from_millis(20),
            interactive_chunk: Duration::from_millis(100),
            longest_step: Duration::from_secs(1),
            prefill_tokens: 512,
            sequences: 64,
            background_share: 0.05,
            batch_share: 0.02,
            patience: Duration::from_secs(30),
            queue_limits: [256, 1024, 4096],
        }
    }
}

/// The properties of a model that the scheduler needs.
#[derive(Clone, Debug)]
pub(crate) struct ModelTraits {
    /// Blocks of its KV cache.
    pub kv_blocks: usize,
    /// Number of parts of about equal length into which a step can be divided, so that other models' steps can run in
    /// between; 1 if a step cannot be suspended.
    pub slices: usize,
    /// Estimated cost of its steps before any has been measured.
    pub cost: CostModel,
}

/// Why a request is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its lane's queue is full.
    #[error("{queued} {} requests wait already: try again in {:.1} seconds", lane.name(), retry_after.as_secs_f64())]
    QueueFull {
        /// The lane.
        lane: Lane,
        /// Requests waiting in it.
        queued: usize,
        /// An estimate of when one of them will have left the queue.
        retry_after: Duration,
    },
    /// The KV cache could never hold it.
    #[error("the request needs {needed} blocks of the KV cache, which has {available}: shorten it")]
    TooLarge {
        /// Blocks that the request may need.
        needed: usize,
        /// Blocks available.
        available: usize,
    },
    /// The model is not loaded.
    #[error("model {} is not loaded", .0.0)]
    UnknownModel(ModelId),
}

/// The scheduler's state, from which it decides everything.
#[derive(Debug)]
pub(crate) struct Scheduler {
    settings: SchedulerSettings,
    /// Bytes that all models together may take; `None` means unlimited.
    budget: Option<u64>,
    models: BTreeMap<ModelId, ScheduledModel>,
    requests: BTreeMap<RequestId, Request>,
    lanes: Lanes,
    /// The step that is being carried out.
    running: Option<RunningStep>,
    /// Whether the last step was an earned one that ran while more urgent work waited.
    was_earned: bool,
    metrics: Metrics,
    /// The latest time reported to the scheduler.
    latest: Duration,
}

/// A model that is in memory, or that has memory reserved while it is loaded.
#[derive(Debug)]
struct ScheduledModel {
    memory: ModelMemory,
    /// Whether it is never unloaded.
    is_pinned: bool,
    /// When its last request left, or when it was loaded.
    last_used: Duration,
    /// `None` while it is being loaded.
    ready: Option<ReadyModel>,
}

/// A model that is ready to run.
#[derive(Debug)]
struct ReadyModel {
    traits: ModelTraits,
    /// Blocks of pinned prefixes, left alone by requests that fit into the other blocks.
    pinned_blocks: usize,
    suspended: Option<SuspendedStep>,
}

impl Scheduler {
    /// A scheduler without models, whose models may take `budget` bytes together; `None` means unlimited.
    pub(crate) fn new(budget: Option<u64>, settings: SchedulerSettings) -> Self {
        let lanes = Lanes::new(&settings);
        Scheduler {
            settings,
            budget,
            models: BTreeMap::new(),
            requests: BTreeMap::new(),
            lanes,
            running: None,
            was_earned: false,
            metrics: Metrics::default(),
            latest: Duration::ZERO,
        }
    }

    /// A model has been loaded. If memory is bounded, it must have been [admitted](Scheduler::admit_model) before.
    pub(crate) fn add_model(&mut self, model: ModelId, traits: ModelTraits, now: Duration) {
        let state = self.models.entry(model).or_insert_with(|| ScheduledModel::new(ModelMemory::default(), false));
        state.ready = Some(ReadyModel { traits, pinned_blocks: 0, suspended: None });
        state.last_used = now;
    }

    /// A model has been unloaded, or cannot be loaded. Returns its requests, which are forgotten.
    pub(crate) fn remove_model(&mut self, model: ModelId) -> Vec<RequestId> {
        let requests: Vec<RequestId> =
            self.requests.values().filter(|request| request.model == model).map(|request| request.id).collect();
        requests.iter().for_each(|id| self.forget(*id));
        self.models.remove(&model);
        if self.running.as_ref().is_some_and(|running| running.plan.model == model) {
            self.running = None;
        }
        requests
    }

    /// Takes the requests off a model that is about to be unloaded. It may return under another id.
    pub(crate) fn park(&mut self, model: ModelId, now: Duration) -> Vec<ParkedRequest> {
        let ids = self.requests.values().filter(|request| request.model == model).map(|request| request.id);
        let parked: Vec<RequestId> = ids.collect();
        parked.into_iter().filter_map(|id| self.park_request(id, now)).collect()
    }

    fn park_request(&mut self, id: RequestId, now: Duration) -> Option<ParkedRequest> {
        let request = self.requests.get(&id)?;
        let (lane, session, model) = (request.lane, request.session, request.model);
        self.void_suspended(model, id);
        self.lanes.leave(lane, session);
        let mut request = self.requests.remove(&id)?;
        if !request.is_queued() {
            self.metrics.lane_mut(lane).counts.preemptions += 1;
        }
        request.become_parked(now);
        Some(ParkedRequest(Box::new(request)))
    }

    /// A parked request's model is in memory again.
    pub(crate) fn unpark(&mut self, parked: ParkedRequest, model: ModelId, now: Duration) {
        let ParkedRequest(mut request) = parked;
        request.become_queued(model, now);
        self.lanes.enter(request.lane, request.session);
        self.requests.insert(request.id, *request);
    }

    /// A parked request is cancelled.
    pub(crate) fn cancel_parked(&mut self, parked: &ParkedRequest) {
        self.metrics.lane_mut(parked.0.lane).counts.cancelled += 1;
    }

    /// A parked request's model cannot be loaded again.
    pub(crate) fn fail_parked(&mut self, parked: &ParkedRequest) {
        self.metrics.lane_mut(parked.0.lane).counts.failed += 1;
    }

    /// The most urgent lane with work; `None` if there is no work.
    pub(crate) fn urgency(&self) -> Option<Lane> {
        self.requests.values().map(Request::urgency).min()
    }

    /// `n_blocks` of a model's KV cache are now pinned. A request that does not fit into the others may still use them.
    pub(crate) fn set_pinned_blocks(&mut self, model: ModelId, n_blocks: usize) {
        if let Some(ready) = self.ready_mut(model) {
            ready.pinned_blocks = n_blocks;
        }
    }

    /// A request arrives. `id` must be larger than those of all earlier requests.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn arrive(&mut self, id: RequestId, arrival: Arrival, now: Duration) -> Result<(), Refusal> {
        let lane = arrival.lane;
        self.note(now);
        self.metrics.lane_mut(lane).counts.arrived += 1;
        if let Err(refusal) = self.check_arrival(&arrival, now) {
            self.metrics.lane_mut(lane).counts.refused += 1;
            return Err(refusal);
        }
        let request = Request::new(id, arrival, now);
        self.lanes.enter(lane, request.session);
        self.requests.insert(id, request);
        Ok(())
    }

    /// Counts a request that was refused before it reached the scheduler.
    pub(crate) fn refuse(&mut self, lane: Lane) {
        let counts = &mut self.metrics.lane_mut(lane).counts;
        counts.arrived += 1;
        counts.refused += 1;
    }

    fn check_arrival(&self, arrival: &Arrival, now: Duration) -> Result<(), Refusal> {
        let model = self.models.get(&arrival.model).and_then(|model| model.ready.as_ref());
        let model = model.ok_or(Refusal::UnknownModel(arrival.model))?;
        let (needed, available) = (arrival.blocks(), model.traits.kv_blocks);
        if needed > available {
            return Err(Refusal::TooLarge { needed, available });
        }
        let lane = arrival.lane;
        let queued = self.n_queued(lane);
        if queued >= self.settings.queue_limits[lane as usize] {
            return Err(Refusal::QueueFull { lane, queued, retry_after: self.next_departure(lane, now) });
        }
        Ok(())
    }

    fn n_queued(&self, lane: Lane) -> usize {
        self.requests.values().filter(|request| request.lane == lane && request.is_queued()).count()
    }

    /// A request is cancelled. If it is part of a suspended step, that step is discarded and the others' part of it is
    /// computed again.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get(&id) {
            self.metrics.lane_mut(request.lane).counts.cancelled += 1;
            self.forget(id);
        }
    }

    /// A request failed and is forgotten.
    pub(crate) fn fail(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get(&id) {
            self.metrics.lane_mut(request.lane).counts.failed += 1;
            self.forget(id);
        }
    }

    /// A request named by a [`Turn`] starts; `cached` tokens of its prompt, but not all, were found in the KV cache.
    pub(crate) fn start(&mut self, id: RequestId, cached: usize) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        debug_assert!(cached < request.uncomputed, "a token is left to be computed");
        request.become_running(cached);
    }

    /// A request named by a [`Turn`] waits until `leader` has computed the first `n_tokens` of its prompt, which both
    /// share. A turn names it again when that has happened, or when the leader is gone.
    pub(crate) fn follow(&mut self, id: RequestId, leader: RequestId, n_tokens: usize) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.phase = RequestPhase::Following { leader, n_tokens };
        }
    }

    /// Whether no work is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether a request can be advanced: it has a place in the KV cache and does not follow another.
    pub(crate) fn is_running(&self, id: RequestId) -> bool {
        self.requests.get(&id).is_some_and(Request::is_running)
    }

    /// Blocks of a model's KV cache reserved for requests.
    pub(crate) fn reserved_blocks(&self, model: ModelId) -> usize {
        self.holders(model).map(|request| request.blocks).sum()
    }

    /// The cost model learnt from a model's steps.
    #[cfg(test)]
    pub(crate) fn cost(&self, model: ModelId) -> Option<&CostModel> {
        self.models.get(&model)?.ready.as_ref().map(|ready| &ready.traits.cost)
    }

    /// Requests of a lane: the number waiting for a place in the KV cache, and the number that have one.
    pub(crate) fn n_requests(&self, lane: Lane) -> (usize, usize) {
        let all = self.requests.values().filter(|request| request.lane == lane).count();
        let queued = self.n_queued(lane);
        (queued, all - queued)
    }

    /// Statistics of all lanes.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Requests that hold a place in a model's KV cache.
    fn holders(&self, model: ModelId) -> impl Iterator<Item = &Request> {
        self.requests.values().filter(move |request| request.model == model && !request.is_queued())
    }

    /// Removes every trace of a request.
    fn forget(&mut self, id: RequestId) {
        let Some(request) = self.requests.remove(&id) else { return };
        self.lanes.leave(request.lane, request.session);
        self.void_suspended(request.model, id);
        if let Some(state) = self.models.get_mut(&request.model) {
            state.last_used = self.latest;
        }
    }

    /// Discards a suspended step if this request is part of it.
    fn void_suspended(&mut self, model: ModelId, id: RequestId) {
        let Some(ready) = self.ready_mut(model) else { return };
        if ready.suspended.as_ref().is_some_and(|suspended| suspended.plan.contains(id)) {
            ready.suspended = None;
        }
    }

    /// The model of a request.
    fn ready(&self, model: ModelId) -> &ReadyModel {
        self.models[&model].ready.as_ref().expect("a model that has requests is in memory")
    }

    fn ready_mut(&mut self, model: ModelId) -> Option<&mut ReadyModel> {
        self.models.get_mut(&model)?.ready.as_mut()
    }

    /// Records the current time.
    fn note(&mut self, now: Duration) {
        self.latest = self.latest.max(now);
    }
}

impl ReadyModel {
    /// Blocks available to all requests together, if one of them needs `needed`.
    fn available_blocks(&self, needed: usize) -> usize {
        let beside_pinned = self.traits.kv_blocks.saturating_sub(self.pinned_blocks);
        if needed > beside_pinned { self.traits.kv_blocks } else { beside_pinned }
    }
}

fn blocks_for(n_tokens: usize) -> usize {
    n_tokens.div_ceil(BLOCK_TOKENS)
}
