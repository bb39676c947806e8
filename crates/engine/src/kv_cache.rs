//! Bookkeeping of the KV cache: which blocks of positions belong to which sequence.
//!
//! The cache is cut into blocks of [`BLOCK_TOKENS`] positions. A sequence holds a list of blocks; forked sequences
//! share theirs, and a shared block is copied only when one of them writes into it. Nothing here touches a device: the
//! storage behind the blocks is the backend's.

pub(crate) mod prefix_tree;
pub(crate) mod states;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hone_protocol::OwnerId;
use thiserror::Error;

pub(crate) use hone_kernels::step::StateAt;
pub use hone_kernels::{BLOCK_TOKENS, KvFormat};
pub(crate) use states::{StateId, StatePool};

/// Identifies a block of the cache.
pub(crate) type BlockId = u32;

/// A sequence's part of the cache. Returned to its model with [`Model::release`](crate::Model::release).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CachedSequence {
    blocks: Vec<BlockId>,
    n_tokens: usize,
    /// Its states if the model keeps any, in the order of their positions. During a step, the last one is written by
    /// the step.
    states: Vec<StateAt>,
    /// Position where another sequence with the same beginning diverges, which is worth a checkpoint.
    branch: Option<usize>,
    /// The owner that may reuse it.
    owner: Option<OwnerId>,
}

impl CachedSequence {
    /// Its blocks, in the order of the positions.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Number of positions in use.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Its states, in the order of their positions.
    pub fn states(&self) -> &[StateAt] {
        &self.states
    }

    /// Begins a step from `position` to the end of the sequence: keeps the state that it starts from and earlier ones
    /// at the ends of blocks, and adds those that it writes. Returns the number of states that existed before the step.
    pub fn begin_states(&mut self, pool: &mut StatePool, position: usize, ends_prompt: bool) -> usize {
        self.drop_states(pool, |state| state.position != position && !state.position.is_multiple_of(BLOCK_TOKENS));
        while self.states.len() > pool.most_of_sequence() {
            // Every other one is dropped: the farther apart they are, the more is computed again from them.
            let mut ordinal = 0;
            self.drop_states(pool, |state| {
                ordinal += 1;
                ordinal % 2 == 0 && state.position != position
            });
        }
        let n_before = self.states.len();
        let checkpoints = pool.checkpoints(position..self.n_tokens, ends_prompt, self.branch);
        for position in checkpoints.into_iter().chain([self.n_tokens]) {
            self.states.push(StateAt { position, state: pool.take() });
        }
        n_before
    }

    /// Shares the states of a sequence that this one is a fork of.
    pub fn share_states(&mut self, pool: &mut StatePool, original: &CachedSequence) {
        original.states.iter().for_each(|state| pool.share(state.state));
        self.states.clone_from(&original.states);
        self.branch = original.branch;
    }

    /// Drops the states after the first `n_tokens` positions. Returns the length to which the sequence can be cut: up
    /// to its last state, if the model keeps states.
    pub fn cut_states(&mut self, pool: &mut StatePool, n_tokens: usize) -> usize {
        if !pool.is_used() || n_tokens >= self.n_tokens {
            return n_tokens;
        }
        self.drop_states(pool, |state| state.position > n_tokens);
        self.states.last().map_or(0, |state| state.position)
    }

    fn drop_states(&mut self, pool: &mut StatePool, mut is_dropped: impl FnMut(&StateAt) -> bool) {
        self.states.retain(|state| {
            let is_dropped = is_dropped(state);
            if is_dropped {
                pool.release(state.state);
            }
            !is_dropped
        });
    }
}

/// There is no room for more positions.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "the KV cache is full: {needed} more blocks of {BLOCK_TOKENS} tokens are needed and {free} of {capacity} are free"
)]
pub struct CacheFull {
    /// Additional blocks that the request needs.
    pub needed: usize,
    /// Blocks that are free.
    pub free: usize,
    /// Blocks in all.
    pub capacity: usize,
}

/// A block whose content must be copied before a sequence may write into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockCopy {
    /// The shared block.
    pub from: BlockId,
    /// The sequence's own copy.
    pub to: BlockId,
}

