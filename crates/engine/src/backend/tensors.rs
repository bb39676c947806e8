//! A model's tensors, found by name and checked against the spec.
//!
//! Every backend needs the same tensors under the same names, but stores them differently. So a model's parts are
//! generic over how they are stored: here they are bytes of the file, and a backend substitutes its own types.

mod finder;
mod placing;

use std::borrow::Cow;

use crate::gguf::TensorType;

pub(super) use finder::find;

/// How a model's parts are stored.
pub(super) trait Storage {
    type Matrix;
    type Linear;
    /// A linear layer of every expert.
    type Experts;
    type Vector;
}

/// Turns parts of the file into a backend's own.
pub(super) trait Placing: Storage {
    fn matrix(&mut self, tensor: MatrixTensor<'_>) -> Result<Self::Matrix, super::BackendError>;
    fn linear(&mut self, tensors: LinearTensors<'_>) -> Result<Self::Linear, super::BackendError>;
    fn experts(&mut self, tensors: ExpertTensors<'_>) -> Result<Self::Experts, super::BackendError>;
    fn vector(&mut self, values: Vec<f32>) -> Result<Self::Vector, super::BackendError>;
}

/// All parts of a model.
pub(super) struct ModelParts<S: Storage> {
    /// `[vocab_size, hidden_size]`; `None` in a part of a model that does not need them.
    pub(super) embeddings: Option<S::Matrix>,
    pub(super) layer_inputs: Option<LayerInputs<S>>,
    pub(super) layers: Vec<LayerParts<S>>,
    pub(super) output_norm: S::Vector,
    /// `None` if the embedding matrix also computes the logits.
    pub(super) output: Option<S::Linear>,
    pub(super) head: Option<HeadParts<S>>,
}

/// The head that predicts the token after the next one.
pub(super) struct HeadParts<S: Storage> {
    /// `None` if it uses the model's.
    pub(super) embeddings: Option<S::Matrix>,
    /// Norms the embedding of a token.
    pub(super) token_norm: S::Vector,
    /// Norms the model's output for the previous token.
    pub(super) hidden_norm: S::Vector,
    /// Reads both normed inputs, in this order.
    pub(super) input: S::Linear,
    pub(super) layer: LayerParts<S>,
    /// `None` if it uses the model's.
    pub(super) norm: Option<S::Vector>,
    /// `None` if it uses the model's.
    pub(super) output: Option<S::Linear>,
}

/// The tensors that give every layer its own input besides the residual stream.
pub(super) struct LayerInputs<S: Storage> {
    /// `[vocab_size, n_layers · width]`.
    pub(super) embeddings: S::Matrix,
    /// `[n_layers · width, hidden_size]`.
    pub(super) projection: S::Linear,
    /// Norms the projection, `width` at a time.
    pub(super) projection_norm: S::Vector,
}

/// One layer.
pub(super) struct LayerParts<S: Storage> {
    pub(super) mixer_norm: Option<S::Vector>,
    pub(super) mixer: MixerParts<S>,
    pub(super) post_mixer_norm: Option<S::Vector>,
    pub(super) ffn_norm: Option<S::Vector>,
    pub(super) dense: Option<DenseParts<S>>,
    pub(super) experts: Option<ExpertParts<S>>,
    pub(super) post_ffn_norm: Option<S::Vector>,
    pub(super) own_input: Option<OwnInputParts<S>>,
    /// Multiplies the residual stream after the layer.
    pub(super) output_scale: Option<f32>,
}

pub(super) enum MixerParts<S: Storage> {
    Attention(AttentionParts<S>),
    ShortConvolution(ShortConvolutionParts<S>),
    DeltaNet(Box<DeltaNetParts<S>>),
    Mamba2(Box<Mamba2Parts<S>>),
}

pub(super) struct AttentionParts<S: Storage> {
    pub(super) input: AttentionProjections<S::Linear>,
    pub(super) query_norm: Option<S::Vector>,
    pub(super) key_norm: Option<S::Vector>,
    /// Ones: values are normed without weights.
    pub(super) value_norm: Option<S::Vector>,
    /// A score per head that joins the softmax.
    pub(super) sinks: Option<S::Vector>,
    pub(super) output: S::Linear,
}

pub(super) enum AttentionProjections<L> {
    /// Without keys, both come from another layer; without values, the keys are also the values.
    Split { query: L, key: Option<L>, value: Option<L> },
    /// Queries, keys and values, in this order.
    Fused(L),
}

pub(super) struct ShortConvolutionParts<S: Storage> {
    /// Computes the gate before the convolution, the gate after it, and its input.
    pub(super) input: S::Linear,
    /// A row of channels for every tap.
    pub(super) taps: S::Vector,
    pub(super) output: S::Linear,
}

pub(super) struct DeltaNetParts<S: Storage> {
    /// Computes queries, keys and values.
    pub(super) input: S::Linear,
    pub(super) gate: S::Linear,
    pub(super) alpha: S::Linear,
    pub(super) beta: S::Linear,
    /// A row of channels for every tap.
    pub(super) taps: S::Vector,
    pub(super) step_bias: S::Vector,
    pub(super) rates: S::Vector,
    /// Scale the heads of queries and keys to the length that the state expects.
    pub(super) query_scale: S::Vector,
    pub(super) key_scale: S::Vector,
    pub(super) norm: S::Vector,
    pub(super) output: S::Linear,
}

pub(super) struct Mamba2Parts<S: Storage> {
    /// Computes the gate, the input of the convolution, and the steps.
    pub(super) input: S::Linear,
    /// A row of channels for every tap.
    pub(super) taps: S::Vector,
    pub(super) convolution_bias: Option<S::Vector>,
    pub(super) step_bias: S::Vector,
    pub(super) rates: S::Vector,
    /// The share of a head's input that is added to its output.
    pub(super) skip: S::Vector,
    /// One per group.
    pub(super) norms: Vec<S::Vector>,
    pub(super) output: S::Linear,
}

pub(super) struct DenseParts<S: Storage> {
    pub(super) input: GatedProjections<S::Linear>,
    pub(super) output: S::Linear,
    /// Computes one gate for the whole output of a shared expert.
    pub(super) scalar_gate: Option<S::Linear>,
    /// Norms the output before the experts' output is added.
    pub(super) post_norm: Option<S::Vector>,
}

pub(super) struct ExpertParts<S: Storage> {
    pub(super) router: S::Linear,
    /// Norms the router's input, if it differs from the experts'.
    pub(super) router_norm: Option<S::Vector>,
    /// Norms the experts' input, if it differs from the dense part's.
    pub(super) norm: Option<S::Vector>,
    pub(super) selection_bias: Option<S::Vector>,
    /// Multiplies the weight of every expert.
    pub(super) output_scales: Option<S::Vector>,
    pub(super) input: GatedProjections<S::Experts>,
    pub(super) output: S::Experts,
    /// Norms the output before it is added to the dense part's.
    pub(super) post_norm: Option<S::Vector>,
}

pub(super) enum GatedProjections<L> {
    Split {
        gate: L,
        up: L,
    },
    /// Gate and up, in this order.
    Fused(L),
}

/// The tensors with which a layer reads its own input.
pub(super) struct OwnInputParts<S: Storage> {
    pub(super) gate: S::Linear,
    pub(super) projection: S::Linear,
    pub(super) post_norm: S::Vector,
}

/// A matrix `[n_rows, n_columns]` as the file stores it.
#[derive(Clone)]
pub(super) struct MatrixTensor<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) n_rows: usize,
    pub(super) n_columns: usize,
    pub(super) tensor_type: TensorType,
    pub(super) bytes: &'a [u8],
}

/// Computes x · Wᵀ (+ b).
pub(super) struct LinearTensors<'a> {
    pub(super) weight: MatrixTensor<'a>,
    pub(super) bias: Option<Vec<f32>>,
}

