//! The decoder on candle: runs on any device candle supports, and is the reference that other backends are checked
//! against.
//!
//! All sequences of a step go through the linear layers together, as one matrix with a row per token; attention runs
//! sequence by sequence, each over its own part of the cache. Activations are f32, the cache is f16.

mod attention;
mod device;
mod kv_storage;
mod linear;
mod sequence;
mod transcode;
mod weights;

use candle_core::{D, Device, IndexOp, Tensor};
use candle_nn::ops::rms_norm;

use super::tensors::{AttentionProjections, GatedProjections};
use super::{Backend, BackendError, BatchEntry, DeviceChoice, Logits};
use crate::decoder::{Activation, DecoderSpec, RopePairs, RopeTable, Sharpening};
use crate::gguf::Gguf;
use crate::kv_cache::BlockId;
use kv_storage::KvStorage;
use sequence::SequenceView;
use weights::{LayerWeights, ModelWeights};

pub(super) use device::{device_name, open_device};
pub use weights::candle_type;

/// A decoder's weights and cache on a candle device.
pub struct CandleBackend {
    spec: DecoderSpec,
    device: Device,
    weights: ModelWeights,
    kv: Vec<KvStorage>,
    /// Logits of the last step.
    logits: Vec<f32>,
    /// States of the last step.
    states: Vec<f32>,
}

impl CandleBackend {
    /// Loads a model's weights onto a device.
    ///
    /// # Errors
    /// When the device cannot be used, or the file's tensors do not match `spec`.
    pub fn load(gguf: &Gguf, spec: &DecoderSpec, device: DeviceChoice) -> Result<Self, BackendError> {
        let device = open_device(device)?;
        let weights = ModelWeights::load(gguf, spec, &device)?;
        let kv_width = spec.n_kv_heads * spec.head_dim;
        let kv = spec.layers.iter().map(|_| KvStorage::new(kv_width, &device)).collect();
        Ok(CandleBackend { spec: spec.clone(), device, weights, kv, logits: Vec::new(), states: Vec::new() })
    }

