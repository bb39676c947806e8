//! What runs next: one device, several models, requests of three lanes.
//!
//! The scheduler is pure. It is told what happens and when (a request arrives, a step is done), and answers with what to
//! do: a [`Turn`] says whose KV cache is to be made or dropped, a [`StepPlan`] which tokens of which requests the next
//! step computes. It owns no tensors, no clock and no threads, so that every rule is tested with simulated time.
//!
//! A step runs one model and mixes prompts and answers of several requests. The rules, in the order of their weight:
//!
//! - **Interactive work comes first at every step.** What is less urgent fills the time in which there is none, in chunks
//!   that fit a time budget by the [cost model](cost) of the model, so that interactive work never waits longer than one
//!   chunk. Where a model can be suspended inside a step, the chunk is a slice of the step and not the step.
//! - **Nothing starves.** A lane below the one that runs earns a share of the time, and when it has earned a chunk it is
//!   given one; never two in a row while somebody more urgent waits. Where it uses the same model, it joins the step
//!   with as many tokens as it has earned the time for.
//! - **Sessions take turns** within a lane: the one that has been given least time comes first.
//! - **The KV cache is reserved** for all that a request may come to need before it starts. A request that finds no room
//!   pauses less urgent ones, which lose their place in the cache and start again with what they had said; after
//!   [`SchedulerSettings::patience`] in the queue a request keeps its place whatever comes.
//! - **Pinned prefixes keep their blocks** beside all requests that fit beside them.
//! - **One budget of memory** is over the weights and KV caches of all models. A model is admitted before it is loaded;
//!   idle ones leave for it, those first that were not used for longest.
//! - **A model may leave memory** although less urgent requests wait or run on it, for one that is needed sooner. They are
//!   [parked](Scheduler::park), and come back when it does.
//! - **Queues are bounded.** A request that finds a lane's queue full is refused with an estimate of when to try again.
//!
//! The order of calls: [`Scheduler::turn`], then [`Scheduler::start`] or [`Scheduler::follow`] for every request that it
//! names, then [`Scheduler::plan`], and after the step [`Scheduler::step_done`] or [`Scheduler::step_suspended`].

mod admission;
pub mod cost;
mod estimate;
mod lanes;
pub mod metrics;
mod plan;
mod request;
mod residency;
mod step;
mod step_builder;

use std::collections::BTreeMap;
use std::time::Duration;

use hone_protocol::Lane;
use thiserror::Error;

use crate::kv_cache::BLOCK_TOKENS;
use cost::CostModel;
use lanes::Lanes;
use metrics::Metrics;
use request::{Phase, Request};
use step::{RunningStep, SuspendedStep};

pub use admission::Turn;
pub use estimate::QueuedRequest;
pub use plan::{Pause, Progress, StepEntry, StepKind, StepPlan};
pub use request::{Arrival, ParkedRequest};
pub use residency::{Admission, ModelMemory, OverBudget};

/// Names a request. Later ones have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names a loaded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u32);

/// How the device is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerSettings {
    /// The longest that less urgent work should hold the device at a time.
    pub chunk: Duration,
    /// The longest that a part of an interactive prompt should hold up other interactive requests' next tokens.
    pub interactive_chunk: Duration,
    /// The longest that a part of an interactive prompt should take where no other request is held up by it: a
    /// cancellation, and whoever comes then, waits so long at most.
    pub longest_step: Duration,
    /// The most prompt tokens of a step.
    pub prefill_tokens: usize,
    /// The most requests of one model that hold a place in its KV cache at a time.
    pub sequences: usize,
    /// Part of the time that is the background lane's however much interactive work there is; below 1.
    pub background_share: f64,
    /// Part of the time that is the batch lane's however much else there is; below 1.
    pub batch_share: f64,
    /// How long a request waits for a place in the KV cache before it comes before all others and keeps what it gets.
    pub patience: Duration,
    /// The most requests that wait for a place in the KV cache, in the order of [`Lane::ALL`].
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

/// What the scheduler has to know of a model.
#[derive(Clone, Debug)]
pub struct ModelTraits {
    /// Blocks of its KV cache.
    pub kv_blocks: usize,
    /// In how many parts, about equally long, a step can be carried out with other models' steps between; 1 where a
    /// step cannot be suspended.
    pub slices: usize,
    /// What its steps are believed to cost before any has been measured.
    pub cost: CostModel,
}