/// Computes x · Wᵀ (+ b) for every expert.
pub(super) struct ExpertTensors<'a> {
    /// The matrices, one after the other.
    pub(super) weights: MatrixTensor<'a>,
    pub(super) n_experts: usize,
    /// A row for every expert.
    pub(super) bias: Option<Vec<f32>>,
}

impl<'a> ExpertTensors<'a> {
    /// The matrix of every expert.
    pub(super) fn matrices(&self) -> impl Iterator<Item = MatrixTensor<'a>> + '_ {
        let MatrixTensor { ref name, n_rows, n_columns, tensor_type, bytes } = self.weights;
        let n_rows = n_rows / self.n_experts;
        let parts = bytes.chunks_exact((bytes.len() / self.n_experts).max(1));
        parts.enumerate().map(move |(expert, bytes)| {
            let name = Cow::Owned(format!("{name}[{expert}]"));
            MatrixTensor { name, n_rows, n_columns, tensor_type, bytes }
        })
    }
}

/// Parts as the file stores them.
pub(super) struct InFile<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Storage for InFile<'a> {
    type Matrix = MatrixTensor<'a>;
    type Linear = LinearTensors<'a>;
    type Experts = ExpertTensors<'a>;
    type Vector = Vec<f32>;
}

/// A model's parts as stored in its file.
pub(super) type ModelTensors<'a> = ModelParts<InFile<'a>>;
