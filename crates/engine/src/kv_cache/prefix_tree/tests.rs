//! The prefix tree against a naive one that searches everything, with random operations, and with a cache whose content
//! tells which tokens it was computed from.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::kv_cache::prefix_tree::PrefixTree;
use crate::kv_cache::{BLOCK_TOKENS, BlockId, BlockPool, CachedSequence, StateId, StatePool};
use hone_protocol::OwnerId;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const N_BLOCKS: usize = 48;
const N_OPERATIONS: usize = 20_000;

/// The content of the cache at a position, which depends on the token and all tokens before it.
fn content(tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    tokens.hash(&mut hasher);
    hasher.finish()
}

/// Replaces the tree by a search of all cached prefixes.
#[derive(Default)]
struct Naive {
    /// Maps a prefix, up to the end of a whole or partial block, to the block's number.
    blocks: BTreeMap<Vec<u32>, Kept>,
    now: u64,
}

struct Kept {
    block: BlockId,
    last_used: u64,
    n_pins: usize,
}

impl Naive {
    /// The whole blocks that a prompt begins with, and how many tokens the best block after them adds.
    fn longest(&self, tokens: &[u32]) -> (usize, usize) {
        let is_whole = |n_blocks: usize| {
            n_blocks * BLOCK_TOKENS <= tokens.len() && self.blocks.contains_key(&tokens[..n_blocks * BLOCK_TOKENS])
        };
        let n_whole = (1..).take_while(|n_blocks| is_whole(*n_blocks)).last().unwrap_or(0) * BLOCK_TOKENS;
        let n_common = |kept: &Vec<u32>| std::iter::zip(kept, tokens).take_while(|(a, b)| a == b).count();
        let below = self.blocks.keys().filter(|kept| kept.len().div_ceil(BLOCK_TOKENS) == n_whole / BLOCK_TOKENS + 1);
        (n_whole, below.map(n_common).filter(|n| *n > n_whole).max().unwrap_or(n_whole) - n_whole)
    }

    fn touch(&mut self, tokens: &[u32], n_whole: usize) {
        self.now += 1;
        for end in (BLOCK_TOKENS..=n_whole).step_by(BLOCK_TOKENS) {
            self.blocks.get_mut(&tokens[..end]).unwrap().last_used = self.now;
        }
    }

    fn keep(&mut self, tokens: &[u32], blocks: &[BlockId]) {
        self.now += 1;
        for (index, block) in blocks.iter().enumerate() {
            let (start, end) = (index * BLOCK_TOKENS, tokens.len().min((index + 1) * BLOCK_TOKENS));
            let own = &tokens[..end];
            let holds_it = |kept: &Vec<u32>| kept.starts_with(own) && kept.len() <= start + BLOCK_TOKENS;
            if let Some(kept) = self.blocks.keys().find(|kept| holds_it(kept)).cloned() {
                self.blocks.get_mut(&kept).unwrap().last_used = self.now;
                continue;
            }
            self.blocks.retain(|kept, _| !(own.starts_with(kept) && kept.len() > start));
            self.blocks.insert(own.to_vec(), Kept { block: *block, last_used: self.now, n_pins: 0 });
        }
    }

    fn is_leaf(&self, prefix: &[u32]) -> bool {
        !self.blocks.keys().any(|other| other.len() > prefix.len() && other.starts_with(prefix))
    }

    /// Evicts blocks until `n_blocks` are not held.
    fn make_room(&mut self, n_blocks: usize, used: &BTreeSet<BlockId>) -> bool {
        while N_BLOCKS - self.n_held(used) < n_blocks {
            let leaves = self.blocks.iter().filter(|(prefix, kept)| kept.n_pins == 0 && self.is_leaf(prefix));
            let oldest = leaves.min_by_key(|(_, kept)| (used.contains(&kept.block), kept.last_used));
            let Some(oldest) = oldest.map(|(prefix, _)| prefix.clone()) else { return false };
            self.blocks.remove(&oldest);
        }
        true
    }

    /// Blocks that are kept or used.
    fn n_held(&self, used: &BTreeSet<BlockId>) -> usize {
        self.blocks.values().map(|kept| kept.block).chain(used.iter().copied()).collect::<BTreeSet<_>>().len()
    }

    fn pin(&mut self, tokens: &[u32], n_whole: usize, change: isize) {
        for end in (BLOCK_TOKENS..=n_whole).step_by(BLOCK_TOKENS) {
            let kept = self.blocks.get_mut(&tokens[..end]).unwrap();
            kept.n_pins = kept.n_pins.checked_add_signed(change).unwrap();
        }
    }
}

