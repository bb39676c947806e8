//! Attention of the new tokens of every sequence over its part of the cache.

use candle_core::{D, DType, Tensor};
use candle_nn::ops::{rms_norm, sigmoid, softmax_last_dim};

use super::kv_storage::KvStorage;
use super::sequence::SequenceView;
use super::weights::OnDevice;
use super::{BatchPositions, Rotation, norm, soft_cap};
use crate::backend::BackendError;
use crate::backend::tensors::{AttentionParts, AttentionProjections};
use crate::decoder::{AttentionSpec, DecoderSpec, QkNorm};

/// The outputs of a layer's products.
pub(super) struct Projected {
    /// `[n_heads, n_tokens, head_dim]`, ready for attention.
    pub(super) queries: Tensor,
    /// Keys and values, `[n_tokens, n_kv_heads · head_dim]`; `None` if they come from another layer.
    pub(super) cached: Option<(Tensor, Tensor)>,
    /// The gate of the output, `[n_tokens, n_heads · head_dim]`.
    gate: Option<Tensor>,
}

/// Computes queries, keys and values from the normed residual stream `[n_tokens, hidden_size]`.
pub(super) fn project(
    spec: &DecoderSpec,
    attention: &AttentionSpec,
    parts: &AttentionParts<OnDevice>,
    normed: &Tensor,
    positions: &BatchPositions,
) -> Result<Projected, BackendError> {
    let (query_width, kv_width) = (attention.query_width(), attention.kv_width());
    let (queries, keys, values) = match &parts.input {
        AttentionProjections::Split { query, key, value } => {
            let keys = key.as_ref().map(|key| key.forward(normed)).transpose()?;
            let values = value.as_ref().map(|value| value.forward(normed)).transpose()?;
            (query.forward(normed)?, keys.clone(), values.or(keys))
        }
        AttentionProjections::Fused(all) => {
            let all = all.forward(normed)?;
            let part = |start, width| all.narrow(D::Minus1, start, width);
            let keys = part(query_width, kv_width)?;
            (part(0, query_width)?, Some(keys), Some(part(query_width + kv_width, kv_width)?))
        }
    };
    let (queries, gate) = match spec.output_gate {
        true => unzip(attention, &queries)?,
        false => (queries, None),
    };
    let rotation = attention.rope.map(|rope| &positions.rotations[rope]);
    let queries = heads(spec, attention, &queries, parts.query_norm.as_ref(), rotation)?;
    let queries = match attention.sharpening {
        Some(sharpening) => queries.broadcast_mul(&positions.sharpness(sharpening, queries.device())?)?,
        None => queries,
    };
    let cached = match keys.zip(values) {
        Some((keys, values)) => {
            let keys = heads(spec, attention, &keys, parts.key_norm.as_ref(), rotation)?;
            Some((keys.transpose(0, 1)?.flatten_from(1)?, normed_values(spec, &values, parts.value_norm.as_ref())?))
        }
        None => None,
    };
    Ok(Projected { queries, cached, gate })
}

/// Separates queries and gates, which alternate head by head.
fn unzip(attention: &AttentionSpec, zipped: &Tensor) -> Result<(Tensor, Option<Tensor>), BackendError> {
    let n_tokens = zipped.dim(0)?;
    let pairs = zipped.reshape((n_tokens, attention.n_heads, 2 * attention.head_dim))?;
    let part = |start| pairs.narrow(2, start, attention.head_dim)?.contiguous()?.flatten_from(1);
    Ok((part(0)?, Some(part(attention.head_dim)?)))
}

fn normed_values(spec: &DecoderSpec, values: &Tensor, weight: Option<&Tensor>) -> Result<Tensor, BackendError> {
    let Some(weight) = weight else { return Ok(values.clone()) };
    let (n_tokens, width) = values.dims2()?;
    let head_dim = weight.dim(0)?;
    let split = values.contiguous()?.reshape((n_tokens, width / head_dim, head_dim))?;
    Ok(rms_norm(&split, weight, spec.norm_epsilon)?.flatten_from(1)?)
}

