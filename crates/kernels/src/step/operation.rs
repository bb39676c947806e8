//! The vocabulary of programs: handles to what a builder has made, and the operations on rows.

use crate::attention::Geometry;
use crate::elementwise::Activation;

/// The tokens of a step that a phase processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSet {
    /// All of them.
    Tokens,
    /// Those whose results are wanted.
    Selected,
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
}

/// Some columns of the rows of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub(super) rows: Rows,
    pub(super) first: usize,
    pub(super) width: usize,
}

impl Part {
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

/// A weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixId(pub(super) usize);

/// Weights of a norm, or a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorId(pub(super) usize);

/// A position encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeId(pub(super) usize);

/// One layer's part of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayerId(pub(super) usize);

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
        /// A buffer of all tokens.
        from: Rows,
        /// A buffer of the selected tokens.
        to: Rows,
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
        /// What it is added to.
        to: Part,
    },
    /// values ← values · factor.
    Scale {
        /// The values, scaled in place.
        values: Part,
        /// The factor.
        factor: f32,
    },
    /// values ← values · (1 + rate · ln(1 + ⌊position / interval⌋)).
    Sharpen {
        /// Queries, scaled in place.
        values: Part,
        /// How fast the factor grows with the position.
        rate: f32,
        /// The factor stays the same over this many positions.
        interval: usize,
    },
    /// to ← to + bias.
    AddBias {
        /// The summand.
        bias: VectorId,
        /// What it is added to.
        to: Part,
    },
    /// Norms every head by its root mean square: the number of heads is the width of the part divided by that of the
    /// weight.
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

pub(super) struct Rope {
    pub(super) pairs: RopePairs,
    pub(super) inverse_frequencies: Vec<f32>,
    pub(super) magnitude: f32,
    /// Cosines, then sines, of the step's tokens.
    pub(super) angles: Rows,
}

impl Rope {
    /// Number of a token's cosines; as many sines follow.
    pub(super) fn n_angles(&self) -> usize {
        self.angles.width / 2
    }
}

pub(super) enum Phase {
    Rows { set: RowSet, operations: Vec<RowOperation> },
    Product(ProductPhase),
    Attend(usize),
    Merge(usize),
}

pub(super) struct ProductPhase {
    pub(super) input: QuantizedRows,
    pub(super) outputs: Vec<Output>,
    /// Total number of row groups in all matrices.
    pub(super) n_groups: usize,
}

pub(super) struct Output {
    pub(super) matrix: MatrixId,
    pub(super) to: Part,
    pub(super) add: bool,
    /// The index of this matrix's first group within the phase.
    pub(super) first_group: usize,
}

pub(super) struct AttentionPhase {
    pub(super) geometry: Geometry,
    pub(super) layer: KvLayerId,
    pub(super) queries: Part,
    pub(super) to: Rows,
    pub(super) plan: usize,
}
