//! Reads the composition of each layer from the metadata's numbers and arrays.

use super::architecture::{ArchitectureRow, RecurrentLayers, Windows};
use super::keys::Keys;
use super::{
    AttentionSpec, DenseSpec, ExpertsSpec, Gating, KeysAndValues, LayerSpec, Mixer, QkNorm, RecurrentSpec, RopeTable,
    Sharpening, SpecError, Window, rope,
};
use crate::gguf::GgufError;

/// The layers, and the tables that they refer to.
pub(super) struct Layers {
    pub(super) layers: Vec<LayerSpec>,
    pub(super) head: Option<LayerSpec>,
    pub(super) ropes: Vec<RopeTable>,
    /// Multiplies query–key products unless the metadata says otherwise.
    pub(super) attention_scale: f32,
}

/// Sizes and choices of all layers, before they are put together.
struct LayerSizes {
    n_heads: Vec<usize>,
    n_kv_heads: Vec<usize>,
    ffn_widths: Option<Vec<usize>>,
    windows: Vec<Option<Window>>,
    head_dim: usize,
    /// The width of a head in layers with a window.
    local_head_dim: usize,
    /// In every n-th layer positions are not rotated.
    unrotated_period: Option<usize>,
}

pub(super) fn read(
    keys: &Keys<'_>,
    row: &ArchitectureRow,
    hidden_size: usize,
    experts: Option<&ExpertsSpec>,
    context_length: usize,
) -> Result<Layers, SpecError> {
    let n_blocks = keys.size("block_count", 1..=1024)?;
    let n_predicting = keys.optional_size("nextn_predict_layers", 0..=1024)?.unwrap_or(0);
    let n_layers = n_blocks.checked_sub(n_predicting).filter(|n_layers| *n_layers > 0).ok_or_else(|| {
        keys.invalid("nextn_predict_layers", format!("is {n_predicting}: it must be less than the {n_blocks} blocks"))
    })?;
    let sizes = sizes(keys, row, hidden_size, n_layers)?;
    let ropes = rope::tables(keys, row, sizes.head_dim, sizes.local_head_dim, context_length)?;
    let mut layers = Vec::with_capacity(n_layers);
    for index in 0..n_layers {
        let mixer = match recurrence(keys, row, &sizes, index)? {
            Some(recurrent) => Mixer::Recurrent(recurrent),
            None => Mixer::Attention(attention(keys, row, &sizes, experts, ropes.len(), index)?),
        };
        let has_experts = experts.is_some() && keys.has_tensor(index, "ffn_gate_inp.weight");
        layers.push(LayerSpec { mixer, dense: dense(keys, &sizes, experts, index, has_experts)?, has_experts });
    }
    share_keys_and_values(keys, &mut layers)?;
    let head = if n_predicting > 0 { head(keys, &sizes, experts, &layers)? } else { None };
    let scale_dim = match row.wide_scale_layers {
        Some(n) if n == n_layers => hidden_size / sizes.n_heads[0].max(1),
        _ => sizes.head_dim,
    };
    let attention_scale = if row.unscaled_attention { 1.0 } else { (scale_dim as f32).sqrt().recip() };
    Ok(Layers { layers, head, ropes, attention_scale })
}

/// The first block after the layers, if it is a head. Only the heads of delta nets are used: their input from the
/// position before is kept with the states.
fn head(
    keys: &Keys<'_>,
    sizes: &LayerSizes,
    experts: Option<&ExpertsSpec>,
    layers: &[LayerSpec],
) -> Result<Option<LayerSpec>, SpecError> {
    let index = layers.len();
    let parts = ["nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", "attn_q.weight"];
    let is_complete = parts.iter().all(|part| keys.has_tensor(index, part));
    let is_delta_net = |layer: &LayerSpec| matches!(layer.recurrence(), Some(RecurrentSpec::DeltaNet { .. }));
    let Some(attention) = layers.iter().rev().find_map(LayerSpec::attention) else { return Ok(None) };
    if !is_complete || !layers.iter().any(is_delta_net) {
        return Ok(None);
    }
    let has_experts = experts.is_some() && keys.has_tensor(index, "ffn_gate_inp.weight");
    let dense = dense(keys, sizes, experts, index, has_experts)?;
    let attention = AttentionSpec { keys_and_values: KeysAndValues::Own, ..*attention };
    Ok(Some(LayerSpec { mixer: Mixer::Attention(attention), dense, has_experts }))
}

