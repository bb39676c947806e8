//! Decides which models stay in memory: one budget covers the weights and KV caches of all of them.
//!
//! A model is admitted before it is loaded. If the budget does not suffice, idle models are unloaded, the least
//! recently used first, and then those that have only less urgent requests. If only equally urgent models are left, it
//! waits; pinned models always stay. Pure bookkeeping: nothing here loads or measures anything.

use std::cmp::Reverse;
use std::time::Duration;

use hone_protocol::Lane;
use thiserror::Error;

use super::request::Request;
use super::{ModelId, ScheduledModel, Scheduler};

/// The memory of a model, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelMemory {
    /// Memory of its weights.
    pub weights: u64,
    /// Memory of its KV cache when it is full.
    pub kv_cache: u64,
}

impl ModelMemory {
    /// Total memory.
    pub(crate) fn total(self) -> u64 {
        self.weights + self.kv_cache
    }
}

/// A model can never fit into memory.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "it needs {} MiB (weights {} MiB, KV cache {} MiB), and models may use {} MiB{}: raise the limit (--memory-limit), or \
     shorten the context (--context)",
    mebibytes(wanted.total()), mebibytes(wanted.weights), mebibytes(wanted.kv_cache), mebibytes(*budget),
    taken_by_pinned(*pinned)
)]
pub(crate) struct OverBudget {
    /// The memory that the model would take.
    pub wanted: ModelMemory,
    /// The budget of all models together.
    pub budget: u64,
    /// The memory taken by pinned models.
    pub pinned: u64,
}

/// Whether a model may be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Now, once these have been unloaded.
    Now(Vec<ModelId>),
    /// Once equally urgent work has ended.
    Later,
}

fn taken_by_pinned(n_bytes: u64) -> String {
    match mebibytes(n_bytes) {
        0 => String::new(),
        pinned => format!(", of which pinned ones have {pinned} MiB (--pin)"),
    }
}

fn mebibytes(n_bytes: u64) -> u64 {
    n_bytes.div_ceil(1 << 20)
}

impl ScheduledModel {
    pub(super) fn new(memory: ModelMemory, is_pinned: bool) -> Self {
        ScheduledModel { memory, is_pinned, last_used: Duration::ZERO, ready: None }
    }
}

impl Scheduler {
    /// Memory budget of all models together.
    pub(crate) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// The memory that the models take.
    pub(crate) fn taken_memory(&self) -> u64 {
        self.models.values().map(|state| state.memory.total()).sum()
    }

