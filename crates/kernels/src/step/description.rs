//! A builder's program as data, for execution on a device other than the processor.

use super::operation::{AttentionPhase, Phase, Rope, RowSet, Rows};
use super::states::StateLayer;
use crate::attention::KvFormat;
use crate::{Matrix, TensorType};

/// A weight matrix, wherever it is stored.
pub trait WeightMatrix {
    /// Rows: the width of a product's output.
    fn n_rows(&self) -> usize;

    /// Columns: the width of a product's input.
    fn n_columns(&self) -> usize;

    /// How the weights are stored.
    fn tensor_type(&self) -> TensorType;
}

impl WeightMatrix for Matrix {
    fn n_rows(&self) -> usize {
        Matrix::n_rows(self)
    }

    fn n_columns(&self) -> usize {
        Matrix::n_columns(self)
    }

    fn tensor_type(&self) -> TensorType {
        Matrix::tensor_type(self)
    }
}

/// A program that [`ProgramBuilder`](super::ProgramBuilder) has checked. Handles are indices of these lists.
pub struct Description<M> {
    /// Weights.
    pub matrices: Vec<M>,
    /// The expert matrices of each layer that has experts.
    pub experts: Vec<Vec<M>>,
    /// Weights of norms, biases.
    pub vectors: Vec<Vec<f32>>,
    /// Position encodings.
    pub ropes: Vec<Rope>,
    /// Rows that choose experts.
    pub routers: Vec<RouterShape>,
    /// Layers with keys and values.
    pub layers: Vec<KvShape>,
    /// Layers with states.
    pub states: Vec<StateLayer>,
    /// Buffers of floats: the tokens that have a row, and its width.
    pub rows: Vec<(RowSet, usize)>,
    /// Buffers that products read.
    pub quantized: Vec<QuantizedShape>,
    /// The phases, in order of execution.
    pub phases: Vec<Phase>,
    /// Attention phases, by their number.
    pub attentions: Vec<AttentionPhase>,
    /// The result.
    pub output: Rows,
    /// Number of tokens that can be embedded; [`usize::MAX`] if none are.
    pub vocab_size: usize,
    /// Number of phases of a step; later phases are run by themselves.
    pub n_step_phases: usize,
}

/// Rows that choose experts.
#[derive(Clone, Copy, Debug)]
pub struct RouterShape {
    /// The rows that choose.
    pub base: RowSet,
    /// Number of experts to choose from.
    pub n_experts: usize,
    /// Number of experts that each row chooses.
    pub n_used: usize,
    /// The choices of each row: the numbers of the experts, then their weights.
    pub choices: Rows,
}

/// One layer's keys and values.
#[derive(Clone, Copy, Debug)]
pub struct KvShape {
    /// How they are stored.
    pub format: KvFormat,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// Rows in the form that products read.
#[derive(Clone, Debug)]
pub struct QuantizedShape {
    /// The tokens that have a row.
    pub set: RowSet,
    /// Its width.
    pub width: usize,
    /// Types of the matrices that read them.
    pub readers: Vec<TensorType>,
}