fn sizes(keys: &Keys<'_>, row: &ArchitectureRow, hidden_size: usize, n_layers: usize) -> Result<LayerSizes, SpecError> {
    let head_count = "attention.head_count";
    let n_heads = keys.sizes(head_count, n_layers, 1..=4096)?.ok_or_else(|| keys.missing(head_count))?;
    let least_kv_heads = if row.recurrence.is_some() { 0 } else { 1 };
    let n_kv_heads = keys.sizes("attention.head_count_kv", n_layers, least_kv_heads..=4096)?;
    let chunked_without_window = matches!(row.windows, Windows::RotatedChunks(_))
        && keys.optional_size("attention.sliding_window", 0..=1 << 28)? == Some(0);
    let head_dim = head_dim(keys, "", hidden_size / n_heads[0])?;
    Ok(LayerSizes {
        n_kv_heads: n_kv_heads.unwrap_or_else(|| n_heads.clone()),
        ffn_widths: keys.sizes("feed_forward_length", n_layers, 0..=1 << 22)?,
        windows: windows(keys, row, n_layers)?,
        head_dim,
        local_head_dim: self::head_dim(keys, "_swa", head_dim)?,
        unrotated_period: row.unrotated_period.filter(|_| !chunked_without_window),
        n_heads,
    })
}

fn head_dim(keys: &Keys<'_>, suffix: &str, default: usize) -> Result<usize, SpecError> {
    let (key_length, value_length) =
        (format!("attention.key_length{suffix}"), format!("attention.value_length{suffix}"));
    let head_dim = keys.optional_size(&key_length, 1..=1 << 16)?.unwrap_or(default);
    if keys.optional_size(&value_length, 1..=1 << 16)?.is_some_and(|length| length != head_dim) {
        let reason = format!("differs from the key length {head_dim}, which is not supported");
        return Err(keys.invalid(&value_length, reason));
    }
    if head_dim == 0 || head_dim % 2 != 0 {
        return Err(keys.invalid(&key_length, format!("is {head_dim}: a head's width must be even")));
    }
    Ok(head_dim)
}

/// The window of every layer.
fn windows(keys: &Keys<'_>, row: &ArchitectureRow, n_layers: usize) -> Result<Vec<Option<Window>>, SpecError> {
    let window = keys.optional_size("attention.sliding_window", 0..=1 << 28)?;
    let pattern = "attention.sliding_window_pattern";
    let (window, default_period) = match row.windows {
        Windows::Never => return Ok(vec![None; n_layers]),
        Windows::AllButEvery(period) => (window.filter(|window| *window > 0).map(Window::Sliding), period),
        // The length is not in the files. A window of 0 means that there are no chunks.
        Windows::RotatedChunks(length) => {
            let chunks = Some(Window::Chunk(length)).filter(|_| window != Some(0));
            (chunks, row.unrotated_period.unwrap_or(1))
        }
    };
    let has_window = match keys.truths(pattern, n_layers)? {
        Some(has_window) => has_window,
        None => {
            let period = keys.optional_size(pattern, 1..=1024)?.unwrap_or(default_period);
            (1..=n_layers).map(|ordinal| !ordinal.is_multiple_of(period)).collect()
        }
    };
    Ok(has_window.into_iter().map(|has_window| window.filter(|_| has_window)).collect())
}

fn attention(
    keys: &Keys<'_>,
    row: &ArchitectureRow,
    sizes: &LayerSizes,
    experts: Option<&ExpertsSpec>,
    n_ropes: usize,
    index: usize,
) -> Result<AttentionSpec, SpecError> {
    let (n_heads, n_kv_heads, window) = (sizes.n_heads[index], sizes.n_kv_heads[index], sizes.windows[index]);
    if n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
        let reason = format!("is {n_kv_heads}, which does not divide the {n_heads} query heads");
        return Err(keys.invalid("attention.head_count_kv", reason));
    }
    let is_unrotated = sizes.unrotated_period.is_some_and(|period| (index + 1).is_multiple_of(period));
    let rotates = !is_unrotated && (!row.multipliers || keys.boolean("rope.scaling.finetuned")?.unwrap_or(true));
    // Where layers compute keys, but no values, the values are the keys.
    let lacks_values = row.value_norm && !keys.has_tensor(index, "attn_v.weight");
    Ok(AttentionSpec {
        n_heads,
        n_kv_heads,
        head_dim: if window.is_some() { sizes.local_head_dim } else { sizes.head_dim },
        window,
        rope: rotates.then_some(if window.is_some() { n_ropes - 1 } else { 0 }),
        keys_and_values: if lacks_values { KeysAndValues::ValuesAreKeys } else { KeysAndValues::Own },
        qk_norm: qk_norm(row, experts, rotates),
        sharpening: sharpening(keys, row, rotates)?,
    })
}