/// All blocks of one model's cache, and how many sequences hold each.
#[derive(Debug)]
pub(crate) struct BlockPool {
    capacity: usize,
    /// Counts for all blocks that have ever been taken; the rest have never been touched.
    reference_counts: Vec<u32>,
    /// Blocks that were taken and returned. The lowest is reused first, so that a lone sequence's blocks stay
    /// contiguous.
    returned: BinaryHeap<Reverse<BlockId>>,
}

impl BlockPool {
    /// A pool with room for `n_tokens` positions.
    pub(crate) fn with_room_for(n_tokens: usize) -> Self {
        let capacity = n_tokens.div_ceil(BLOCK_TOKENS).min(BlockId::MAX as usize);
        BlockPool { capacity, reference_counts: Vec::new(), returned: BinaryHeap::new() }
    }

    /// Blocks that no sequence holds.
    pub(crate) fn n_free(&self) -> usize {
        self.capacity - self.reference_counts.len() + self.returned.len()
    }

    /// Blocks in all.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a sequence could be extended by `n_tokens` positions.
    ///
    /// # Errors
    /// When the pool is full.
    pub(crate) fn check(&self, sequence: &CachedSequence, n_tokens: usize) -> Result<(), CacheFull> {
        let needed = self.blocks_needed(sequence, n_tokens);
        match needed > self.n_free() {
            true => Err(CacheFull { needed, free: self.n_free(), capacity: self.capacity }),
            false => Ok(()),
        }
    }

    /// Appends `n_tokens` positions to a sequence. If its last block is shared, the caller must carry out the returned
    /// copy before it writes.
    ///
    /// # Errors
    /// When the pool is full; nothing has changed then.
    pub(crate) fn extend(
        &mut self,
        sequence: &mut CachedSequence,
        n_tokens: usize,
    ) -> Result<Option<BlockCopy>, CacheFull> {
        self.check(sequence, n_tokens)?;
        let n_blocks = (sequence.n_tokens + n_tokens).div_ceil(BLOCK_TOKENS);
        let copy = self.shared_last(sequence, n_tokens).map(|from| {
            let to = self.take();
            self.drop_reference(from);
            sequence.blocks.pop();
            sequence.blocks.push(to);
            BlockCopy { from, to }
        });
        while sequence.blocks.len() < n_blocks {
            let block = self.take();
            sequence.blocks.push(block);
        }
        sequence.n_tokens += n_tokens;
        Ok(copy)
    }

    /// A second sequence with the same content; both may continue independently.
    pub(crate) fn fork(&mut self, sequence: &CachedSequence) -> CachedSequence {
        for block in &sequence.blocks {
            self.reference_counts[*block as usize] += 1;
        }
        let (blocks, n_tokens, owner) = (sequence.blocks.clone(), sequence.n_tokens, sequence.owner);
        CachedSequence { blocks, n_tokens, owner, ..CachedSequence::default() }
    }

    /// Drops everything from position `n_tokens` on.
    pub(crate) fn truncate(&mut self, sequence: &mut CachedSequence, n_tokens: usize) {
        if n_tokens >= sequence.n_tokens {
            return;
        }
        for block in sequence.blocks.split_off(n_tokens.div_ceil(BLOCK_TOKENS)) {
            self.drop_reference(block);
        }
        sequence.n_tokens = n_tokens;
    }

    /// Returns a sequence's blocks to the pool.
    pub(crate) fn release(&mut self, mut sequence: CachedSequence) {
        self.truncate(&mut sequence, 0);
    }

    /// Blocks that a sequence needs for `n_tokens` more positions.
    fn blocks_needed(&self, sequence: &CachedSequence, n_tokens: usize) -> usize {
        let n_blocks = (sequence.n_tokens + n_tokens).div_ceil(BLOCK_TOKENS);
        n_blocks - sequence.blocks.len() + usize::from(self.shared_last(sequence, n_tokens).is_some())
    }

