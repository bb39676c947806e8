//! Describes a program, and checks it: what is accepted here runs without further checks of shapes.

use super::batch::Batch;
use super::memory::{ActivationMemory, RowMemory};
use super::operation::{
    AttentionPhase, KvLayerId, MatrixId, Output, Part, Phase, ProductPhase, QuantizedRows, Rope, RopeId, RopePairs,
    RowOperation, RowSet, Rows, VectorId,
};
use super::{PartialMemory, Program};
use crate::attention::Geometry;
use crate::attention::kv_cache::{KvFormat, KvLayer};
use crate::attention::plan::Plan;
use crate::{ActivationBits, Matrix, ROW_GROUP};

/// Makes a [`Program`]. Every function panics when its arguments do not fit together: a program is made from weights
/// whose shapes have been checked, so a mismatch is a bug in the caller.
#[derive(Default)]
pub struct ProgramBuilder {
    matrices: Vec<Matrix>,
    vectors: Vec<Vec<f32>>,
    ropes: Vec<Rope>,
    layers: Vec<KvLayer>,
    rows: Vec<RowMemory>,
    quantized: Vec<ActivationMemory>,
    phases: Vec<Phase>,
    attentions: Vec<AttentionPhase>,
    plans: Vec<(Geometry, Plan)>,
    vocab_size: Option<usize>,
}

/// One of the matrices of a product.
#[derive(Clone, Copy, Debug)]
pub struct ProductOutput {
    /// The weights.
    pub matrix: MatrixId,
    /// Where the product is written; as wide as the matrix has rows.
    pub to: Part,
    /// Whether it is added to the existing values.
    pub add: bool,
}

/// How a layer attends.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions {
    /// The layer whose keys and values are attended to, which also determines the head sizes.
    pub layer: KvLayerId,
    /// Queries, head by head; as wide as `to`.
    pub queries: Part,
    /// Where the results are written, head by head.
    pub to: Rows,
    /// Multiplies the products of queries and keys.
    pub scale: f32,
    /// Scores x become cap · tanh(x / cap).
    pub soft_cap: Option<f32>,
    /// A token sees this many positions, including its own; `None` means all positions before it.
    pub window: Option<usize>,
}

impl ProgramBuilder {
    /// A program that does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer of floats.
    pub fn rows(&mut self, set: RowSet, width: usize) -> Rows {
        self.rows.push(RowMemory::new(set, width));
        Rows { index: self.rows.len() - 1, set, width }
    }

    /// A buffer in the form that products read; for quantized weights it is rounded to `bits`.
    pub fn quantized(&mut self, set: RowSet, width: usize, bits: ActivationBits) -> QuantizedRows {
        self.quantized.push(ActivationMemory::new(set, width, bits));
        QuantizedRows { index: self.quantized.len() - 1, set, width }
    }

    /// Adds a weight matrix.
    pub fn matrix(&mut self, matrix: Matrix) -> MatrixId {
        self.matrices.push(matrix);
        MatrixId(self.matrices.len() - 1)
    }

    /// Adds the weights of a norm, or a bias.
    pub fn vector(&mut self, values: Vec<f32>) -> VectorId {
        self.vectors.push(values);
        VectorId(self.vectors.len() - 1)
    }

    /// Adds a position encoding: pair `i` of a head at position `p` is rotated by `p · inverse_frequencies[i]` and
    /// multiplied by `magnitude`. Elements beyond the pairs stay unchanged.
    pub fn rope(&mut self, pairs: RopePairs, inverse_frequencies: Vec<f32>, magnitude: f32) -> RopeId {
        let per_pair = match pairs {
            RopePairs::Neighbours => 2,
            RopePairs::Halves => 1,
        };
        let angles = self.rows(RowSet::Tokens, 2 * per_pair * inverse_frequencies.len());
        self.ropes.push(Rope { pairs, inverse_frequencies, magnitude, angles });
        RopeId(self.ropes.len() - 1)
    }

