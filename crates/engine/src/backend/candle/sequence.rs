//! One sequence of a step, as attention and the cache see it.

use candle_core::{Device, Tensor};

use crate::backend::{BackendError, BatchEntry};
use crate::decoder::{AttentionSpec, DecoderSpec, LayerSpec, Window};
use crate::kv_cache::BlockId;

/// One sequence of a step: the positions of its tokens, and what each of them may see. Made once per step and used by
/// every layer.
pub(super) struct SequenceView {
    blocks: Vec<BlockId>,
    position: usize,
    n_new: usize,
    /// Masks by window size, one for each window the model uses.
    masks: Vec<(Option<Window>, Visible)>,
}

/// The cached positions that any of the new tokens sees.
pub(super) struct Visible {
    pub(super) first: usize,
    pub(super) n_tokens: usize,
    /// `[n_new, n_tokens]`, 0 or -inf; `None` if every token sees every position.
    pub(super) mask: Option<Tensor>,
}

impl SequenceView {
    pub(super) fn new(entry: &BatchEntry<'_>, spec: &DecoderSpec, device: &Device) -> Result<Self, BackendError> {
        let mut masks: Vec<(Option<Window>, Visible)> = Vec::new();
        for AttentionSpec { window, .. } in spec.layers.iter().filter_map(LayerSpec::attention) {
            if masks.iter().all(|(of, _)| of != window) {
                masks.push((*window, Visible::new(entry, *window, device)?));
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

    pub(super) fn visible(&self, window: Option<Window>) -> &Visible {
        let (_, visible) = self.masks.iter().find(|(of, _)| *of == window).expect("every window has its mask");
        visible
    }
}

impl Visible {
    fn new(entry: &BatchEntry<'_>, window: Option<Window>, device: &Device) -> Result<Self, BackendError> {
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
fn first_visible(position: usize, window: Option<Window>) -> usize {
    window.map_or(0, |window| window.first_visible(position))
}