    /// Bytes not taken by any model.
    pub(crate) fn free_memory(&self) -> u64 {
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(self.taken_memory()))
    }

    /// Bytes that a model could have if it were alone with the pinned ones.
    pub(crate) fn most_memory(&self) -> u64 {
        let pinned = self.models.values().filter(|state| state.is_pinned);
        let pinned: u64 = pinned.map(|state| state.memory.total()).sum();
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(pinned))
    }

    /// Bytes that a model requested in this lane could have, if everything that gives way to it were unloaded.
    pub(crate) fn attainable_memory(&self, lane: Lane) -> u64 {
        let staying = self.models.iter().filter(|(id, _)| !self.gives_way(**id, lane));
        let taken: u64 = staying.map(|(_, state)| state.memory.total()).sum();
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(taken))
    }

    /// Reserves memory for a model that is about to be loaded for a request of this lane. Its memory counts from now
    /// on, and until it has been [added](Scheduler::add_model) nothing can take it away. A pinned model is never
    /// unloaded.
    ///
    /// # Errors
    /// When it does not fit alongside the pinned models; nothing has changed then.
    pub(crate) fn admit_model(
        &mut self,
        model: ModelId,
        wanted: ModelMemory,
        is_pinned: bool,
        lane: Lane,
    ) -> Result<Admission, OverBudget> {
        let most = self.most_memory();
        if let Some(budget) = self.budget.filter(|_| wanted.total() > most) {
            return Err(OverBudget { wanted, budget, pinned: budget - most });
        }
        if wanted.total() > self.attainable_memory(lane) {
            return Ok(Admission::Later);
        }
        let unloaded = self.first_to_go(wanted.total().saturating_sub(self.free_memory()), lane);
        self.models.insert(model, ScheduledModel::new(wanted, is_pinned));
        Ok(Admission::Now(unloaded))
    }

    /// The models to unload so that `n_bytes` become free: the idle ones first, then the least urgent.
    fn first_to_go(&self, mut n_bytes: u64, lane: Lane) -> Vec<ModelId> {
        let mut candidates: Vec<ModelId> = self.models.keys().copied().filter(|id| self.gives_way(*id, lane)).collect();
        candidates.sort_by_key(|id| (self.urgency_of(*id).map(Reverse), self.models[id].last_used));
        let is_needed = |id: &ModelId| {
            let is_needed = n_bytes > 0;
            n_bytes = n_bytes.saturating_sub(self.models[id].memory.total());
            is_needed
        };
        candidates.into_iter().take_while(is_needed).collect()
    }

    /// Whether a model may be unloaded for one that is requested in this lane.
    fn gives_way(&self, model: ModelId, lane: Lane) -> bool {
        !self.models[&model].is_pinned && self.urgency_of(model).is_none_or(|urgency| urgency > lane)
    }

    /// The lane of its most urgent request; `None` if it has none. While being loaded, it is as urgent as possible.
    fn urgency_of(&self, model: ModelId) -> Option<Lane> {
        if self.models[&model].ready.is_none() {
            return Some(Lane::Interactive);
        }
        self.requests.values().filter(|request| request.model == model).map(Request::urgency).min()
    }

    /// Updates the memory of a model that takes less than was reserved.
    pub(crate) fn set_memory(&mut self, model: ModelId, memory: ModelMemory) {
        if let Some(state) = self.models.get_mut(&model) {
            state.memory = memory;
        }
    }

    /// When a model was last used; `None` while it has requests or is being loaded.
    pub(crate) fn idle_since(&self, model: ModelId) -> Option<Duration> {
        let state = self.models.get(&model).filter(|state| state.ready.is_some())?;
        let is_busy = self.requests.values().any(|request| request.model == model);
        (!is_busy).then_some(state.last_used)
    }

    /// The memory of a model.
    pub(crate) fn memory(&self, model: ModelId) -> Option<ModelMemory> {
        self.models.get(&model).map(|state| state.memory)
    }

    /// The models that have been idle for `keep_alive`, and are not pinned.
    pub(crate) fn expired_models(&self, keep_alive: Duration, now: Duration) -> Vec<ModelId> {
        self.idle().filter(|(_, since)| *since + keep_alive <= now).map(|(id, _)| id).collect()
    }

    /// When the next model will have been idle for `keep_alive`.
    pub(crate) fn next_expiry(&self, keep_alive: Duration) -> Option<Duration> {
        self.idle().map(|(_, since)| since + keep_alive).min()
    }

    fn idle(&self) -> impl Iterator<Item = (ModelId, Duration)> {
        let unpinned = self.models.iter().filter(|(_, state)| !state.is_pinned);
        unpinned.filter_map(|(id, _)| Some((*id, self.idle_since(*id)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::cost::CostModel;
    use crate::scheduler::{Arrival, ModelTraits, RequestId, SchedulerSettings};

    fn memory(mebibytes: u64) -> ModelMemory {
        ModelMemory { weights: mebibytes << 20, kv_cache: 0 }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn load(scheduler: &mut Scheduler, model: u32, is_pinned: bool, now: Duration) {
        let admission = scheduler.admit_model(ModelId(model), memory(30), is_pinned, Lane::Interactive);
        assert_eq!(admission, Ok(Admission::Now(vec![])));
        let traits = ModelTraits { kv_blocks: 8, slices: 1, cost: CostModel::for_weights(1 << 20) };
        scheduler.add_model(ModelId(model), traits, now);
    }

    /// A budget of 100 MiB with three idle models of 30 MiB, last used in the order 2, 3, 1.
    fn three(pinned: Option<u32>) -> Scheduler {
        let mut scheduler = Scheduler::new(Some(100 << 20), SchedulerSettings::default());
        for (model, used) in [(1, 30), (2, 10), (3, 20)] {
            load(&mut scheduler, model, pinned == Some(model), at(used));
        }
        scheduler
    }

    /// Adds a request, which keeps its model busy.
    fn arrive(scheduler: &mut Scheduler, model: u32, lane: Lane, now: Duration) {
        let (model, session, time_limit) = (ModelId(model), None, None);
        let arrival = Arrival {
            model,
            lane,
            session,
            prompt_tokens: 1,
            answer_tokens: 1,
            time_limit,
            common_tokens: 0,
            conclusion_tokens: None,
            can_be_shortened: false,
        };
        scheduler.arrive(RequestId(u64::from(model.0)), arrival, now).unwrap();
    }

    #[track_caller]
    fn check(scheduler: &mut Scheduler, wanted: u64, lane: Lane, unloaded: &[u32]) {
        let admission = scheduler.admit_model(ModelId(9), memory(wanted), false, lane);
        let unloaded: Vec<ModelId> = unloaded.iter().map(|id| ModelId(*id)).collect();
        assert_eq!(admission, Ok(Admission::Now(unloaded.clone())));
        unloaded.into_iter().for_each(|id| drop(scheduler.remove_model(id)));
        assert!(scheduler.taken_memory() <= 100 << 20, "{}", scheduler.taken_memory());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut scheduler = three(None);
        check(&mut scheduler, 60, Lane::Background, &[2, 3]);
        assert_eq!(scheduler.taken_memory(), 90 << 20);
    }

    #[test]
    fn less_urgent_models_go_after_the_idle_ones() {
        let mut scheduler = three(None);
        arrive(&mut scheduler, 2, Lane::Background, at(40));
        arrive(&mut scheduler, 3, Lane::Batch, at(50));
        check(&mut scheduler, 90, Lane::Interactive, &[1, 3, 2]);
    }

    #[test]
    fn what_is_as_urgent_is_waited_for() {
        let mut scheduler = three(None);
        arrive(&mut scheduler, 2, Lane::Background, at(40));
        let admission = scheduler.admit_model(ModelId(9), memory(80), false, Lane::Background);
        assert_eq!(admission, Ok(Admission::Later));
        assert_eq!((scheduler.taken_memory(), scheduler.attainable_memory(Lane::Background)), (90 << 20, 70 << 20));
        scheduler.cancel(RequestId(2));
        check(&mut scheduler, 80, Lane::Background, &[3, 1, 2]);
    }

    #[test]
    fn a_model_that_is_being_loaded_keeps_its_memory() {
        let mut scheduler = three(None);
        check(&mut scheduler, 40, Lane::Background, &[2]);
        let admission = scheduler.admit_model(ModelId(10), memory(70), false, Lane::Interactive);
        assert_eq!(admission, Ok(Admission::Later));
    }

    #[test]
    fn pinned_models_stay_and_the_refusal_states_the_sums() {
        let mut scheduler = three(Some(2));
        let wanted = ModelMemory { weights: 80 << 20, kv_cache: 1 };
        let refusal = scheduler.admit_model(ModelId(9), wanted, false, Lane::Interactive).unwrap_err();
        assert_eq!(refusal, OverBudget { wanted, budget: 100 << 20, pinned: 30 << 20 });
        let sums = "it needs 81 MiB (weights 80 MiB, KV cache 1 MiB), and models may use 100 MiB, of which pinned ones have \
                    30 MiB (--pin): raise";
        assert!(refusal.to_string().starts_with(sums), "{refusal}");
        check(&mut scheduler, 70, Lane::Batch, &[3, 1]);
    }

    #[test]
    fn idle_models_leave_after_a_while() {
        let mut scheduler = three(Some(2));
        assert_eq!(scheduler.next_expiry(at(5)), Some(at(25)));
        assert_eq!(scheduler.expired_models(at(5), at(24)), []);
        assert_eq!(scheduler.expired_models(at(5), at(25)), [ModelId(3)]);
        arrive(&mut scheduler, 3, Lane::Batch, at(40));
        assert_eq!(scheduler.expired_models(at(5), at(60)), [ModelId(1)], "one that has requests is not idle");
        scheduler.cancel(RequestId(3));
        assert_eq!(scheduler.idle_since(ModelId(3)), Some(at(40)));
    }

    #[test]
    fn without_a_budget_everything_stays() {
        let mut scheduler = Scheduler::new(None, SchedulerSettings::default());
        for model in 0..10 {
            let admission = scheduler.admit_model(ModelId(model), memory(1 << 30), false, Lane::Batch);
            assert_eq!(admission, Ok(Admission::Now(vec![])));
        }
    }
}