    /// Adds a layer's part of the cache.
    ///
    /// # Panics
    /// When there are no heads, or their width is zero.
    pub fn kv_layer(&mut self, format: KvFormat, n_kv_heads: usize, head_dim: usize) -> KvLayerId {
        assert!(n_kv_heads > 0 && head_dim > 0, "a cache has heads");
        self.layers.push(KvLayer::new(format, n_kv_heads, head_dim));
        KvLayerId(self.layers.len() - 1)
    }

    /// Adds a phase that performs these operations in sequence on every row of a set.
    ///
    /// # Panics
    /// When an operation's parts do not fit together, or belong to another set.
    pub fn for_each_row(&mut self, set: RowSet, operations: Vec<RowOperation>) {
        for operation in &operations {
            self.check(set, operation);
            if let RowOperation::Embed { table, .. } = operation {
                let n_rows = self.matrices[table.0].n_rows();
                self.vocab_size = Some(self.vocab_size.map_or(n_rows, |before| before.min(n_rows)));
            }
        }
        self.phases.push(Phase::Rows { set, operations });
    }

    /// Adds a phase that multiplies rows with one or several matrices.
    ///
    /// # Panics
    /// When shapes differ, outputs overlap, or the outputs belong to another set than the input.
    pub fn product(&mut self, input: QuantizedRows, outputs: &[ProductOutput]) {
        self.check_quantized(input);
        let mut n_groups = 0;
        let mut checked: Vec<Output> = Vec::new();
        for &ProductOutput { matrix, to, add } in outputs {
            self.check_part(input.set, to);
            let weights = &self.matrices[matrix.0];
            assert_eq!(weights.n_columns(), input.width, "a product's input is as wide as its matrix");
            assert_eq!(weights.n_rows(), to.width, "a product's output is as wide as its matrix has rows");
            assert!(checked.iter().all(|other| !other.to.overlaps(to)), "outputs of a product overlap");
            self.quantized[input.index].readers.push(weights.tensor_type());
            checked.push(Output { matrix, to, add, first_group: n_groups });
            n_groups += weights.n_rows().div_ceil(ROW_GROUP);
        }
        self.phases.push(Phase::Product(ProductPhase { input, outputs: checked, n_groups }));
    }

    /// Adds a phase that computes attention for all tokens.
    ///
    /// # Panics
    /// When widths do not fit the heads, or the buffers are not for all tokens.
    pub fn attention(&mut self, options: &AttentionOptions) {
        let &AttentionOptions { layer, queries, to, scale, soft_cap, window } = options;
        self.check_part(RowSet::Tokens, queries);
        self.check_part(RowSet::Tokens, to.all());
        assert!(queries.width == to.width && !queries.overlaps(to.all()), "attention maps queries to as many results");
        assert!(window != Some(0), "a token sees itself");
        let (n_kv_heads, head_dim) = (self.layers[layer.0].n_kv_heads(), self.layers[layer.0].head_dim());
        let n_heads = queries.width / head_dim;
        let fits = queries.width == n_heads * head_dim && n_heads > 0 && n_heads.is_multiple_of(n_kv_heads);
        assert!(fits, "queries of {} columns do not fit {n_kv_heads} heads of {head_dim}", queries.width);
        let geometry = Geometry { n_heads, n_kv_heads, head_dim, scale, soft_cap, window };
        let plan = self.plan_of(geometry);
        self.attentions.push(AttentionPhase { geometry, layer, queries, to, plan });
        self.phases.push(Phase::Attend(self.attentions.len() - 1));
        self.phases.push(Phase::Merge(self.attentions.len() - 1));
    }

    /// The program, with these rows as its result.
    ///
    /// # Panics
    /// When they are not rows of the selected tokens, or the program embeds no tokens.
    pub fn finish(self, output: Rows) -> Program {
        self.check_part(RowSet::Selected, output.all());
        let next_phase = self.phases.len();
        Program {
            vocab_size: self.vocab_size.expect("a program embeds its tokens"),
            matrices: self.matrices,
            vectors: self.vectors,
            ropes: self.ropes,
            layers: self.layers,
            rows: self.rows,
            quantized: self.quantized,
            phases: self.phases,
            attentions: self.attentions,
            plans: self.plans,
            partials: PartialMemory::default(),
            threads: Vec::new(),
            output,
            batch: Batch::default(),
            next_phase,
            n_threads: 0,
        }
    }

