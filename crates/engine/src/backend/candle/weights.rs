//! A model's tensors, found by name, checked against the spec, and put on the device.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};
use candle_nn::ops::rms_norm;

use super::linear::Linear;
use super::transcode::iq4_nl_to_q8_0;
use crate::backend::BackendError;
use crate::decoder::{DecoderSpec, NormPlacement};
use crate::gguf::{Gguf, TensorInfo, TensorType};

pub(super) struct ModelWeights {
    embeddings: Arc<QTensor>,
    pub(super) layers: Vec<LayerWeights>,
    pub(super) output_norm: Tensor,
    pub(super) output: Linear,
}

pub(super) struct LayerWeights {
    pub(super) attention_norm: Tensor,
    pub(super) attention_input: AttentionProjections,
    pub(super) query_norm: Option<Tensor>,
    pub(super) key_norm: Option<Tensor>,
    pub(super) attention_output: Linear,
    pub(super) post_attention_norm: Option<Tensor>,
    pub(super) ffn_norm: Tensor,
    pub(super) ffn_input: GatedProjections,
    pub(super) ffn_output: Linear,
    pub(super) post_ffn_norm: Option<Tensor>,
}

pub(super) enum AttentionProjections {
    Split { query: Linear, key: Linear, value: Linear },
    Fused(Linear),
}

pub(super) enum GatedProjections {
    Split { gate: Linear, up: Linear },
    Fused(Linear),
}

impl ModelWeights {
    pub(super) fn load(gguf: &Gguf, spec: &DecoderSpec, device: &Device) -> Result<Self, BackendError> {
        let mut loader = Loader { gguf, device, used: BTreeSet::new() };
        let embeddings = loader.matrix("token_embd.weight", spec.vocab_size, spec.hidden_size)?;
        let layers = (0..spec.layers.len())
            .map(|index| LayerWeights::load(&mut loader, spec, index))
            .collect::<Result<_, _>>()?;
        let output_norm = loader.vector("output_norm.weight", spec.hidden_size)?;
        let output = if spec.tied_embeddings {
            Linear::new(embeddings.clone(), None)?
        } else {
            loader.linear("output", spec.vocab_size, spec.hidden_size)?
        };
        loader.warn_of_unused();
        Ok(ModelWeights { embeddings, layers, output_norm, output })
    }

    /// `[n_tokens, hidden_size]`, f32.
    pub(super) fn embed(&self, tokens: &[u32], device: &Device) -> Result<Tensor, BackendError> {
        let ids = Tensor::new(tokens, device)?;
        Ok(self.embeddings.embedding(&ids)?.to_dtype(candle_core::DType::F32)?)
    }

    /// Norms what attention or feed-forward made, where the model does.
    pub(super) fn post_norm(
        &self,
        spec: &DecoderSpec,
        weight: &Option<Tensor>,
        rows: Tensor,
    ) -> Result<Tensor, BackendError> {
        match weight {
            Some(weight) => Ok(rms_norm(&rows, weight, spec.norm_epsilon)?),
            None => Ok(rows),
        }
    }
}

impl LayerWeights {
    fn load(loader: &mut Loader<'_>, spec: &DecoderSpec, index: usize) -> Result<Self, BackendError> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let hidden = spec.hidden_size;
        let query_width = spec.n_heads * spec.head_dim;
        let has_post_norms = spec.norm_placement == NormPlacement::BeforeAndAfter;
        let mut norm = |wanted: bool, part: &str, width| match wanted {
            true => loader.vector(&name(&format!("{part}.weight")), width).map(Some),
            false => Ok(None),
        };
        let query_norm = norm(spec.qk_norm, "attn_q_norm", spec.head_dim)?;
        let key_norm = norm(spec.qk_norm, "attn_k_norm", spec.head_dim)?;
        let post_attention_norm = norm(has_post_norms, "post_attention_norm", hidden)?;
        let post_ffn_norm = norm(has_post_norms, "post_ffw_norm", hidden)?;
        Ok(LayerWeights {
            attention_norm: loader.vector(&name("attn_norm.weight"), hidden)?,
            attention_input: AttentionProjections::load(loader, spec, name)?,
            query_norm,
            key_norm,
            attention_output: loader.linear(&name("attn_output"), hidden, query_width)?,
            post_attention_norm,
            ffn_norm: loader.vector(&name("ffn_norm.weight"), hidden)?,
            ffn_input: GatedProjections::load(loader, spec, name)?,
            ffn_output: loader.linear(&name("ffn_down"), hidden, spec.ffn_size)?,
            post_ffn_norm,
        })
    }
}

