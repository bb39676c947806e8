//! The vocabulary of programs: handles to a builder's objects, and the operations on rows.

use super::gating::RoutingOptions;
use crate::attention::Geometry;
use crate::elementwise::Activation;

/// The tokens of a step that a phase processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSet {
    /// All of them.
    Tokens,
    /// The tokens whose results are wanted.
    Selected,
    /// The choices of another set's rows: a row for every row and choice, sorted by expert.
    Routed(RouterId),
}

/// A buffer of floats with a row per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub(super) index: usize,
    pub(super) set: RowSet,
    pub(super) width: usize,
}

impl Rows {
    /// Some columns of every row.
    ///
    /// # Panics
    /// When the rows do not have these columns.
    pub fn part(self, first: usize, width: usize) -> Part {
        assert!(first.checked_add(width).is_some_and(|end| end <= self.width), "rows of {} columns", self.width);
        Part { rows: self, first, width }
    }

    /// All columns.
    pub fn all(self) -> Part {
        self.part(0, self.width)
    }

    /// The number of columns.
    pub fn width(self) -> usize {
        self.width
    }

    /// The number of the buffer.
    pub fn index(self) -> usize {
        self.index
    }

    /// The tokens that have a row.
    pub fn set(self) -> RowSet {
        self.set
    }
}

/// Some columns of the rows of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub(super) rows: Rows,
    pub(super) first: usize,
    pub(super) width: usize,
}

impl Part {
    /// The number of columns.
    pub fn width(self) -> usize {
        self.width
    }

    /// The buffer.
    pub fn rows(self) -> Rows {
        self.rows
    }

    /// The first column.
    pub fn first(self) -> usize {
        self.first
    }

    pub(super) fn overlaps(self, other: Part) -> bool {
        self.rows.index == other.rows.index
            && self.first < other.first + other.width
            && other.first < self.first + self.width
    }
}

/// A buffer of rows in the form that products read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedRows {
    pub(super) index: usize,
    pub(super) set: RowSet,
    pub(super) width: usize,
}

impl QuantizedRows {
    /// The number of the buffer.
    pub fn index(self) -> usize {
        self.index
    }

    /// The tokens that have a row.
    pub fn set(self) -> RowSet {
        self.set
    }
}

/// A weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixId(pub(super) usize);

/// Weights of a norm, or a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorId(pub(super) usize);

/// A position encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeId(pub(super) usize);

/// The experts of a layer: matrices of one shape and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsId(pub(super) usize);

/// Rows that choose experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterId(pub(super) usize);

/// One layer's part of the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLayerId(pub(super) usize);

/// One layer's part of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayerId(pub(super) usize);

/// Handles are numbered in the order of their creation.
macro_rules! numbered {
    ($($handle:ident)*) => {
        $(impl $handle {
            /// Its number.
            pub fn index(self) -> usize {
                self.0
            }
        })*
    };
}

numbered! { MatrixId VectorId RopeId ExpertsId RouterId StateLayerId KvLayerId }

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// (0, 1), (2, 3), …
    Neighbours,
    /// (0, n/2), (1, n/2 + 1), …
    Halves,
}