/// A sequence in use.
struct Live {
    tokens: Vec<u32>,
    sequence: CachedSequence,
}

struct Harness {
    pool: BlockPool,
    states: StatePool,
    tree: PrefixTree,
    naive: Naive,
    /// The content of every block.
    storage: Vec<[u64; BLOCK_TOKENS]>,
    live: Vec<Live>,
    pinned: Vec<(Vec<u32>, usize)>,
    random: ChaCha8Rng,
    n_found: usize,
}

impl Harness {
    fn new(seed: u64) -> Self {
        Harness {
            pool: BlockPool::with_room_for(N_BLOCKS * BLOCK_TOKENS),
            states: StatePool::default(),
            tree: PrefixTree::default(),
            naive: Naive::default(),
            storage: vec![[0; BLOCK_TOKENS]; N_BLOCKS],
            live: Vec::new(),
            pinned: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
            n_found: 0,
        }
    }

    /// Blocks of the sequences in use.
    fn used(&self) -> BTreeSet<BlockId> {
        self.live.iter().flat_map(|live| live.sequence.blocks()).copied().collect()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n as u64) as usize
    }

    /// Texts with long common beginnings: each is some blocks of few kinds, followed by a few random tokens.
    fn text(&mut self) -> Vec<u32> {
        let mut tokens = Vec::new();
        for _ in 0..self.below(5) {
            let kind = self.below(2) as u32;
            tokens.extend((0..BLOCK_TOKENS as u32).map(|index| 100 * kind + index));
        }
        let n_own = 1 + self.below(40);
        let kind = 1000 * self.below(3) as u32;
        tokens.extend((0..n_own as u32).map(|index| kind + index / 10));
        tokens
    }

    fn operate(&mut self) {
        match self.below(10) {
            0..=2 if self.live.len() < 5 => self.begin(),
            0..=4 => self.extend(),
            5 | 6 => self.finish(),
            7 => self.give_back(),
            8 => self.pin_or_unpin(),
            _ => self.fork(),
        }
        self.check();
    }

    fn begin(&mut self) {
        let tokens = self.text();
        let (n_whole, n_more) = self.naive.longest(&tokens);
        assert_eq!(self.tree.cached_tokens(&self.states, None, &tokens), n_whole + n_more);
        let n_more = if self.pool.n_free() > 0 { n_more } else { 0 };
        let found = self.tree.find(&mut self.pool, &mut self.states, None, &tokens);
        assert_eq!(found.sequence.n_tokens(), n_whole + n_more, "{tokens:?}");
        assert_eq!(found.copy.is_some(), n_more > 0);
        if let Some(copy) = found.copy {
            self.storage[copy.to as usize] = self.storage[copy.from as usize];
        }
        self.naive.touch(&tokens, n_whole);
        if let Some(copy) = found.copy {
            let now = self.naive.now;
            self.naive.blocks.values_mut().filter(|kept| kept.block == copy.from).for_each(|kept| kept.last_used = now);
        }
        self.n_found += found.sequence.n_tokens();
        let tokens = tokens[..found.sequence.n_tokens()].to_vec();
        self.live.push(Live { tokens, sequence: found.sequence });
    }

    /// Extends a sequence; if blocks are needed, the tree evicts some.
    fn extend(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let index = self.below(self.live.len());
        let n_more = 1 + self.below(50);
        let kind = 1000 * self.below(3) as u32;
        let mut live = self.live.swap_remove(index);
        let (before, tokens) = (live.tokens.len(), (0..n_more as u32).map(|index| kind + index / 10));
        live.tokens.extend(tokens);
        let needed = n_more.div_ceil(BLOCK_TOKENS) + 1;
        let mut used = self.used();
        used.extend(live.sequence.blocks());
        assert_eq!(self.tree.make_room(&mut self.pool, &mut self.states, needed), self.naive.make_room(needed, &used));
        match self.pool.extend(&mut live.sequence, n_more) {
            Ok(copy) => {
                if let Some(copy) = copy {
                    self.storage[copy.to as usize] = self.storage[copy.from as usize];
                }
                for position in before..live.tokens.len() {
                    let block = live.sequence.blocks()[position / BLOCK_TOKENS] as usize;
                    self.storage[block][position % BLOCK_TOKENS] = content(&live.tokens[..=position]);
                }
            }
            Err(_) => live.tokens.truncate(before),
        }
        self.live.push(live);
    }

    fn finish(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let index = self.below(self.live.len());
        let live = self.live.swap_remove(index);
        self.naive.keep(&live.tokens, live.sequence.blocks());
        self.tree.keep(&mut self.pool, &mut self.states, &live.tokens, live.sequence);
    }

    fn give_back(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let index = self.below(self.live.len());
        let live = self.live.swap_remove(index);
        self.pool.release(live.sequence);
    }

    fn pin_or_unpin(&mut self) {
        if self.pinned.len() < 2 {
            let tokens = self.text();
            let (n_whole, _) = self.naive.longest(&tokens);
            assert_eq!(self.tree.pin(&tokens), n_whole);
            self.naive.pin(&tokens, n_whole, 1);
            self.pinned.push((tokens, n_whole));
        } else {
            let (tokens, n_whole) = self.pinned.remove(0);
            self.tree.unpin(&tokens[..n_whole]);
            self.naive.pin(&tokens, n_whole, -1);
        }
    }

    fn fork(&mut self) {
        if self.live.is_empty() || self.live.len() >= 5 {
            return;
        }
        let index = self.below(self.live.len());
        let (tokens, sequence) = (self.live[index].tokens.clone(), self.pool.fork(&self.live[index].sequence));
        self.live.push(Live { tokens, sequence });
    }

    fn check(&self) {
        assert_eq!(self.tree.n_blocks(), self.naive.blocks.len());
        assert_eq!(self.tree.n_pinned(), self.naive.blocks.values().filter(|kept| kept.n_pins > 0).count());
        for live in &self.live {
            for position in 0..live.sequence.n_tokens() {
                let block = live.sequence.blocks()[position / BLOCK_TOKENS] as usize;
                let found = self.storage[block][position % BLOCK_TOKENS];
                assert_eq!(found, content(&live.tokens[..=position]), "position {position} of {:?}", live.tokens);
            }
        }
        let n_held = self.naive.n_held(&self.used());
        assert_eq!(self.pool.n_free(), N_BLOCKS - n_held, "no block is lost and none is free that somebody holds");
    }
}

