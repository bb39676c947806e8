//! A model's tensors, found by name and checked against the spec.
//!
//! Every backend needs the same tensors under the same names, but stores them differently. So a model's parts are
//! generic over what a matrix, a linear layer and a vector are: here they are bytes of the file, and a backend
//! substitutes its own types.

use std::collections::BTreeSet;

use super::BackendError;
use crate::decoder::{DecoderSpec, QkNorm};
use crate::gguf::{Gguf, TensorInfo, TensorType, dequantize};

/// All parts of a model: `M` is a matrix, `L` a linear layer, `V` a vector.
pub(super) struct ModelParts<M, L, V> {
    /// `[vocab_size, hidden_size]`.
    pub(super) embeddings: M,
    pub(super) layers: Vec<LayerParts<L, V>>,
    pub(super) output_norm: V,
    /// `None` if the embedding matrix also computes the logits.
    pub(super) output: Option<L>,
}

/// One layer.
pub(super) struct LayerParts<L, V> {
    pub(super) attention_norm: Option<V>,
    pub(super) attention_input: AttentionProjections<L>,
    pub(super) query_norm: Option<V>,
    pub(super) key_norm: Option<V>,
    pub(super) attention_output: L,
    pub(super) post_attention_norm: Option<V>,
    pub(super) ffn_norm: Option<V>,
    pub(super) ffn_input: GatedProjections<L>,
    pub(super) ffn_output: L,
    pub(super) post_ffn_norm: Option<V>,
}

pub(super) enum AttentionProjections<L> {
    Split {
        query: L,
        key: L,
        value: L,
    },
    /// Queries, keys and values, in this order.
    Fused(L),
}

pub(super) enum GatedProjections<L> {
    Split {
        gate: L,
        up: L,
    },
    /// Gate and up, in this order.
    Fused(L),
}

/// A matrix `[n_rows, n_columns]` as the file stores it.
#[derive(Clone)]
pub(super) struct MatrixTensor<'a> {
    pub(super) name: String,
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

/// A model's parts as stored in its file.
pub(super) type ModelTensors<'a> = ModelParts<MatrixTensor<'a>, LinearTensors<'a>, Vec<f32>>;

impl<'a> ModelTensors<'a> {
    /// Finds everything that the spec needs.
    ///
    /// # Errors
    /// When a tensor is missing, or has another shape than the spec says.
    pub(super) fn find(gguf: &'a Gguf, spec: &DecoderSpec) -> Result<Self, BackendError> {
        let mut finder = Finder { gguf, used: BTreeSet::new() };
        let embeddings = finder.matrix("token_embd.weight", spec.vocab_size, spec.hidden_size)?;
        let layers = (0..spec.layers.len()).map(|index| finder.layer(spec, index)).collect::<Result<_, _>>()?;
        let output_norm = finder.vector("output_norm.weight", spec.hidden_size)?;
        let output = match spec.tied_embeddings {
            true => None,
            false => Some(finder.linear("output", spec.vocab_size, spec.hidden_size)?),
        };
        finder.warn_of_unused();
        Ok(ModelParts { embeddings, layers, output_norm, output })
    }
}

/// Turns parts of the file into a backend's own.
pub(super) trait Place {
    type Matrix;
    type Linear;
    type Vector;

    fn matrix(&mut self, tensor: MatrixTensor<'_>) -> Result<Self::Matrix, BackendError>;
    fn linear(&mut self, tensors: LinearTensors<'_>) -> Result<Self::Linear, BackendError>;
    fn vector(&mut self, values: Vec<f32>) -> Result<Self::Vector, BackendError>;
}

/// A model's parts as a backend has them.
pub(super) type PlacedParts<P> = ModelParts<<P as Place>::Matrix, <P as Place>::Linear, <P as Place>::Vector>;

impl ModelTensors<'_> {
    /// Every matrix of the model.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &MatrixTensor<'_>> {
        let linears = self.layers.iter().flat_map(LayerParts::linears).chain(&self.output);
        std::iter::once(&self.embeddings).chain(linears.map(|linear| &linear.weight))
    }

