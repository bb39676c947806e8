//! Describes a program and checks it: an accepted program runs without further checks of shapes.

use super::batch::Batch;
use super::description::{Description, KvShape, RouterShape, WeightMatrix};
use super::experts::{ExpertCache, ExpertSet, ExpertShape, ExpertSource};
use super::memory::{ActivationMemory, RowMemory};
use super::operation::{
    AttentionPhase, ConvolutionOptions, ExpertProductPhase, ExpertsId, KvLayerId, MatrixId, Output, Part, Phase,
    ProductPhase, QuantizedRows, RecurOptions, Rope, RopeId, RopePairs, RouterId, RowOperation, RowSet, Rows,
    StateLayerId, VectorId,
};
use super::routing::Router;
use super::states::{StateMemory, StateShape};
use super::{PartialMemory, Program};
use crate::attention::kv_cache::{KvFormat, KvLayer};
use crate::attention::plan::Plan;
use crate::attention::{Geometry, Window};
use crate::recurrence::MAX_TAPS;
use crate::{ActivationBits, Matrix, ROW_GROUP};

/// Makes a [`Program`]. Every function panics when its arguments do not fit together: a program is made from weights
/// whose shapes have been checked, so a mismatch is a bug in the caller.
///
/// It does not depend on the device: it uses only the shapes of the weights `M`.
pub struct ProgramBuilder<M = Matrix> {
    matrices: Vec<M>,
    experts: Vec<ExpertSet<M>>,
    cached_expert_bytes: usize,
    vectors: Vec<Vec<f32>>,
    ropes: Vec<Rope>,
    routers: Vec<Router>,
    layers: Vec<KvLayer>,
    states: StateMemory,
    rows: Vec<RowMemory>,
    quantized: Vec<ActivationMemory>,
    phases: Vec<Phase>,
    attentions: Vec<AttentionPhase>,
    plans: Vec<(RowSet, Geometry, Plan)>,
    vocab_size: Option<usize>,
    n_step_phases: Option<usize>,
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

/// One of the sets of matrices of a product with experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertOutput {
    /// The experts' weights.
    pub experts: ExpertsId,
    /// Where the product is written, a routed row for every choice; as wide as the matrices have rows.
    pub to: Part,
}

/// The input of a product with experts.
#[derive(Clone, Copy, Debug)]
pub enum ExpertInput {
    /// Rows that chose the experts, and the buffer into which they are copied for every choice.
    Chosen(QuantizedRows, QuantizedRows),
    /// Routed rows.
    Routed(QuantizedRows),
}

/// How a layer attends.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions {
    /// The layer whose keys and values are attended to, which also determines the head sizes.
    pub layer: KvLayerId,
    /// Queries of all tokens or of the selected ones, head by head; as wide as `to`.
    pub queries: Part,
    /// Where the results are written, head by head.
    pub to: Part,
    /// Multiplies the products of queries and keys.
    pub scale: f32,
    /// Scores x become cap · tanh(x / cap).
    pub soft_cap: Option<f32>,
    /// The window of visible positions; `None` means all positions before the token, and its own.
    pub window: Option<Window>,
    /// One extra score per query head that takes part in the softmax without a value.
    pub sinks: Option<VectorId>,
}

impl<M> Default for ProgramBuilder<M> {
    fn default() -> Self {
        ProgramBuilder {
            matrices: Vec::new(),
            experts: Vec::new(),
            cached_expert_bytes: 0,
            vectors: Vec::new(),
            ropes: Vec::new(),
            routers: Vec::new(),
            layers: Vec::new(),
            states: StateMemory::default(),
            rows: Vec::new(),
            quantized: Vec::new(),
            phases: Vec::new(),
            attentions: Vec::new(),
            plans: Vec::new(),
            vocab_size: None,
            n_step_phases: None,
        }
    }
}

impl<M: WeightMatrix> ProgramBuilder<M> {
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
    pub fn matrix(&mut self, matrix: M) -> MatrixId {
        self.matrices.push(matrix);
        MatrixId(self.matrices.len() - 1)
    }

    /// Columns of a matrix.
    pub fn n_columns(&self, matrix: MatrixId) -> usize {
        self.matrices[matrix.0].n_columns()
    }

    /// Adds the matrices of a layer's experts.
    ///
    /// # Panics
    /// When the list is empty, or the matrices differ in shape or type.
    pub fn experts(&mut self, matrices: Vec<M>) -> ExpertsId {
        let shape = |matrix: &M| (matrix.tensor_type(), matrix.n_rows(), matrix.n_columns());
        let first = matrices.first().map(shape).expect("a mixture has experts");
        assert!(matrices.iter().all(|matrix| shape(matrix) == first), "experts have one shape and type");
        self.experts.push(ExpertSet::Packed(matrices));
        ExpertsId(self.experts.len() - 1)
    }

