//! The decoder on candle: runs on any device candle supports, and is the reference that other backends are checked
//! against.
//!
//! All sequences of a step go through the linear layers together, as one matrix with a row per token; attention runs
//! sequence by sequence, each over its own part of the cache. Activations are f32, the cache is f16.

mod attention;
mod device;
mod feed_forward;
mod kv_storage;
mod linear;
mod sequence;
mod transcode;
mod weights;

use candle_core::{D, Device, IndexOp, Tensor};
use candle_nn::ops::rms_norm;

use super::tensors::MixerParts;
use super::{Backend, BackendError, BatchEntry, DeviceChoice, LoadProgress, Logits};
use crate::decoder::{AttentionSpec, DecoderSpec, KeysAndValues, LayerSpec, RopePairs, RopeTable, Sharpening};
use crate::gguf::Gguf;
use crate::kv_cache::BlockId;
use kv_storage::KvStorage;
use sequence::SequenceView;
use weights::{ModelWeights, rows_of};

use device::check_products;
#[cfg(feature = "cuda")]
pub(super) use device::no_cuda;
pub(super) use device::{device_name, open_device};

/// A decoder's weights and cache on a candle device.
pub(crate) struct CandleBackend {
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
    /// When the device cannot be used, the file's tensors do not match `spec`, or layers keep a state.
    pub(crate) fn load(
        gguf: &Gguf,
        spec: &DecoderSpec,
        device: DeviceChoice,
        progress: &LoadProgress,
    ) -> Result<Self, BackendError> {
        let device = open_device(device)?;
        check_products(&device)?;
        if spec.is_recurrent() {
            let reason = format!(
                "the candle backend does not compute the layers of {} that keep a state: use --backend native with \
                 --device cpu",
                spec.architecture
            );
            return Err(BackendError::Device(reason));
        }
        let weights = ModelWeights::load(gguf, spec, &device, progress)?;
        let kv_width = |layer: &LayerSpec| layer.attention().map_or(0, |attention| attention.kv_width());
        let kv = spec.layers.iter().map(|layer| KvStorage::new(kv_width(layer), &device)).collect();
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
        let positions = BatchPositions::new(&self.spec, batch, &self.device)?;
        let views = batch.iter().map(|entry| SequenceView::new(entry, &self.spec, &self.device));
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let own_inputs = self.own_inputs(&tokens, &hidden)?;
        let mut state = hidden.clone();
        for index in 0..self.spec.layers.len() {
            let own_input = own_inputs.as_ref().map(|inputs| inputs.i((.., index))?.contiguous()).transpose()?;
            hidden = self.layer(index, hidden, &positions, &views, own_input.as_ref())?;
            if index == self.spec.state_layer {
                state = hidden.clone();
            }
        }
        Ok((hidden, state))
    }

    /// The layers' own inputs `[n_tokens, n_layers, width]`, from the embeddings.
    fn own_inputs(&self, tokens: &[u32], hidden: &Tensor) -> Result<Option<Tensor>, BackendError> {
        let Some((parts, width)) = self.weights.layer_inputs.as_ref().zip(self.spec.layer_input_width) else {
            return Ok(None);
        };
        let shape = (tokens.len(), self.spec.layers.len(), width);
        let embedded = (rows_of(&parts.embeddings, tokens, &self.device)? * (width as f64).sqrt())?.reshape(shape)?;
        let projected = (parts.projection.forward(hidden)? * (self.spec.hidden_size as f64).sqrt().recip())?;
        let projected = rms_norm(&projected.reshape(shape)?, &parts.projection_norm, self.spec.norm_epsilon)?;
        Ok(Some(((embedded + projected)? * std::f64::consts::FRAC_1_SQRT_2)?))
    }

    fn layer(
        &mut self,
        index: usize,
        hidden: Tensor,
        positions: &BatchPositions,
        views: &[SequenceView],
        own_input: Option<&Tensor>,
    ) -> Result<Tensor, BackendError> {
        let spec = &self.spec;
        let layer = &self.weights.layers[index];
        let (Some(attention), MixerParts::Attention(parts)) = (spec.layers[index].attention(), &layer.mixer) else {
            unreachable!("layers with a state were refused")
        };
        let normed = norm(spec, &hidden, layer.mixer_norm.as_ref())?;
        let projected = attention::project(spec, attention, parts, &normed, positions)?;
        if let Some((keys, values)) = &projected.cached {
            self.kv[index].write(views, keys, values)?;
        }
        let kv = match attention.keys_and_values {
            KeysAndValues::OfLayer(source) => &self.kv[source],
            KeysAndValues::Own | KeysAndValues::ValuesAreKeys => &self.kv[index],
        };
        let attended = attention::attend(spec, attention, parts, kv, views, &projected)?;
        let attended = parts.output.forward(&attended)?;
        let hidden = add_branch(spec, &hidden, &attended, layer.post_mixer_norm.as_ref())?;
        let hidden = feed_forward::feed_forward(spec, layer, &hidden)?;
        feed_forward::add_own_input(spec, layer, hidden, own_input)
    }
}

/// Position data of a batch's tokens for the layers.
struct BatchPositions {
    positions: Vec<usize>,
    /// One for each of the model's position encodings.
    rotations: Vec<Rotation>,
}

impl BatchPositions {
    fn new(spec: &DecoderSpec, batch: &[BatchEntry<'_>], device: &Device) -> Result<Self, BackendError> {
        let positions: Vec<usize> =
            batch.iter().flat_map(|entry| entry.position..entry.position + entry.tokens.len()).collect();
        let rotations = spec.ropes.iter().map(|table| Rotation::new(table, &positions, device));
        Ok(BatchPositions { rotations: rotations.collect::<Result<_, _>>()?, positions })
    }

    /// Factors of the queries, `[n_tokens, 1]`.
    fn sharpness(&self, sharpening: Sharpening, device: &Device) -> Result<Tensor, BackendError> {
        let Sharpening { rate, interval, offset } = sharpening;
        let factor = |position: &usize| 1.0 + rate * (((position + offset) / interval) as f32).ln_1p();
        let factors = self.positions.iter().map(factor).collect();
        Ok(Tensor::from_vec(factors, (self.positions.len(), 1), device)?)
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
        // Layers that use an earlier layer's keys and values have written nothing.
        let has_cache = |layer: &LayerSpec| layer.attention().is_some_and(AttentionSpec::has_cache);
        let mut layers = self.spec.layers.iter().zip(&mut self.kv).filter(|(layer, _)| has_cache(layer));
        layers.try_for_each(|(_, kv)| kv.copy_block(from, to))
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

/// Norms rows if there is a weight.
fn norm(spec: &DecoderSpec, rows: &Tensor, weight: Option<&Tensor>) -> Result<Tensor, BackendError> {
    match weight {
        Some(weight) => Ok(rms_norm(rows, weight, spec.norm_epsilon)?),
        None => Ok(rows.clone()),
    }
}

/// Adds the output of attention or feed-forward to the residual stream, normed and scaled if the model does so.
fn add_branch(
    spec: &DecoderSpec,
    hidden: &Tensor,
    branch: &Tensor,
    weight: Option<&Tensor>,
) -> Result<Tensor, BackendError> {
    Ok((hidden + scale(norm(spec, branch, weight)?, spec.branch_scale)?)?)
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
