//! One transformer decoder, described by data.
//!
//! A [`DecoderSpec`] is read from a file's metadata and says everything that a backend must know to run the model:
//! sizes, where the norms are placed, how positions are rotated, which layers see only a window. A new architecture is
//! a row in the table of [`architecture`](self) and not a new forward pass.
//!
//! Metadata keys and their meaning: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod architecture;
mod rope;

use thiserror::Error;

use crate::gguf::{Gguf, GgufError, Value};
use crate::kv_cache::KvFormat;
use architecture::{ArchitectureRow, LocalRope};
pub use hone_kernels::Activation;
pub use hone_kernels::step::RopePairs;
pub use rope::RopeTable;

/// Why a file's metadata does not describe a decoder that can be run.
#[derive(Debug, Error)]
pub enum SpecError {
    /// A value is missing, has the wrong type, or is not supported.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A key that every model needs is missing.
    #[error("metadata key {0:?} is missing: the file is not a complete model")]
    Missing(String),
}

/// Where RMS norms stand around attention and feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// Before each of the two.
    Before,
    /// Before each of the two, and after each before it is added to the residual stream.
    BeforeAndAfter,
    /// After each of the two, before it is added to the residual stream.
    After,
}

impl NormPlacement {
    /// Whether attention and feed-forward read the normed residual stream.
    pub fn is_before(self) -> bool {
        matches!(self, NormPlacement::Before | NormPlacement::BeforeAndAfter)
    }

    /// Whether what attention and feed-forward compute is normed.
    pub fn is_after(self) -> bool {
        matches!(self, NormPlacement::BeforeAndAfter | NormPlacement::After)
    }
}

/// How queries and keys are normed before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Each head by itself, all with the same weights.
    PerHead,
    /// All heads together.
    Whole,
}

/// Queries are multiplied by 1 + rate · ln(1 + ⌊position / interval⌋), so that attention stays sharp over long contexts
/// (<https://arxiv.org/abs/2501.19399>).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharpening {
    /// How fast the factor grows.
    pub rate: f32,
    /// Positions over which it stays the same.
    pub interval: usize,
}

/// One layer, where layers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// A token sees this many positions, including its own; `None` means all positions before it.
    pub window: Option<usize>,
    /// Index into [`DecoderSpec::ropes`]; `None` if positions are not rotated.
    pub rope: Option<usize>,
}

/// Everything that a backend must know to run a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Name of the architecture, as in `general.architecture`.
    pub architecture: &'static str,
    /// One entry per layer.
    pub layers: Vec<LayerSpec>,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub ffn_size: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; `n_heads` is a multiple.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Positions that the model was trained for.
    pub context_length: usize,
    /// Added to the mean square in RMS norms.
    pub norm_epsilon: f32,
    /// Where norms are placed.
    pub norm_placement: NormPlacement,
    /// How queries and keys are normed, if they are.
    pub qk_norm: Option<QkNorm>,
    /// Whether query, key and value weights are one tensor, in this order, and gate and up weights another.
    pub fused_projections: bool,
    /// Activation of the gate.
    pub activation: Activation,
    /// Position encodings; layers refer to them by index.
    pub ropes: Vec<RopeTable>,
    /// Multiplies query–key products before the softmax.
    pub attention_scale: f32,
    /// How queries grow with their position, if they do.
    pub sharpening: Option<Sharpening>,
    /// Attention scores x become cap · tanh(x / cap).
    pub attention_soft_cap: Option<f32>,
    /// Logits x become cap · tanh(x / cap).
    pub logit_soft_cap: Option<f32>,
    /// Multiplies the embeddings.
    pub embedding_scale: Option<f32>,
    /// Multiplies what attention and feed-forward add to the residual stream.
    pub branch_scale: Option<f32>,
    /// Multiplies the logits.
    pub logit_scale: Option<f32>,
    /// Whether the embedding matrix also makes the logits.
    pub tied_embeddings: bool,
}

impl DecoderSpec {
    /// The index of the layer after which the residual stream is a position's state: two thirds of the way through the
    /// model.
    pub fn state_layer(&self) -> usize {
        self.layers.len() * 2 / 3
    }

    /// Bytes per position in the KV cache: a key and a value in every layer.
    pub fn kv_bytes_per_position(&self, format: KvFormat) -> u64 {
        (2 * self.layers.len() * self.n_kv_heads * format.n_bytes(self.head_dim)) as u64
    }