    /// Adds a place where the rows of a set choose `n_used` of `n_experts`. Layers may share it.
    ///
    /// # Panics
    /// When there are fewer experts than choices.
    pub fn router(&mut self, base: RowSet, n_experts: usize, n_used: usize) -> RouterId {
        assert!((1..=n_experts).contains(&n_used), "{n_used} of {n_experts} experts are chosen");
        let choices = self.rows(base, 2 * n_used);
        self.routers.push(Router::new(base, n_experts, n_used, choices));
        RouterId(self.routers.len() - 1)
    }

    /// Adds a layer's part of the states.
    ///
    /// # Panics
    /// When the convolution has no taps, or more than sixteen.
    pub fn state_layer(&mut self, shape: StateShape) -> StateLayerId {
        assert!((1..=MAX_TAPS).contains(&shape.n_taps), "a convolution has 1 to {MAX_TAPS} taps");
        StateLayerId(self.states.add(shape))
    }

    /// Adds the weights of a norm, or a bias.
    pub fn vector(&mut self, values: Vec<f32>) -> VectorId {
        self.vectors.push(values);
        VectorId(self.vectors.len() - 1)
    }

    /// Adds a position encoding of the rows of a set: pair `i` of a head at position `p` is rotated by
    /// `p · inverse_frequencies[i]` and multiplied by `magnitude`. Elements beyond the pairs stay unchanged.
    ///
    /// # Panics
    /// When the rows have no positions.
    pub fn rope(&mut self, set: RowSet, pairs: RopePairs, inverse_frequencies: Vec<f32>, magnitude: f32) -> RopeId {
        check_positions(set);
        let per_pair = match pairs {
            RopePairs::Neighbours => 2,
            RopePairs::Halves => 1,
        };
        let angles = self.rows(set, 2 * per_pair * inverse_frequencies.len());
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
        let mut checked: Vec<Output<MatrixId>> = Vec::new();
        for &ProductOutput { matrix, to, add } in outputs {
            self.check_part(input.set, to);
            let weights = &self.matrices[matrix.0];
            assert_eq!(weights.n_columns(), input.width, "a product's input is as wide as its matrix");
            assert_eq!(weights.n_rows(), to.width, "a product's output is as wide as its matrix has rows");
            assert!(checked.iter().all(|other| !other.to.overlaps(to)), "outputs of a product overlap");
            self.quantized[input.index].add_reader(weights.tensor_type());
            checked.push(Output { matrix, to, add, first_group: n_groups });
            n_groups += weights.n_rows().div_ceil(ROW_GROUP);
        }
        self.phases.push(Phase::Product(ProductPhase { input, outputs: checked, n_groups }));
    }

    /// Adds the phases that sort rows by their choices and multiply them with the matrices of the chosen experts.
    ///
    /// # Panics
    /// When shapes differ, outputs overlap, or buffers belong to other sets of rows.
    pub fn expert_product(&mut self, router: RouterId, input: ExpertInput, outputs: &[ExpertOutput]) {
        let set = RowSet::Routed(router);
        let (routed, shared) = match input {
            ExpertInput::Routed(routed) => (routed, None),
            ExpertInput::Chosen(from, routed) => (routed, Some(from)),
        };
        self.check_quantized(routed);
        assert_eq!(routed.set, set, "a product with experts reads routed rows");
        if let Some(from) = shared {
            self.check_quantized(from);
            let fits = from.set == self.routers[router.0].base && from.width == routed.width;
            assert!(fits, "the rows that chose are copied to their choices");
            self.phases.push(Phase::Plan(router));
            self.phases.push(Phase::Spread { router, from, to: routed });
        }
        let mut n_groups = 0;
        let mut checked: Vec<Output<ExpertsId>> = Vec::new();
        for &ExpertOutput { experts, to } in outputs {
            self.check_part(set, to);
            let ExpertShape { n_experts, n_rows, n_columns, tensor_type } = self.experts[experts.0].shape();
            assert_eq!(n_experts, self.routers[router.0].n_experts, "there are as many experts as can be chosen");
            assert_eq!(n_columns, routed.width, "a product's input is as wide as its matrix");
            assert_eq!(n_rows, to.width, "a product's output is as wide as its matrix has rows");
            assert!(checked.iter().all(|other| !other.to.overlaps(to)), "outputs of a product overlap");
            shared.iter().chain([&routed]).for_each(|rows| self.quantized[rows.index].add_reader(tensor_type));
            checked.push(Output { matrix: experts, to, add: false, first_group: n_groups });
            n_groups += n_rows.div_ceil(ROW_GROUP);
        }
        let cached = checked.iter().map(|output| output.matrix).filter(|id| self.experts[id.0].is_cached());
        let sets: Vec<ExpertsId> = cached.collect();
        if !sets.is_empty() {
            self.phases.push(Phase::Reserve { router, sets });
            self.phases.push(Phase::PackExperts);
        }
        let phase = ExpertProductPhase { router, input: routed, shared, outputs: checked, n_groups };
        self.phases.push(Phase::ExpertProduct(phase));
    }

