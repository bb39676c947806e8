//! The sizes and factors of an encoder, from its metadata.

use super::architecture::{EncoderActivation, EncoderRow, EncoderWindows, Norms, PositionKind};
use crate::decoder::SpecError;
use crate::decoder::keys::Keys;
use crate::gguf::Gguf;

/// The base of rotations for files that do not give one.
const DEFAULT_BASE: f32 = 10_000.0;

/// Sizes and factors of an encoder.
#[derive(Debug)]
pub(super) struct EncoderSizes {
    pub(super) width: usize,
    pub(super) inner: usize,
    pub(super) n_heads: usize,
    pub(super) n_kv_heads: usize,
    pub(super) head_dim: usize,
    /// Positions that it was trained for.
    pub(super) n_positions: usize,
    pub(super) epsilon: f32,
    pub(super) activation: EncoderActivation,
    pub(super) layers: Vec<LayerKind>,
}

/// The properties in which the layers of an encoder differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LayerKind {
    /// Tokens at most this far away are seen; `None` means all.
    pub(super) reach: Option<usize>,
    /// The base of the rotations, if there are any.
    pub(super) base: Option<f32>,
}

impl EncoderSizes {
    pub(super) fn read(gguf: &Gguf, row: &'static EncoderRow) -> Result<EncoderSizes, SpecError> {
        let keys = Keys { gguf, architecture: row.name };
        if keys.boolean("attention.causal")? == Some(true) {
            return Err(keys.invalid("attention.causal", "is true: an encoder's tokens see those after them, too"));
        }
        let width = keys.size("embedding_length", 1..=1 << 16)?;
        let n_heads = keys.size("attention.head_count", 1..=1024)?;
        let n_kv_heads = keys.optional_size("attention.head_count_kv", 1..=n_heads)?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            let reason = format!("is {n_kv_heads}: {n_heads} heads cannot be divided among them");
            return Err(keys.invalid("attention.head_count_kv", reason));
        }
        let n_layers = keys.size("block_count", 1..=1024)?;
        let norm = match row.norms {
            Norms::Layer { .. } => "attention.layer_norm_epsilon",
            Norms::Rms => "attention.layer_norm_rms_epsilon",
        };
        Ok(EncoderSizes {
            width,
            inner: keys.size("feed_forward_length", 1..=1 << 20)?,
            n_heads,
            n_kv_heads,
            head_dim: head_dim(&keys, row, width, n_heads)?,
            n_positions: keys.size("context_length", 3..=1 << 24)?,
            epsilon: keys.required_positive_float(norm)?,
            activation: activation(&keys, row)?,
            layers: layers(&keys, row, n_layers)?,
        })
    }
}

fn head_dim(keys: &Keys<'_>, row: &EncoderRow, width: usize, n_heads: usize) -> Result<usize, SpecError> {
    let key = "attention.key_length";
    let head_dim = match keys.optional_size(key, 1..=1 << 12)? {
        Some(head_dim) => head_dim,
        None if width.is_multiple_of(n_heads) => width / n_heads,
        None => {
            let reason = format!("is {n_heads}: {width} dimensions cannot be divided among them");
            return Err(keys.invalid("attention.head_count", reason));
        }
    };
    if keys.optional_size("attention.value_length", 1..=1 << 12)?.is_some_and(|value| value != head_dim) {
        return Err(keys.invalid("attention.value_length", format!("is not {head_dim}, as wide as keys are")));
    }
    if row.positions == PositionKind::Rotated {
        if !head_dim.is_multiple_of(2) {
            return Err(keys.invalid(key, format!("is {head_dim}: rotations work on pairs")));
        }
        let rotated = "rope.dimension_count";
        if keys.optional_size(rotated, 1..=1 << 12)?.is_some_and(|rotated| rotated != head_dim) {
            return Err(keys.invalid(rotated, format!("is not {head_dim}: parts of a head cannot be rotated")));
        }
    }
    Ok(head_dim)
}

fn activation(keys: &Keys<'_>, row: &EncoderRow) -> Result<EncoderActivation, SpecError> {
    let key = "hidden_activation";
    match keys.string(key)? {
        None => Ok(row.activation),
        Some("gelu") => Ok(EncoderActivation::Gelu),
        Some("silu") => Ok(EncoderActivation::Silu),
        Some(other) => Err(keys.invalid(key, format!("is {other:?}: gelu and silu are supported"))),
    }
}

fn layers(keys: &Keys<'_>, row: &EncoderRow, n_layers: usize) -> Result<Vec<LayerKind>, SpecError> {
    if keys.float("rope.scaling.factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(keys.invalid("rope.scaling.factor", "is not supported for this architecture"));
    }
    let is_rotated = row.positions == PositionKind::Rotated;
    let base = |key: &str| Ok::<_, SpecError>(is_rotated.then_some(keys.positive_float(key)?.unwrap_or(DEFAULT_BASE)));
    let whole = LayerKind { reach: None, base: base("rope.freq_base")? };
    let windows = windows(keys, row.windows, n_layers)?;
    let width = keys.optional_size("attention.sliding_window", 0..=1 << 24)?.unwrap_or(0);
    if width == 0 || !windows.contains(&true) {
        return Ok(vec![whole; n_layers]);
    }
    let window = LayerKind { reach: Some(width / 2), base: base("rope.freq_base_swa")? };
    Ok(windows.into_iter().map(|has_window| if has_window { window } else { whole }).collect())
}

/// The key holds a boolean for every layer, or the number of layers in a group.
fn windows(keys: &Keys<'_>, windows: EncoderWindows, n_layers: usize) -> Result<Vec<bool>, SpecError> {
    let key = "attention.sliding_window_pattern";
    let (default, without) = match windows {
        EncoderWindows::Never => return Ok(vec![false; n_layers]),
        EncoderWindows::AllButFirstOf(period) => (period, 0),
        EncoderWindows::AllButLastOf(period) => (period, usize::MAX),
    };
    if let Some(windows) = keys.truths(key, n_layers)? {
        return Ok(windows);
    }
    let period = keys.optional_size(key, 1..=1024)?.unwrap_or(default);
    Ok((0..n_layers).map(|layer| layer % period != without.min(period - 1)).collect())
}
