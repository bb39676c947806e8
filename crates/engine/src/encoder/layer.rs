//! One layer: attention in both directions, and a feed-forward part.

use candle_core::{Result as CandleResult, Tensor};
use candle_nn::ops::softmax_last_dim;
use candle_transformers::utils::repeat_kv;

use super::architecture::{EncoderActivation, EncoderRow, Gate, NormPlacement, Norms};
use super::positions::Positions;
use super::sizes::{EncoderSizes, LayerKind};
use super::tensors::{Linear, Norm};
use crate::gguf::Gguf;

/// Maximum number of tokens whose scores are computed at once; more gain nothing.
const MAX_QUERIES: usize = 256;

/// Maximum number of scores in memory at once, so that memory does not grow with the square of a text's length.
const MAX_SCORES: usize = 1 << 24;

pub(super) struct Layer {
    pub(super) kind: LayerKind,
    attention_norms: BranchNorms,
    query_key_value: Linear,
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
    output: Linear,
    feed_forward_norms: BranchNorms,
    up: Linear,
    gate: Option<Linear>,
    down: Linear,
}

/// The norms around attention, or around the feed-forward part.
#[derive(Default)]
struct BranchNorms {
    /// Norm of the input.
    before: Option<Norm>,
    /// Norm of the output.
    computed: Option<Norm>,
    /// Norm of the sum of both.
    sum: Option<Norm>,
}

impl BranchNorms {
    /// The states after the branch.
    fn around(&self, states: &Tensor, branch: impl FnOnce(&Tensor) -> CandleResult<Tensor>) -> CandleResult<Tensor> {
        let computed = match &self.before {
            Some(norm) => branch(&norm.apply(states)?)?,
            None => branch(states)?,
        };
        let computed = applied(&self.computed, computed)?;
        applied(&self.sum, (computed + states)?)
    }
}

fn applied(norm: &Option<Norm>, rows: Tensor) -> CandleResult<Tensor> {
    norm.as_ref().map_or(Ok(rows.clone()), |norm| norm.apply(&rows))
}

/// Number of texts, all of the same length, and number of tokens in each.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) n_texts: usize,
    pub(super) n_tokens: usize,
}

/// Reads the parts of one layer.
struct LayerReader<'a> {
    gguf: &'a Gguf,
    row: &'static EncoderRow,
    sizes: &'a EncoderSizes,
    index: usize,
}

impl LayerReader<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.index)
    }

    fn linear(&self, part: &str, shape: [usize; 2]) -> Result<Linear, String> {
        Linear::read(self.gguf, &self.name(part), shape, self.row.has_biases)
    }

    fn norm(&self, part: &str) -> Result<Option<Norm>, String> {
        self.norm_of(part, self.sizes.width, self.row.norms).map(Some)
    }

    fn norm_of(&self, part: &str, width: usize, norms: Norms) -> Result<Norm, String> {
        Norm::read(self.gguf, &self.name(part), width, norms, self.sizes.epsilon)
    }

    fn has(&self, part: &str) -> bool {
        self.gguf.tensor(&self.name(&format!("{part}.weight"))).is_some()
    }

    fn attention_norms(&self) -> Result<BranchNorms, String> {
        Ok(match self.row.placement {
            NormPlacement::After => BranchNorms { sum: self.norm("attn_output_norm")?, ..BranchNorms::default() },
            NormPlacement::Before if self.index == 0 && !self.has("attn_norm") => BranchNorms::default(),
            NormPlacement::Before => BranchNorms { before: self.norm("attn_norm")?, ..BranchNorms::default() },
            NormPlacement::Around => {
                BranchNorms { before: self.norm("attn_norm")?, computed: self.norm("post_attention_norm")?, sum: None }
            }
        })
    }

    fn feed_forward_norms(&self) -> Result<BranchNorms, String> {
        Ok(match self.row.placement {
            NormPlacement::After => BranchNorms { sum: self.norm("layer_output_norm")?, ..BranchNorms::default() },
            NormPlacement::Before => BranchNorms { before: self.norm("ffn_norm")?, ..BranchNorms::default() },
            NormPlacement::Around => {
                BranchNorms { before: self.norm("ffn_norm")?, computed: self.norm("post_ffw_norm")?, sum: None }
            }
        })
    }

    /// One product for all three, whose matrices a file may store separately.
    fn query_key_value(&self) -> Result<Linear, String> {
        let EncoderSizes { width, n_heads, n_kv_heads, head_dim, .. } = *self.sizes;
        let (queries, keys) = (n_heads * head_dim, n_kv_heads * head_dim);
        if self.has("attn_qkv") {
            return self.linear("attn_qkv", [queries + 2 * keys, width]);
        }
        let parts = [("attn_q", queries), ("attn_k", keys), ("attn_v", keys)];
        let parts = parts.map(|(part, n_rows)| self.linear(part, [n_rows, width]));
        let parts = parts.into_iter().collect::<Result<Vec<Linear>, String>>()?;
        Linear::joined(&parts).map_err(|error| error.to_string())
    }
}