/// An operation on one row, independent of the others.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOperation {
    /// to ← the token's row of the matrix · scale.
    Embed {
        /// A row per token of the vocabulary.
        table: MatrixId,
        /// The factor.
        scale: f32,
        /// As wide as the matrix has columns.
        to: Rows,
    },
    /// Prepares sine and cosine of the token's position, for [`RowOperation::Rotate`].
    Angles(RopeId),
    /// to ← the row of `from` that belongs to the selected row. Only for selected rows.
    Gather {
        /// Rows of all tokens.
        from: Part,
        /// Rows of the selected tokens.
        to: Part,
    },
    /// to ← from.
    Copy {
        /// The source.
        from: Part,
        /// The destination.
        to: Part,
    },
    /// to ← to + from.
    Add {
        /// The summand.
        from: Part,
        /// The other summand, and the sum.
        to: Part,
    },
    /// values ← values · factor.
    Scale {
        /// The values, scaled in place.
        values: Part,
        /// The factor.
        factor: f32,
    },
    /// values ← values · (1 + rate · ln(1 + ⌊(position + offset) / interval⌋)).
    Sharpen {
        /// Queries, scaled in place.
        values: Part,
        /// How fast the factor grows with the position.
        rate: f32,
        /// The factor stays the same over this many positions.
        interval: usize,
        /// Added to the position.
        offset: usize,
    },
    /// to ← to · by.
    Multiply {
        /// The factors, one for each value.
        by: Part,
        /// The values, multiplied in place.
        to: Part,
    },
    /// values ← values · sigmoid(gate).
    GateSigmoid {
        /// The values, gated in place.
        values: Part,
        /// As wide as the values, or one gate for all of them.
        gate: Part,
    },
    /// values ← sigmoid(values).
    Sigmoid {
        /// The values, changed in place.
        values: Part,
    },
    /// Separates heads that are stored side by side in pairs.
    Unzip {
        /// A head of `first`, then a head of `second`, and so on.
        from: Part,
        /// Width of a head.
        head_dim: usize,
        /// The first head of every pair.
        first: Part,
        /// The second head of every pair.
        second: Part,
    },
    /// steps ← ln(1 + e^(steps + bias)), decays ← e^(rates · steps), an element per head.
    Decay {
        /// The lengths of the steps in time.
        steps: Part,
        /// The fraction of a state that remains.
        decays: Part,
        /// Added to the steps.
        bias: VectorId,
        /// Negative rates.
        rates: VectorId,
    },
    /// to ← to + from · factors, with a factor for every head.
    AddHeads {
        /// Heads, one after the other.
        from: Part,
        /// One for every head.
        factors: VectorId,
        /// The other summands, and the sums.
        to: Part,
    },
    /// Chooses the row's experts. The logits are changed.
    Route {
        /// The rows that choose.
        router: RouterId,
        /// A logit for every expert.
        logits: Part,
        /// How they choose.
        options: RoutingOptions,
        /// Added to the scores by which experts are chosen, but not to their weights.
        selection_bias: Option<VectorId>,
        /// Multiplies the weights of each expert.
        output_scales: Option<VectorId>,
    },
    /// values ← values · the weight of the choice. Only for routed rows.
    Weigh {
        /// The values, scaled in place.
        values: Part,
    },
    /// to ← to + the bias of the row's expert. Only for routed rows.
    AddExpertBias {
        /// A row of biases for every expert.
        biases: VectorId,
        /// The other summand, and the sum.
        to: Part,
    },
    /// to ← the sum of the results of the row's choices, each multiplied by its weight if `is_weighted`.
    Combine {
        /// The rows that chose.
        router: RouterId,
        /// The results of the choices, as routed rows.
        from: Rows,
        /// Whether the weights are still to be applied.
        is_weighted: bool,
        /// Where the sum is written.
        to: Part,
    },
    /// to ← to + bias.
    AddBias {
        /// The summand.
        bias: VectorId,
        /// The other summand, and the sum.
        to: Part,
    },
    /// Norms every head by its root mean square: the number of heads is the width of the part divided by the width of
    /// the weight.
    Norm {
        /// The values, normed in place.
        values: Part,
        /// As wide as a head, or as the whole part if there is one head.
        weight: VectorId,
        /// Added to the mean square.
        epsilon: f32,
    },
    /// Rotates every head by the token's position.
    Rotate {
        /// Heads, one after the other.
        heads: Part,
        /// Width of a head.
        head_dim: usize,
        /// The position encoding.
        rope: RopeId,
    },
    /// Writes the token's keys and values into the cache.
    WriteKv {
        /// The layer's cache.
        layer: KvLayerId,
        /// All heads' keys.
        keys: Part,
        /// All heads' values.
        values: Part,
    },
    /// gate ← activation(gate) · up.
    Gate {
        /// The function.
        activation: Activation,
        /// The input of the function.
        gate: Part,
        /// The factor of the result.
        up: Part,
    },
    /// values ← cap · tanh(values / cap).
    SoftCap {
        /// The values, capped in place.
        values: Part,
        /// The cap.
        cap: f32,
    },
    /// to ← from, in the form that products read.
    Quantize {
        /// The source.
        from: Part,
        /// The destination.
        to: QuantizedRows,
    },
}

/// How the heads of a layer advance their matrices.
///
/// A head's matrix M (key × value) becomes M · decay, then M + k ⊗ d, and the head's output is Mᵀq. If `is_delta`,
/// d = strength · (v − Mᵀk) with the decayed M (<https://arxiv.org/abs/2412.06464>), else d = strength · v
/// (<https://arxiv.org/abs/2405.21060>).
#[derive(Clone, Copy, Debug)]
pub struct RecurOptions {
    /// The layer that keeps the matrices.
    pub layer: StateLayerId,
    /// Keys; shared by heads if there are fewer keys than heads.
    pub keys: Part,
    /// Queries, as many as keys.
    pub queries: Part,
    /// Values, one for each head.
    pub values: Part,
    /// The fraction of a matrix that remains, an element for each head.
    pub decays: Part,
    /// How strongly a token is written, an element for each head.
    pub strengths: Part,
    /// Whether only the part that the matrix does not predict yet is added.
    pub is_delta: bool,
    /// How heads share keys.
    pub sharing: KeySharing,
    /// Where the heads' outputs are written.
    pub to: Part,
}

