//! A decoder's step as a program.
//!
//! A [`ProgramBuilder`] describes a model's computation for a batch of tokens once: buffers with a row per token, and
//! phases over them (an operation on every row, a product with weights, attention). All shapes are checked when the
//! program is built; after that [`Program::run`] checks only the batch. A step is submitted to the threads of a
//! [`Pool`] once, with all of its phases, and allocates nothing unless it is larger than all before it.
//!
//! A layer may be a mixture of experts, in which every row chooses some of many matrices ([`RoutingOptions`]), or keep
//! a state of all earlier tokens in place of a cache ([`SequenceStates`]).
//!
//! Steps mix sequences freely: rows are the tokens of all of them, one after the other. Some phases run only over the
//! rows whose results are wanted.

mod batch;
mod builder;
mod description;
mod experts;
mod gating;
mod memory;
mod operation;
mod phases;
mod routing;
mod states;
#[cfg(test)]
mod tests;

use std::cell::UnsafeCell;
use std::ops::Range;

use thiserror::Error;

use crate::Matrix;
use crate::activations::Activations;
use crate::attention::Scratch;
use crate::attention::kv_cache::KvLayer;
use crate::attention::plan::Plan;
use crate::buffer::Buffer;
use crate::platform;
use crate::pool::Pool;
use experts::{ExpertCache, ExpertSet};
use memory::{ActivationMemory, RowMemory};
use routing::Router;
use states::StateMemory;

pub use crate::attention::{Geometry, Span};
pub use batch::Batch;
pub use builder::{AttentionOptions, ExpertInput, ExpertOutput, ProductOutput, ProgramBuilder};
pub use description::{Description, KvShape, QuantizedShape, RouterShape, WeightMatrix};
pub use experts::{ExpertShape, ExpertSource};
pub use gating::{Gating, RoutingOptions};
pub use operation::{
    AttentionPhase, ConvolutionOptions, ExpertProductPhase, ExpertsId, KeySharing, KvLayerId, MatrixId, Output, Part,
    Phase, ProductPhase, QuantizedRows, RecurOptions, Rope, RopeId, RopePairs, RouterId, RowOperation, RowSet, Rows,
    StateLayerId, VectorId,
};
pub use states::{SequenceStates, StateAt, StateLayer, StateShape};

/// One sequence's part of a step.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Its new tokens.
    pub tokens: &'a [u32],
    /// Position of the first new token; the cache holds everything before it.
    pub position: usize,
    /// Its cache blocks in order, of [`BLOCK_TOKENS`](crate::BLOCK_TOKENS) positions each, with room for the new
    /// tokens.
    pub blocks: &'a [u32],
    /// The first of `tokens` whose result is wanted.
    pub first_selected: usize,
    /// The number of results wanted from there on.
    pub n_selected: usize,
    /// Its states, if the model has layers that keep one.
    pub states: Option<SequenceStates<'a>>,
}

/// Why a step cannot be carried out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StepError {
    /// A token is outside the vocabulary.
    #[error("token {token} is not one of the vocabulary's {vocab_size}")]
    Token {
        /// The token.
        token: u32,
        /// Rows of the embedding matrix.
        vocab_size: usize,
    },
    /// A sequence has too few blocks for its tokens.
    #[error("{n_blocks} blocks have no room for a sequence of {n_positions} positions")]
    Blocks {
        /// Blocks of the sequence.
        n_blocks: usize,
        /// Positions that it needs.
        n_positions: usize,
    },
    /// Two sequences or positions of the batch would write into the same block.
    #[error("block {block} would be written to from two places: a shared block must be copied first")]
    SharedBlock {
        /// The block.
        block: u32,
    },
    /// A sequence has no states although the model needs them, or they do not exist or are used twice.
    #[error("the states of a sequence do not fit its place in the step")]
    States,
    /// Results are requested for tokens that do not exist.
    #[error("results are requested for tokens up to {end} of a sequence with {n_tokens} new tokens")]
    Selection {
        /// End of the selected range.
        end: usize,
        /// New tokens of the sequence.
        n_tokens: usize,
    },
}

/// A decoder that is ready to run: its weights, its part of the cache, and the memory of a step.
pub struct Program {
    matrices: Vec<Matrix>,
    experts: Vec<ExpertSet>,
    expert_cache: ExpertCache,
    vectors: Vec<Vec<f32>>,
    ropes: Vec<Rope>,
    routers: Vec<Router>,
    layers: Vec<KvLayer>,
    states: StateMemory,
    rows: Vec<RowMemory>,
    quantized: Vec<ActivationMemory>,
    phases: Vec<Phase>,
    attentions: Vec<AttentionPhase>,
    /// One for every geometry used by the layers, and the rows that they attend from.
    plans: Vec<(RowSet, Geometry, Plan)>,
    partials: PartialMemory,
    threads: Vec<ThreadCell>,
    output: Rows,
    vocab_size: usize,
    batch: Batch,
    /// The number of phases of a step. Later phases are run by themselves.
    n_step_phases: usize,
    /// The phases that are left to run; empty when the step is done.
    unfinished: Range<usize>,
    /// The number of threads that the step's work was divided for.
    n_threads: usize,
}