#[test]
fn random_operations_go_as_in_a_tree_that_looks_at_everything() {
    for seed in 0..4 {
        let mut harness = Harness::new(seed);
        (0..N_OPERATIONS).for_each(|_| harness.operate());
        assert!(harness.n_found > 10_000 && harness.tree.n_evicted() > 100, "there was something to be found");
        while let Some(live) = harness.live.pop() {
            harness.pool.release(live.sequence);
        }
        for (tokens, n_whole) in std::mem::take(&mut harness.pinned) {
            harness.tree.unpin(&tokens[..n_whole]);
        }
        let all_free = harness.tree.make_room(&mut harness.pool, &mut harness.states, N_BLOCKS);
        assert!(all_free, "all blocks come back");
        assert_eq!((harness.tree.n_blocks(), harness.tree.n_pinned()), (0, 0));
    }
}

/// A tree over a pool of `n_blocks` that holds these sequences.
fn tree_of(n_blocks: usize, kept: &[&[u32]]) -> (BlockPool, PrefixTree) {
    let (mut pool, mut tree) = (BlockPool::with_room_for(n_blocks * BLOCK_TOKENS), PrefixTree::default());
    for tokens in kept {
        let mut sequence = CachedSequence::default();
        pool.extend(&mut sequence, tokens.len()).unwrap();
        tree.keep(&mut pool, &mut StatePool::default(), tokens, sequence);
    }
    (pool, tree)
}