    /// Hands every part to a backend.
    ///
    /// # Errors
    /// When the backend cannot take one.
    pub(super) fn place<P: Place>(self, place: &mut P) -> Result<PlacedParts<P>, BackendError> {
        Ok(ModelParts {
            embeddings: place.matrix(self.embeddings)?,
            layers: self.layers.into_iter().map(|layer| layer.place(place)).collect::<Result<_, _>>()?,
            output_norm: place.vector(self.output_norm)?,
            output: self.output.map(|output| place.linear(output)).transpose()?,
        })
    }
}

impl<L, V> LayerParts<L, V> {
    fn linears(&self) -> impl Iterator<Item = &L> {
        let attention = match &self.attention_input {
            AttentionProjections::Split { query, key, value } => vec![query, key, value],
            AttentionProjections::Fused(all) => vec![all],
        };
        let ffn = match &self.ffn_input {
            GatedProjections::Split { gate, up } => vec![gate, up],
            GatedProjections::Fused(all) => vec![all],
        };
        attention.into_iter().chain(ffn).chain([&self.attention_output, &self.ffn_output])
    }
}

impl LayerParts<LinearTensors<'_>, Vec<f32>> {
    fn place<P: Place>(self, place: &mut P) -> Result<LayerParts<P::Linear, P::Vector>, BackendError> {
        let mut optional = |values: Option<Vec<f32>>| values.map(|values| place.vector(values)).transpose();
        let (query_norm, key_norm) = (optional(self.query_norm)?, optional(self.key_norm)?);
        let (attention_norm, ffn_norm) = (optional(self.attention_norm)?, optional(self.ffn_norm)?);
        let post_attention_norm = optional(self.post_attention_norm)?;
        let post_ffn_norm = optional(self.post_ffn_norm)?;
        Ok(LayerParts {
            attention_norm,
            attention_input: match self.attention_input {
                AttentionProjections::Split { query, key, value } => AttentionProjections::Split {
                    query: place.linear(query)?,
                    key: place.linear(key)?,
                    value: place.linear(value)?,
                },
                AttentionProjections::Fused(all) => AttentionProjections::Fused(place.linear(all)?),
            },
            query_norm,
            key_norm,
            attention_output: place.linear(self.attention_output)?,
            post_attention_norm,
            ffn_norm,
            ffn_input: match self.ffn_input {
                GatedProjections::Split { gate, up } => {
                    GatedProjections::Split { gate: place.linear(gate)?, up: place.linear(up)? }
                }
                GatedProjections::Fused(all) => GatedProjections::Fused(place.linear(all)?),
            },
            ffn_output: place.linear(self.ffn_output)?,
            post_ffn_norm,
        })
    }
}

struct Finder<'a> {
    gguf: &'a Gguf,
    used: BTreeSet<String>,
}