impl AttentionProjections {
    fn load(loader: &mut Loader<'_>, spec: &DecoderSpec, name: impl Fn(&str) -> String) -> Result<Self, BackendError> {
        let (query_width, kv_width) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        if spec.fused_projections {
            let fused = loader.linear(&name("attn_qkv"), query_width + 2 * kv_width, spec.hidden_size)?;
            return Ok(AttentionProjections::Fused(fused));
        }
        Ok(AttentionProjections::Split {
            query: loader.linear(&name("attn_q"), query_width, spec.hidden_size)?,
            key: loader.linear(&name("attn_k"), kv_width, spec.hidden_size)?,
            value: loader.linear(&name("attn_v"), kv_width, spec.hidden_size)?,
        })
    }
}

impl GatedProjections {
    fn load(loader: &mut Loader<'_>, spec: &DecoderSpec, name: impl Fn(&str) -> String) -> Result<Self, BackendError> {
        if spec.fused_projections {
            return Ok(GatedProjections::Fused(loader.linear(&name("ffn_up"), 2 * spec.ffn_size, spec.hidden_size)?));
        }
        Ok(GatedProjections::Split {
            gate: loader.linear(&name("ffn_gate"), spec.ffn_size, spec.hidden_size)?,
            up: loader.linear(&name("ffn_up"), spec.ffn_size, spec.hidden_size)?,
        })
    }
}

struct Loader<'a> {
    gguf: &'a Gguf,
    device: &'a Device,
    used: BTreeSet<String>,
}

impl<'a> Loader<'a> {
    /// A linear layer `name.weight` `[n_out, n_in]` with its `name.bias`, where there is one.
    fn linear(&mut self, name: &str, n_out: usize, n_in: usize) -> Result<Linear, BackendError> {
        let weight = self.matrix(&format!("{name}.weight"), n_out, n_in)?;
        let bias_name = format!("{name}.bias");
        let bias = match self.gguf.tensor(&bias_name) {
            Some(_) => Some(self.vector(&bias_name, n_out)?),
            None => None,
        };
        Linear::new(weight, bias)
    }

    fn matrix(&mut self, name: &str, n_rows: usize, n_columns: usize) -> Result<Arc<QTensor>, BackendError> {
        // GGUF names the row length first.
        let tensor = self.find(name, &[n_columns, n_rows])?;
        let (stored, data) = match candle_type(tensor.tensor_type) {
            Some(stored) => (stored, Cow::Borrowed(self.gguf.tensor_bytes(tensor))),
            None => (GgmlDType::Q8_0, Cow::Owned(iq4_nl_to_q8_0(self.gguf.tensor_bytes(tensor)))),
        };
        let storage = QStorage::from_data(data, self.device, stored)?;
        Ok(Arc::new(QTensor::new(storage, (n_rows, n_columns))?))
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<Tensor, BackendError> {
        let tensor = self.find(name, &[width])?;
        let stored = candle_type(tensor.tensor_type).filter(|stored| stored.block_size() == 1);
        let stored = stored.ok_or_else(|| BackendError::Tensor {
            name: name.into(),
            reason: format!("is {}: norms and biases must be F32, F16 or BF16", tensor.tensor_type),
        })?;
        let data = Cow::Borrowed(self.gguf.tensor_bytes(tensor));
        let storage = QStorage::from_data(data, self.device, stored)?;
        Ok(QTensor::new(storage, width)?.dequantize(self.device)?)
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

    /// A tensor that nothing reads may mean that the model is not computed as it was meant to be.
    fn warn_of_unused(&self) {
        let read_elsewhere = ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];
        for tensor in self.gguf.tensors() {
            if !self.used.contains(&tensor.name) && !read_elsewhere.contains(&tensor.name.as_str()) {
                tracing::warn!(tensor = tensor.name, "the model has a tensor that is not used");
            }
        }
    }
}

/// The name that candle has for a type; it does not have IQ4_NL.
pub(crate) fn candle_type(tensor_type: TensorType) -> Option<GgmlDType> {
    Some(match tensor_type {
        TensorType::F32 => GgmlDType::F32,
        TensorType::F16 => GgmlDType::F16,
        TensorType::BF16 => GgmlDType::BF16,
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q2_K => GgmlDType::Q2K,
        TensorType::Q3_K => GgmlDType::Q3K,
        TensorType::Q4_K => GgmlDType::Q4K,
        TensorType::Q5_K => GgmlDType::Q5K,
        TensorType::Q6_K => GgmlDType::Q6K,
        TensorType::IQ4_NL => return None,
    })
}