/// Llama 4's larger variant, the one with 128 experts, does without the norm.
fn qk_norm(row: &ArchitectureRow, experts: Option<&ExpertsSpec>, rotates: bool) -> Option<QkNorm> {
    row.qk_norm.filter(|norm| match norm {
        QkNorm::BareAfterRotation => rotates && experts.is_none_or(|experts| experts.n_experts != 128),
        QkNorm::PerHead | QkNorm::Whole => true,
    })
}

fn sharpening(keys: &Keys<'_>, row: &ArchitectureRow, rotates: bool) -> Result<Option<Sharpening>, SpecError> {
    if row.sharpened_unrotated {
        // Llama 4's figures, which are not in its files.
        return Ok((!rotates).then_some(Sharpening { rate: 0.1, interval: 8192, offset: 1 }));
    }
    let Some(rate) = keys.multiplier("attention.temperature_scale")? else { return Ok(None) };
    let interval = match keys.optional_size("attention.temperature_length", 1..=1 << 28)? {
        Some(interval) => interval,
        None => keys.size("rope.scaling.original_context_length", 1..=1 << 28)?,
    };
    Ok(Some(Sharpening { rate, interval, offset: 0 }))
}

/// The last layers may read keys and values of the last layer of their kind before them, with a window or without.
fn share_keys_and_values(keys: &Keys<'_>, layers: &mut [LayerSpec]) -> Result<(), SpecError> {
    let key = "attention.shared_kv_layers";
    let n_shared = keys.optional_size(key, 0..=1024)?.unwrap_or(0);
    let Some(n_own) = layers.len().checked_sub(n_shared).filter(|n_own| n_shared == 0 || *n_own > 1) else {
        return Err(keys.invalid(key, format!("is {n_shared} of {} layers: two must have their own", layers.len())));
    };
    for index in n_own..layers.len() {
        let Mixer::Attention(attention) = layers[index].mixer else { continue };
        let source = if attention.window.is_some() { n_own - 2 } else { n_own - 1 };
        let fits = layers[source].attention().is_some_and(|owner| {
            owner.window == attention.window
                && (owner.n_kv_heads, owner.head_dim) == (attention.n_kv_heads, attention.head_dim)
        });
        if !fits {
            let reason =
                format!("is {n_shared}: layer {index} would share what layer {source} computes, which does not fit");
            return Err(keys.invalid(key, reason));
        }
        let keys_and_values = KeysAndValues::OfLayer(source);
        layers[index].mixer = Mixer::Attention(AttentionSpec { keys_and_values, ..attention });
    }
    Ok(())
}

fn recurrence(
    keys: &Keys<'_>,
    row: &ArchitectureRow,
    sizes: &LayerSizes,
    index: usize,
) -> Result<Option<RecurrentSpec>, SpecError> {
    let has_no_heads = sizes.n_kv_heads[index] == 0;
    match row.recurrence {
        Some(RecurrentLayers::ShortConvolution) if has_no_heads => {
            let n_taps = keys.size("shortconv.l_cache", 1..=16)?;
            Ok(Some(RecurrentSpec::ShortConvolution { n_taps }))
        }
        Some(RecurrentLayers::Mamba2) if has_no_heads => mamba(keys).map(Some),
        Some(RecurrentLayers::DeltaNet) if is_delta_net(keys, sizes, index)? => delta_net(keys).map(Some),
        _ => Ok(None),
    }
}

fn is_delta_net(keys: &Keys<'_>, sizes: &LayerSizes, index: usize) -> Result<bool, SpecError> {
    if let Some(is_recurrent) = keys.truths("attention.recurrent_layers", sizes.n_heads.len())? {
        return Ok(is_recurrent[index]);
    }
    let interval = keys.optional_size("full_attention_interval", 1..=1024)?.unwrap_or(4);
    Ok(!(index + 1).is_multiple_of(interval))
}

