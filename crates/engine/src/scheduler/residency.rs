//! Which models stay in memory: one budget over the weights and KV caches of all of them.
//!
//! A model is admitted before it is loaded. Where the budget does not suffice, idle models go, those first that were not
//! used for longest, and then those that have less urgent requests only. For what is as urgent, it waits; pinned models
//! stay whatever comes. Pure bookkeeping: nothing here loads or measures anything.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use hone_protocol::Lane;
use thiserror::Error;

use super::ModelId;

/// What a model takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelMemory {
    /// Of its weights.
    pub weights: u64,
    /// Of its KV cache when it is full.
    pub kv_cache: u64,
}

impl ModelMemory {
    /// All of it.
    pub fn total(self) -> u64 {
        self.weights + self.kv_cache
    }
}

/// There can be no memory for a model.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "it needs {} MiB (weights {} MiB, KV cache {} MiB), and models may use {} MiB{}: raise the limit (--memory-limit), or \
     shorten the context (--context)",
    mebibytes(wanted.total()), mebibytes(wanted.weights), mebibytes(wanted.kv_cache), mebibytes(*budget),
    taken_by_pinned(*pinned)
)]
pub struct OverBudget {
    /// What the model would take.
    pub wanted: ModelMemory,
    /// What all models together may take.
    pub budget: u64,
    /// What is taken by models that stay whatever comes.
    pub pinned: u64,
}

/// Whether a model may be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Now, when these have been unloaded; they are forgotten here.
    Now(Vec<ModelId>),
    /// When what is as urgent has ended.
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

/// The models in memory.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    /// What all models together may take; nothing bounds them without it.
    budget: Option<u64>,
    models: BTreeMap<ModelId, Resident>,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    memory: ModelMemory,
    last_used: Duration,
    /// How urgent its requests are; `None` where it has none.
    urgency: Option<Lane>,
    is_pinned: bool,
}

impl Resident {
    /// Whether it may go for a model that is wanted so urgently.
    fn gives_way_to(&self, lane: Lane) -> bool {
        !self.is_pinned && self.urgency.is_none_or(|urgency| urgency > lane)
    }
}

impl Residency {
    /// No models, and a budget for them in bytes.
    pub fn new(budget: Option<u64>) -> Self {
        Residency { budget, models: BTreeMap::new() }
    }

    /// What all models together may take.
    pub fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// What the models take.
    pub fn taken(&self) -> u64 {
        self.models.values().map(|resident| resident.memory.total()).sum()
    }

