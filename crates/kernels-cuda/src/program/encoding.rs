//! Operations on rows, as the device reads them.

use hone_kernels::Activation;
use hone_kernels::step::{Gating, Part, Phase, RopePairs, RouterId, RowOperation, RowSet, VectorId};

use super::Program;
use crate::arguments::{MAX_FEW_OPERATIONS, Operation, PartAt};
use crate::device::Address;

/// The numbers of `enum RowOp`.
mod op {
    pub(super) const EMBED: u32 = 0;
    pub(super) const ANGLES: u32 = 1;
    pub(super) const GATHER: u32 = 2;
    pub(super) const COPY: u32 = 3;
    pub(super) const ADD: u32 = 4;
    pub(super) const SCALE: u32 = 5;
    pub(super) const SHARPEN: u32 = 6;
    pub(super) const MULTIPLY: u32 = 7;
    pub(super) const GATE_SIGMOID: u32 = 8;
    pub(super) const SIGMOID: u32 = 9;
    pub(super) const UNZIP: u32 = 10;
    pub(super) const DECAY: u32 = 11;
    pub(super) const ADD_HEADS: u32 = 12;
    pub(super) const ROUTE: u32 = 13;
    pub(super) const WEIGH: u32 = 14;
    pub(super) const ADD_EXPERT_BIAS: u32 = 15;
    pub(super) const COMBINE: u32 = 16;
    pub(super) const ADD_BIAS: u32 = 17;
    pub(super) const NORM: u32 = 18;
    pub(super) const ROTATE: u32 = 19;
    pub(super) const WRITE_KV: u32 = 20;
    pub(super) const GATE: u32 = 21;
    pub(super) const SOFT_CAP: u32 = 22;
    pub(super) const QUANTIZE: u32 = 23;
}

impl Program {
    /// The operations of a phase.
    pub(super) fn encode(&self, phase: &Phase) -> Vec<Operation> {
        let Phase::Rows { set, operations } = phase else { return Vec::new() };
        let mut encoded: Vec<Operation> =
            operations.iter().map(|operation| self.encode_operation(*set, operation)).collect();
        mark_independent(&mut encoded);
        encoded
    }

    pub(super) fn part_at(&self, part: Part) -> PartAt {
        let rows = part.rows();
        PartAt {
            data: self.rows[rows.index()].address() + (part.first() * size_of::<f32>()) as Address,
            stride: rows.width() as u32,
            width: part.width() as u32,
        }
    }

    pub(super) fn vector_at(&self, vector: VectorId) -> Address {
        self.vectors[vector.index()].address()
    }

    fn optional(&self, vector: Option<VectorId>) -> Address {
        vector.map_or(0, |vector| self.vector_at(vector))
    }