    /// Reads a model's metadata. `context_length` is the number of positions to be used (`None`: those that the model
    /// was trained for); some position encodings depend on it.
    ///
    /// # Errors
    /// When the architecture is not supported, or a value is missing, of the wrong type or out of range.
    pub fn from_gguf(gguf: &Gguf, context_length: Option<usize>) -> Result<Self, SpecError> {
        let row = architecture::lookup(gguf)?;
        let keys = Keys { gguf, architecture: row.name };
        keys.refuse_experts()?;
        let n_layers = keys.size("block_count", 1..=1024)?;
        let hidden_size = keys.size("embedding_length", 1..=1 << 20)?;
        let n_heads = keys.size("attention.head_count", 1..=4096)?;
        let n_kv_heads = keys.optional_size("attention.head_count_kv", 1..=4096)?.unwrap_or(n_heads);
        let head_dim = head_dim(&keys, hidden_size, n_heads)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            let reason = format!("is {n_kv_heads}, which does not divide the {n_heads} query heads");
            return Err(keys.invalid("attention.head_count_kv", reason));
        }
        let trained_context = keys.size("context_length", 1..=1 << 28)?;
        let ropes = rope::tables(&keys, row, head_dim, context_length.unwrap_or(trained_context).min(trained_context))?;
        let scale_dim = if row.wide_scale_layers == Some(n_layers) { hidden_size / n_heads } else { head_dim };
        let embedding_scale = row.scaled_embeddings.then(|| (hidden_size as f32).sqrt());
        Ok(DecoderSpec {
            architecture: row.name,
            layers: layers(&keys, row, n_layers)?,
            hidden_size,
            ffn_size: keys.size("feed_forward_length", 1..=1 << 22)?,
            n_heads,
            n_kv_heads,
            head_dim,
            vocab_size: vocab_size(gguf)?,
            context_length: trained_context,
            norm_epsilon: keys.required_positive_float("attention.layer_norm_rms_epsilon")?,
            norm_placement: row.norm_placement,
            qk_norm: row.qk_norm,
            fused_projections: row.fused_projections,
            activation: row.activation,
            ropes,
            attention_scale: keys
                .multiplier(row, "attention.scale")?
                .unwrap_or_else(|| (scale_dim as f32).sqrt().recip()),
            sharpening: sharpening(&keys)?,
            attention_soft_cap: keys.soft_cap(row, "attn_logit_softcapping")?,
            logit_soft_cap: keys.soft_cap(row, "final_logit_softcapping")?,
            embedding_scale: keys.multiplier(row, "embedding_scale")?.or(embedding_scale),
            branch_scale: keys.multiplier(row, "residual_scale")?,
            logit_scale: keys.multiplier(row, "logit_scale")?.map(f32::recip),
            tied_embeddings: gguf.tensor("output.weight").is_none(),
        })
    }
}

fn head_dim(keys: &Keys<'_>, hidden_size: usize, n_heads: usize) -> Result<usize, SpecError> {
    let key_length = keys.optional_size("attention.key_length", 1..=1 << 16)?;
    let value_length = keys.optional_size("attention.value_length", 1..=1 << 16)?;
    let head_dim = key_length.unwrap_or(hidden_size / n_heads);
    if value_length.is_some_and(|length| length != head_dim) {
        let reason = format!("differs from the key length {head_dim}, which is not supported");
        return Err(keys.invalid("attention.value_length", reason));
    }
    if head_dim == 0 || head_dim % 2 != 0 {
        return Err(keys.invalid("attention.key_length", format!("is {head_dim}: a head's width must be even")));
    }
    Ok(head_dim)
}

fn layers(keys: &Keys<'_>, row: &ArchitectureRow, n_layers: usize) -> Result<Vec<LayerSpec>, SpecError> {
    let rotates = !row.multipliers || keys.boolean("rope.scaling.finetuned")?.unwrap_or(true);
    let is_unrotated = |index: usize| row.unrotated_period.is_some_and(|period| (index + 1).is_multiple_of(period));
    let local_rope = usize::from(row.local_rope != LocalRope::Same);
    let windows = windows(keys, row, n_layers)?.into_iter().enumerate();
    let layer = |(index, window): (usize, Option<usize>)| LayerSpec {
        window,
        rope: (rotates && !is_unrotated(index)).then_some(if window.is_some() { local_rope } else { 0 }),
    };
    Ok(windows.map(layer).collect())
}

/// The window of every layer.
fn windows(keys: &Keys<'_>, row: &ArchitectureRow, n_layers: usize) -> Result<Vec<Option<usize>>, SpecError> {
    let Some(default_period) = row.window_period else { return Ok(vec![None; n_layers]) };
    let window = keys.optional_size("attention.sliding_window", 0..=1 << 28)?.filter(|window| *window > 0);
    let key = "attention.sliding_window_pattern";
    let has_window = match keys.per_layer(key, n_layers)? {
        Some(has_window) => has_window,
        None => {
            let period = keys.optional_size(key, 1..=1024)?.unwrap_or(default_period);
            (1..=n_layers).map(|ordinal| !ordinal.is_multiple_of(period)).collect()
        }
    };
    Ok(has_window.into_iter().map(|has_window| window.filter(|_| has_window)).collect())
}

