//! Finds blocks of the cache that were computed before: a tree over token ids, with one block per node.
//!
//! Keys and values depend on a token and on all tokens before it, so a block can be reused wherever the same tokens
//! begin a sequence. Finished sequences leave their blocks here. A prompt walks down from the root as long as its
//! tokens match: whole blocks are shared, and where it diverges within a block, the common part is copied. A node's
//! block belongs to the tree and to every sequence that shares it.
//!
//! Where layers keep a state in place of keys and values, a block is useful only together with the state at its end.
//! Nodes may therefore hold a state, and a prompt gets as far as the last matching node that has one. Such checkpoints
//! are fewer than nodes; the least recently used ones are dropped.
//!
//! Each client with its own key has its own root, so that other clients cannot learn its prompts from the cache's
//! contents or from the time that they save. Everything without an owner shares one root.
//!
//! When blocks are needed, the least recently used leaves are evicted. Leaves that a sequence still uses go last,
//! because evicting them frees nothing. Pinned ones stay.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};

use hone_protocol::OwnerId;

use super::{BLOCK_TOKENS, BlockCopy, BlockId, BlockPool, CachedSequence, StateAt, StateId, StatePool};

type NodeId = usize;
const ROOT: NodeId = 0;

/// The blocks kept from one model's finished sequences.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    /// The root for content without an owner comes first. Roots have no block. Slots of removed nodes are reused.
    nodes: Vec<Node>,
    /// The roots of owners that have cached content.
    roots: BTreeMap<OwnerId, NodeId>,
    free_nodes: Vec<NodeId>,
    /// Unpinned leaves, the least recently used first.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Counts lookups and insertions, as a clock.
    now: u64,
    n_blocks: usize,
    n_pinned: usize,
    n_evicted: u64,
    n_states: usize,
}

#[derive(Debug)]
struct Node {
    /// The owner, for a root.
    owner: Option<OwnerId>,
    parent: NodeId,
    /// The tokens of its block: [`BLOCK_TOKENS`] of them, or fewer in a leaf.
    tokens: Box<[u32]>,
    block: BlockId,
    /// The state after its tokens.
    state: Option<StateId>,
    children: BTreeMap<Box<[u32]>, NodeId>,
    last_used: u64,
    n_pins: usize,
}

impl Node {
    fn root(owner: Option<OwnerId>) -> Node {
        Node {
            owner,
            parent: ROOT,
            tokens: Box::default(),
            block: BlockId::MAX,
            state: None,
            children: BTreeMap::new(),
            last_used: 0,
            n_pins: 0,
        }
    }

    fn is_root(&self) -> bool {
        self.block == BlockId::MAX
    }
}

/// The cached part of a prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundPrefix {
    /// A sequence with the beginning of the prompt.
    pub sequence: CachedSequence,
    /// The copy to carry out before anything is written.
    pub copy: Option<BlockCopy>,
}

impl Default for PrefixTree {
    fn default() -> Self {
        PrefixTree {
            nodes: vec![Node::root(None)],
            roots: BTreeMap::new(),
            free_nodes: Vec::new(),
            leaves: BTreeSet::new(),
            now: 0,
            n_blocks: 0,
            n_pinned: 0,
            n_evicted: 0,
            n_states: 0,
        }
    }
}

impl PrefixTree {
    /// Blocks that the tree holds.
    pub(crate) fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Blocks of pinned prefixes.
    pub(crate) fn n_pinned(&self) -> usize {
        self.n_pinned
    }

    /// Blocks evicted so far to make room for others.
    pub(crate) fn n_evicted(&self) -> u64 {
        self.n_evicted
    }

    /// Checkpoints that the tree holds.
    #[cfg(test)]
    pub(crate) fn n_states(&self) -> usize {
        self.n_states
    }

    /// Number of leading tokens that are cached for an owner.
    pub(crate) fn cached_tokens(&self, states: &StatePool, owner: Option<OwnerId>, tokens: &[u32]) -> usize {
        let (path, tail) = self.usable(states, owner, tokens);
        path.len() * BLOCK_TOKENS + tail.map_or(0, |(_, n_common)| n_common)
    }