    fn encode_operation(&self, set: RowSet, operation: &RowOperation) -> Operation {
        let at = |part: Part| self.part_at(part);
        let plain = |op: u32, a: Part| Operation { op, a: at(a), ..Operation::default() };
        let pair = |op: u32, a: Part, b: Part| Operation { b: at(b), ..plain(op, a) };
        match *operation {
            RowOperation::Embed { table, scale, to } => {
                let m = self.description.matrices[table.index()].at();
                Operation { f0: scale, m, ..plain(op::EMBED, to.all()) }
            }
            RowOperation::Angles(rope) => {
                let description = &self.description.ropes[rope.index()];
                Operation {
                    n0: description.inverse_frequencies.len() as u32,
                    f0: description.magnitude,
                    v0: self.frequencies[rope.index()].address(),
                    ..plain(op::ANGLES, description.angles.all())
                }
            }
            RowOperation::Gather { from, to } => pair(op::GATHER, to, from),
            RowOperation::Copy { from, to } => pair(op::COPY, to, from),
            RowOperation::Add { from, to } => pair(op::ADD, to, from),
            RowOperation::Scale { values, factor } => Operation { f0: factor, ..plain(op::SCALE, values) },
            RowOperation::Sharpen { values, rate, interval, offset } => {
                Operation { f0: rate, n0: interval as u32, n1: offset as u32, ..plain(op::SHARPEN, values) }
            }
            RowOperation::Multiply { by, to } => pair(op::MULTIPLY, to, by),
            RowOperation::GateSigmoid { values, gate } => pair(op::GATE_SIGMOID, values, gate),
            RowOperation::Sigmoid { values } => plain(op::SIGMOID, values),
            RowOperation::Unzip { from, head_dim, first, second } => {
                Operation { c: at(second), n0: head_dim as u32, ..pair(op::UNZIP, first, from) }
            }
            RowOperation::Decay { steps, decays, bias, rates } => {
                let (v0, v1) = (self.vector_at(bias), self.vector_at(rates));
                Operation { v0, v1, ..pair(op::DECAY, steps, decays) }
            }
            RowOperation::AddHeads { from, factors, to } => {
                let n0 = self.description.vectors[factors.index()].len() as u32;
                Operation { n0, v0: self.vector_at(factors), ..pair(op::ADD_HEADS, to, from) }
            }
            RowOperation::AddBias { bias, to } => Operation { v0: self.vector_at(bias), ..plain(op::ADD_BIAS, to) },
            RowOperation::Norm { values, weight, epsilon } => {
                let n0 = self.description.vectors[weight.index()].len() as u32;
                Operation { n0, f0: epsilon, v0: self.vector_at(weight), ..plain(op::NORM, values) }
            }
            RowOperation::Rotate { heads, head_dim, rope } => {
                let rope = &self.description.ropes[rope.index()];
                Operation {
                    n0: head_dim as u32,
                    n1: rope.inverse_frequencies.len() as u32,
                    n2: u32::from(rope.pairs == RopePairs::Neighbours),
                    ..pair(op::ROTATE, heads, rope.angles.all())
                }
            }
            RowOperation::WriteKv { layer, keys, values } => {
                Operation { kv: self.cache.layer(layer.index()), ..pair(op::WRITE_KV, keys, values) }
            }
            RowOperation::Gate { activation, gate, up } => {
                let n0 = match activation {
                    Activation::Silu => 0,
                    Activation::GeluTanh => 1,
                    Activation::ClampedSilu => 2,
                };
                Operation { n0, ..pair(op::GATE, gate, up) }
            }
            RowOperation::SoftCap { values, cap } => Operation { f0: cap, ..plain(op::SOFT_CAP, values) },
            RowOperation::Quantize { from, to } => {
                Operation { q: self.quantized[to.index()].at(), ..plain(op::QUANTIZE, from) }
            }
            RowOperation::Route { .. }
            | RowOperation::Weigh { .. }
            | RowOperation::AddExpertBias { .. }
            | RowOperation::Combine { .. } => self.encode_choice(set, operation),
        }
    }

    /// Encodes operations that choose experts, or depend on the choice.
    fn encode_choice(&self, set: RowSet, operation: &RowOperation) -> Operation {
        let plain = |op: u32, a: Part, router: RouterId| Operation {
            op,
            a: self.part_at(a),
            routes: self.routes[router.index()].at,
            ..Operation::default()
        };
        match *operation {
            RowOperation::Route { router, logits, options, selection_bias, output_scales } => {
                let shape = &self.description.routers[router.index()];
                let n0 = match options.gating {
                    Gating::Softmax => 0,
                    Gating::SoftmaxOfChosen => 1,
                    Gating::Sigmoid => 2,
                };
                Operation {
                    b: self.part_at(shape.choices.all()),
                    n0,
                    n1: u32::from(options.is_normalized),
                    n2: shape.n_used as u32,
                    f0: options.scale,
                    v0: self.optional(selection_bias),
                    v1: self.optional(output_scales),
                    ..plain(op::ROUTE, logits, router)
                }
            }
            RowOperation::Weigh { values } => plain(op::WEIGH, values, router_of(set)),
            RowOperation::AddExpertBias { biases, to } => {
                Operation { v0: self.vector_at(biases), ..plain(op::ADD_EXPERT_BIAS, to, router_of(set)) }
            }
            RowOperation::Combine { router, from, is_weighted, to } => {
                Operation { b: self.part_at(from.all()), n0: u32::from(is_weighted), ..plain(op::COMBINE, to, router) }
            }
            _ => unreachable!("the operation has nothing to do with experts"),
        }
    }
}

/// Kinds of rows that have a dedicated kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FewRows {
    /// Optionally adds and copies a row, then norms it as a whole, and optionally quantizes it.
    Norm,
    /// Quantizes elements, and optionally gates them first.
    Quantize,
    /// Biases, norms and rotations of heads, and writes to the cache.
    Heads,
}

impl FewRows {
    /// The kind of a phase's operations.
    pub(super) fn of(operations: &[Operation]) -> Option<FewRows> {
        if operations.is_empty() || operations.len() > MAX_FEW_OPERATIONS {
            return None;
        }
        if is_norm(operations) {
            return Some(FewRows::Norm);
        }
        match operations {
            [quantize] if quantize.op == op::QUANTIZE => return Some(FewRows::Quantize),
            [gate, quantize] if gate.op == op::GATE && quantize.op == op::QUANTIZE && gate.a == quantize.a => {
                return Some(FewRows::Quantize);
            }
            _ => {}
        }
        let is_of_heads = |operation: &Operation| matches!(operation.op, op::ADD_BIAS | op::NORM | op::ROTATE);
        let (last, others) = operations.split_last()?;
        let are_of_heads = others.iter().all(is_of_heads) && (last.op == op::WRITE_KV || is_of_heads(last));
        are_of_heads.then_some(FewRows::Heads)
    }
}

