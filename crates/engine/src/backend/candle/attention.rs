//! Attention of the new tokens of every sequence over its part of the cache.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::ops::softmax_last_dim;

use super::kv_storage::KvStorage;
use super::soft_cap;
use crate::backend::{BackendError, BatchEntry};
use crate::decoder::DecoderSpec;
use crate::kv_cache::BlockId;

/// One sequence of a step: where its tokens stand, and what each of them may see. Made once per step, used by every
/// layer.
pub(super) struct SequenceView {
    blocks: Vec<BlockId>,
    position: usize,
    n_new: usize,
    /// Masks by window, made for those that the model has.
    masks: Vec<(Option<usize>, Visible)>,
}

/// The cached positions that any of the new tokens sees.
struct Visible {
    first: usize,
    n_tokens: usize,
    /// `[n_new, n_tokens]`, 0 or -inf, where not all of them see all.
    mask: Option<Tensor>,
}

impl SequenceView {
    pub(super) fn new(entry: &BatchEntry<'_>, spec: &DecoderSpec, device: &Device) -> Result<Self, BackendError> {
        let mut masks: Vec<(Option<usize>, Visible)> = Vec::new();
        for layer in &spec.layers {
            if masks.iter().all(|(window, _)| *window != layer.window) {
                masks.push((layer.window, Visible::new(entry, layer.window, device)?));
            }
        }
        let (position, n_new) = (entry.position, entry.tokens.len());
        Ok(SequenceView { blocks: entry.blocks.to_vec(), position, n_new, masks })
    }

    pub(super) fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn n_new(&self) -> usize {
        self.n_new
    }

    fn visible(&self, window: Option<usize>) -> &Visible {
        let (_, visible) = self.masks.iter().find(|(of, _)| *of == window).expect("every window has its mask");
        visible
    }
}

impl Visible {
    fn new(entry: &BatchEntry<'_>, window: Option<usize>, device: &Device) -> Result<Self, BackendError> {
        let n_new = entry.tokens.len();
        let end = entry.position + n_new;
        let first = first_visible(entry.position, window);
        let n_tokens = end - first;
        let mask = if n_new == 1 {
            None
        } else {
            let rows = entry.position..end;
            let values = rows.flat_map(|row| {
                let sees = first_visible(row, window)..=row;
                (first..end).map(move |column| if sees.contains(&column) { 0.0 } else { f32::NEG_INFINITY })
            });
            Some(Tensor::from_vec(values.collect(), (n_new, n_tokens), device)?)
        };
        Ok(Visible { first, n_tokens, mask })
    }
}

/// The first position that a token sees.
fn first_visible(position: usize, window: Option<usize>) -> usize {
    window.map_or(0, |window| (position + 1).saturating_sub(window))
}

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
        let queries = queries.narrow(1, row, view.n_new)?;
        attended.push(attend_sequence(spec, window, kv, view, &queries)?);
        row += view.n_new;
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
    let (keys, values) = kv.read(&view.blocks, visible.first, visible.n_tokens)?;
    let (keys, values) = (kv_heads(spec, &keys)?, kv_heads(spec, &values)?);
    // The query heads of one group stand one below the other, so that they share keys and values without copies.
    let group = spec.n_heads / spec.n_kv_heads;
    let queries = queries.contiguous()?.reshape((spec.n_kv_heads, group * view.n_new, spec.head_dim))?;
    let scores = (queries.matmul(&keys.t()?)? * f64::from(spec.attention_scale))?;
    let scores = soft_cap(scores, spec.attention_soft_cap)?;
    let scores = match &visible.mask {
        Some(mask) => scores
            .reshape((spec.n_kv_heads, group, view.n_new, visible.n_tokens))?
            .broadcast_add(mask)?
            .reshape((spec.n_kv_heads, group * view.n_new, visible.n_tokens))?,
        None => scores,
    };
    let attended = softmax_last_dim(&scores)?.matmul(&values)?;
    let attended = attended.reshape((spec.n_heads, view.n_new, spec.head_dim))?;
    Ok(attended.transpose(0, 1)?.flatten_from(D::Minus2)?)
}

/// `[n_tokens, n_kv_heads · head_dim]` f16 to `[n_kv_heads, n_tokens, head_dim]` f32.
fn kv_heads(spec: &DecoderSpec, rows: &Tensor) -> Result<Tensor, BackendError> {
    let split = rows.reshape((rows.dim(0)?, spec.n_kv_heads, spec.head_dim))?;
    Ok(split.transpose(0, 1)?.to_dtype(DType::F32)?.contiguous()?)
}