/// Only files whose positions were stretched say how queries grow: with the context before that as the interval.
fn sharpening(keys: &Keys<'_>) -> Result<Option<Sharpening>, SpecError> {
    let Some(rate) = keys.positive_float("attention.temperature_scale")? else { return Ok(None) };
    let interval = match keys.optional_size("attention.temperature_length", 1..=1 << 28)? {
        Some(interval) => interval,
        None => keys.size("rope.scaling.original_context_length", 1..=1 << 28)?,
    };
    Ok(Some(Sharpening { rate, interval }))
}

fn vocab_size(gguf: &Gguf) -> Result<usize, SpecError> {
    let embeddings = gguf.tensor("token_embd.weight").ok_or_else(|| {
        SpecError::Gguf(GgufError::invalid(
            "tensor \"token_embd.weight\"",
            "is missing: the file holds no model, perhaps only a vocabulary",
        ))
    })?;
    embeddings.dimensions.get(1).copied().ok_or_else(|| {
        SpecError::Gguf(GgufError::invalid("tensor \"token_embd.weight\"", "has one dimension where two are expected"))
    })
}

/// The metadata keys of one architecture.
struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn invalid(&self, key: &str, reason: impl Into<String>) -> SpecError {
        SpecError::Gguf(GgufError::invalid(self.name(key), reason))
    }

    fn optional_size(&self, key: &str, range: std::ops::RangeInclusive<usize>) -> Result<Option<usize>, SpecError> {
        let Some(number) = self.gguf.unsigned(&self.name(key))? else { return Ok(None) };
        match usize::try_from(number) {
            Ok(size) if range.contains(&size) => Ok(Some(size)),
            _ => Err(self.invalid(key, format!("is {number}: it must be {} to {}", range.start(), range.end()))),
        }
    }

    fn size(&self, key: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, SpecError> {
        self.optional_size(key, range)?.ok_or_else(|| SpecError::Missing(self.name(key)))
    }

    fn float(&self, key: &str) -> Result<Option<f32>, SpecError> {
        Ok(self.gguf.float(&self.name(key))?)
    }

    fn positive_float(&self, key: &str) -> Result<Option<f32>, SpecError> {
        match self.float(key)? {
            Some(number) if number <= 0.0 => Err(self.invalid(key, format!("is {number}: it must be positive"))),
            other => Ok(other),
        }
    }

    fn required_positive_float(&self, key: &str) -> Result<f32, SpecError> {
        self.positive_float(key)?.ok_or_else(|| SpecError::Missing(self.name(key)))
    }

    fn string(&self, key: &str) -> Result<Option<&str>, SpecError> {
        Ok(self.gguf.string(&self.name(key))?)
    }

    /// A factor; 0 stands for none.
    fn multiplier(&self, row: &ArchitectureRow, key: &str) -> Result<Option<f32>, SpecError> {
        match self.float(key)? {
            Some(number) if row.multipliers && number < 0.0 => {
                Err(self.invalid(key, format!("is {number}: it must be positive")))
            }
            number => Ok(number.filter(|number| row.multipliers && *number != 0.0)),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, SpecError> {
        Ok(self.gguf.boolean(&self.name(key))?)
    }

    /// A truth for every layer, if the key holds an array.
    fn per_layer(&self, key: &str, n_layers: usize) -> Result<Option<Vec<bool>>, SpecError> {
        let name = self.name(key);
        if !matches!(self.gguf.value(&name), Some(Value::Array(_))) {
            return Ok(None);
        }
        let Some(truths) = self.gguf.booleans(&name)? else { return Ok(None) };
        if truths.len() != n_layers {
            let reason = format!("has {} entries for {n_layers} layers", truths.len());
            return Err(self.invalid(key, reason));
        }
        Ok(Some(truths))
    }

    fn soft_cap(&self, row: &ArchitectureRow, key: &str) -> Result<Option<f32>, SpecError> {
        if row.soft_caps { self.positive_float(key) } else { Ok(None) }
    }

    fn refuse_experts(&self) -> Result<(), SpecError> {
        match self.gguf.unsigned(&self.name("expert_count"))? {
            None | Some(0) => Ok(()),
            Some(n_experts) => Err(SpecError::Gguf(GgufError::Unsupported {
                what: format!("a mixture of {n_experts} experts"),
                supported: "dense models".into(),
            })),
        }
    }
}