    /// Adds a phase that computes a convolution over time for all tokens.
    ///
    /// # Panics
    /// When widths do not fit the layer, or the buffers are not for all tokens.
    pub fn convolution(&mut self, options: &ConvolutionOptions) {
        let &ConvolutionOptions { layer, from, to, taps, bias, .. } = options;
        self.check_pair(RowSet::Tokens, from, to);
        let shape = self.states.layer(layer.0).shape;
        assert_eq!(from.width, shape.n_channels, "a convolution has a column for every channel");
        assert_eq!(self.vectors[taps.0].len(), shape.n_taps * shape.n_channels, "every channel has its taps");
        assert!(bias.is_none_or(|bias| self.vectors[bias.0].len() == to.width), "a bias is as wide as the result");
        self.phases.push(Phase::Convolve(*options));
    }

    /// Adds a phase that advances the matrices of a layer by all tokens.
    ///
    /// # Panics
    /// When widths do not fit the layer, or the buffers are not for all tokens.
    pub fn recur(&mut self, options: &RecurOptions) {
        let RecurOptions { keys, queries, values, decays, strengths, to, .. } = *options;
        let shape = self.states.layer(options.layer.0).shape;
        for part in [keys, queries, values, decays, strengths] {
            self.check_pair_of_any_width(RowSet::Tokens, part, to);
        }
        let n_keys = keys.width / shape.key_dim.max(1);
        let fits = keys.width == n_keys * shape.key_dim && n_keys > 0 && shape.n_heads.is_multiple_of(n_keys);
        assert!(fits && queries.width == keys.width, "keys and queries fit the heads");
        let width = shape.n_heads * shape.value_dim;
        assert!(values.width == width && to.width == width, "there is a value and a result for every head");
        assert!(decays.width == shape.n_heads && strengths.width == shape.n_heads, "every head has a pace of its own");
        self.phases.push(Phase::Recur(*options));
    }

    /// Adds a phase that computes attention for the tokens of a set.
    ///
    /// # Panics
    /// When widths do not fit the heads, or the rows have no positions.
    pub fn attention(&mut self, options: &AttentionOptions) {
        let &AttentionOptions { layer, queries, to, scale, soft_cap, window, sinks } = options;
        let set = queries.rows.set;
        check_positions(set);
        self.check_pair(set, queries, to);
        assert!(window.is_none_or(|window| window.length() > 0), "a token sees itself");
        let (n_kv_heads, head_dim) = (self.layers[layer.0].n_kv_heads(), self.layers[layer.0].head_dim());
        let n_heads = queries.width / head_dim;
        let fits = queries.width == n_heads * head_dim && n_heads > 0 && n_heads.is_multiple_of(n_kv_heads);
        assert!(fits, "queries of {} columns do not fit {n_kv_heads} heads of {head_dim}", queries.width);
        assert!(sinks.is_none_or(|sinks| self.vectors[sinks.0].len() == n_heads), "there is a sink for every head");
        let geometry = Geometry { n_heads, n_kv_heads, head_dim, scale, soft_cap, window };
        let plan = self.plan_of(set, geometry);
        self.attentions.push(AttentionPhase { geometry, layer, queries, to, sinks, plan });
        self.phases.push(Phase::Attend(self.attentions.len() - 1));
        self.phases.push(Phase::Merge(self.attentions.len() - 1));
    }

    /// Ends the step. Later phases are run by themselves, by [`Program::run_after_step`].
    pub fn end_step(&mut self) {
        self.n_step_phases = Some(self.phases.len());
    }