    /// Layers of one geometry share a plan.
    fn plan_of(&mut self, geometry: Geometry) -> usize {
        let known = self.plans.iter().position(|(of, _)| *of == geometry);
        known.unwrap_or_else(|| {
            self.plans.push((geometry, Plan::default()));
            self.plans.len() - 1
        })
    }

    fn check(&self, set: RowSet, operation: &RowOperation) {
        match *operation {
            RowOperation::Embed { table, to, .. } => {
                self.check_tokens(set, to.all());
                assert_eq!(self.matrices[table.0].n_columns(), to.width, "an embedding is as wide as its matrix");
            }
            RowOperation::Angles(rope) => self.check_tokens(set, self.ropes[rope.0].angles.all()),
            RowOperation::Gather { from, to } => {
                assert_eq!(set, RowSet::Selected, "rows are gathered for the selected tokens");
                self.check_part(RowSet::Tokens, from.all());
                self.check_part(set, to.all());
                assert_eq!(from.width, to.width, "rows are gathered into rows of the same width");
            }
            RowOperation::Copy { from, to } | RowOperation::Add { from, to } => self.check_pair(set, from, to),
            RowOperation::Gate { gate, up, .. } => self.check_pair(set, gate, up),
            RowOperation::AddBias { bias, to } => {
                self.check_part(set, to);
                assert_eq!(self.vectors[bias.0].len(), to.width, "a bias is as wide as what it is added to");
            }
            RowOperation::Norm { values, weight, .. } => {
                self.check_part(set, values);
                let width = self.vectors[weight.0].len();
                assert!(width > 0 && values.width.is_multiple_of(width), "a norm's weight fits a number of times");
            }
            RowOperation::Rotate { heads, head_dim, rope } => {
                self.check_tokens(set, heads);
                let fits = head_dim > 0 && heads.width.is_multiple_of(head_dim);
                let rotated = 2 * self.ropes[rope.0].inverse_frequencies.len();
                assert!(fits && rotated <= head_dim, "a rotation of {rotated} elements fits heads of {head_dim}");
            }
            RowOperation::WriteKv { layer, keys, values } => {
                self.check_tokens(set, keys);
                self.check_tokens(set, values);
                let width = self.layers[layer.0].n_kv_heads() * self.layers[layer.0].head_dim();
                assert!(keys.width == width && values.width == width, "keys and values are as wide as the cache");
            }
            RowOperation::Sharpen { values, interval, .. } => {
                self.check_tokens(set, values);
                assert!(interval > 0, "positions are counted in intervals");
            }
            RowOperation::Scale { values, .. } | RowOperation::SoftCap { values, .. } => self.check_part(set, values),
            RowOperation::Quantize { from, to } => {
                self.check_part(set, from);
                self.check_quantized(to);
                assert!(to.set == set && to.width == from.width, "a row is quantized into one of its width");
            }
        }
    }

    fn check_pair(&self, set: RowSet, one: Part, other: Part) {
        self.check_part(set, one);
        self.check_part(set, other);
        assert!(one.width == other.width && !one.overlaps(other), "both are of one width and apart");
    }

    fn check_tokens(&self, set: RowSet, part: Part) {
        assert_eq!(set, RowSet::Tokens, "this needs positions, which belong to all tokens");
        self.check_part(set, part);
    }

    /// A handle might come from another builder, so all of its fields are compared.
    fn check_part(&self, set: RowSet, part: Part) {
        let memory = &self.rows[part.rows.index];
        let fits = memory.width() == part.rows.width && part.first + part.width <= memory.width();
        assert!(fits && memory.set() == set && part.rows.set == set, "the rows are not of this set, or this program");
    }

    fn check_quantized(&self, rows: QuantizedRows) {
        let memory = &self.quantized[rows.index];
        assert!(memory.width() == rows.width && memory.set() == rows.set, "the rows are not of this program");
    }
}
