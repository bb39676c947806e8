//! Attention of the new tokens of every sequence over its part of the cache.

use candle_core::{D, DType, Tensor};
use candle_nn::ops::softmax_last_dim;

use super::kv_storage::KvStorage;
use super::sequence::SequenceView;
use super::soft_cap;
use crate::backend::BackendError;
use crate::decoder::DecoderSpec;

/// Attends with `queries` `[n_heads, n_tokens of all sequences, head_dim]`; returns `[n_tokens, n_heads · head_dim]`.
pub(super) fn attend(
    spec: &DecoderSpec,
    window: Option<usize>,
    kv: &KvStorage,
    views: &[SequenceView],
    queries: &Tensor,
) -> Result<Tensor, BackendError> {
    let mut row = 0;
    let mut attended = Vec::with_capacity(views.len());
    for view in views {
        let queries = queries.narrow(1, row, view.n_new())?;
        attended.push(attend_sequence(spec, window, kv, view, &queries)?);
        row += view.n_new();
    }
    Ok(Tensor::cat(&attended, 0)?)
}

fn attend_sequence(
    spec: &DecoderSpec,
    window: Option<usize>,
    kv: &KvStorage,
    view: &SequenceView,
    queries: &Tensor,
) -> Result<Tensor, BackendError> {
    let visible = view.visible(window);
    let (keys, values) = kv.read(view.blocks(), visible.first, visible.n_tokens)?;
    let (keys, values) = (kv_heads(spec, &keys)?, kv_heads(spec, &values)?);
    // The query heads of a group are stacked, so that they share keys and values without copies.
    let group = spec.n_heads / spec.n_kv_heads;
    let queries = queries.contiguous()?.reshape((spec.n_kv_heads, group * view.n_new(), spec.head_dim))?;
    let scores = (queries.matmul(&keys.t()?)? * f64::from(spec.attention_scale))?;
    let scores = soft_cap(scores, spec.attention_soft_cap)?;
    let scores = match &visible.mask {
        Some(mask) => scores
            .reshape((spec.n_kv_heads, group, view.n_new(), visible.n_tokens))?
            .broadcast_add(mask)?
            .reshape((spec.n_kv_heads, group * view.n_new(), visible.n_tokens))?,
        None => scores,
    };
    let attended = softmax_last_dim(&scores)?.matmul(&values)?;
    let attended = attended.reshape((spec.n_heads, view.n_new(), spec.head_dim))?;
    Ok(attended.transpose(0, 1)?.flatten_from(D::Minus2)?)
}

/// `[n_tokens, n_kv_heads · head_dim]` f16 to `[n_kv_heads, n_tokens, head_dim]` f32.
fn kv_heads(spec: &DecoderSpec, rows: &Tensor) -> Result<Tensor, BackendError> {
    let split = rows.reshape((rows.dim(0)?, spec.n_kv_heads, spec.head_dim))?;
    Ok(split.transpose(0, 1)?.to_dtype(DType::F32)?.contiguous()?)
}
