//! The phases of layers that keep a state.
//!
//! A task of a convolution reads inputs of earlier rows, which an earlier phase has written, and writes its own rows
//! and the inputs of the states that end with them. A task over a matrix advances one head of one sequence by all of
//! its tokens, one after the other.

use super::Execution;
use crate::recurrence::{Convolution, HeadRun, MAX_TAPS, RowsAt};
use crate::step::states::StateLayer;
use crate::step::{ConvolutionOptions, KeySharing, Part, RecurOptions, RowOperation, RowSet, SequenceStates, VectorId};

impl Execution<'_> {
    /// Runs operations on the heads of layers that keep a state, or that have gates.
    pub(super) fn heads_of_row(&self, row: usize, operation: &RowOperation) {
        let vector = |id: VectorId| self.program.vectors[id.0].as_slice();
        match *operation {
            RowOperation::Unzip { from, head_dim, first, second } => {
                let pairs = self.part(row, from).chunks_exact(2 * head_dim);
                let first = self.part_mut(row, first).chunks_exact_mut(head_dim);
                let second = self.part_mut(row, second).chunks_exact_mut(head_dim);
                for (pair, (first, second)) in pairs.zip(first.zip(second)) {
                    first.copy_from_slice(&pair[..head_dim]);
                    second.copy_from_slice(&pair[head_dim..]);
                }
            }
            RowOperation::Decay { steps, decays, bias, rates } => {
                let (bias, rates) = (vector(bias), vector(rates));
                let heads = self.part_mut(row, steps).iter_mut().zip(self.part_mut(row, decays));
                for ((step, decay), (bias, rate)) in heads.zip(bias.iter().zip(rates)) {
                    *step = softplus(*step + bias);
                    *decay = (rate * *step).exp();
                }
            }
            RowOperation::AddHeads { from, factors, to } => {
                let factors = vector(factors);
                let head_dim = to.width / factors.len();
                let heads = self.part_mut(row, to).chunks_exact_mut(head_dim);
                for ((head, other), factor) in heads.zip(self.part(row, from).chunks_exact(head_dim)).zip(factors) {
                    self.kernels.elementwise.add_scaled(head, other, *factor);
                }
            }
            _ => unreachable!("the operation has nothing to do with heads"),
        }
    }

    pub(super) fn convolve(&self, phase: &ConvolutionOptions, task: usize) {
        for row in self.rows_of(RowSet::Tokens, task) {
            self.convolve_row(phase, row);
        }
    }

    fn convolve_row(&self, phase: &ConvolutionOptions, row: usize) {
        let program = self.program;
        let layer = program.states.layer(phase.layer.0);
        let sequence = program.batch.sequence_of(row);
        let states = program.batch.states_of(sequence);
        let span = program.batch.spans(RowSet::Tokens)[sequence];
        let n_before = row - span.first_row;
        let n_taps = layer.shape.n_taps;
        let mut inputs = [None; MAX_TAPS];
        for (tap, input) in inputs[..n_taps].iter_mut().enumerate() {
            *input = self.input(phase, layer, &states, row, n_before, n_taps - 1 - tap);
        }
        let convolution = Convolution {
            inputs: &inputs[..n_taps],
            taps: &program.vectors[phase.taps.0],
            bias: phase.bias.map(|bias| program.vectors[bias.0].as_slice()),
            has_silu: phase.has_silu,
        };
        self.kernels.recurrence.convolve(&convolution, self.part_mut(row, phase.to));
        if let Some(state) = state_at(&states, span.position + n_before + 1) {
            self.keep_inputs(layer, state, &inputs[1..n_taps]);
        }
    }

    /// The input `distance` tokens before a row; `None` before the beginning of the text.
    fn input(
        &self,
        phase: &ConvolutionOptions,
        layer: StateLayer,
        states: &SequenceStates<'_>,
        row: usize,
        n_before: usize,
        distance: usize,
    ) -> Option<&[f32]> {
        if distance <= n_before {
            return Some(self.part(row - distance, phase.from));
        }
        let n_channels = layer.shape.n_channels;
        let from_end = distance - n_before;
        // SAFETY: the batch has been checked not to write a state that it reads.
        let inputs = unsafe { self.program.states.inputs(layer, states.before?) };
        Some(&inputs[inputs.len() - from_end * n_channels..][..n_channels])
    }

    fn keep_inputs(&self, layer: StateLayer, state: u32, inputs: &[Option<&[f32]>]) {
        // SAFETY: only the task of this row writes this state's inputs, and no task of the step reads them.
        let kept = unsafe { self.program.states.inputs_mut(layer, state) };
        if layer.shape.n_channels == 0 {
            return;
        }
        for (kept, input) in kept.chunks_exact_mut(layer.shape.n_channels).zip(inputs) {
            match input {
                Some(input) => kept.copy_from_slice(input),
                None => kept.fill(0.0),
            }
        }
    }

    pub(super) fn n_recur_tasks(&self, phase: &RecurOptions) -> usize {
        self.program.batch.spans(RowSet::Tokens).len() * self.program.states.layer(phase.layer.0).shape.n_heads
    }

    pub(super) fn recur(&self, phase: &RecurOptions, task: usize) {
        let program = self.program;
        let layer = program.states.layer(phase.layer.0);
        let (sequence, head) = (task / layer.shape.n_heads, task % layer.shape.n_heads);
        let span = program.batch.spans(RowSet::Tokens)[sequence];
        if span.n_tokens == 0 {
            return;
        }
        let states = program.batch.states_of(sequence);
        let last = states.written.last().expect("a sequence with tokens writes the state after them").state;
        let after = program.states.matrix(layer, last, head);
        let mut before = match states.before {
            Some(before) => program.states.matrix(layer, before, head),
            None => {
                // SAFETY: the matrix is the task's, and has this many elements.
                unsafe { after.write_bytes(0, layer.shape.matrix_len()) };
                after
            }
        };
        let mut first_row = span.first_row;
        for written in states.written {
            let end_row = span.first_row + written.position - span.position;
            let run = self.head_run(phase, layer, head, first_row, end_row - first_row);
            // SAFETY: the builder has checked the shapes; the rows are those of the sequence, and this head's columns of
            // the output are the task's. Both matrices are in strips. `after` is the task's; `before` is the
            // same, or of a state that the step does not write.
            unsafe { self.kernels.recurrence.advance(&run, before, after) }
            (before, first_row) = (after, end_row);
            if written.state != last {
                let copy = program.states.matrix(layer, written.state, head);
                // SAFETY: the matrices are of different states, and the copy is the task's.
                unsafe { copy.copy_from_nonoverlapping(after, layer.shape.matrix_len()) }
            }
        }
    }

    /// The work of a head for some neighbouring rows.
    fn head_run(
        &self,
        options: &RecurOptions,
        layer: StateLayer,
        head: usize,
        first_row: usize,
        n_tokens: usize,
    ) -> HeadRun {
        let shape = layer.shape;
        let n_keys = options.keys.width / shape.key_dim;
        let key_head = match options.sharing {
            KeySharing::Grouped => head / (shape.n_heads / n_keys),
            KeySharing::Interleaved => head % n_keys,
        };
        let written = |heads: Part, head: usize, width: usize| {
            let rows = &self.program.rows[heads.rows.index];
            RowsAt { pointer: rows.pointer(first_row, part_of(heads, head, width)), stride: rows.width() }
        };
        let read = |heads: Part, head: usize, width: usize| {
            let RowsAt { pointer, stride } = written(heads, head, width);
            RowsAt { pointer: pointer.cast_const(), stride }
        };
        HeadRun {
            keys: read(options.keys, key_head, shape.key_dim),
            queries: read(options.queries, key_head, shape.key_dim),
            values: read(options.values, head, shape.value_dim),
            decays: read(options.decays, head, 1),
            strengths: read(options.strengths, head, 1),
            out: written(options.to, head, shape.value_dim),
            n_tokens,
            key_dim: shape.key_dim,
            value_dim: shape.value_dim,
            is_delta: options.is_delta,
        }
    }
}

/// A head's columns.
fn part_of(heads: Part, head: usize, width: usize) -> Part {
    Part { first: heads.first + head * width, width, ..heads }
}

/// The state that is written at this position, if there is one.
fn state_at(states: &SequenceStates<'_>, position: usize) -> Option<u32> {
    let found = states.written.binary_search_by_key(&position, |written| written.position);
    found.ok().map(|index| states.written[index].state)
}

/// ln(1 + eˣ).
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