    /// The program as data, with these rows as its result, for execution on other devices.
    ///
    /// # Panics
    /// As [`ProgramBuilder::finish`], and when experts are packed on demand.
    pub fn describe(self, output: Rows) -> Description<M> {
        self.check_part(RowSet::Selected, output.all());
        let router = |router: &Router| RouterShape {
            base: router.base,
            n_experts: router.n_experts,
            n_used: router.n_used,
            choices: router.choices,
        };
        let layer = |layer: &KvLayer| KvShape {
            format: layer.format(),
            n_kv_heads: layer.n_kv_heads(),
            head_dim: layer.head_dim(),
        };
        Description {
            vocab_size: self.vocab_size.unwrap_or(usize::MAX),
            n_step_phases: self.n_step_phases.unwrap_or(self.phases.len()),
            matrices: self.matrices,
            experts: self.experts.into_iter().map(ExpertSet::into_matrices).collect(),
            vectors: self.vectors,
            ropes: self.ropes,
            routers: self.routers.iter().map(router).collect(),
            layers: self.layers.iter().map(layer).collect(),
            states: self.states.shapes(),
            rows: self.rows.iter().map(|memory| (memory.set(), memory.width())).collect(),
            quantized: self.quantized.iter().map(ActivationMemory::shape).collect(),
            phases: self.phases,
            attentions: self.attentions,
            output,
        }
    }

    /// Layers of one geometry share a plan, if they attend from the same rows.
    fn plan_of(&mut self, set: RowSet, geometry: Geometry) -> usize {
        let known = self.plans.iter().position(|(from, of, _)| (*from, *of) == (set, geometry));
        known.unwrap_or_else(|| {
            self.plans.push((set, geometry, Plan::default()));
            self.plans.len() - 1
        })
    }

    fn check(&self, set: RowSet, operation: &RowOperation) {
        match *operation {
            RowOperation::Embed { table, to, .. } => {
                self.check_tokens(set, to.all());
                assert_eq!(self.matrices[table.0].n_columns(), to.width, "an embedding is as wide as its matrix");
            }
            RowOperation::Angles(rope) => self.check_part(set, self.ropes[rope.0].angles.all()),
            RowOperation::Gather { from, to } => {
                assert_eq!(set, RowSet::Selected, "rows are gathered for the selected tokens");
                self.check_part(RowSet::Tokens, from);
                self.check_part(set, to);
                assert_eq!(from.width, to.width, "rows are gathered into rows of the same width");
            }
            RowOperation::Copy { from, to }
            | RowOperation::Add { from, to }
            | RowOperation::Multiply { by: from, to } => self.check_pair(set, from, to),
            RowOperation::GateSigmoid { values, gate } => {
                self.check_pair_of_any_width(set, values, gate);
                assert!([1, values.width].contains(&gate.width), "a gate for each value, or one for all");
            }
            RowOperation::Unzip { .. } | RowOperation::Decay { .. } | RowOperation::AddHeads { .. } => {
                self.check_heads(set, operation);
            }
            RowOperation::Route { .. }
            | RowOperation::Weigh { .. }
            | RowOperation::AddExpertBias { .. }
            | RowOperation::Combine { .. } => self.check_choice(set, operation),
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
            RowOperation::Rotate { .. } | RowOperation::WriteKv { .. } | RowOperation::Sharpen { .. } => {
                self.check_positioned(set, operation);
            }
            RowOperation::Scale { values, .. }
            | RowOperation::Sigmoid { values }
            | RowOperation::SoftCap { values, .. } => self.check_part(set, values),
            RowOperation::Quantize { from, to } => {
                self.check_part(set, from);
                self.check_quantized(to);
                assert!(to.set == set && to.width == from.width, "a row is quantized into one of its width");
            }
        }
    }

    /// Checks operations that depend on a token's position in its sequence.
    fn check_positioned(&self, set: RowSet, operation: &RowOperation) {
        match *operation {
            RowOperation::Rotate { heads, head_dim, rope } => {
                self.check_part(set, heads);
                self.check_part(set, self.ropes[rope.0].angles.all());
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
                check_positions(set);
                self.check_part(set, values);
                assert!(interval > 0, "positions are counted in intervals");
            }
            _ => unreachable!("the operation has nothing to do with positions"),
        }
    }

    /// Checks operations on the heads of layers that keep a state, or that have gates.
    fn check_heads(&self, set: RowSet, operation: &RowOperation) {
        match *operation {
            RowOperation::Unzip { from, head_dim, first, second } => {
                self.check_pair(set, first, second);
                self.check_pair_of_any_width(set, from, first);
                self.check_pair_of_any_width(set, from, second);
                let fits = head_dim > 0 && first.width.is_multiple_of(head_dim) && from.width == 2 * first.width;
                assert!(fits, "pairs of heads fit both parts");
            }
            RowOperation::Decay { steps, decays, bias, rates } => {
                self.check_pair(set, steps, decays);
                let lengths = [bias, rates].map(|vector| self.vectors[vector.0].len());
                assert_eq!(lengths, [steps.width; 2], "every head has a rate and a bias");
            }
            RowOperation::AddHeads { from, factors, to } => {
                self.check_pair(set, from, to);
                let n_heads = self.vectors[factors.0].len();
                assert!(n_heads > 0 && to.width.is_multiple_of(n_heads), "heads fit a number of times");
            }
            _ => unreachable!("the operation has nothing to do with heads"),
        }
    }