/// Memory of partial results, which grows on demand.
struct PartialMemory {
    memory: Buffer,
    n_floats: usize,
}

/// Memory used by a single thread.
struct ThreadMemory {
    attention: Scratch,
    halves: Vec<half::f16>,
}

struct ThreadCell(UnsafeCell<ThreadMemory>);

// SAFETY: a cell is used only by the tasks of one pool thread, which run one after the other.
unsafe impl Sync for ThreadCell {}

impl Program {
    /// Runs a step: writes the new tokens' keys and values into the cache, and returns the output rows of the selected
    /// tokens, in their order.
    ///
    /// # Errors
    /// When the batch is not valid; the program has done nothing then.
    ///
    /// # Panics
    /// When a task panics, which is a bug.
    pub fn run<'a>(
        &mut self,
        pool: &mut Pool,
        sequences: impl IntoIterator<Item = Sequence<'a>>,
    ) -> Result<&[f32], StepError> {
        self.begin(pool, sequences)?;
        self.resume(pool, self.n_step_phases);
        Ok(self.output())
    }

    /// Runs the phases after a step's own, with `values` as the `input` rows of the tokens, and returns the output rows
    /// of the selected tokens. These phases neither read nor write states. An unfinished step is abandoned.
    ///
    /// # Errors
    /// When the batch is not valid; the program has done nothing then.
    ///
    /// # Panics
    /// When `values` are not rows of all tokens, or a task panics, which is a bug.
    pub fn run_after_step<'a>(
        &mut self,
        pool: &mut Pool,
        sequences: impl IntoIterator<Item = Sequence<'a>>,
        input: Rows,
        values: &[f32],
    ) -> Result<&[f32], StepError> {
        self.unfinished = 0..0;
        self.batch.fill(sequences, self.vocab_size, None)?;
        self.prepare(pool, self.n_step_phases..self.phases.len());
        self.fill(input, values);
        self.resume(pool, self.phases.len());
        Ok(self.output())
    }

    /// Fills these rows of all tokens, after a step was begun and before it is carried out.
    ///
    /// # Panics
    /// When `values` are not rows of all tokens.
    pub fn fill(&mut self, rows: Rows, values: &[f32]) {
        assert_eq!(rows.set, RowSet::Tokens, "the input is rows of all tokens");
        assert_eq!(values.len(), self.batch.n_tokens() * rows.width, "there is a row for every token");
        // SAFETY: there is room for a row for every token, and no pool is at work, since that would borrow the program.
        unsafe { self.rows[rows.index].start().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// Begins a step that [`Program::resume`] then carries out in parts. An earlier unfinished step is abandoned; its
    /// writes into the cache at new positions may be overwritten.
    ///
    /// # Errors
    /// When the batch is not valid; there is then no step to resume.
    pub fn begin<'a>(
        &mut self,
        pool: &Pool,
        sequences: impl IntoIterator<Item = Sequence<'a>>,
    ) -> Result<(), StepError> {
        self.unfinished = 0..0;
        let exists = |state| self.states.exists(state);
        let states: Option<&dyn Fn(u32) -> bool> = if self.states.is_empty() { None } else { Some(&exists) };
        self.batch.fill(sequences, self.vocab_size, states)?;
        self.prepare(pool, 0..self.n_step_phases);
        Ok(())
    }

    /// Divides the work of these phases over the threads, and makes room for its results.
    fn prepare(&mut self, pool: &Pool, phases: Range<usize>) {
        self.make_room(pool.n_threads());
        for (set, geometry, plan) in &mut self.plans {
            plan.make(geometry, self.batch.spans(*set));
        }
        let partial_floats = self.plans.iter().map(|(_, geometry, plan)| plan.n_partials * geometry.partial_width());
        self.partials.reserve(partial_floats.max().unwrap_or(0));
        (self.unfinished, self.n_threads) = (phases, pool.n_threads());
    }

    /// Carries out the next `n_phases` phases of the current step. Returns whether the step is done.
    ///
    /// # Panics
    /// When a task panics, which is a bug, or when the pool has a different number of threads than the one the step was
    /// begun with.
    pub fn resume(&mut self, pool: &mut Pool, n_phases: usize) -> bool {
        let Range { start, end } = std::mem::take(&mut self.unfinished);
        let phases = start..(start + n_phases).min(end);
        if !phases.is_empty() {
            assert_eq!(pool.n_threads(), self.n_threads, "the work was divided for another pool");
            // If a task panics, the step cannot be resumed.
            let kernels = platform::kernels();
            pool.run(&phases::Execution { program: self, phases: phases.clone(), kernels, n_threads: self.n_threads });
        }
        self.unfinished = phases.end..end;
        self.unfinished.is_empty()
    }

    /// The output rows of the last step's selected tokens, in their order; undefined before the step is done.
    pub fn output(&self) -> &[f32] {
        self.selected_rows(self.output)
    }

    /// These rows of the last step's selected tokens, in their order; undefined before the step is done.
    ///
    /// # Panics
    /// When they are not rows of the selected tokens.
    pub fn selected_rows(&self, rows: Rows) -> &[f32] {
        assert_eq!(rows.set, RowSet::Selected, "only rows of selected tokens can be read");
        let rows = &self.rows[rows.index];
        // SAFETY: no pool is at work, since that would borrow the program, and the selected rows are within the memory.
        unsafe { std::slice::from_raw_parts(rows.start(), self.batch.selected().len() * rows.width()) }
    }

    /// The number of phases in a step.
    pub fn n_phases(&self) -> usize {
        self.n_step_phases
    }

    /// Copies the keys and values of a cache block in all layers.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        for layer in &mut self.layers {
            layer.grow(from.max(to) as usize + 1);
            layer.copy_block(from, to);
        }
    }

    /// Appends the keys and values of a cache block in all layers to `out`.
    ///
    /// # Panics
    /// When the block has never been written to.
    pub fn read_block(&self, block: u32, out: &mut Vec<u8>) {
        self.layers.iter().for_each(|layer| layer.read_block(block, out));
    }

    /// Writes content returned by [`Program::read_block`] into a cache block.
    ///
    /// # Panics
    /// When the content does not have the length of one block.
    pub fn write_block(&mut self, block: u32, content: &[u8]) {
        let mut rest = content;
        for layer in &mut self.layers {
            layer.grow(block as usize + 1);
            let (ours, others) = rest.split_at(layer.block_bytes());
            layer.write_block(block, ours);
            rest = others;
        }
        assert!(rest.is_empty(), "the content is that of one block");
    }

    /// Bytes of a cache block in all layers.
    pub fn block_bytes(&self) -> usize {
        self.layers.iter().map(KvLayer::block_bytes).sum()
    }

    /// Bytes of the experts' matrices that are in memory because they were chosen.
    #[cfg(test)]
    pub(crate) fn kept_expert_bytes(&mut self) -> usize {
        self.expert_cache.n_bytes()
    }

    /// Bytes of a state; 0 if no layer keeps one.
    pub fn state_bytes(&self) -> usize {
        self.states.state_bytes()
    }

    /// Frees the memory of a state that is no longer needed.
    pub fn free_state(&mut self, state: u32) {
        self.states.free(state);
    }

    fn n_rows(&self, set: RowSet) -> usize {
        match set {
            RowSet::Tokens => self.batch.n_tokens(),
            RowSet::Selected => self.batch.selected().len(),
            RowSet::Routed(router) => {
                let Router { base, n_used, .. } = self.routers[router.0];
                self.n_rows(base) * n_used
            }
        }
    }

    /// Makes room for the batch in every buffer and in the cache, and for every thread.
    fn make_room(&mut self, n_threads: usize) {
        for index in 0..self.rows.len() {
            let n_rows = self.n_rows(self.rows[index].set());
            self.rows[index].reserve(n_rows);
        }
        for index in 0..self.quantized.len() {
            let n_rows = self.n_rows(self.quantized[index].set());
            self.quantized[index].reserve(n_rows);
        }
        for state in self.batch.written_states() {
            self.states.make(state);
        }
        for layer in &mut self.layers {
            layer.grow(self.batch.n_blocks());
        }
        let (attentions, layers) = (&self.attentions, &self.layers);
        self.threads.resize_with(n_threads.max(self.threads.len()), || {
            let widest = layers.iter().map(KvLayer::head_dim).max().unwrap_or(0);
            let attention = Scratch::new(attentions.iter().map(|attention| &attention.geometry));
            let memory = ThreadMemory { attention, halves: vec![half::f16::ZERO; 2 * widest] };
            ThreadCell(UnsafeCell::new(memory))
        });
    }

    fn activations(&self, quantized: QuantizedRows) -> &Activations {
        self.quantized[quantized.index].activations()
    }
}

impl Default for PartialMemory {
    fn default() -> Self {
        PartialMemory { memory: Buffer::zeroed(0), n_floats: 0 }
    }
}

impl PartialMemory {
    fn reserve(&mut self, n_floats: usize) {
        if n_floats > self.n_floats {
            // The old memory is freed first, and its size at least doubled: a long prompt needs more with every chunk.
            let n_floats = n_floats.max(2 * std::mem::take(self).n_floats);
            *self = PartialMemory { memory: Buffer::zeroed(n_floats * size_of::<f32>()), n_floats };
        }
    }

    fn start(&self) -> *mut f32 {
        self.memory.as_ptr().cast()
    }
}
