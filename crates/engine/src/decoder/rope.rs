//! Rotary position encoding, and the ways in which models stretch it over longer contexts.
//!
//! The rotation: <https://arxiv.org/abs/2104.09864>. YaRN: <https://arxiv.org/abs/2309.00071>. LongRoPE:
//! <https://arxiv.org/abs/2402.13753>. Llama 3's scaling is stored in its files as one divisor per frequency.

use super::architecture::{ArchitectureRow, LocalRope};
use super::keys::Keys;
use super::{RopePairs, SpecError};
use crate::gguf::GgufError;

/// A position encoding, ready for use: pair `i` of a head at position `p` is rotated by `p · inverse_frequencies[i]`
/// and multiplied by `magnitude`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeTable {
    /// Which elements form pairs.
    pub pairs: RopePairs,
    /// Radians per position, one for every pair; twice as many elements of a head are rotated, the rest stay unchanged.
    pub inverse_frequencies: Vec<f32>,
    /// Multiplies sine and cosine.
    pub magnitude: f32,
}

/// Makes a model's encodings: one, or a global and a local one if windowed layers have their own.
pub(super) fn tables(
    keys: &Keys<'_>,
    row: &ArchitectureRow,
    head_dim: usize,
    local_head_dim: usize,
    context_length: usize,
) -> Result<Vec<RopeTable>, SpecError> {
    let pairs = row.rope_pairs;
    let n_dims = rotated_dims(keys, "rope.dimension_count", head_dim)?.unwrap_or(head_dim);
    let base = keys.positive_float("rope.freq_base")?.unwrap_or(10_000.0);
    let scaling = Scaling::read(keys, n_dims, context_length)?;
    let (inverse_frequencies, magnitude) = scaling.apply(base, n_dims);
    let mut tables = vec![RopeTable { pairs, inverse_frequencies, magnitude }];
    let local_base = keys.positive_float("rope.freq_base_swa")?;
    let local_base = match row.local_rope {
        LocalRope::Same => {
            if let Some(local_base) = local_base.filter(|local_base| *local_base != base) {
                let (inverse_frequencies, magnitude) = scaling.apply(local_base, n_dims);
                tables.push(RopeTable { pairs, inverse_frequencies, magnitude });
            }
            return Ok(tables);
        }
        LocalRope::Unstretched => base,
        LocalRope::OwnBase(default) => local_base.unwrap_or(default),
    };
    // Without a number of their own, layers with heads of another width rotate all of them.
    let default_dims = if local_head_dim == head_dim { n_dims } else { local_head_dim };
    let local_dims = rotated_dims(keys, "rope.dimension_count_swa", local_head_dim)?.unwrap_or(default_dims);
    let inverse_frequencies = unscaled(local_base, local_dims);
    tables.push(RopeTable { pairs, inverse_frequencies, magnitude: 1.0 });
    Ok(tables)
}

fn rotated_dims(keys: &Keys<'_>, key: &str, head_dim: usize) -> Result<Option<usize>, SpecError> {
    let n_dims = keys.optional_size(key, 2..=head_dim)?;
    match n_dims {
        Some(n_dims) if n_dims % 2 != 0 => Err(keys.invalid(key, format!("is {n_dims}: it must be even"))),
        n_dims => Ok(n_dims),
    }
}

fn unscaled(base: f32, n_dims: usize) -> Vec<f32> {
    let frequency = |pair: usize| f64::from(base).powf(-2.0 * pair as f64 / n_dims as f64) as f32;
    (0..n_dims / 2).map(frequency).collect()
}

/// How frequencies are changed for contexts longer than those trained on.
enum Scaling {
    /// Not at all.
    None,
    /// All are divided by a factor.
    Linear(f32),
    /// High frequencies stay, low ones are divided, with a ramp between.
    Yarn(Yarn),
    /// Each is divided by its own factor.
    PerFrequency { factors: Vec<f32>, magnitude: f32 },
}

struct Yarn {
    factor: f32,
    original_context: f32,
    beta_fast: f32,
    beta_slow: f32,
    magnitude: f32,
}

