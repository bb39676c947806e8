//! Which models stay in memory: one budget over the weights and KV caches of all of them.
//!
//! A model is admitted before it is loaded. Where the budget does not suffice, idle models go, those first that were not
//! used for longest; what is busy or pinned stays. Pure bookkeeping: nothing here loads or measures anything.

use std::collections::BTreeMap;
use std::time::Duration;

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

/// There is no memory for a model.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "it needs {} MiB (weights {} MiB, KV cache {} MiB), and of the {} MiB that models may use {} MiB are taken by models \
     that are busy or pinned: raise the limit (--memory-limit), shorten the context (--context), or unload a model",
    mebibytes(wanted.total()), mebibytes(wanted.weights), mebibytes(wanted.kv_cache), mebibytes(*budget),
    mebibytes(*taken)
)]
pub struct OverBudget {
    /// What the model would take.
    pub wanted: ModelMemory,
    /// What all models together may take.
    pub budget: u64,
    /// What is taken by models that cannot be unloaded now.
    pub taken: u64,
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
    is_busy: bool,
    is_pinned: bool,
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

    /// Bytes that a model could have if everything idle went.
    pub fn attainable(&self) -> u64 {
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(self.unmovable()))
    }

    /// A model is about to be loaded, and counts as busy from now on. Returns the models that are to be unloaded for it,
    /// which are forgotten.
    ///
    /// # Errors
    /// When not even that would suffice; nothing has changed then.
    pub fn admit(&mut self, model: ModelId, wanted: ModelMemory, now: Duration) -> Result<Vec<ModelId>, OverBudget> {
        if wanted.total() > self.attainable() {
            let budget = self.budget.unwrap_or(u64::MAX);
            return Err(OverBudget { wanted, budget, taken: self.unmovable() });
        }
        let mut unloaded = Vec::new();
        while self.budget.is_some_and(|budget| self.taken() + wanted.total() > budget) {
            let Some(oldest) = self.idle().min_by_key(|(_, resident)| resident.last_used).map(|(id, _)| id) else {
                break;
            };
            self.models.remove(&oldest);
            unloaded.push(oldest);
        }
        self.models.insert(model, Resident { memory: wanted, last_used: now, is_busy: true, is_pinned: false });
        Ok(unloaded)
    }

    /// Whether a model has requests now.
    pub fn set_busy(&mut self, model: ModelId, is_busy: bool, now: Duration) {
        if let Some(resident) = self.models.get_mut(&model) {
            if resident.is_busy || is_busy {
                resident.last_used = now;
            }
            resident.is_busy = is_busy;
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

    /// When a model was last used; `None` while it is busy.
    pub fn idle_since(&self, model: ModelId) -> Option<Duration> {
        self.models.get(&model).filter(|resident| !resident.is_busy).map(|resident| resident.last_used)
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
        self.models.iter().filter(|(_, resident)| !resident.is_busy && !resident.is_pinned).map(|(id, one)| (*id, one))
    }

    fn unmovable(&self) -> u64 {
        self.taken() - self.idle().map(|(_, resident)| resident.memory.total()).sum::<u64>()
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
            assert_eq!(residency.admit(ModelId(model), memory(30), at(0)).unwrap(), []);
            residency.set_busy(ModelId(model), false, at(used));
        }
        residency
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut residency = three();
        assert_eq!(residency.admit(ModelId(4), memory(60), at(40)).unwrap(), [ModelId(2), ModelId(3)]);
        assert_eq!(residency.taken(), 90 << 20);
    }

    #[test]
    fn busy_and_pinned_models_stay_and_the_refusal_states_the_sums() {
        let mut residency = three();
        residency.set_busy(ModelId(2), true, at(40));
        residency.set_pinned(ModelId(3), true);
        let wanted = ModelMemory { weights: 40 << 20, kv_cache: 1 };
        let refusal = residency.admit(ModelId(4), wanted, at(50)).unwrap_err();
        assert_eq!(refusal, OverBudget { wanted, budget: 100 << 20, taken: 60 << 20 });
        assert!(
            refusal.to_string().starts_with("it needs 41 MiB (weights 40 MiB, KV cache 1 MiB), and of the 100 MiB")
        );
        assert_eq!(residency.admit(ModelId(4), memory(40), at(50)).unwrap(), [ModelId(1)]);
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
            assert_eq!(residency.admit(ModelId(model), memory(1 << 30), at(0)).unwrap(), []);
        }
    }
}