    /// Checks operations that choose experts, or depend on the choice.
    fn check_choice(&self, set: RowSet, operation: &RowOperation) {
        match *operation {
            RowOperation::Route { router, logits, selection_bias, output_scales, .. } => {
                self.check_part(set, logits);
                let Router { base, n_experts, .. } = self.routers[router.0];
                assert!(base == set && logits.width == n_experts, "a router has a logit for every expert");
                let of_experts = |vector: &VectorId| self.vectors[vector.0].len() == n_experts;
                assert!(selection_bias.iter().chain(&output_scales).all(of_experts), "an element for every expert");
            }
            RowOperation::Weigh { values } => {
                self.check_part(set, values);
                self.router_of(set);
            }
            RowOperation::AddExpertBias { biases, to } => {
                self.check_part(set, to);
                let n_biases = self.router_of(set).n_experts * to.width;
                assert_eq!(self.vectors[biases.0].len(), n_biases, "every expert has a bias as wide as its result");
            }
            RowOperation::Combine { router, from, to, .. } => {
                self.check_part(RowSet::Routed(router), from.all());
                self.check_part(set, to);
                let fits = self.routers[router.0].base == set && from.width == to.width;
                assert!(fits, "results are combined for the rows that chose");
            }
            _ => unreachable!("the operation has nothing to do with experts"),
        }
    }

    fn check_pair(&self, set: RowSet, one: Part, other: Part) {
        self.check_pair_of_any_width(set, one, other);
        assert_eq!(one.width, other.width, "both are of one width");
    }

    fn check_pair_of_any_width(&self, set: RowSet, one: Part, other: Part) {
        self.check_part(set, one);
        self.check_part(set, other);
        assert!(!one.overlaps(other), "both are apart");
    }

    /// The router whose choices form a set of rows.
    fn router_of(&self, set: RowSet) -> &Router {
        match set {
            RowSet::Routed(router) => &self.routers[router.0],
            _ => panic!("this needs a choice, which belongs to routed rows"),
        }
    }

    fn check_tokens(&self, set: RowSet, part: Part) {
        assert_eq!(set, RowSet::Tokens, "this is done for all tokens");
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

impl ProgramBuilder {
    /// Adds the experts of a layer whose matrices are packed when they are chosen, and kept while there is room.
    ///
    /// # Panics
    /// When the shape has no experts.
    pub fn experts_on_demand(&mut self, shape: ExpertShape, source: Box<dyn ExpertSource>) -> ExpertsId {
        assert!(shape.n_experts > 0, "a mixture has experts");
        self.experts.push(ExpertSet::cached(shape, source));
        ExpertsId(self.experts.len() - 1)
    }

    /// Sets the bytes that matrices packed on demand may take together. If the matrices of one product take more, they
    /// are kept until the next product.
    pub fn keep_experts(&mut self, n_bytes: usize) {
        self.cached_expert_bytes = n_bytes;
    }

    /// The program, with these rows as its result.
    ///
    /// # Panics
    /// When they are not rows of the selected tokens.
    pub fn finish(self, output: Rows) -> Program {
        self.check_part(RowSet::Selected, output.all());
        let n_step_phases = self.n_step_phases.unwrap_or(self.phases.len());
        Program {
            vocab_size: self.vocab_size.unwrap_or(usize::MAX),
            matrices: self.matrices,
            expert_cache: ExpertCache::new(&self.experts, self.cached_expert_bytes),
            experts: self.experts,
            vectors: self.vectors,
            ropes: self.ropes,
            routers: self.routers,
            layers: self.layers,
            states: self.states,
            rows: self.rows,
            quantized: self.quantized,
            phases: self.phases,
            attentions: self.attentions,
            plans: self.plans,
            partials: PartialMemory::default(),
            threads: Vec::new(),
            output,
            batch: Batch::default(),
            n_step_phases,
            unfinished: 0..0,
            n_threads: 0,
        }
    }
}

fn check_positions(set: RowSet) {
    assert!(!matches!(set, RowSet::Routed(_)), "this needs positions, which routed rows do not have");
}