impl Layer {
    /// Reads a layer.
    ///
    /// # Errors
    /// When something is missing or has another shape.
    pub(super) fn read(
        gguf: &Gguf,
        row: &'static EncoderRow,
        sizes: &EncoderSizes,
        index: usize,
    ) -> Result<Layer, String> {
        let reader = LayerReader { gguf, row, sizes, index };
        let EncoderSizes { width, inner, n_heads, head_dim, .. } = *sizes;
        let head_norm = |part: &str| row.norms_heads.then(|| reader.norm_of(part, head_dim, row.norms)).transpose();
        let gate = || reader.linear("ffn_gate", [inner, width]);
        let up_rows = if row.gate == Gate::Fused { 2 * inner } else { inner };
        Ok(Layer {
            kind: sizes.layers[index],
            attention_norms: reader.attention_norms()?,
            query_key_value: reader.query_key_value()?,
            query_norm: head_norm("attn_q_norm")?,
            key_norm: head_norm("attn_k_norm")?,
            output: reader.linear("attn_output", [width, n_heads * head_dim])?,
            feed_forward_norms: reader.feed_forward_norms()?,
            up: reader.linear("ffn_up", [up_rows, width])?,
            gate: (row.gate == Gate::Separate).then(gate).transpose()?,
            down: reader.linear("ffn_down", [width, inner])?,
        })
    }

    /// The states after the layer: a row for every token, text after text.
    pub(super) fn through(
        &self,
        sizes: &EncoderSizes,
        extent: Extent,
        positions: &Positions,
        states: &Tensor,
    ) -> CandleResult<Tensor> {
        let attend = |read: &Tensor| self.attended(sizes, extent, positions, read);
        let states = self.attention_norms.around(states, attend)?;
        self.feed_forward_norms.around(&states, |read| self.fed_forward(sizes, read))
    }

    fn fed_forward(&self, sizes: &EncoderSizes, read: &Tensor) -> CandleResult<Tensor> {
        let up = self.up.apply(read)?;
        let inner = match &self.gate {
            Some(gate) => (activated(sizes.activation, &gate.apply(read)?)? * up)?,
            None if up.dim(1)? == 2 * sizes.inner => {
                let halves = (up.narrow(1, 0, sizes.inner)?, up.narrow(1, sizes.inner, sizes.inner)?);
                (activated(sizes.activation, &halves.0.contiguous()?)? * halves.1)?
            }
            None => activated(sizes.activation, &up)?,
        };
        self.down.apply(&inner)
    }

    fn attended(
        &self,
        sizes: &EncoderSizes,
        extent: Extent,
        positions: &Positions,
        read: &Tensor,
    ) -> CandleResult<Tensor> {
        let EncoderSizes { n_heads, n_kv_heads, head_dim, .. } = *sizes;
        let projected = self.query_key_value.apply(read)?;
        let heads = |first: usize, n_heads: usize| {
            let rows = projected.narrow(1, first * head_dim, n_heads * head_dim)?;
            rows.reshape((extent.n_texts, extent.n_tokens, n_heads, head_dim))?.transpose(1, 2)?.contiguous()
        };
        let turned = |heads: Tensor, norm: &Option<Norm>| positions.turned(applied(norm, heads)?);
        let queries = turned(heads(0, n_heads)?, &self.query_norm)?;
        let keys = turned(heads(n_heads, n_kv_heads)?, &self.key_norm)?;
        let keys = repeat_kv(keys, n_heads / n_kv_heads)?;
        let values = repeat_kv(heads(n_heads + n_kv_heads, n_kv_heads)?, n_heads / n_kv_heads)?.contiguous()?;
        let most_queries = (MAX_SCORES / (extent.n_texts * n_heads * extent.n_tokens)).clamp(1, MAX_QUERIES);
        let chunks = (0..extent.n_tokens).step_by(most_queries).map(|start| {
            let n_queries = most_queries.min(extent.n_tokens - start);
            self.mixed(start, &queries.narrow(2, start, n_queries)?, &keys, &values)
        });
        let mixed = Tensor::cat(&chunks.collect::<CandleResult<Vec<Tensor>>>()?, 2)?;
        let n_rows = extent.n_texts * extent.n_tokens;
        self.output.apply(&mixed.transpose(1, 2)?.reshape((n_rows, n_heads * head_dim))?)
    }

    /// The values that the tokens from `start` on see.
    fn mixed(&self, start: usize, queries: &Tensor, keys: &Tensor, values: &Tensor) -> CandleResult<Tensor> {
        let (n_queries, n_tokens) = (queries.dim(2)?, keys.dim(2)?);
        let reach = self.kind.reach.unwrap_or(n_tokens);
        let from = start.saturating_sub(reach);
        let n_seen = (start + n_queries).saturating_add(reach).min(n_tokens) - from;
        let keys = keys.narrow(2, from, n_seen)?.transpose(2, 3)?.contiguous()?;
        let scale = (queries.dim(3)? as f64).sqrt().recip();
        let mut scores = (queries.contiguous()?.matmul(&keys)? * scale)?;
        if reach < n_seen {
            scores =
                scores.broadcast_add(&super::positions::mask(start..start + n_queries, from..from + n_seen, reach)?)?;
        }
        softmax_last_dim(&scores)?.matmul(&values.narrow(2, from, n_seen)?.contiguous()?)
    }
}

fn activated(activation: EncoderActivation, rows: &Tensor) -> CandleResult<Tensor> {
    match activation {
        EncoderActivation::Gelu => rows.gelu_erf(),
        EncoderActivation::GeluTanh => rows.gelu(),
        EncoderActivation::Silu => rows.silu(),
    }
}
