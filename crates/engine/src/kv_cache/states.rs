//! Bookkeeping of states, in which layers without a cache keep all tokens of a sequence so far.
//!
//! A state belongs to one position and cannot be cut back to an earlier one. So a sequence holds several: the latest,
//! and checkpoints of earlier positions, from which it can be computed anew. States are never changed, and sequences
//! and the prefix tree share them.

/// Identifies a state.
pub(crate) type StateId = u32;

/// Positions between two checkpoints of a prompt; whole blocks.
const CHECKPOINT_DISTANCE: usize = 8 * super::BLOCK_TOKENS;

/// Bytes for the checkpoints of the prefix tree, unless they allow fewer than the minimum number.
const KEPT_BYTES: u64 = 512 << 20;
const KEPT_STATES: std::ops::RangeInclusive<u64> = 6..=256;

/// States without an owner whose memory is kept for the next step.
const IDLE_STATES: usize = 4;

/// All states of one model, and how many owners each has.
#[derive(Debug, Default)]
pub struct StatePool {
    /// Bytes of a state; 0 if the model keeps none.
    state_bytes: u64,
    owners: Vec<u32>,
    /// States without an owner, the latest last.
    idle: Vec<StateId>,
    /// Idle states whose memory was freed.
    freed: Vec<StateId>,
}

impl StatePool {
    /// A pool of states of `state_bytes` bytes each; 0 if the model keeps none.
    pub fn new(state_bytes: u64) -> Self {
        StatePool { state_bytes, ..StatePool::default() }
    }

    /// Whether the model keeps states.
    pub fn is_used(&self) -> bool {
        self.state_bytes > 0
    }

    /// Maximum number of checkpoints that the prefix tree keeps.
    pub fn most_kept(&self) -> usize {
        most_kept(self.state_bytes)
    }

    /// States that have an owner.
    pub fn n_owned(&self) -> usize {
        self.owners.len() - self.idle.len() - self.freed.len()
    }

    /// A state without content, for one owner.
    pub fn take(&mut self) -> StateId {
        let state = self.idle.pop().or_else(|| self.freed.pop()).unwrap_or_else(|| {
            self.owners.push(0);
            (self.owners.len() - 1) as StateId
        });
        self.owners[state as usize] = 1;
        state
    }

    /// Adds an owner.
    pub fn share(&mut self, state: StateId) {
        self.owners[state as usize] += 1;
    }

    /// Removes an owner.
    pub fn release(&mut self, state: StateId) {
        let owners = &mut self.owners[state as usize];
        *owners -= 1;
        if *owners == 0 {
            self.idle.push(state);
        }
    }

    /// A state without an owner whose memory should be freed, if there are more than will soon be needed again.
    pub fn free_one(&mut self) -> Option<StateId> {
        if self.idle.len() <= IDLE_STATES {
            return None;
        }
        let state = self.idle.remove(0);
        self.freed.push(state);
        Some(state)
    }

    /// The positions within a step, after its first and before its last token, at which a checkpoint is worth its
    /// memory: regular ones, the last whole block of a prompt, because the next turn of a chat may resume there, and
    /// the place where an earlier prompt with the same beginning diverged.
    pub fn checkpoints(&self, step: std::ops::Range<usize>, ends_prompt: bool, branch: Option<usize>) -> Vec<usize> {
        let inside = |position: &usize| *position > step.start && *position < step.end;
        let regular = (step.start / CHECKPOINT_DISTANCE + 1..).map(|ordinal| ordinal * CHECKPOINT_DISTANCE);
        let last_block = (step.end.saturating_sub(1)) / super::BLOCK_TOKENS * super::BLOCK_TOKENS;
        let mut positions: Vec<usize> = regular.take_while(inside).collect();
        positions.extend(Some(last_block).filter(|_| ends_prompt && step.len() > 1).filter(inside));
        positions.extend(branch.filter(inside));
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Maximum number of checkpoints of a sequence in progress.
    pub fn most_of_sequence(&self) -> usize {
        (self.most_kept() / 3).clamp(2, 32)
    }
}

fn most_kept(state_bytes: u64) -> usize {
    (KEPT_BYTES / state_bytes.max(1)).clamp(*KEPT_STATES.start(), *KEPT_STATES.end()) as usize
}

/// Bytes of a model's states: for `n_sequences` in progress, including the states that a step writes, and for the
/// prefix tree.
pub(crate) fn bytes_of_states(state_bytes: u64, n_sequences: usize) -> u64 {
    let in_progress = 2 * n_sequences.max(1) as u64;
    state_bytes * (in_progress + IDLE_STATES as u64 + most_kept(state_bytes) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_reused_when_its_last_owner_leaves() {
        let mut pool = StatePool::new(100);
        let (first, second) = (pool.take(), pool.take());
        pool.share(first);
        pool.release(first);
        assert_eq!(pool.n_owned(), 2);
        pool.release(first);
        assert_eq!((pool.n_owned(), pool.take()), (1, first));
        assert_ne!(first, second);
    }

    #[test]
    fn memory_of_many_idle_states_is_freed() {
        let mut pool = StatePool::new(100);
        let states: Vec<StateId> = (0..6).map(|_| pool.take()).collect();
        states.iter().for_each(|state| pool.release(*state));
        assert_eq!((pool.free_one(), pool.free_one(), pool.free_one()), (Some(0), Some(1), None));
        let again: Vec<StateId> = (0..6).map(|_| pool.take()).collect();
        assert_eq!(again.iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
        assert_eq!(pool.n_owned(), 6);
    }

    #[test]
    fn checkpoints_lie_where_later_prompts_go_on() {
        let pool = StatePool::new(100);
        assert_eq!(pool.checkpoints(0..600, false, None), [256, 512]);
        assert_eq!(pool.checkpoints(0..600, true, None), [256, 512, 576]);
        assert_eq!(pool.checkpoints(256..512, true, Some(320)), [320, 480]);
        assert_eq!(pool.checkpoints(511..512, true, None), [0; 0]);
        assert_eq!(pool.checkpoints(600..608, true, Some(700)), [0; 0]);
    }
}