    /// Like [`PrefixTree::walk`]; if there are states, only as far as the last node that has one.
    fn usable(
        &self,
        states: &StatePool,
        owner: Option<OwnerId>,
        tokens: &[u32],
    ) -> (Vec<NodeId>, Option<(NodeId, usize)>) {
        let (mut path, tail) = self.walk(owner, tokens);
        if !states.is_used() {
            return (path, tail);
        }
        let has_state = |node: NodeId| self.nodes[node].state.is_some();
        let is_whole = |(node, n_common): &(NodeId, usize)| self.nodes[*node].tokens.len() == *n_common;
        let tail = tail.filter(|found| is_whole(found) && has_state(found.0));
        if tail.is_none() {
            let n_useful = path.iter().rposition(|node| has_state(*node)).map_or(0, |last| last + 1);
            path.truncate(n_useful);
        }
        (path, tail)
    }

    /// A sequence of an owner with the longest prefix of the tokens that is cached for it. If the prefix ends inside a
    /// block, that part is to be copied into a block of the sequence's own, provided one is free.
    pub(crate) fn find(
        &mut self,
        pool: &mut BlockPool,
        states: &mut StatePool,
        owner: Option<OwnerId>,
        tokens: &[u32],
    ) -> FoundPrefix {
        let (path, tail) = self.usable(states, owner, tokens);
        if tail.is_some() && pool.n_free() == 0 && states.is_used() {
            // Without a block for the rest, the state behind it is useless.
            return FoundPrefix { sequence: CachedSequence { owner, ..CachedSequence::default() }, copy: None };
        }
        self.now += 1;
        path.iter().for_each(|node| self.touch(*node));
        let mut blocks: Vec<BlockId> = path.iter().map(|node| self.nodes[*node].block).collect();
        blocks.iter().for_each(|block| pool.reference_counts[*block as usize] += 1);
        let mut n_tokens = blocks.len() * BLOCK_TOKENS;
        let mut copy = None;
        let last = tail.map(|(node, _)| node).or(path.last().copied());
        if let Some((node, n_common)) = tail.filter(|_| pool.n_free() > 0) {
            self.touch(node);
            let to = pool.take();
            copy = Some(BlockCopy { from: self.nodes[node].block, to });
            blocks.push(to);
            n_tokens += n_common;
        }
        let state = last.filter(|_| states.is_used()).and_then(|node| self.nodes[node].state);
        let branch = (self.walk(owner, tokens).0.len() * BLOCK_TOKENS).max(n_tokens);
        let mut sequence = CachedSequence { blocks, n_tokens, states: Vec::new(), branch: Some(branch), owner };
        if let Some(state) = state {
            states.share(state);
            sequence.states.push(StateAt { position: n_tokens, state });
        }
        FoundPrefix { sequence, copy }
    }

    /// Keeps the blocks of a finished sequence with these tokens, for its owner. Blocks that the tree already holds are
    /// freed.
    ///
    /// # Panics
    /// When `tokens` is shorter than the sequence.
    pub(crate) fn keep(
        &mut self,
        pool: &mut BlockPool,
        states: &mut StatePool,
        tokens: &[u32],
        sequence: CachedSequence,
    ) {
        assert!(tokens.len() >= sequence.n_tokens, "every position has its token");
        self.now += 1;
        let CachedSequence { blocks, n_tokens, states: mut kept, owner, .. } = sequence;
        let root = if n_tokens == 0 { ROOT } else { self.root_for(owner) };
        let (mut parent, mut position) = (root, 0);
        for (chunk, block) in tokens[..n_tokens].chunks(BLOCK_TOKENS).zip(blocks) {
            parent = match self.child_with(parent, chunk) {
                Some(child) => {
                    pool.drop_reference(block);
                    self.touch(child);
                    child
                }
                None => self.add(pool, states, parent, chunk, block),
            };
            position += chunk.len();
            // A longer node has the state after its own tokens.
            if self.nodes[parent].tokens.len() == chunk.len() {
                self.take_state(&mut kept, parent, position);
            }
        }
        kept.into_iter().for_each(|state| states.release(state.state));
        self.drop_old_states(states);
    }