/// Which key a head uses if there are fewer keys than heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySharing {
    /// Neighbouring heads use the same key.
    Grouped,
    /// Head h uses key h modulo the number of keys.
    Interleaved,
}

/// A position encoding.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Which elements are rotated together.
    pub pairs: RopePairs,
    /// Radians per position, one for each pair.
    pub inverse_frequencies: Vec<f32>,
    /// Multiplies the rotated elements.
    pub magnitude: f32,
    /// Cosines, then sines, of the step's tokens.
    pub angles: Rows,
}

impl Rope {
    /// Number of a token's cosines; as many sines follow.
    pub(super) fn n_angles(&self) -> usize {
        self.angles.width / 2
    }
}

/// A part of a program. Every phase reads the results of earlier ones.
#[derive(Clone, Debug)]
pub enum Phase {
    /// Operations on every row of a set, in this order.
    Rows {
        /// The rows.
        set: RowSet,
        /// The operations on each of them.
        operations: Vec<RowOperation>,
    },
    /// A product of rows with matrices.
    Product(ProductPhase),
    /// The tasks of an attention phase, by its number.
    Attend(usize),
    /// Merges the partial results of an attention phase, by its number.
    Merge(usize),
    /// Sorts the choices of a router's rows.
    Plan(RouterId),
    /// Copies each row to its choices, unless there is only one row.
    Spread {
        /// The rows that chose.
        router: RouterId,
        /// The rows to copy.
        from: QuantizedRows,
        /// A row for every choice.
        to: QuantizedRows,
    },
    /// Decides which matrices of chosen experts are in memory.
    Reserve {
        /// The rows that chose.
        router: RouterId,
        /// The matrices that the next product reads.
        sets: Vec<ExpertsId>,
    },
    /// Packs the missing matrices.
    PackExperts,
    /// A product of routed rows with the matrices of the experts that they chose.
    ExpertProduct(ExpertProductPhase),
    /// A convolution over time.
    Convolve(ConvolutionOptions),
    /// Layers that advance matrices.
    Recur(RecurOptions),
}

/// A product of rows with matrices.
#[derive(Clone, Debug)]
pub struct ProductPhase {
    /// The rows.
    pub input: QuantizedRows,
    /// The matrices.
    pub outputs: Vec<Output<MatrixId>>,
    /// Total number of row groups in all matrices.
    pub n_groups: usize,
}

/// A product of routed rows with the matrices of the experts that they chose.
#[derive(Clone, Debug)]
pub struct ExpertProductPhase {
    /// The rows that chose.
    pub router: RouterId,
    /// Routed rows.
    pub input: QuantizedRows,
    /// The rows that the input is a copy of; they are read instead if there is only one.
    pub shared: Option<QuantizedRows>,
    /// The experts' matrices.
    pub outputs: Vec<Output<ExpertsId>>,
    /// Total number of row groups in the matrices of an expert.
    pub n_groups: usize,
}

/// One matrix of a product, or one of every expert.
#[derive(Clone, Copy, Debug)]
pub struct Output<M> {
    /// The matrix.
    pub matrix: M,
    /// Where the product is written.
    pub to: Part,
    /// Whether it is added to the existing values.
    pub add: bool,
    /// The index of this matrix's first row group within the phase.
    pub first_group: usize,
}

/// How a layer attends.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPhase {
    /// Heads and scores.
    pub geometry: Geometry,
    /// The layer whose keys and values are read.
    pub layer: KvLayerId,
    /// All heads of a row.
    pub queries: Part,
    /// Where the results are written; as wide as `queries`.
    pub to: Part,
    /// One extra score per head that takes part in the softmax without a value.
    pub sinks: Option<VectorId>,
    /// How the work is divided.
    pub(super) plan: usize,
}

/// A causal convolution over time, each channel by itself.
#[derive(Clone, Copy, Debug)]
pub struct ConvolutionOptions {
    /// The layer that keeps the last inputs.
    pub layer: StateLayerId,
    /// The inputs, a column for every channel.
    pub from: Part,
    /// The results.
    pub to: Part,
    /// A row of channels for every tap; the last tap applies to the current token.
    pub taps: VectorId,
    /// Added to the results.
    pub bias: Option<VectorId>,
    /// Whether the results go through x · sigmoid(x).
    pub has_silu: bool,
}