/// `[n_tokens, n_heads · head_dim]` to `[n_heads, n_tokens, head_dim]`: normed, over all heads together or over each,
/// depending on the weight's width, and rotated.
fn heads(
    spec: &DecoderSpec,
    attention: &AttentionSpec,
    rows: &Tensor,
    weight: Option<&Tensor>,
    rotation: Option<&Rotation>,
) -> Result<Tensor, BackendError> {
    let is_late = attention.qk_norm == Some(QkNorm::BareAfterRotation);
    let (early, late) = if is_late { (None, weight) } else { (weight, None) };
    let (n_tokens, width) = rows.dims2()?;
    let normed_width = early.map_or(Ok(width), |weight| weight.dim(0))?;
    let normed = norm(spec, &rows.contiguous()?.reshape((n_tokens, width / normed_width, normed_width))?, early)?;
    let split = normed.reshape((n_tokens, width / attention.head_dim, attention.head_dim))?;
    let split = split.transpose(0, 1)?.contiguous()?;
    let rotated = rotation.map_or(Ok(split.clone()), |rotation| rotation.apply(&split))?;
    norm(spec, &rotated, late)
}

/// Attends over the cache; returns `[n_tokens, n_heads · head_dim]`.
pub(super) fn attend(
    spec: &DecoderSpec,
    attention: &AttentionSpec,
    parts: &AttentionParts<OnDevice>,
    kv: &KvStorage,
    views: &[SequenceView],
    projected: &Projected,
) -> Result<Tensor, BackendError> {
    let mut row = 0;
    let mut attended = Vec::with_capacity(views.len());
    for view in views {
        let queries = projected.queries.narrow(1, row, view.n_new())?;
        attended.push(attend_sequence(spec, attention, parts.sinks.as_ref(), kv, view, &queries)?);
        row += view.n_new();
    }
    let attended = Tensor::cat(&attended, 0)?;
    match &projected.gate {
        Some(gate) => Ok((attended * sigmoid(gate)?)?),
        None => Ok(attended),
    }
}

fn attend_sequence(
    spec: &DecoderSpec,
    attention: &AttentionSpec,
    sinks: Option<&Tensor>,
    kv: &KvStorage,
    view: &SequenceView,
    queries: &Tensor,
) -> Result<Tensor, BackendError> {
    let AttentionSpec { n_heads, n_kv_heads, head_dim, window, .. } = *attention;
    let visible = view.visible(window);
    let (keys, values) = kv.read(view.blocks(), visible.first, visible.n_tokens)?;
    let (keys, values) = (kv_heads(attention, &keys)?, kv_heads(attention, &values)?);
    // The query heads of a group are stacked, so that they share keys and values without copies.
    let group = n_heads / n_kv_heads;
    let n_rows = group * view.n_new();
    let queries = queries.contiguous()?.reshape((n_kv_heads, n_rows, head_dim))?;
    let scores = (queries.matmul(&keys.t()?)? * f64::from(spec.attention_scale))?;
    let scores = soft_cap(scores, spec.attention_soft_cap)?;
    let scores = match &visible.mask {
        Some(mask) => scores
            .reshape((n_kv_heads, group, view.n_new(), visible.n_tokens))?
            .broadcast_add(mask)?
            .reshape((n_kv_heads, n_rows, visible.n_tokens))?,
        None => scores,
    };
    let weights = match sinks {
        Some(sinks) => {
            let column = sinks.reshape((n_kv_heads, group, 1))?.broadcast_as((n_kv_heads, group, view.n_new()))?;
            let column = column.contiguous()?.reshape((n_kv_heads, n_rows, 1))?;
            let weights = softmax_last_dim(&Tensor::cat(&[&scores, &column], D::Minus1)?)?;
            weights.narrow(D::Minus1, 0, visible.n_tokens)?.contiguous()?
        }
        None => softmax_last_dim(&scores)?,
    };
    let attended = weights.matmul(&values)?.reshape((n_heads, view.n_new(), head_dim))?;
    Ok(attended.transpose(0, 1)?.flatten_from(D::Minus2)?)
}

/// `[n_tokens, n_kv_heads · head_dim]` f16 to `[n_kv_heads, n_tokens, head_dim]` f32.
fn kv_heads(attention: &AttentionSpec, rows: &Tensor) -> Result<Tensor, BackendError> {
    let split = rows.reshape((rows.dim(0)?, attention.n_kv_heads, attention.head_dim))?;
    Ok(split.transpose(0, 1)?.to_dtype(DType::F32)?.contiguous()?)
}