fn numbers(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

#[test]
fn whole_blocks_are_shared_and_the_rest_is_copied() {
    let (mut pool, mut tree) = tree_of(8, &[&numbers(0..80)]);
    let prompt = [numbers(0..70), numbers(500..520)].concat();
    let found = tree.find(&mut pool, &mut StatePool::default(), None, &prompt);
    assert_eq!(found.sequence.n_tokens(), 70);
    assert_eq!(found.sequence.blocks(), [0, 1, 3]);
    assert_eq!(found.copy.unwrap().from, 2);
    pool.release(found.sequence);
    assert_eq!(pool.n_free(), 5);
}

#[test]
fn without_a_free_block_only_whole_ones_are_found() {
    let (mut pool, mut tree) = tree_of(3, &[&numbers(0..80)]);
    let found = tree.find(&mut pool, &mut StatePool::default(), None, &numbers(0..75));
    assert_eq!((found.sequence.n_tokens(), found.copy), (64, None));
    pool.release(found.sequence);
}

#[test]
fn what_was_not_looked_at_for_longest_goes_first_and_what_is_used_last() {
    let (old, new, used) = (numbers(0..32), numbers(100..132), numbers(200..232));
    let (mut pool, mut tree) = tree_of(3, &[&used, &old, &new]);
    let in_use = tree.find(&mut pool, &mut StatePool::default(), None, &used);
    let looked_at = tree.find(&mut pool, &mut StatePool::default(), None, &old);
    pool.release(looked_at.sequence);
    assert!(tree.make_room(&mut pool, &mut StatePool::default(), 1));
    assert_eq!([&old, &new, &used].map(|tokens| tree.cached_tokens(&StatePool::default(), None, tokens)), [32, 0, 32]);
    assert!(tree.make_room(&mut pool, &mut StatePool::default(), 2));
    assert_eq!([&old, &used].map(|tokens| tree.cached_tokens(&StatePool::default(), None, tokens)), [0, 32]);
    assert!(!tree.make_room(&mut pool, &mut StatePool::default(), 3), "a block in use cannot be freed");
    pool.release(in_use.sequence);
}

#[test]
fn pinned_prefixes_survive_pressure() {
    let (header, other) = (numbers(0..70), numbers(100..164));
    let (mut pool, mut tree) = tree_of(6, &[&header, &other]);
    assert_eq!(tree.pin(&header), 64, "whole blocks are pinned");
    assert!(!tree.make_room(&mut pool, &mut StatePool::default(), 6));
    assert_eq!(
        (
            tree.cached_tokens(&StatePool::default(), None, &header),
            tree.cached_tokens(&StatePool::default(), None, &other),
            tree.n_pinned()
        ),
        (64, 0, 2)
    );
    tree.unpin(&header[..64]);
    assert!(tree.make_room(&mut pool, &mut StatePool::default(), 6));
}

#[test]
fn what_is_kept_twice_is_held_once() {
    let (long, short) = (numbers(0..90), numbers(0..70));
    let (pool, tree) = tree_of(12, &[&short, &long, &short, &long]);
    assert_eq!((tree.n_blocks(), pool.n_free()), (3, 9));
    assert_eq!(tree.cached_tokens(&StatePool::default(), None, &long), 90);
}

/// A model whose layers keep states: every state knows its tokens.
struct WithStates {
    pool: BlockPool,
    states: StatePool,
    tree: PrefixTree,
    content: BTreeMap<StateId, u64>,
    live: Vec<Live>,
    random: ChaCha8Rng,
    n_found: usize,
}

impl WithStates {
    fn new(seed: u64) -> Self {
        WithStates {
            pool: BlockPool::with_room_for(N_BLOCKS * BLOCK_TOKENS),
            states: StatePool::new(100 << 20),
            tree: PrefixTree::default(),
            content: BTreeMap::new(),
            live: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
            n_found: 0,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n as u64) as usize
    }

    fn operate(&mut self) {
        match self.below(10) {
            0..3 => self.begin(),
            3..6 => self.extend(),
            6..8 => self.finish(),
            8 => self.cut(),
            _ => self.fork(),
        }
    }

    fn any(&mut self) -> Option<Live> {
        let index = if self.live.is_empty() { return None } else { self.below(self.live.len()) };
        Some(self.live.swap_remove(index))
    }

    fn begin(&mut self) {
        if self.live.len() >= 4 {
            return;
        }
        let kind = 1000 * self.below(2) as u32;
        let n_tokens = 30 + self.below(250);
        let tokens: Vec<u32> =
            (0..n_tokens as u32).map(|index| if index < 60 { index } else { kind + index }).collect();
        let cached = self.tree.cached_tokens(&self.states, None, &tokens);
        let found = self.tree.find(&mut self.pool, &mut self.states, None, &tokens);
        assert!(found.sequence.n_tokens() == cached || self.pool.n_free() == 0);
        self.n_found += found.sequence.n_tokens();
        let tokens = tokens[..found.sequence.n_tokens()].to_vec();
        self.live.push(Live { tokens, sequence: found.sequence });
        self.check();
    }

    fn extend(&mut self) {
        let Some(mut live) = self.any() else { return };
        let (before, n_more, kind) = (live.tokens.len(), 1 + self.below(120), 1000 * self.below(2) as u32);
        self.tree.make_room(&mut self.pool, &mut self.states, n_more.div_ceil(BLOCK_TOKENS) + 1);
        if self.pool.extend(&mut live.sequence, n_more).is_ok() {
            let position = |index: usize| (before + index) as u32;
            live.tokens
                .extend((0..n_more).map(|index| if before < 60 { position(index) } else { kind + position(index) }));
            let n_before = live.sequence.begin_states(&mut self.states, before, n_more > 40);
            let (earlier, written) = live.sequence.states().split_at(n_before);
            assert_eq!(earlier.last().map_or(0, |state| state.position), before, "it goes on from its end");
            assert_eq!(written.last().unwrap().position, live.tokens.len());
            for state in written {
                self.content.insert(state.state, content(&live.tokens[..state.position]));
            }
        }
        self.live.push(live);
        self.check();
    }

    fn finish(&mut self) {
        let Some(live) = self.any() else { return };
        self.tree.keep(&mut self.pool, &mut self.states, &live.tokens, live.sequence);
        assert!(self.tree.n_states() <= self.states.most_kept());
        self.check();
    }

    fn cut(&mut self) {
        let Some(mut live) = self.any() else { return };
        let wanted = self.below(live.tokens.len() + 1);
        let n_tokens = live.sequence.cut_states(&mut self.states, wanted);
        assert!(n_tokens <= wanted);
        self.pool.truncate(&mut live.sequence, n_tokens);
        live.tokens.truncate(n_tokens);
        self.live.push(live);
        self.check();
    }

    fn fork(&mut self) {
        if self.live.len() >= 4 {
            return;
        }
        let Some(live) = self.any() else { return };
        let mut sequence = self.pool.fork(&live.sequence);
        sequence.share_states(&mut self.states, &live.sequence);
        self.live.push(Live { tokens: live.tokens.clone(), sequence });
        self.live.push(live);
        self.check();
    }

    fn release(&mut self, mut live: Live) {
        live.sequence.cut_states(&mut self.states, 0);
        self.pool.release(live.sequence);
    }

    fn check(&self) {
        for live in &self.live {
            for state in live.sequence.states() {
                let expected = content(&live.tokens[..state.position]);
                assert_eq!(self.content[&state.state], expected, "the state at {}", state.position);
            }
            let last = live.sequence.states().last().map_or(0, |state| state.position);
            assert_eq!(last, live.tokens.len(), "a sequence ends with a state");
        }
    }
}

#[test]
fn states_are_those_of_their_tokens_and_none_is_lost() {
    for seed in 0..4 {
        let mut harness = WithStates::new(seed);
        (0..N_OPERATIONS).for_each(|_| harness.operate());
        assert!(harness.n_found > 10_000, "there was something to be found");
        while let Some(live) = harness.live.pop() {
            harness.release(live);
        }
        assert_eq!(harness.states.n_owned(), harness.tree.n_states(), "the tree has the rest");
        assert!(harness.tree.make_room(&mut harness.pool, &mut harness.states, N_BLOCKS));
        assert_eq!(harness.states.n_owned(), 0);
    }
}

#[test]
fn nobody_finds_what_was_computed_for_another() {
    let (anne, ben) = (Some(OwnerId::fresh()), Some(OwnerId::fresh()));
    let mut pool = BlockPool::with_room_for(N_BLOCKS * BLOCK_TOKENS);
    let (mut states, mut tree) = (StatePool::default(), PrefixTree::default());
    let tokens = numbers(0..2 * BLOCK_TOKENS as u32 + 5);
    let mut keep = |tree: &mut PrefixTree, pool: &mut BlockPool, owner| {
        let mut sequence = tree.find(pool, &mut states, owner, &tokens).sequence;
        let n_found = sequence.n_tokens();
        pool.extend(&mut sequence, tokens.len() - n_found).unwrap();
        tree.keep(pool, &mut states, &tokens, sequence);
        n_found
    };
    assert_eq!([anne, ben, None].map(|owner| keep(&mut tree, &mut pool, owner)), [0, 0, 0]);
    assert_eq!(tree.n_blocks(), 9);
    assert_eq!([anne, ben, None].map(|owner| keep(&mut tree, &mut pool, owner)), [tokens.len(); 3]);
    let cached = |tree: &PrefixTree, owner| tree.cached_tokens(&StatePool::default(), owner, &tokens);
    // Evicts the least recently used blocks: all of Anne's, and with them her place in the tree.
    tree.shrink_to(&mut pool, &mut StatePool::default(), 6);
    assert_eq!([anne, ben, None].map(|owner| cached(&tree, owner)), [0, tokens.len(), tokens.len()]);
    tree.shrink_to(&mut pool, &mut StatePool::default(), 0);
    assert_eq!([anne, ben, None].map(|owner| cached(&tree, owner)), [0, 0, 0]);
    assert_eq!(pool.n_free(), N_BLOCKS);
    assert_eq!(keep(&mut tree, &mut pool, anne), 0);
    assert_eq!([anne, ben, None].map(|owner| cached(&tree, owner)), [tokens.len(), 0, 0]);
}