impl Scaling {
    fn read(keys: &Keys<'_>, n_dims: usize, context_length: usize) -> Result<Self, SpecError> {
        if let Some(factors) = divisors(keys, "rope_freqs.weight", n_dims)? {
            return Ok(Scaling::PerFrequency { factors, magnitude: 1.0 });
        }
        if keys.gguf.tensor("rope_factors_long.weight").is_some() {
            return Self::read_long_rope(keys, n_dims, context_length);
        }
        let factor = match keys.positive_float("rope.scaling.factor")? {
            Some(factor) => factor,
            None => keys.positive_float("rope.scale_linear")?.unwrap_or(1.0),
        };
        match keys.string("rope.scaling.type")? {
            None if factor != 1.0 => Ok(Scaling::Linear(factor)),
            None | Some("none") => Ok(Scaling::None),
            Some("linear") => Ok(Scaling::Linear(factor)),
            Some("yarn") => Ok(Scaling::Yarn(Yarn::read(keys, factor)?)),
            Some(other) => Err(SpecError::Gguf(GgufError::Unsupported {
                what: format!("RoPE scaling {other:?} without factor tensors"),
                supported: "none, linear, yarn".into(),
            })),
        }
    }

    /// LongRoPE keeps two sets of factors: one for the context trained on, one for longer ones.
    fn read_long_rope(keys: &Keys<'_>, n_dims: usize, context_length: usize) -> Result<Self, SpecError> {
        let original_context =
            keys.optional_size("rope.scaling.original_context_length", 1..=1 << 28)?.unwrap_or(context_length);
        let is_long = context_length > original_context;
        let tensor = if is_long { "rope_factors_long.weight" } else { "rope_factors_short.weight" };
        let factors = divisors(keys, tensor, n_dims)?
            .ok_or_else(|| SpecError::Gguf(GgufError::invalid(format!("tensor {tensor:?}"), "is missing")))?;
        let magnitude = keys.positive_float("rope.scaling.attn_factor")?.unwrap_or(1.0);
        Ok(Scaling::PerFrequency { factors, magnitude })
    }

    fn apply(&self, base: f32, n_dims: usize) -> (Vec<f32>, f32) {
        let mut frequencies = unscaled(base, n_dims);
        match self {
            Scaling::None => (frequencies, 1.0),
            Scaling::Linear(factor) => {
                frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
                (frequencies, 1.0)
            }
            Scaling::Yarn(yarn) => {
                let (low, high) = yarn.ramp_bounds(base, n_dims);
                for (pair, frequency) in frequencies.iter_mut().enumerate() {
                    let kept = 1.0 - ((pair as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    *frequency = *frequency / yarn.factor * (1.0 - kept) + *frequency * kept;
                }
                (frequencies, yarn.magnitude)
            }
            Scaling::PerFrequency { factors, magnitude } => {
                frequencies.iter_mut().zip(factors).for_each(|(frequency, factor)| *frequency /= factor);
                (frequencies, *magnitude)
            }
        }
    }
}

impl Yarn {
    fn read(keys: &Keys<'_>, factor: f32) -> Result<Self, SpecError> {
        let original_context = keys.size("rope.scaling.original_context_length", 1..=1 << 28)?;
        let magnitude = keys.positive_float("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let stretched = |multiplier: f32| 1.0 + 0.1 * multiplier * factor.ln();
        let log_multiplier = keys.float("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
        Ok(Yarn {
            factor,
            original_context: original_context as f32,
            beta_fast: keys.positive_float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: keys.positive_float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            magnitude: magnitude * stretched(1.0) / stretched(log_multiplier),
        })
    }

    /// The pairs between which the ramp runs: those that turn `beta_fast` and `beta_slow` times over the context.
    fn ramp_bounds(&self, base: f32, n_dims: usize) -> (f32, f32) {
        let pair_with_turns = |turns: f32| {
            let ratio = self.original_context / (turns * 2.0 * std::f32::consts::PI);
            n_dims as f32 * ratio.ln() / (2.0 * base.ln())
        };
        let low = pair_with_turns(self.beta_fast).floor().max(0.0);
        let high = pair_with_turns(self.beta_slow).ceil().min(n_dims as f32 - 1.0);
        (low, high)
    }
}

/// Reads a tensor of one divisor per frequency.
fn divisors(keys: &Keys<'_>, name: &str, n_dims: usize) -> Result<Option<Vec<f32>>, SpecError> {
    let Some(tensor) = keys.gguf.tensor(name) else { return Ok(None) };
    let invalid = |reason: String| SpecError::Gguf(GgufError::invalid(format!("tensor {name:?}"), reason));
    if tensor.tensor_type != crate::gguf::TensorType::F32 || tensor.dimensions != [n_dims / 2] {
        let reason = format!("is {:?} {}: it must be [{}] F32", tensor.dimensions, tensor.tensor_type, n_dims / 2);
        return Err(invalid(reason));
    }
    let bytes = keys.gguf.tensor_bytes(tensor).chunks_exact(4);
    let factors: Vec<f32> = bytes.map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    if factors.iter().any(|factor| !factor.is_finite() || *factor <= 0.0) {
        return Err(invalid("holds a factor that is not a positive number".into()));
    }
    Ok(Some(factors))
}