    /// Bytes that no model takes.
    pub fn free(&self) -> u64 {
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(self.taken()))
    }

    /// Bytes that a model could have that is wanted so urgently, if everything went that gives way to it.
    pub fn attainable(&self, lane: Lane) -> u64 {
        let staying = self.models.values().filter(|resident| !resident.gives_way_to(lane));
        let taken: u64 = staying.map(|resident| resident.memory.total()).sum();
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(taken))
    }

    /// A model is about to be loaded, for a request of this lane. It is as urgent as can be until
    /// [`Residency::set_urgency`] says otherwise.
    ///
    /// # Errors
    /// When it does not fit beside what is pinned; nothing has changed then.
    pub fn admit(
        &mut self,
        model: ModelId,
        wanted: ModelMemory,
        lane: Lane,
        now: Duration,
    ) -> Result<Admission, OverBudget> {
        let pinned = self.models.values().filter(|resident| resident.is_pinned);
        let pinned: u64 = pinned.map(|resident| resident.memory.total()).sum();
        if let Some(budget) = self.budget.filter(|budget| wanted.total() > budget.saturating_sub(pinned)) {
            return Err(OverBudget { wanted, budget, pinned });
        }
        if wanted.total() > self.attainable(lane) {
            return Ok(Admission::Later);
        }
        let mut unloaded = Vec::new();
        while self.budget.is_some_and(|budget| self.taken() + wanted.total() > budget) {
            let Some(first) = self.first_to_go(lane) else { break };
            self.models.remove(&first);
            unloaded.push(first);
        }
        let urgency = Some(Lane::Interactive);
        self.models.insert(model, Resident { memory: wanted, last_used: now, urgency, is_pinned: false });
        Ok(Admission::Now(unloaded))
    }

    fn first_to_go(&self, lane: Lane) -> Option<ModelId> {
        let candidates = self.models.iter().filter(|(_, resident)| resident.gives_way_to(lane));
        let order = |resident: &Resident| (resident.urgency.map(Reverse), resident.last_used);
        candidates.min_by_key(|(_, resident)| order(resident)).map(|(id, _)| *id)
    }

    /// How urgent a model's requests are; `None` where it has none.
    pub fn set_urgency(&mut self, model: ModelId, urgency: Option<Lane>, now: Duration) {
        if let Some(resident) = self.models.get_mut(&model) {
            if resident.urgency.is_some() || urgency.is_some() {
                resident.last_used = now;
            }
            resident.urgency = urgency;
        }
    }

    /// A model takes less than was thought.
    pub fn set_memory(&mut self, model: ModelId, memory: ModelMemory) {
        if let Some(resident) = self.models.get_mut(&model) {
            resident.memory = memory;
        }
    }

    /// Pinned models stay, whatever comes.
    pub fn set_pinned(&mut self, model: ModelId, is_pinned: bool) {
        if let Some(resident) = self.models.get_mut(&model) {
            resident.is_pinned = is_pinned;
        }
    }

    /// A model is gone.
    pub fn remove(&mut self, model: ModelId) {
        self.models.remove(&model);
    }

    /// When a model was last used; `None` while it has requests.
    pub fn idle_since(&self, model: ModelId) -> Option<Duration> {
        self.models.get(&model).filter(|resident| resident.urgency.is_none()).map(|resident| resident.last_used)
    }

    /// What a model takes.
    pub fn memory(&self, model: ModelId) -> Option<ModelMemory> {
        self.models.get(&model).map(|resident| resident.memory)
    }

    /// Removes the models that have been idle for `keep_alive`, and names them.
    pub fn expire(&mut self, keep_alive: Duration, now: Duration) -> Vec<ModelId> {
        let expired: Vec<ModelId> =
            self.idle().filter(|(_, resident)| resident.last_used + keep_alive <= now).map(|(id, _)| id).collect();
        self.models.retain(|id, _| !expired.contains(id));
        expired
    }

    /// When the next model will have been idle for `keep_alive`.
    pub fn next_expiry(&self, keep_alive: Duration) -> Option<Duration> {
        self.idle().map(|(_, resident)| resident.last_used + keep_alive).min()
    }

    fn idle(&self) -> impl Iterator<Item = (ModelId, &Resident)> {
        let idle = self.models.iter().filter(|(_, resident)| resident.urgency.is_none() && !resident.is_pinned);
        idle.map(|(id, one)| (*id, one))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn memory(mebibytes: u64) -> ModelMemory {
        ModelMemory { weights: mebibytes << 20, kv_cache: 0 }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A budget of 100 MiB with three idle models of 30 MiB, last used in the order 2, 3, 1.
    fn three() -> Residency {
        let mut residency = Residency::new(Some(100 << 20));
        for (model, used) in [(1, 30), (2, 10), (3, 20)] {
            assert_eq!(
                residency.admit(ModelId(model), memory(30), Lane::Interactive, at(0)),
                Ok(Admission::Now(vec![]))
            );
            residency.set_urgency(ModelId(model), None, at(used));
        }
        residency
    }

    #[track_caller]
    fn check(residency: &mut Residency, wanted: u64, lane: Lane, unloaded: &[u32]) {
        let admission = residency.admit(ModelId(9), memory(wanted), lane, at(60));
        assert_eq!(admission, Ok(Admission::Now(unloaded.iter().map(|id| ModelId(*id)).collect())));
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut residency = three();
        check(&mut residency, 60, Lane::Background, &[2, 3]);
        assert_eq!(residency.taken(), 90 << 20);
    }

    #[test]
    fn less_urgent_models_go_after_the_idle_ones() {
        let mut residency = three();
        residency.set_urgency(ModelId(2), Some(Lane::Background), at(40));
        residency.set_urgency(ModelId(3), Some(Lane::Batch), at(50));
        check(&mut residency, 90, Lane::Interactive, &[1, 3, 2]);
    }

    #[test]
    fn what_is_as_urgent_is_waited_for() {
        let mut residency = three();
        residency.set_urgency(ModelId(2), Some(Lane::Background), at(40));
        let admission = residency.admit(ModelId(9), memory(80), Lane::Background, at(50));
        assert_eq!(admission, Ok(Admission::Later));
        assert_eq!((residency.taken(), residency.attainable(Lane::Background)), (90 << 20, 70 << 20));
        residency.set_urgency(ModelId(2), None, at(60));
        check(&mut residency, 80, Lane::Background, &[3, 1, 2]);
    }

    #[test]
    fn pinned_models_stay_and_the_refusal_states_the_sums() {
        let mut residency = three();
        residency.set_pinned(ModelId(2), true);
        let wanted = ModelMemory { weights: 80 << 20, kv_cache: 1 };
        let refusal = residency.admit(ModelId(9), wanted, Lane::Interactive, at(50)).unwrap_err();
        assert_eq!(refusal, OverBudget { wanted, budget: 100 << 20, pinned: 30 << 20 });
        let sums = "it needs 81 MiB (weights 80 MiB, KV cache 1 MiB), and models may use 100 MiB, of which pinned ones have \
                    30 MiB (--pin): raise";
        assert!(refusal.to_string().starts_with(sums), "{refusal}");
        check(&mut residency, 70, Lane::Batch, &[3, 1]);
    }

    #[test]
    fn idle_models_leave_after_a_while() {
        let mut residency = three();
        residency.set_pinned(ModelId(2), true);
        assert_eq!(residency.next_expiry(at(5)), Some(at(25)));
        assert_eq!(residency.expire(at(5), at(24)), []);
        assert_eq!(residency.expire(at(5), at(25)), [ModelId(3)]);
        assert_eq!(residency.taken(), 60 << 20);
    }

    #[test]
    fn without_a_budget_everything_stays() {
        let mut residency = Residency::new(None);
        for model in 0..10 {
            let admission = residency.admit(ModelId(model), memory(1 << 30), Lane::Batch, at(0));
            assert_eq!(admission, Ok(Admission::Now(vec![])));
        }
    }
}