/// Why a request is not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// Its lane's queue is full.
    #[error("{queued} {} requests wait already: try again in {:.1} seconds", lane.name(), retry_after.as_secs_f64())]
    QueueFull {
        /// The lane.
        lane: Lane,
        /// Requests that wait in it.
        queued: usize,
        /// An estimate of when one of them will have left the queue.
        retry_after: Duration,
    },
    /// The KV cache could never hold it.
    #[error("the request needs {needed} blocks of the KV cache, which has {available}: shorten it")]
    TooLarge {
        /// Blocks that it may come to need.
        needed: usize,
        /// Blocks that there are.
        available: usize,
    },
    /// There is no such model.
    #[error("model {} is not loaded", .0.0)]
    UnknownModel(ModelId),
}

/// What the scheduler knows, and all that it decides from.
#[derive(Debug)]
pub struct Scheduler {
    settings: SchedulerSettings,
    /// Bytes that all models together may take; nothing bounds them without it.
    budget: Option<u64>,
    models: BTreeMap<ModelId, ModelState>,
    requests: BTreeMap<RequestId, Request>,
    lanes: Lanes,
    /// The step that is being carried out.
    running: Option<RunningStep>,
    /// Whether the last step was one that a lane had earned while more urgent work waited.
    was_earned: bool,
    metrics: Metrics,
    /// The latest time that was told.
    latest: Duration,
}

/// A model that is in memory, or for which memory has been set apart while it is loaded.
#[derive(Debug)]
struct ModelState {
    memory: ModelMemory,
    /// Whether it stays in memory whatever comes.
    is_pinned: bool,
    /// When the last of its requests left, or it was loaded.
    last_used: Duration,
    /// `None` while it is being loaded.
    ready: Option<ReadyModel>,
}

/// A model that can run.
#[derive(Debug)]
struct ReadyModel {
    traits: ModelTraits,
    /// Blocks of pinned prefixes: requests that fit beside them leave them alone.
    pinned_blocks: usize,
    suspended: Option<SuspendedStep>,
}

impl Scheduler {
    /// A scheduler without models, whose memory nothing bounds.
    pub fn new(settings: SchedulerSettings) -> Self {
        Self::within(None, settings)
    }