    /// The root of an owner; added if missing.
    fn root_for(&mut self, owner: Option<OwnerId>) -> NodeId {
        let Some(id) = owner else { return ROOT };
        if let Some(root) = self.roots.get(&id) {
            return *root;
        }
        let root = self.place(Node::root(owner));
        self.roots.insert(id, root);
        root
    }

    /// Gives a node a slot.
    fn place(&mut self, node: Node) -> NodeId {
        match self.free_nodes.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Gives a node its sequence's state at this position, unless it has one.
    fn take_state(&mut self, states: &mut Vec<StateAt>, node: NodeId, position: usize) {
        if self.nodes[node].state.is_some() {
            return;
        }
        if let Some(index) = states.iter().position(|state| state.position == position) {
            self.nodes[node].state = Some(states.swap_remove(index).state);
            self.n_states += 1;
        }
    }

    /// Drops the least recently used checkpoints in excess of the limit, pinned ones last.
    fn drop_old_states(&mut self, states: &mut StatePool) {
        while self.n_states > states.most_kept() {
            let with_state = (1..self.nodes.len()).filter(|node| self.nodes[*node].state.is_some());
            let oldest =
                with_state.min_by_key(|node| (self.nodes[*node].n_pins > 0, self.nodes[*node].last_used, *node));
            let Some(node) = oldest else { return };
            self.drop_state(states, node);
        }
    }

    fn drop_state(&mut self, states: &mut StatePool, node: NodeId) {
        if let Some(state) = self.nodes[node].state.take() {
            states.release(state);
            self.n_states -= 1;
        }
    }

    /// Evicts blocks until `n_blocks` are free or nothing more can be evicted. Returns whether they are free.
    pub(crate) fn make_room(&mut self, pool: &mut BlockPool, states: &mut StatePool, n_blocks: usize) -> bool {
        while pool.n_free() < n_blocks {
            if !self.give_up_one(pool, states) {
                return false;
            }
        }
        true
    }

    /// Evicts blocks until at most `n_blocks` are kept, or nothing more can be evicted.
    pub(crate) fn shrink_to(&mut self, pool: &mut BlockPool, states: &mut StatePool, n_blocks: usize) {
        while self.n_blocks > n_blocks && self.give_up_one(pool, states) {}
    }

    fn give_up_one(&mut self, pool: &mut BlockPool, states: &mut StatePool) -> bool {
        let is_unused = |(_, node): &&(u64, NodeId)| !pool.is_shared(self.nodes[*node].block);
        let Some((_, node)) = self.leaves.iter().find(is_unused).or_else(|| self.leaves.first()).copied() else {
            return false;
        };
        self.n_evicted += 1;
        self.remove(pool, states, node);
        true
    }

    /// Protects the cached whole blocks of these tokens, which have no owner, from eviction. Pins are counted: blocks
    /// pinned twice must be unpinned twice. Returns the number of pinned tokens.
    pub(crate) fn pin(&mut self, tokens: &[u32]) -> usize {
        let (path, _) = self.walk(None, tokens);
        for node in &path {
            if self.nodes[*node].n_pins == 0 {
                self.n_pinned += 1;
                self.leaves.remove(&(self.nodes[*node].last_used, *node));
            }
            self.nodes[*node].n_pins += 1;
        }
        path.len() * BLOCK_TOKENS
    }

    /// Undoes one pin of these tokens, as many as [`PrefixTree::pin`] returned.
    pub(crate) fn unpin(&mut self, tokens: &[u32]) {
        let (path, _) = self.walk(None, tokens);
        for node in path.into_iter().filter(|node| self.nodes[*node].n_pins > 0).collect::<Vec<_>>() {
            self.nodes[node].n_pins -= 1;
            if self.nodes[node].n_pins == 0 {
                self.n_pinned -= 1;
                self.note_leaf(node);
            }
        }
    }

    /// Removes all pins.
    pub(crate) fn unpin_all(&mut self) {
        self.n_pinned = 0;
        for id in 1..self.nodes.len() {
            if std::mem::take(&mut self.nodes[id].n_pins) > 0 {
                self.note_leaf(id);
            }
        }
    }

    /// An owner's nodes whose whole blocks begin the tokens, and the node that shares the most with the tokens after
    /// them.
    fn walk(&self, owner: Option<OwnerId>, tokens: &[u32]) -> (Vec<NodeId>, Option<(NodeId, usize)>) {
        let mut path = Vec::new();
        let root = match owner {
            None => ROOT,
            Some(owner) => match self.roots.get(&owner) {
                Some(root) => *root,
                None => return (path, None),
            },
        };
        let mut rest = tokens;
        loop {
            let next = &rest[..rest.len().min(BLOCK_TOKENS)];
            let parent = path.last().copied().unwrap_or(root);
            match self.nearest(parent, next) {
                Some((child, BLOCK_TOKENS)) => path.push(child),
                nearest => return (path, nearest.filter(|(_, n_common)| *n_common > 0)),
            }
            rest = &rest[BLOCK_TOKENS..];
        }
    }

    /// The child with the longest common prefix with these tokens, and the prefix's length. Among the children sorted
    /// by tokens, it is one of the two between which these tokens would be inserted.
    fn nearest(&self, parent: NodeId, tokens: &[u32]) -> Option<(NodeId, usize)> {
        let children = &self.nodes[parent].children;
        let before = children.range::<[u32], _>((Unbounded, Included(tokens))).next_back();
        let after = children.range::<[u32], _>((Included(tokens), Unbounded)).next();
        let n_common = |theirs: &[u32]| std::iter::zip(theirs, tokens).take_while(|(a, b)| a == b).count();
        let candidates = [before, after].into_iter().flatten();
        candidates.map(|(theirs, node)| (*node, n_common(theirs))).max_by_key(|(_, n_common)| *n_common)
    }

    /// The child whose block begins with all of these tokens.
    fn child_with(&self, parent: NodeId, tokens: &[u32]) -> Option<NodeId> {
        self.nearest(parent, tokens).filter(|(_, n_common)| *n_common == tokens.len()).map(|(child, _)| child)
    }

    /// Adds a block below a node, replacing a shorter block that is a prefix of it.
    fn add(
        &mut self,
        pool: &mut BlockPool,
        states: &mut StatePool,
        parent: NodeId,
        tokens: &[u32],
        block: BlockId,
    ) -> NodeId {
        if let Some((part, n_common)) = self.nearest(parent, tokens)
            && n_common == self.nodes[part].tokens.len()
        {
            self.remove(pool, states, part);
        }
        let tokens: Box<[u32]> = tokens.into();
        let id = self.place(Node { parent, tokens: tokens.clone(), block, last_used: self.now, ..Node::root(None) });
        self.leaves.remove(&(self.nodes[parent].last_used, parent));
        self.nodes[parent].children.insert(tokens, id);
        self.leaves.insert((self.now, id));
        self.n_blocks += 1;
        id
    }

    /// Removes a leaf.
    fn remove(&mut self, pool: &mut BlockPool, states: &mut StatePool, id: NodeId) {
        self.drop_state(states, id);
        let node = &mut self.nodes[id];
        debug_assert!(node.children.is_empty() && node.n_pins == 0);
        pool.drop_reference(node.block);
        self.leaves.remove(&(node.last_used, id));
        let (parent, tokens) = (node.parent, std::mem::take(&mut node.tokens));
        self.nodes[parent].children.remove(&tokens);
        self.free_nodes.push(id);
        self.n_blocks -= 1;
        self.note_leaf(parent);
    }

    fn touch(&mut self, node: NodeId) {
        let was_leaf = self.leaves.remove(&(self.nodes[node].last_used, node));
        self.nodes[node].last_used = self.now;
        if was_leaf {
            self.leaves.insert((self.now, node));
        }
    }

    /// Makes a node evictable if it is an unpinned leaf. The root of an owner is removed with the last node below it.
    fn note_leaf(&mut self, id: NodeId) {
        let node = &self.nodes[id];
        if !node.children.is_empty() || node.n_pins > 0 {
            return;
        }
        match node.owner {
            Some(owner) => {
                self.roots.remove(&owner);
                self.free_nodes.push(id);
            }
            None if !node.is_root() => drop(self.leaves.insert((node.last_used, id))),
            None => {}
        }
    }
}
