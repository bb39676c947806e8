//! A device with simulated time and cost, which carries out the scheduler's plans.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::scheduler::cost::{CostModel, StepShape};
use crate::scheduler::{
    Arrival, ModelId, ModelTraits, ParkedRequest, Pause, Refusal, RequestId, RequestProgress, Scheduler,
    SchedulerSettings, StepKind, StepPlan, Turn,
};
use hone_protocol::Lane;

/// The actual cost of a model's steps.
pub(crate) struct Device {
    pub(crate) cost: CostModel,
    pub(crate) slices: usize,
}

/// A request as its model sees it.
pub(crate) struct Simulated {
    pub(crate) lane: Lane,
    /// Tokens after which the model ends its answer.
    pub(crate) answer: usize,
    /// Tokens of the answer that follow when it is concluded.
    pub(crate) conclusion: usize,
    pub(crate) computed: usize,
    pub(crate) uncomputed: usize,
    pub(crate) generated: usize,
    /// Tokens of the prompt that the KV cache holds when it starts.
    pub(crate) cached: usize,
    /// The request that it follows, if any, and the number of tokens they share.
    pub(crate) leader: Option<(RequestId, usize)>,
}

impl Simulated {
    pub(crate) fn new(lane: Lane, prompt: usize, answer: usize) -> Self {
        let conclusion = answer;
        Simulated { lane, answer, conclusion, computed: 0, uncomputed: prompt, generated: 0, cached: 0, leader: None }
    }

    fn is_decoding(&self) -> bool {
        self.generated > 0 && self.uncomputed == 1
    }

    fn shape(&self, n_tokens: usize) -> StepShape {
        if self.is_decoding() { StepShape::decode(self.computed) } else { StepShape::prefill(self.computed, n_tokens) }
    }
}

/// A step that was carried out, or a part of one.
pub(crate) struct Done {
    pub(crate) plan: StepPlan,
    pub(crate) elapsed: Duration,
    /// The fraction of the time that each lane's requests add to those of the more urgent ones.
    pub(crate) parts: [f64; 3],
    pub(crate) is_suspended: bool,
    pub(crate) ended: Vec<RequestId>,
}

pub(crate) struct Simulator {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Duration,
    pub(crate) devices: BTreeMap<ModelId, Device>,
    pub(crate) requests: BTreeMap<RequestId, Simulated>,
    /// Slices that are done of a model's suspended step.
    suspended: BTreeMap<ModelId, (StepPlan, usize)>,
}

impl Simulator {
    pub(crate) fn new(settings: SchedulerSettings) -> Self {
        Simulator {
            scheduler: Scheduler::new(None, settings),
            now: Duration::ZERO,
            devices: BTreeMap::new(),
            requests: BTreeMap::new(),
            suspended: BTreeMap::new(),
        }
    }

    pub(crate) fn add_model(&mut self, model: ModelId, device: Device, kv_blocks: usize, guess: CostModel) {
        self.scheduler.add_model(model, ModelTraits { kv_blocks, slices: device.slices, cost: guess }, self.now);
        self.devices.insert(model, device);
    }

    /// A model leaves memory, and its requests wait until it returns.
    pub(crate) fn park(&mut self, model: ModelId) -> Vec<ParkedRequest> {
        let parked = self.scheduler.park(model, self.now);
        parked.iter().for_each(|parked| self.drop_place(parked.id()));
        assert_eq!(self.scheduler.remove_model(model), []);
        parked
    }

    pub(crate) fn bring_back(&mut self, model: ModelId, kv_blocks: usize, parked: Vec<ParkedRequest>) {
        let Device { cost, slices } = &self.devices[&model];
        self.scheduler.add_model(model, ModelTraits { kv_blocks, slices: *slices, cost: cost.clone() }, self.now);
        parked.into_iter().for_each(|parked| self.scheduler.unpark(parked, model, self.now));
    }

    fn drop_place(&mut self, id: RequestId) {
        self.suspended.retain(|_, (plan, _)| !plan.contains(id));
        let request = self.requests.get_mut(&id).unwrap();
        request.uncomputed += std::mem::take(&mut request.computed);
    }