    /// A scheduler without models, which may take so many bytes together.
    pub fn within(budget: Option<u64>, settings: SchedulerSettings) -> Self {
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

    /// A model has been loaded. Where memory is bounded, it has been [admitted](Scheduler::admit_model) before.
    pub fn add_model(&mut self, model: ModelId, traits: ModelTraits, now: Duration) {
        let state = self.models.entry(model).or_insert_with(|| ModelState::new(ModelMemory::default(), false));
        state.ready = Some(ReadyModel { traits, pinned_blocks: 0, suspended: None });
        state.last_used = now;
    }

    /// A model has left memory, or cannot be loaded. Returns its requests, which are forgotten.
    pub fn remove_model(&mut self, model: ModelId) -> Vec<RequestId> {
        let requests: Vec<RequestId> =
            self.requests.values().filter(|request| request.model == model).map(|request| request.id).collect();
        requests.iter().for_each(|id| self.forget(*id));
        self.models.remove(&model);
        if self.running.as_ref().is_some_and(|running| running.plan.model == model) {
            self.running = None;
        }
        requests
    }

    /// Takes the requests off a model that is about to leave memory. It may come back under another id.
    pub fn park(&mut self, model: ModelId, now: Duration) -> Vec<ParkedRequest> {
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
        Some(ParkedRequest(request))
    }

    /// A parked request's model is in memory again.
    pub fn unpark(&mut self, parked: ParkedRequest, model: ModelId, now: Duration) {
        let ParkedRequest(mut request) = parked;
        request.become_queued(model, now);
        self.lanes.enter(request.lane, request.session);
        self.requests.insert(request.id, request);
    }

    /// A parked request is taken back.
    pub fn cancel_parked(&mut self, parked: &ParkedRequest) {
        self.metrics.lane_mut(parked.0.lane).counts.cancelled += 1;
    }

    /// A parked request's model cannot be loaded again.
    pub fn fail_parked(&mut self, parked: &ParkedRequest) {
        self.metrics.lane_mut(parked.0.lane).counts.failed += 1;
    }

    /// How urgent what there is to do is; `None` where there is nothing.
    pub fn urgency(&self) -> Option<Lane> {
        self.requests.values().map(Request::urgency).min()
    }

    /// So many blocks of a model's KV cache are now pinned. A request that needs more than the others has them all the same.
    pub fn set_pinned_blocks(&mut self, model: ModelId, n_blocks: usize) {
        if let Some(ready) = self.ready_mut(model) {
            ready.pinned_blocks = n_blocks;
        }
    }

    /// A request comes in. `id` must be larger than those of all requests before.
    ///
    /// # Errors
    /// When it is not taken.
    pub fn arrive(&mut self, id: RequestId, arrival: Arrival, now: Duration) -> Result<(), Refusal> {
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

    /// A request is not even let in.
    pub fn refuse(&mut self, lane: Lane) {
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

    /// A request is taken back. A suspended step that it is part of is void: the others' part of it is computed again.
    pub fn cancel(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get(&id) {
            self.metrics.lane_mut(request.lane).counts.cancelled += 1;
            self.forget(id);
        }
    }

    /// Something went wrong with a request, which is forgotten.
    pub fn fail(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get(&id) {
            self.metrics.lane_mut(request.lane).counts.failed += 1;
            self.forget(id);
        }
    }

    /// A request that a [`Turn`] named starts; `cached` tokens of its prompt, but not all, were found in the KV cache.
    pub fn start(&mut self, id: RequestId, cached: usize) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        debug_assert!(cached < request.uncomputed, "a token is left to be computed");
        request.become_running(cached);
    }

    /// A request that a [`Turn`] named waits until `leader` has computed the first `n_tokens` of its prompt, which both
    /// have in common. A turn names it again when that is so, or when the leader is gone.
    pub fn follow(&mut self, id: RequestId, leader: RequestId, n_tokens: usize) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.phase = Phase::Following { leader, n_tokens };
        }
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether a request is known: it waits or runs.
    pub fn contains(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// Whether a request's tokens are being computed: it has a place in the KV cache and waits for nobody.
    pub fn is_running(&self, id: RequestId) -> bool {
        self.requests.get(&id).is_some_and(Request::is_running)
    }

    /// Blocks of a model's KV cache that are reserved for requests.
    pub fn reserved_blocks(&self, model: ModelId) -> usize {
        self.holders(model).map(|request| request.blocks).sum()
    }

    /// What the scheduler has learnt of a model's steps.
    pub fn cost(&self, model: ModelId) -> Option<&CostModel> {
        self.models.get(&model)?.ready.as_ref().map(|ready| &ready.traits.cost)
    }

    /// Requests of a lane: those that wait for a place in the KV cache, and those that have one.
    pub fn n_requests(&self, lane: Lane) -> (usize, usize) {
        let all = self.requests.values().filter(|request| request.lane == lane).count();
        let queued = self.n_queued(lane);
        (queued, all - queued)
    }

    /// What the lanes' requests have gone through.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Requests that hold a place in a model's KV cache.
    fn holders(&self, model: ModelId) -> impl Iterator<Item = &Request> {
        self.requests.values().filter(move |request| request.model == model && !request.is_queued())
    }

    /// Removes a request from everything that knows it.
    fn forget(&mut self, id: RequestId) {
        let Some(request) = self.requests.remove(&id) else { return };
        self.lanes.leave(request.lane, request.session);
        self.void_suspended(request.model, id);
        if let Some(state) = self.models.get_mut(&request.model) {
            state.last_used = self.latest;
        }
    }

    /// A suspended step ends without a result when one of its requests is no longer there.
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

    /// Takes note of what time it is.
    fn note(&mut self, now: Duration) {
        self.latest = self.latest.max(now);
    }
}

impl ReadyModel {
    /// Blocks that requests may have together, one of which needs so many.
    fn available_blocks(&self, needed: usize) -> usize {
        let beside_pinned = self.traits.kv_blocks.saturating_sub(self.pinned_blocks);
        if needed > beside_pinned { self.traits.kv_blocks } else { beside_pinned }
    }
}

fn blocks_for(n_tokens: usize) -> usize {
    n_tokens.div_ceil(BLOCK_TOKENS)
}
