//! Runs the phases of a program, task by task.
//!
//! The kind of a task determines the memory that it may touch: a task over rows touches its rows of the buffers and
//! their places in the cache; a task of a product writes its columns of the outputs and reads the input; a task of
//! attention writes its heads of its rows and reads queries and cache. Two tasks of a phase therefore never touch the
//! same element unless both read it, and phases run one after another.

mod experts;
mod recurrence;

use super::operation::{AttentionPhase, Output, Part, Phase, ProductPhase, QuantizedRows, Rope, RopePairs};
use super::{KvLayerId, Program, RopeId, RowOperation, RowSet, ThreadMemory};
use crate::ROW_GROUP;
use crate::attention::{self, Attention};
use crate::matrix::Matrix;
use crate::platform::Kernels;
use crate::pool::Phases;
use crate::{operands, product};

/// Rows are handed out in pieces, this many per thread if there are enough.
const ROW_PIECES_PER_THREAD: usize = 4;
/// Maximum rows of a piece: neighbouring positions share cache lines in the cache of keys.
const MAX_PIECE_ROWS: usize = 32;
/// Products are cut into this many pieces per thread, if there are enough.
const PRODUCT_PIECES_PER_THREAD: usize = 6;

/// One run of a program, or of a part of it.
pub(super) struct Execution<'a> {
    pub(super) program: &'a Program,
    pub(super) phases: std::ops::Range<usize>,
    pub(super) kernels: &'static Kernels,
    pub(super) n_threads: usize,
}

impl Phases for Execution<'_> {
    fn n_phases(&self) -> usize {
        self.phases.len()
    }

    fn n_tasks(&self, phase: usize) -> usize {
        match &self.program.phases[self.phases.start + phase] {
            Phase::Rows { set, .. } => self.n_rows(*set).div_ceil(self.piece_rows(*set)),
            Phase::Product(product) if self.n_rows(product.input.set) > 0 => {
                product.n_groups.div_ceil(self.piece_groups(product))
            }
            Phase::Product(_) => 0,
            Phase::Attend(index) => self.plan_of(*index).tasks.len(),
            Phase::Merge(index) => self.plan_of(*index).merges.len(),
            Phase::Plan(_) => 1,
            Phase::Spread { from, to, .. } if self.n_rows(from.set) > 1 => {
                self.n_rows(to.set).div_ceil(self.piece_rows(to.set))
            }
            Phase::Spread { .. } => 0,
            Phase::Reserve { .. } => 1,
            Phase::PackExperts => self.missing_experts().len(),
            Phase::ExpertProduct(product) => self.n_expert_tasks(product),
            Phase::Convolve(_) => self.n_rows(RowSet::Tokens).div_ceil(self.piece_rows(RowSet::Tokens)),
            Phase::Recur(recur) => self.n_recur_tasks(recur),
        }
    }

    fn run(&self, phase: usize, task: usize, thread: usize) {
        // SAFETY: the tasks of one thread run one after the other, so no one else uses its memory.
        let memory = unsafe { &mut *self.program.threads[thread].0.get() };
        match &self.program.phases[self.phases.start + phase] {
            Phase::Rows { set, operations } => self.rows(*set, operations, task, memory),
            Phase::Product(product) => self.product(product, task),
            Phase::Attend(index) => self.attend(*index, task, memory),
            Phase::Merge(index) => self.merge(*index, task),
            Phase::Plan(router) => self.plan_routes(*router),
            Phase::Spread { router, from, to } => self.spread(*router, *from, *to, task),
            Phase::Reserve { router, sets } => self.reserve_experts(*router, sets),
            Phase::PackExperts => self.pack_expert(task),
            Phase::ExpertProduct(product) => self.expert_product(product, task),
            Phase::Convolve(convolution) => self.convolve(convolution, task),
            Phase::Recur(recur) => self.recur(recur, task),
        }
    }
}