impl<'a> Finder<'a> {
    fn layer(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
    ) -> Result<LayerParts<LinearTensors<'a>, Vec<f32>>, BackendError> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let (hidden, query_width) = (spec.hidden_size, spec.n_heads * spec.head_dim);
        let (query_norm_width, key_norm_width) = match spec.qk_norm {
            Some(QkNorm::Whole) => (query_width, spec.n_kv_heads * spec.head_dim),
            Some(QkNorm::PerHead) | None => (spec.head_dim, spec.head_dim),
        };
        let (before, after) = (spec.norm_placement.is_before(), spec.norm_placement.is_after());
        let mut norm = |wanted: bool, part: &str, width| match wanted {
            true => self.vector(&name(&format!("{part}.weight")), width).map(Some),
            false => Ok(None),
        };
        let query_norm = norm(spec.qk_norm.is_some(), "attn_q_norm", query_norm_width)?;
        let key_norm = norm(spec.qk_norm.is_some(), "attn_k_norm", key_norm_width)?;
        let attention_norm = norm(before, "attn_norm", hidden)?;
        let ffn_norm = norm(before, "ffn_norm", hidden)?;
        let post_attention_norm = norm(after, "post_attention_norm", hidden)?;
        let post_ffn_norm = norm(after, "post_ffw_norm", hidden)?;
        Ok(LayerParts {
            attention_norm,
            attention_input: self.attention_projections(spec, name)?,
            query_norm,
            key_norm,
            attention_output: self.linear(&name("attn_output"), hidden, query_width)?,
            post_attention_norm,
            ffn_norm,
            ffn_input: self.gated_projections(spec, name)?,
            ffn_output: self.linear(&name("ffn_down"), hidden, spec.ffn_size)?,
            post_ffn_norm,
        })
    }

    fn attention_projections(
        &mut self,
        spec: &DecoderSpec,
        name: impl Fn(&str) -> String,
    ) -> Result<AttentionProjections<LinearTensors<'a>>, BackendError> {
        let (query_width, kv_width) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        if spec.fused_projections {
            let fused = self.linear(&name("attn_qkv"), query_width + 2 * kv_width, spec.hidden_size)?;
            return Ok(AttentionProjections::Fused(fused));
        }
        Ok(AttentionProjections::Split {
            query: self.linear(&name("attn_q"), query_width, spec.hidden_size)?,
            key: self.linear(&name("attn_k"), kv_width, spec.hidden_size)?,
            value: self.linear(&name("attn_v"), kv_width, spec.hidden_size)?,
        })
    }

    fn gated_projections(
        &mut self,
        spec: &DecoderSpec,
        name: impl Fn(&str) -> String,
    ) -> Result<GatedProjections<LinearTensors<'a>>, BackendError> {
        if spec.fused_projections {
            return Ok(GatedProjections::Fused(self.linear(&name("ffn_up"), 2 * spec.ffn_size, spec.hidden_size)?));
        }
        Ok(GatedProjections::Split {
            gate: self.linear(&name("ffn_gate"), spec.ffn_size, spec.hidden_size)?,
            up: self.linear(&name("ffn_up"), spec.ffn_size, spec.hidden_size)?,
        })
    }

    /// A linear layer `name.weight` `[n_out, n_in]` with its `name.bias`, where there is one.
    fn linear(&mut self, name: &str, n_out: usize, n_in: usize) -> Result<LinearTensors<'a>, BackendError> {
        let weight = self.matrix(&format!("{name}.weight"), n_out, n_in)?;
        let bias_name = format!("{name}.bias");
        let bias = match self.gguf.tensor(&bias_name) {
            Some(_) => Some(self.vector(&bias_name, n_out)?),
            None => None,
        };
        Ok(LinearTensors { weight, bias })
    }

    fn matrix(&mut self, name: &str, n_rows: usize, n_columns: usize) -> Result<MatrixTensor<'a>, BackendError> {
        // GGUF names the row length first.
        let tensor = self.find(name, &[n_columns, n_rows])?;
        let bytes = self.gguf.tensor_bytes(tensor);
        Ok(MatrixTensor { name: name.to_owned(), n_rows, n_columns, tensor_type: tensor.tensor_type, bytes })
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<Vec<f32>, BackendError> {
        let tensor = self.find(name, &[width])?;
        if tensor.tensor_type.block_elements() != 1 {
            let reason = format!("is {}: norms and biases must be F32, F16 or BF16", tensor.tensor_type);
            return Err(BackendError::Tensor { name: name.into(), reason });
        }
        let mut values = vec![0.0; width];
        dequantize(tensor.tensor_type, self.gguf.tensor_bytes(tensor), &mut values);
        Ok(values)
    }

    fn find(&mut self, name: &str, dimensions: &[usize]) -> Result<&'a TensorInfo, BackendError> {
        let error = |reason: String| BackendError::Tensor { name: name.into(), reason };
        let tensor = self.gguf.tensor(name).ok_or_else(|| error("is missing from the file".into()))?;
        if tensor.dimensions != dimensions {
            return Err(error(format!("has the shape {:?} where {dimensions:?} is expected", tensor.dimensions)));
        }
        self.used.insert(name.to_owned());
        Ok(tensor)
    }

    /// Warns of tensors that nothing reads: the model may not be computed as intended.
    fn warn_of_unused(&self) {
        let read_elsewhere = ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];
        let is_unused = |name: &&str| !self.used.contains(*name) && !read_elsewhere.contains(name);
        let mut unused = self.gguf.tensors().map(|tensor| tensor.name.as_str()).filter(is_unused);
        if let Some(first) = unused.next() {
            let n_others = unused.count();
            tracing::warn!(tensor = first, n_others, "the model has tensors that are not used");
        }
    }
}