    /// A sequence's last block, if more positions would be written into it and other sequences hold it too.
    fn shared_last(&self, sequence: &CachedSequence, n_tokens: usize) -> Option<BlockId> {
        let writes_into_last = !sequence.n_tokens.is_multiple_of(BLOCK_TOKENS) && n_tokens > 0;
        sequence.blocks.last().copied().filter(|block| writes_into_last && self.is_shared(*block))
    }

    fn is_shared(&self, block: BlockId) -> bool {
        self.reference_counts[block as usize] > 1
    }

    /// Takes a free block; the caller has checked that there is one.
    fn take(&mut self) -> BlockId {
        match self.returned.pop() {
            Some(Reverse(block)) => {
                self.reference_counts[block as usize] = 1;
                block
            }
            None => {
                self.reference_counts.push(1);
                (self.reference_counts.len() - 1) as BlockId
            }
        }
    }

    fn drop_reference(&mut self, block: BlockId) {
        let count = &mut self.reference_counts[block as usize];
        *count -= 1;
        if *count == 0 {
            self.returned.push(Reverse(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_sequence_gets_neighbouring_blocks() {
        let mut pool = BlockPool::with_room_for(4 * BLOCK_TOKENS);
        let mut sequence = CachedSequence::default();
        assert_eq!(pool.extend(&mut sequence, BLOCK_TOKENS + 1).unwrap(), None);
        assert_eq!(pool.extend(&mut sequence, BLOCK_TOKENS).unwrap(), None);
        assert_eq!(sequence.blocks(), [0, 1, 2]);
        pool.release(sequence);
        assert_eq!(pool.n_free(), pool.capacity());
    }

    #[test]
    fn a_fork_copies_only_the_block_that_it_writes_into() {
        let mut pool = BlockPool::with_room_for(4 * BLOCK_TOKENS);
        let mut first = CachedSequence::default();
        pool.extend(&mut first, BLOCK_TOKENS + 5).unwrap();
        let mut second = pool.fork(&first);
        let copy = pool.extend(&mut second, 1).unwrap();
        assert_eq!(copy, Some(BlockCopy { from: 1, to: 2 }));
        assert_eq!(second.blocks(), [0, 2]);
        assert_eq!(pool.extend(&mut first, 1).unwrap(), None, "the block is its own again");
        pool.release(first);
        pool.release(second);
        assert_eq!(pool.n_free(), 4);
    }

    #[test]
    fn a_fork_at_a_block_boundary_copies_nothing() {
        let mut pool = BlockPool::with_room_for(3 * BLOCK_TOKENS);
        let mut first = CachedSequence::default();
        pool.extend(&mut first, BLOCK_TOKENS).unwrap();
        let mut second = pool.fork(&first);
        assert_eq!(pool.extend(&mut second, 1).unwrap(), None);
        assert_eq!(second.blocks(), [0, 1]);
    }

    #[test]
    fn a_full_pool_refuses_and_changes_nothing() {
        let mut pool = BlockPool::with_room_for(2 * BLOCK_TOKENS);
        let mut sequence = CachedSequence::default();
        pool.extend(&mut sequence, BLOCK_TOKENS).unwrap();
        let refused = pool.extend(&mut sequence, BLOCK_TOKENS + 1);
        assert_eq!(refused, Err(CacheFull { needed: 2, free: 1, capacity: 2 }));
        assert_eq!((sequence.n_tokens(), pool.n_free()), (BLOCK_TOKENS, 1));
    }

    #[test]
    fn truncation_gives_whole_blocks_back() {
        let mut pool = BlockPool::with_room_for(4 * BLOCK_TOKENS);
        let mut sequence = CachedSequence::default();
        pool.extend(&mut sequence, 4 * BLOCK_TOKENS).unwrap();
        pool.truncate(&mut sequence, BLOCK_TOKENS + 1);
        assert_eq!((sequence.blocks(), sequence.n_tokens()), ([0, 1].as_slice(), BLOCK_TOKENS + 1));
        pool.truncate(&mut sequence, 500);
        assert_eq!(sequence.n_tokens(), BLOCK_TOKENS + 1);
    }
}