/// Whether the operations are a chain that threads process four elements at a time, with the result of `find_chain` in
/// the kernels.
fn is_norm(operations: &[Operation]) -> bool {
    let (add, rest) = match operations {
        [add, rest @ ..] if add.op == op::ADD => (Some(add), rest),
        _ => (None, operations),
    };
    let (copy, rest) = match rest {
        [copy, rest @ ..] if copy.op == op::COPY => (Some(copy), rest),
        _ => (None, rest),
    };
    let (norm, quantize) = match rest {
        [norm] => (norm, None),
        [norm, quantize] => (norm, Some(quantize)),
        _ => return false,
    };
    let source = copy.map_or(norm.a, |copy| copy.b);
    let is_aligned = |part: PartAt| part.data.is_multiple_of(16) && part.stride.is_multiple_of(4);
    norm.op == op::NORM
        && norm.n0 == norm.a.width
        && norm.a.width.is_multiple_of(4)
        && norm.v0.is_multiple_of(16)
        && copy.is_none_or(|copy| copy.a == norm.a && copy.b.width == norm.a.width)
        && add.is_none_or(|add| add.a == source && is_aligned(add.b))
        && is_aligned(norm.a)
        && is_aligned(source)
        && quantize.is_none_or(|quantize| quantize.op == op::QUANTIZE && quantize.a == norm.a)
}

/// The operation needs no barrier before it.
const NEEDS_NO_BARRIER: u32 = 1;

/// Marks the operations that write nothing that others have touched since the last barrier, and touch nothing that others
/// have written.
fn mark_independent(operations: &mut [Operation]) {
    let mut touched: Vec<(PartAt, bool)> = Vec::new();
    for operation in operations {
        let writes_second = matches!(operation.op, op::DECAY | op::ROUTE);
        let parts = [(operation.a, true), (operation.b, writes_second), (operation.c, true)];
        let parts = parts.into_iter().filter(|(part, _)| part.width > 0);
        let meets = |(part, is_written): (PartAt, bool)| {
            touched.iter().any(|(other, was_written)| (is_written || *was_written) && overlap(part, *other))
        };
        if parts.clone().any(meets) {
            touched.clear();
        } else if !touched.is_empty() {
            operation.flags = NEEDS_NO_BARRIER;
        }
        touched.extend(parts);
    }
}

/// Whether two parts share columns. Buffers do not overlap, so their first rows are enough to tell.
fn overlap(one: PartAt, other: PartAt) -> bool {
    let end = |part: PartAt| part.data + Address::from(part.width) * size_of::<f32>() as Address;
    one.data < end(other) && other.data < end(one)
}

fn router_of(set: RowSet) -> RouterId {
    match set {
        RowSet::Routed(router) => router,
        _ => unreachable!("the builder has checked that the rows are routed"),
    }
}

/// The columns of all operations, if every operation treats columns independently and all use the same ones.
pub(super) fn independent_columns(phase: &Phase) -> Option<usize> {
    let Phase::Rows { operations, .. } = phase else { return None };
    let mut widths = operations.iter().map(|operation| match *operation {
        RowOperation::Embed { to, .. } => Some(to.width()),
        RowOperation::Gather { to, .. }
        | RowOperation::Copy { to, .. }
        | RowOperation::Add { to, .. }
        | RowOperation::Multiply { to, .. }
        | RowOperation::AddBias { to, .. } => Some(to.width()),
        RowOperation::Scale { values, .. } | RowOperation::SoftCap { values, .. } => Some(values.width()),
        RowOperation::GateSigmoid { values, gate } if gate.width() == values.width() => Some(values.width()),
        RowOperation::Gate { gate, .. } => Some(gate.width()),
        RowOperation::Quantize { from, .. } => Some(from.width()),
        _ => None,
    });
    let first = widths.next()??;
    widths.all(|width| width == Some(first)).then_some(first)
}

/// The widest row of a phase's operations.
pub(super) fn widest(operations: &[Operation]) -> usize {
    operations.iter().map(|operation| operation.a.width.max(operation.b.width) as usize).max().unwrap_or(0)
}