    pub(crate) fn arrive(&mut self, id: RequestId, arrival: Arrival, request: Simulated) -> Result<(), Refusal> {
        self.scheduler.arrive(id, arrival, self.now)?;
        self.requests.insert(id, request);
        Ok(())
    }

    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.scheduler.cancel(id);
        self.remove(id);
    }

    fn remove(&mut self, id: RequestId) {
        self.suspended.retain(|_, (plan, _)| !plan.contains(id));
        self.requests.remove(&id);
    }

    /// Runs the scheduler's turn, and starts the requests that it names.
    pub(crate) fn turn(&mut self) -> Turn {
        let turn = self.scheduler.turn(self.now);
        turn.expired.iter().for_each(|id| self.remove(*id));
        turn.too_slow.iter().for_each(|(id, _)| self.remove(*id));
        for id in &turn.concluding {
            let request = self.requests.get_mut(id).unwrap();
            request.answer = request.answer.min(request.generated + request.conclusion);
        }
        turn.dropped.iter().for_each(|id| self.drop_place(*id));
        for id in &turn.starting {
            self.start(*id);
        }
        turn
    }

    fn start(&mut self, id: RequestId) {
        let leader = self.requests[&id].leader;
        let n_led = leader.and_then(|(leader, _)| self.requests.get(&leader)).map(|leader| leader.computed);
        match leader.zip(n_led) {
            Some(((leader, n_shared), n_led)) if n_led < n_shared && self.scheduler.is_running(leader) => {
                self.scheduler.follow(id, leader, n_shared);
            }
            found => {
                let request = self.requests.get_mut(&id).unwrap();
                let shared = found.map_or(0, |((_, n_shared), n_led)| n_shared.min(n_led));
                let cached = request.cached.max(shared).min(request.uncomputed - 1);
                request.computed = cached;
                request.uncomputed -= cached;
                self.scheduler.start(id, cached);
            }
        }
    }

    /// Plans a step and carries it out. `slowness` multiplies its time; it is suspended, where it can be, when a
    /// request arrives at `next_arrival`.
    pub(crate) fn step(&mut self, slowness: f64, next_arrival: Option<Duration>) -> Option<Done> {
        let plan = self.scheduler.plan(self.now)?;
        let n_done = self.resume(&plan);
        let device = &self.devices[&plan.model];
        let seconds_up_to = Lane::ALL.map(|lane| self.seconds(&plan, lane));
        let whole = slowness * seconds_up_to[2];
        let slice = whole / device.slices as f64;
        let is_over = |n_slices: usize| {
            let elapsed = Duration::from_secs_f64(n_slices as f64 * slice);
            let has_arrival = next_arrival.is_some_and(|arrival| self.now + elapsed >= arrival);
            match plan.pause {
                Pause::Never => false,
                Pause::OnArrival => has_arrival,
                // Another slice would exceed the limit.
                Pause::After(limit) => has_arrival || elapsed + Duration::from_secs_f64(slice) > limit,
            }
        };
        let left = device.slices - n_done;
        let n_slices = (1..left).find(|n_slices| is_over(*n_slices)).unwrap_or(left);
        let elapsed = Duration::from_secs_f64(n_slices as f64 * slice);
        self.now += elapsed;
        let is_suspended = n_slices < left;
        let ended = match is_suspended {
            true => {
                self.suspended.insert(plan.model, (plan.clone(), n_done + n_slices));
                self.scheduler.step_suspended(elapsed);
                Vec::new()
            }
            false => self.finish(&plan, elapsed),
        };
        let [first, second, all] = seconds_up_to.map(|seconds| seconds / seconds_up_to[2]);
        Some(Done { plan, elapsed, parts: [first, second - first, all - second], is_suspended, ended })
    }

    /// The actual cost of a plan's entries that are of this lane or a more urgent one.
    fn seconds(&self, plan: &StepPlan, lane: Lane) -> f64 {
        let entries = plan.entries.iter().map(|entry| (&self.requests[&entry.request], entry.n_tokens));
        let shapes = entries.filter(|(request, _)| request.lane <= lane).map(|(request, n)| request.shape(n));
        let shape = shapes.reduce(|a, b| a + b);
        shape.map_or(0.0, |shape| self.devices[&plan.model].cost.seconds(shape))
    }

    /// Number of completed slices of the step.
    fn resume(&mut self, plan: &StepPlan) -> usize {
        let suspended = self.suspended.remove(&plan.model);
        match plan.kind {
            StepKind::Begin => 0,
            StepKind::Resume => {
                let (begun, n_done) = suspended.expect("a step is resumed that was suspended");
                assert_eq!(begun.entries, plan.entries, "the step that was suspended");
                n_done
            }
        }
    }

    fn finish(&mut self, plan: &StepPlan, elapsed: Duration) -> Vec<RequestId> {
        let mut progress = Vec::new();
        for entry in &plan.entries {
            let request = self.requests.get_mut(&entry.request).unwrap();
            request.computed += entry.n_tokens;
            request.uncomputed -= entry.n_tokens;
            assert_eq!(entry.wants_logits, request.uncomputed == 0);
            if entry.wants_logits {
                request.generated += 1;
                request.uncomputed = 1;
            }
            progress.push(RequestProgress {
                request: entry.request,
                computed: request.computed,
                uncomputed: request.uncomputed,
                generated: request.generated,
                has_ended: request.generated == request.answer,
            });
        }
        self.scheduler.step_done(self.now, elapsed, &progress, StepShape::default());
        let ended: Vec<RequestId> =
            progress.iter().filter(|progress| progress.has_ended).map(|progress| progress.request).collect();
        ended.iter().for_each(|id| self.remove(*id));
        ended
    }
}