impl Execution<'_> {
    fn n_rows(&self, set: RowSet) -> usize {
        self.program.n_rows(set)
    }

    /// The rows of a task over the rows of a set.
    fn rows_of(&self, set: RowSet, task: usize) -> std::ops::Range<usize> {
        let piece = self.piece_rows(set);
        task * piece..((task + 1) * piece).min(self.n_rows(set))
    }

    fn piece_rows(&self, set: RowSet) -> usize {
        self.n_rows(set).div_ceil(self.n_threads * ROW_PIECES_PER_THREAD).clamp(1, MAX_PIECE_ROWS)
    }

    fn piece_groups(&self, product: &ProductPhase) -> usize {
        match self.n_threads {
            1 => product.n_groups.max(1),
            n_threads => product.n_groups.div_ceil(n_threads * PRODUCT_PIECES_PER_THREAD).max(1),
        }
    }

    fn plan_of(&self, attention: usize) -> &attention::plan::Plan {
        &self.program.plans[self.program.attentions[attention].plan].2
    }

    fn rows(&self, set: RowSet, operations: &[RowOperation], task: usize, memory: &mut ThreadMemory) {
        for row in self.rows_of(set, task) {
            for operation in operations {
                self.row(set, row, operation, memory);
            }
        }
    }

    fn row(&self, set: RowSet, row: usize, operation: &RowOperation, memory: &mut ThreadMemory) {
        let Execution { program, kernels: Kernels { elementwise, .. }, .. } = self;
        match *operation {
            RowOperation::Embed { table, scale, to } => {
                let out = self.part_mut(row, to.all());
                program.matrices[table.0].dequantize_row(program.batch.token(row), out);
                if scale != 1.0 {
                    elementwise.scale(out, scale);
                }
            }
            RowOperation::Angles(rope) => self.angles(set, row, &program.ropes[rope.0]),
            RowOperation::Gather { from, to } => {
                let source = program.batch.selected()[row];
                self.part_mut(row, to).copy_from_slice(self.part(source, from));
            }
            RowOperation::Copy { from, to } => self.part_mut(row, to).copy_from_slice(self.part(row, from)),
            RowOperation::Add { from, to } => elementwise.add(self.part_mut(row, to), self.part(row, from)),
            RowOperation::Scale { values, factor } => elementwise.scale(self.part_mut(row, values), factor),
            RowOperation::Sharpen { values, rate, interval, offset } => {
                let steps = (program.batch.position(set, row) + offset) / interval;
                elementwise.scale(self.part_mut(row, values), 1.0 + rate * (steps as f32).ln_1p());
            }
            RowOperation::Multiply { by, to } => elementwise.multiply(self.part_mut(row, to), self.part(row, by)),
            RowOperation::GateSigmoid { values, gate } if gate.width == values.width => {
                elementwise.gate_sigmoid(self.part_mut(row, values), self.part(row, gate));
            }
            RowOperation::GateSigmoid { values, gate } => {
                elementwise.scale(self.part_mut(row, values), sigmoid(self.part(row, gate)[0]));
            }
            RowOperation::Sigmoid { values } => {
                self.part_mut(row, values).iter_mut().for_each(|value| *value = sigmoid(*value));
            }
            RowOperation::Unzip { .. } | RowOperation::Decay { .. } | RowOperation::AddHeads { .. } => {
                self.heads_of_row(row, operation);
            }
            RowOperation::Route { .. }
            | RowOperation::Weigh { .. }
            | RowOperation::AddExpertBias { .. }
            | RowOperation::Combine { .. } => self.route_row(set, row, operation),
            RowOperation::AddBias { bias, to } => elementwise.add(self.part_mut(row, to), &program.vectors[bias.0]),
            RowOperation::Norm { values, weight, epsilon } => {
                let weight = &program.vectors[weight.0];
                for head in self.part_mut(row, values).chunks_exact_mut(weight.len()) {
                    elementwise.rms_norm(head, weight, epsilon);
                }
            }
            RowOperation::Rotate { heads, head_dim, rope } => self.rotate(row, heads, head_dim, rope),
            RowOperation::WriteKv { layer, keys, values } => self.write_kv(row, layer, keys, values, memory),
            RowOperation::Gate { activation, gate, up } => {
                elementwise.gate(activation, self.part_mut(row, gate), self.part(row, up));
            }
            RowOperation::SoftCap { values, cap } => elementwise.soft_cap(self.part_mut(row, values), cap),
            RowOperation::Quantize { from, to } => self.quantize(row, from, to),
        }
    }

    fn part(&self, row: usize, part: Part) -> &[f32] {
        // SAFETY: a task over rows has exclusive access to its rows, and the builder has checked that an operation's
        // inputs do not overlap with its outputs. Gathered rows are written in phases of their own.
        unsafe { self.program.rows[part.rows.index].part(row, part) }
    }

    #[allow(clippy::mut_from_ref, reason = "threads share the memory and have rows of their own")]
    fn part_mut(&self, row: usize, part: Part) -> &mut [f32] {
        // SAFETY: as in `part`.
        unsafe { self.program.rows[part.rows.index].part_mut(row, part) }
    }

    /// Rotating neighbours needs every cosine twice, and every sine both negated and unchanged.
    fn angles(&self, set: RowSet, row: usize, rope: &Rope) {
        let (cosines, sines) = self.part_mut(row, rope.angles.all()).split_at_mut(rope.n_angles());
        let position = self.program.batch.position(set, row) as f32;
        for (pair, frequency) in rope.inverse_frequencies.iter().enumerate() {
            let (sine, cosine) = (position * frequency).sin_cos();
            let (sine, cosine) = (sine * rope.magnitude, cosine * rope.magnitude);
            match rope.pairs {
                RopePairs::Halves => (cosines[pair], sines[pair]) = (cosine, sine),
                RopePairs::Neighbours => {
                    cosines[2 * pair..2 * pair + 2].fill(cosine);
                    sines[2 * pair..2 * pair + 2].copy_from_slice(&[-sine, sine]);
                }
            }
        }
    }

    fn rotate(&self, row: usize, heads: Part, head_dim: usize, rope: RopeId) {
        let rope = &self.program.ropes[rope.0];
        let (cosines, sines) = self.part(row, rope.angles.all()).split_at(rope.n_angles());
        for head in self.part_mut(row, heads).chunks_exact_mut(head_dim) {
            match rope.pairs {
                RopePairs::Halves => self.kernels.elementwise.rotate_halves(head, cosines, sines),
                RopePairs::Neighbours => self.kernels.elementwise.rotate_neighbours(head, cosines, sines),
            }
        }
    }

    fn write_kv(&self, row: usize, layer: KvLayerId, keys: Part, values: Part, memory: &mut ThreadMemory) {
        let layer = &self.program.layers[layer.0];
        let (block, slot) = self.program.batch.slot(row);
        let (key_halves, value_halves) = memory.halves[..2 * layer.head_dim()].split_at_mut(layer.head_dim());
        let keys = self.part(row, keys).chunks_exact(layer.head_dim());
        let values = self.part(row, values).chunks_exact(layer.head_dim());
        for (kv_head, (key, value)) in keys.zip(values).enumerate() {
            self.kernels.elementwise.to_f16(key, key_halves);
            self.kernels.elementwise.to_f16(value, value_halves);
            // SAFETY: the batch has been checked not to write one position from two rows.
            unsafe { layer.write(block, slot, kv_head, key_halves, value_halves) }
        }
    }

    fn quantize(&self, row: usize, from: Part, to: QuantizedRows) {
        let activations = self.program.activations(to);
        // SAFETY: there is room for the rows of the set, the builder has checked the width, and the row is the task's.
        unsafe { activations.quantize_row_shared(self.kernels, row, self.part(row, from)) }
    }

    fn product(&self, product: &ProductPhase, task: usize) {
        let piece = self.piece_groups(product);
        let groups = task * piece..((task + 1) * piece).min(product.n_groups);
        let tokens = 0..self.n_rows(product.input.set);
        let matrix = |id: super::MatrixId| &self.program.matrices[id.0];
        self.multiply(&product.outputs, matrix, groups, product.input, tokens, 0);
    }

    /// Multiplies the groups of one piece, which may span several matrices, with some rows of the input. The results
    /// are written to rows from `first_row` on.
    fn multiply<'a, M: Copy>(
        &'a self,
        outputs: &[Output<M>],
        matrix: impl Fn(M) -> &'a Matrix,
        groups: std::ops::Range<usize>,
        input: QuantizedRows,
        tokens: std::ops::Range<usize>,
        first_row: usize,
    ) {
        let activations = self.program.activations(input);
        for output in outputs {
            let matrix = matrix(output.matrix);
            let last_group = output.first_group + matrix.n_rows().div_ceil(ROW_GROUP);
            let [start, end] = [groups.start, groups.end].map(|group| group.clamp(output.first_group, last_group));
            let [start, end] = [start, end].map(|group| (group - output.first_group) * ROW_GROUP);
            if start == end {
                continue;
            }
            let memory = &self.program.rows[output.to.rows.index];
            let pointer = memory.pointer(first_row, output.to);
            let out = operands::Output { pointer, stride: memory.width(), add: output.add };
            let rows = start..end.min(matrix.n_rows());
            // SAFETY: the builder has checked the shapes and listed the matrix among the readers of the activations;
            // the output has room for all rows of its set; no other piece has these rows of the matrix.
            unsafe { product::matmul_rows(self.kernels, matrix, rows, activations, tokens.clone(), out) }
        }
    }

    fn attention_of(&self, phase: &AttentionPhase) -> Attention<'_> {
        let queries = &self.program.rows[phase.queries.rows.index];
        let out = &self.program.rows[phase.to.rows.index];
        Attention {
            geometry: phase.geometry,
            layer: &self.program.layers[phase.layer.0],
            queries: queries.pointer(0, phase.queries),
            query_stride: queries.width(),
            out: out.pointer(0, phase.to),
            out_stride: out.width(),
            partials: self.program.partials.start(),
            sinks: phase.sinks.map(|sinks| self.program.vectors[sinks.0].as_slice()),
        }
    }

    fn attend(&self, index: usize, task: usize, memory: &mut ThreadMemory) {
        let phase = &self.program.attentions[index];
        let task = &self.plan_of(index).tasks[task];
        let blocks = self.program.batch.blocks_of(task.sequence);
        // SAFETY: kernels exist only for instruction sets that the processor has; the buffers have room for all rows,
        // and the cache for all blocks; tasks of a plan write to different places; the scratch was made for all
        // geometries.
        unsafe {
            self.kernels.attention.attend(&self.attention_of(phase), task, blocks, &mut memory.attention);
        }
    }

    fn merge(&self, index: usize, task: usize) {
        let phase = &self.program.attentions[index];
        let merge = &self.plan_of(index).merges[task];
        // SAFETY: as in `attend`; the phase of those tasks is over.
        unsafe { self.kernels.attention.merge(&self.attention_of(phase), merge) }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
