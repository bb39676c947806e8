//! The feed-forward part of a layer: dense, a mixture of experts, or both.

use candle_core::{D, Tensor};
use candle_nn::ops::sigmoid;
use hone_kernels::step::RoutingOptions;

use super::weights::{Experts, LayerWeights, OnDevice};
use super::{add_branch, norm, scale};
use crate::backend::BackendError;
use crate::backend::tensors::{DenseParts, ExpertParts, GatedProjections};
use crate::decoder::{Activation, DecoderSpec, ExpertsSpec};

/// Adds the feed-forward part to the residual stream `[n_tokens, hidden_size]`.
pub(super) fn feed_forward(spec: &DecoderSpec, layer: &LayerWeights, hidden: &Tensor) -> Result<Tensor, BackendError> {
    let normed = norm(spec, hidden, layer.ffn_norm.as_ref())?;
    let dense_part = layer.dense.as_ref().map(|parts| dense(spec, parts, &normed)).transpose()?;
    let experts_part = match layer.experts.as_ref().zip(spec.experts) {
        Some((parts, experts)) => Some(mixture(spec, &experts, parts, hidden, &normed)?),
        None => None,
    };
    let fed = match (dense_part, experts_part) {
        (Some(dense), Some(experts)) => (dense + experts)?,
        (Some(fed), None) | (None, Some(fed)) => fed,
        (None, None) => return Ok(hidden.clone()),
    };
    add_branch(spec, hidden, &fed, layer.post_ffn_norm.as_ref())
}

fn dense(spec: &DecoderSpec, parts: &DenseParts<OnDevice>, normed: &Tensor) -> Result<Tensor, BackendError> {
    let (gate, up) = match &parts.input {
        GatedProjections::Split { gate, up } => (gate.forward(normed)?, up.forward(normed)?),
        GatedProjections::Fused(all) => halves(&all.forward(normed)?)?,
    };
    let fed = parts.output.forward(&gated(spec.activation, &gate, &up)?)?;
    let fed = match &parts.scalar_gate {
        Some(scalar) => fed.broadcast_mul(&sigmoid(&scalar.forward(normed)?)?)?,
        None => fed,
    };
    norm(spec, &fed, parts.post_norm.as_ref())
}

fn halves(rows: &Tensor) -> Result<(Tensor, Tensor), BackendError> {
    let width = rows.dim(D::Minus1)? / 2;
    Ok((rows.narrow(D::Minus1, 0, width)?, rows.narrow(D::Minus1, width, width)?))
}

fn gated(activation: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor, BackendError> {
    Ok(match activation {
        Activation::Silu => (gate.contiguous()?.silu()? * up)?,
        Activation::GeluTanh => (gate.contiguous()?.gelu()? * up)?,
        Activation::ClampedSilu => {
            let gate = gate.contiguous()?.minimum(7f32)?;
            let up = up.contiguous()?.clamp(-7f32, 7f32)?;
            ((&gate * sigmoid(&(&gate * 1.702)?)?)? * (up + 1.0)?)?
        }
    })
}

/// The weighted sum of the experts that each token chooses.
fn mixture(
    spec: &DecoderSpec,
    experts: &ExpertsSpec,
    parts: &ExpertParts<OnDevice>,
    hidden: &Tensor,
    normed: &Tensor,
) -> Result<Tensor, BackendError> {
    let router_input = match &parts.router_norm {
        Some(weight) => norm(spec, hidden, Some(weight))?,
        None => normed.clone(),
    };
    let input = match &parts.norm {
        Some(weight) => norm(spec, hidden, Some(weight))?,
        None => normed.clone(),
    };
    let mut sum = input.zeros_like()?;
    for (expert, chosen) in choices(experts, parts, &router_input)?.into_iter().enumerate() {
        if chosen.rows.is_empty() {
            continue;
        }
        let n_rows = chosen.rows.len();
        let rows = Tensor::from_vec(chosen.rows, n_rows, input.device())?;
        let weights = Tensor::from_vec(chosen.weights, (n_rows, 1), input.device())?;
        let mut read = input.index_select(&rows, 0)?;
        if experts.weighs_input {
            read = read.broadcast_mul(&weights)?;
        }
        let (gate, up) = match &parts.input {
            GatedProjections::Split { gate, up } => (gate.forward(expert, &read)?, up.forward(expert, &read)?),
            GatedProjections::Fused(all) => halves(&all.forward(expert, &read)?)?,
        };
        let mut fed = parts.output.forward(expert, &gated(spec.activation, &gate, &up)?)?;
        if !experts.weighs_input {
            fed = fed.broadcast_mul(&weights)?;
        }
        sum = sum.index_add(&rows, &fed, 0)?;
    }
    norm(spec, &sum, parts.post_norm.as_ref())
}

/// The rows that chose an expert, and their weights.
#[derive(Clone, Default)]
struct Chosen {
    rows: Vec<u32>,
    weights: Vec<f32>,
}

/// The choices, by expert.
fn choices(
    experts: &ExpertsSpec,
    parts: &ExpertParts<OnDevice>,
    router_input: &Tensor,
) -> Result<Vec<Chosen>, BackendError> {
    let ExpertsSpec { gating, is_normalized, scale, n_experts, n_used, .. } = *experts;
    let options = RoutingOptions { gating, is_normalized, scale };
    let vector = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::to_vec1::<f32>).transpose();
    let (bias, scales) = (vector(&parts.selection_bias)?, vector(&parts.output_scales)?);
    let mut by_expert = vec![Chosen::default(); n_experts];
    let mut choices = vec![0.0; 2 * n_used];
    for (row, mut logits) in parts.router.forward(router_input)?.to_vec2::<f32>()?.into_iter().enumerate() {
        options.choose(&mut logits, bias.as_deref(), scales.as_deref(), &mut choices);
        for slot in 0..n_used {
            let chosen = &mut by_expert[choices[slot] as usize];
            chosen.rows.push(row as u32);
            chosen.weights.push(choices[n_used + slot]);
        }
    }
    Ok(by_expert)
}

impl Experts {
    /// `[n_tokens, in]` to `[n_tokens, out]`, by one of the experts.
    fn forward(&self, expert: usize, rows: &Tensor) -> Result<Tensor, BackendError> {
        self.0[expert].forward(rows)
    }
}

/// Adds a layer's own input `[n_tokens, width]` to the residual stream.
pub(super) fn add_own_input(
    spec: &DecoderSpec,
    layer: &LayerWeights,
    hidden: Tensor,
    own: Option<&Tensor>,
) -> Result<Tensor, BackendError> {
    let hidden = match (&layer.own_input, own) {
        (Some(parts), Some(own)) => {
            let gated = (parts.gate.forward(&hidden)?.gelu()? * own)?;
            let branch = norm(spec, &parts.projection.forward(&gated)?, Some(&parts.post_norm))?;
            (hidden + branch)?
        }
        _ => hidden,
    };
    scale(hidden, layer.output_scale)
}