    /// Computes the logits of the rows that need them, and their states.
    fn compute_logits(&mut self, batch: &[BatchEntry<'_>]) -> Result<(Vec<f32>, Vec<f32>), BackendError> {
        let (hidden, state) = self.forward_hidden(batch)?;
        let rows = logit_rows(batch);
        if rows.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let n_rows = rows.len();
        let rows = Tensor::from_vec(rows, n_rows, &self.device)?;
        let (hidden, state) = (hidden.index_select(&rows, 0)?, state.index_select(&rows, 0)?);
        let normed = rms_norm(&hidden, &self.weights.output_norm, self.spec.norm_epsilon)?;
        let logits = scale(self.weights.output.forward(&normed)?, self.spec.logit_scale)?;
        let logits = soft_cap(logits, self.spec.logit_soft_cap)?;
        Ok((logits.flatten_all()?.to_vec1::<f32>()?, state.flatten_all()?.to_vec1::<f32>()?))
    }

    /// The residual stream after the last layer, and after the state layer.
    fn forward_hidden(&mut self, batch: &[BatchEntry<'_>]) -> Result<(Tensor, Tensor), BackendError> {
        let tokens: Vec<u32> = batch.iter().flat_map(|entry| entry.tokens).copied().collect();
        let mut hidden = scale(self.weights.embed(&tokens, &self.device)?, self.spec.embedding_scale)?;
        let positions = Positions::new(&self.spec, batch, &self.device)?;
        let views = batch.iter().map(|entry| SequenceView::new(entry, &self.spec, &self.device));
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let mut state = hidden.clone();
        for index in 0..self.spec.layers.len() {
            hidden = self.layer(index, hidden, &positions, &views)?;
            if index == self.spec.state_layer() {
                state = hidden.clone();
            }
        }
        Ok((hidden, state))
    }

    fn layer(
        &mut self,
        index: usize,
        hidden: Tensor,
        positions: &Positions,
        views: &[SequenceView],
    ) -> Result<Tensor, BackendError> {
        let spec = &self.spec;
        let layer = &self.weights.layers[index];
        let normed = norm(spec, &hidden, layer.attention_norm.as_ref())?;
        let rotation = spec.layers[index].rope.map(|rope| &positions.rotations[rope]);
        let (queries, keys, values) = project(spec, layer, &normed, rotation)?;
        let queries = match &positions.sharpness {
            Some(factors) => queries.broadcast_mul(factors)?,
            None => queries,
        };
        let kv = &mut self.kv[index];
        kv.write(views, &keys, &values)?;
        let attended = attention::attend(spec, spec.layers[index].window, kv, views, &queries)?;
        let attended = layer.attention_output.forward(&attended)?;
        let hidden = add_branch(spec, &hidden, &attended, layer.post_attention_norm.as_ref())?;
        let normed = norm(spec, &hidden, layer.ffn_norm.as_ref())?;
        let fed = feed_forward(spec, layer, &normed)?;
        add_branch(spec, &hidden, &fed, layer.post_ffn_norm.as_ref())
    }
}

/// What layers need to know of the positions of a batch's tokens.
struct Positions {
    /// One for each of the model's position encodings.
    rotations: Vec<Rotation>,
    /// Factors of the queries, `[n_tokens, 1]`.
    sharpness: Option<Tensor>,
}

impl Positions {
    fn new(spec: &DecoderSpec, batch: &[BatchEntry<'_>], device: &Device) -> Result<Self, BackendError> {
        let positions: Vec<usize> =
            batch.iter().flat_map(|entry| entry.position..entry.position + entry.tokens.len()).collect();
        let rotations = spec.ropes.iter().map(|table| Rotation::new(table, &positions, device));
        let sharpness = spec.sharpening.map(|Sharpening { rate, interval }| {
            let factor = |position: &usize| 1.0 + rate * ((position / interval) as f32).ln_1p();
            Tensor::from_vec(positions.iter().map(factor).collect(), (positions.len(), 1), device)
        });
        Ok(Positions { rotations: rotations.collect::<Result<_, _>>()?, sharpness: sharpness.transpose()? })
    }
}

impl Backend for CandleBackend {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn device_name(&self) -> String {
        device_name(&self.device)
    }

    fn n_threads(&self) -> usize {
        candle_core::utils::get_num_threads()
    }

    fn forward(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, BackendError> {
        let device = self.device.clone();
        (self.logits, self.states) = device.with_context(|| self.compute_logits(batch))?;
        Ok(Logits::new(&self.logits, self.spec.vocab_size, &self.states, self.spec.hidden_size))
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.kv.iter_mut().try_for_each(|kv| kv.copy_block(from, to))
    }
}

/// Rows of the batch's matrix for which logits are wanted.
fn logit_rows(batch: &[BatchEntry<'_>]) -> Vec<u32> {
    let mut first_row = 0;
    let mut rows = Vec::new();
    for entry in batch {
        rows.extend(entry.logits.clone().map(|index| (first_row + index) as u32));
        first_row += entry.tokens.len();
    }
    rows
}

/// Queries `[n_heads, n_tokens, head_dim]`, keys and values `[n_tokens, n_kv_heads · head_dim]`.
fn project(
    spec: &DecoderSpec,
    layer: &LayerWeights,
    normed: &Tensor,
    rotation: Option<&Rotation>,
) -> Result<(Tensor, Tensor, Tensor), BackendError> {
    let (query_width, kv_width) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
    let (queries, keys, values) = match &layer.attention_input {
        AttentionProjections::Split { query, key, value } => {
            (query.forward(normed)?, key.forward(normed)?, value.forward(normed)?)
        }
        AttentionProjections::Fused(all) => {
            let all = all.forward(normed)?;
            let part = |start, width| all.narrow(D::Minus1, start, width);
            (part(0, query_width)?, part(query_width, kv_width)?, part(query_width + kv_width, kv_width)?)
        }
    };
    let queries = heads(spec, &queries, layer.query_norm.as_ref(), rotation)?;
    let keys = heads(spec, &keys, layer.key_norm.as_ref(), rotation)?;
    Ok((queries, keys.transpose(0, 1)?.flatten_from(1)?, values))
}

/// `[n_tokens, n_heads · head_dim]` to `[n_heads, n_tokens, head_dim]`: normed, all heads together or each by itself as
/// the weight is wide, and rotated.
fn heads(
    spec: &DecoderSpec,
    rows: &Tensor,
    weight: Option<&Tensor>,
    rotation: Option<&Rotation>,
) -> Result<Tensor, BackendError> {
    let (n_tokens, width) = rows.dims2()?;
    let normed_width = weight.map_or(Ok(width), |weight| weight.dim(0))?;
    let normed = norm(spec, &rows.contiguous()?.reshape((n_tokens, width / normed_width, normed_width))?, weight)?;
    let split = normed.reshape((n_tokens, width / spec.head_dim, spec.head_dim))?;
    let split = split.transpose(0, 1)?.contiguous()?;
    rotation.map_or(Ok(split.clone()), |rotation| rotation.apply(&split))
}

/// Norms rows if there is a weight.
fn norm(spec: &DecoderSpec, rows: &Tensor, weight: Option<&Tensor>) -> Result<Tensor, BackendError> {
    match weight {
        Some(weight) => Ok(rms_norm(rows, weight, spec.norm_epsilon)?),
        None => Ok(rows.clone()),
    }
}

/// Adds what attention or feed-forward computed to the residual stream, normed and scaled if the model does so.
fn add_branch(
    spec: &DecoderSpec,
    hidden: &Tensor,
    branch: &Tensor,
    weight: Option<&Tensor>,
) -> Result<Tensor, BackendError> {
    Ok((hidden + scale(norm(spec, branch, weight)?, spec.branch_scale)?)?)
}

fn feed_forward(spec: &DecoderSpec, layer: &LayerWeights, normed: &Tensor) -> Result<Tensor, BackendError> {
    let (gate, up) = match &layer.ffn_input {
        GatedProjections::Split { gate, up } => (gate.forward(normed)?, up.forward(normed)?),
        GatedProjections::Fused(all) => {
            let all = all.forward(normed)?;
            (all.narrow(D::Minus1, 0, spec.ffn_size)?, all.narrow(D::Minus1, spec.ffn_size, spec.ffn_size)?)
        }
    };
    let gate = match spec.activation {
        Activation::Silu => gate.silu()?,
        Activation::GeluTanh => gate.gelu()?,
    };
    layer.ffn_output.forward(&(gate * up)?)
}

fn scale(values: Tensor, factor: Option<f32>) -> Result<Tensor, BackendError> {
    match factor {
        Some(factor) => Ok((values * f64::from(factor))?),
        None => Ok(values),
    }
}

fn soft_cap(values: Tensor, cap: Option<f32>) -> Result<Tensor, BackendError> {
    match cap {
        Some(cap) => Ok(((values / f64::from(cap))?.tanh()? * f64::from(cap))?),
        None => Ok(values),
    }
}

/// Cosine and sine `[n_tokens, n_pairs]` of the tokens of a batch.
struct Rotation {
    pairs: RopePairs,
    cosine: Tensor,
    sine: Tensor,
}

impl Rotation {
    fn new(table: &RopeTable, positions: &[usize], device: &Device) -> Result<Self, BackendError> {
        let n_pairs = table.inverse_frequencies.len();
        let angles = positions
            .iter()
            .flat_map(|position| table.inverse_frequencies.iter().map(move |frequency| *position as f32 * frequency));
        let (sine, cosine): (Vec<f32>, Vec<f32>) =
            angles.map(|angle| (angle.sin() * table.magnitude, angle.cos() * table.magnitude)).unzip();
        let shape = (positions.len(), n_pairs);
        Ok(Rotation {
            pairs: table.pairs,
            cosine: Tensor::from_vec(cosine, shape, device)?,
            sine: Tensor::from_vec(sine, shape, device)?,
        })
    }

    /// Rotates `[n_heads, n_tokens, head_dim]`.
    fn apply(&self, heads: &Tensor) -> Result<Tensor, BackendError> {
        let (head_dim, rotated_dims) = (heads.dim(D::Minus1)?, 2 * self.cosine.dim(1)?);
        if rotated_dims == head_dim {
            return self.rotate(heads);
        }
        let rotated = self.rotate(&heads.narrow(D::Minus1, 0, rotated_dims)?.contiguous()?)?;
        let kept = heads.narrow(D::Minus1, rotated_dims, head_dim - rotated_dims)?;
        Ok(Tensor::cat(&[&rotated, &kept], D::Minus1)?)
    }

    fn rotate(&self, heads: &Tensor) -> Result<Tensor, BackendError> {
        let batch = heads.unsqueeze(0)?;
        let rotated = match self.pairs {
            RopePairs::Neighbours => candle_nn::rotary_emb::rope_i(&batch, &self.cosine, &self.sine)?,
            RopePairs::Halves => candle_nn::rotary_emb::rope(&batch, &self.cosine, &self.sine)?,
        };
        Ok(rotated.i(0)?)
    }
}