fn delta_net(keys: &Keys<'_>) -> Result<RecurrentSpec, SpecError> {
    let n_key_heads = keys.size("ssm.group_count", 1..=4096)?;
    let n_value_heads = keys.size("ssm.time_step_rank", 1..=4096)?;
    let head_dim = keys.size("ssm.state_size", 1..=1024)?;
    if !n_value_heads.is_multiple_of(n_key_heads) {
        let reason = format!("is {n_value_heads}, which is no multiple of the {n_key_heads} key heads");
        return Err(keys.invalid("ssm.time_step_rank", reason));
    }
    let inner_size = keys.size("ssm.inner_size", 1..=1 << 22)?;
    if inner_size != n_value_heads * head_dim {
        let reason = format!("is {inner_size} where {n_value_heads} value heads of {head_dim} are expected");
        return Err(keys.invalid("ssm.inner_size", reason));
    }
    Ok(RecurrentSpec::DeltaNet { n_taps: keys.size("ssm.conv_kernel", 1..=16)?, n_key_heads, n_value_heads, head_dim })
}

fn mamba(keys: &Keys<'_>) -> Result<RecurrentSpec, SpecError> {
    let n_heads = keys.size("ssm.time_step_rank", 1..=4096)?;
    let n_groups = keys.size("ssm.group_count", 1..=4096)?;
    let inner_size = keys.size("ssm.inner_size", 1..=1 << 22)?;
    if !n_heads.is_multiple_of(n_groups) || !inner_size.is_multiple_of(n_heads) {
        let reason = format!("is {n_heads}: it must be a multiple of {n_groups} groups and divide {inner_size}");
        return Err(keys.invalid("ssm.time_step_rank", reason));
    }
    let state_size = keys.size("ssm.state_size", 1..=1024)?;
    Ok(RecurrentSpec::Mamba2 {
        n_taps: keys.size("ssm.conv_kernel", 1..=16)?,
        n_heads,
        n_groups,
        state_size,
        inner_size,
    })
}

/// The model's experts, if it has any.
pub(super) fn experts(keys: &Keys<'_>, row: &ArchitectureRow) -> Result<Option<ExpertsSpec>, SpecError> {
    let n_experts = keys.optional_size("expert_count", 0..=4096)?.unwrap_or(0);
    if n_experts == 0 {
        return Ok(None);
    }
    let width = match keys.optional_size(row.experts.width, 1..=1 << 22)? {
        Some(width) => width,
        None => keys.size("expert_feed_forward_length", 1..=1 << 22)?,
    };
    if keys.optional_size("expert_group_count", 0..=4096)?.is_some_and(|n_groups| n_groups > 1) {
        return Err(SpecError::Gguf(GgufError::Unsupported {
            what: "a mixture of groups of experts".into(),
            supported: "experts without groups".into(),
        }));
    }
    Ok(Some(ExpertsSpec {
        n_experts,
        n_used: keys.size("expert_used_count", 1..=n_experts)?,
        width,
        gating: gating(keys)?.unwrap_or(row.experts.gating),
        is_normalized: keys.boolean("expert_weights_norm")?.unwrap_or(row.experts.is_normalized),
        scale: keys.multiplier("expert_weights_scale")?.unwrap_or(1.0),
        weighs_input: row.experts.weighs_input,
    }))
}

/// The numbers are those of llama.cpp's `llama_expert_gating_func_type`.
fn gating(keys: &Keys<'_>) -> Result<Option<Gating>, SpecError> {
    let number = keys.optional_size("expert_gating_func", 0..=3)?;
    Ok(number
        .and_then(|number| [None, Some(Gating::Softmax), Some(Gating::Sigmoid), Some(Gating::SoftmaxOfChosen)][number]))
}

/// A layer with experts has a dense part if its tensors exist, as a shared expert or under the usual names.
fn dense(
    keys: &Keys<'_>,
    sizes: &LayerSizes,
    experts: Option<&ExpertsSpec>,
    index: usize,
    has_experts: bool,
) -> Result<Option<DenseSpec>, SpecError> {
    if let Some(experts) = experts.filter(|_| has_experts) {
        if keys.has_tensor(index, "ffn_up_shexp.weight") {
            let width = keys.optional_size("expert_shared_feed_forward_length", 0..=1 << 22)?;
            let width = width.filter(|width| *width > 0).unwrap_or(experts.width);
            return Ok(Some(DenseSpec { width, is_shared_expert: true }));
        }
        if !keys.has_tensor(index, "ffn_up.weight") {
            return Ok(None);
        }
    }
    let key = "feed_forward_length";
    // A head is as wide as the last layer.
    match sizes.ffn_widths.as_ref().and_then(|widths| widths.get(index).or(widths.last()).copied()) {
        Some(0) => Err(keys.invalid(key, "is 0: it must be 1 or more")),
        Some(width) => Ok(Some(DenseSpec { width, is_shared_expert: false })),
        None => Err(keys.missing(key)),
    }
}
