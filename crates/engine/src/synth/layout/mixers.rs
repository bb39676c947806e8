//! The tensors of attention, and of layers that keep a state.

use super::{BIAS_SPREAD, GATED_SPREAD, LayoutPlan, RELATIVE_SPREAD, SCORE_SPREAD};
use crate::decoder::RecurrentSpec;
use crate::synth::quantization::MatrixRole;
use crate::synth::shape::{Architecture, Shape};

impl LayoutPlan<'_> {
    pub(super) fn mixer(&mut self, layer: usize) {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        if self.shape.architecture.has_norms_before() {
            self.norm(&name("attn_norm.weight"), self.shape.hidden_size, 1.0);
        }
        match self.shape.recurrence_of(layer) {
            None => self.attention(layer),
            Some(RecurrentSpec::ShortConvolution { n_taps }) => self.short_convolution(&name, n_taps),
            Some(recurrent @ RecurrentSpec::DeltaNet { .. }) => self.delta_net(&name, layer, recurrent),
            Some(recurrent @ RecurrentSpec::Mamba2 { .. }) => self.mamba(&name, recurrent),
        }
        if self.shape.architecture.has_norms_after() {
            self.norm(&name("post_attention_norm.weight"), self.shape.hidden_size, self.branch_spread());
        }
    }

    fn attention(&mut self, layer: usize) {
        let Shape { architecture, hidden_size, n_heads, .. } = *self.shape;
        let head_dim = self.shape.head_dim_of(layer);
        let (queries, keys) = (n_heads * head_dim, self.shape.n_kv_heads_of(layer) * head_dim);
        let from_hidden = self.spread_from_hidden();
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (has_keys, has_values) = (!self.shape.is_sharing(layer), self.shape.has_values(layer));
        if architecture == Architecture::Phi3 {
            // Scores are products of queries and keys, so each contributes the square root of the spread.
            let spread = from_hidden * SCORE_SPREAD.sqrt();
            self.matrix(
                &name("attn_qkv.weight"),
                MatrixRole::FusedAttention,
                &[hidden_size, queries + 2 * keys],
                spread,
            );
        } else {
            let rows = if architecture.has_output_gate() { 2 * queries } else { queries };
            self.matrix(&name("attn_q.weight"), MatrixRole::Plain, &[hidden_size, rows], from_hidden * SCORE_SPREAD);
            if has_keys {
                self.matrix(&name("attn_k.weight"), MatrixRole::Plain, &[hidden_size, keys], from_hidden);
            }
            if has_values {
                let role = self.value_role(layer);
                self.matrix(&name("attn_v.weight"), role, &[hidden_size, keys], from_hidden);
            }
        }
        if matches!(architecture, Architecture::Qwen2 | Architecture::GptOss) {
            self.vector(&name("attn_q.bias"), queries, 0.0, BIAS_SPREAD);
            self.vector(&name("attn_k.bias"), keys, 0.0, BIAS_SPREAD);
            self.vector(&name("attn_v.bias"), keys, 0.0, BIAS_SPREAD);
        }
        if architecture.has_qk_norm() {
            // Gemma 4 does not divide scores by the root of a head's width.
            let divisor = if architecture == Architecture::Gemma4 { (head_dim as f32).sqrt() } else { 1.0 };
            self.norm(&name("attn_q_norm.weight"), head_dim, SCORE_SPREAD / divisor);
            if has_keys {
                self.norm(&name("attn_k_norm.weight"), head_dim, 1.0);
            }
        } else if architecture == Architecture::Olmo2 {
            self.norm(&name("attn_q_norm.weight"), queries, SCORE_SPREAD);
            self.norm(&name("attn_k_norm.weight"), keys, 1.0);
        }
        let back = self.branch_spread() / (queries as f32).sqrt();
        self.matrix(&name("attn_output.weight"), MatrixRole::Plain, &[queries, hidden_size], back);
        if architecture == Architecture::GptOss {
            self.vector(&name("attn_output.bias"), hidden_size, 0.0, BIAS_SPREAD * self.branch_spread());
            self.vector(&name("attn_sinks.weight"), n_heads, 0.0, 1.0);
        }
    }

    /// llama.cpp counts the layers that have values, or the fused projection of a delta net.
    fn value_role(&self, layer: usize) -> MatrixRole {
        let is_counted = |layer: &usize| match self.shape.recurrence_of(*layer) {
            Some(recurrent) => matches!(recurrent, RecurrentSpec::DeltaNet { .. }),
            None => self.shape.has_values(*layer),
        };
        let n_before = (0..layer).filter(is_counted).count();
        let count = (0..self.shape.n_blocks()).filter(is_counted).count();
        MatrixRole::Sensitive { index: n_before, count }
    }

    fn short_convolution(&mut self, name: &impl Fn(&str) -> String, n_taps: usize) {
        let hidden = self.shape.hidden_size;
        self.taps(&name("shortconv.conv.weight"), n_taps, hidden);
        self.matrix(
            &name("shortconv.in_proj.weight"),
            MatrixRole::Plain,
            &[hidden, 3 * hidden],
            self.spread_from_hidden(),
        );
        let back = self.branch_spread() / (hidden as f32).sqrt();
        self.matrix(&name("shortconv.out_proj.weight"), MatrixRole::Plain, &[hidden, hidden], back);
    }

    fn delta_net(&mut self, name: &impl Fn(&str) -> String, layer: usize, recurrent: RecurrentSpec) {
        let hidden = self.shape.hidden_size;
        let state = recurrent.state(hidden);
        let (n_heads, value_width) = (state.n_heads, state.n_heads * state.value_dim);
        let from_hidden = self.spread_from_hidden();
        let role = self.value_role(layer);
        self.matrix(&name("attn_qkv.weight"), role, &[hidden, state.n_channels], from_hidden);
        self.matrix(&name("attn_gate.weight"), MatrixRole::Plain, &[hidden, value_width], from_hidden);
        self.taps(&name("ssm_conv1d.weight"), state.n_taps, state.n_channels);
        self.decay(name, &[n_heads], n_heads);
        self.matrix(&name("ssm_alpha.weight"), MatrixRole::Plain, &[hidden, n_heads], from_hidden);
        self.matrix(&name("ssm_beta.weight"), MatrixRole::Plain, &[hidden, n_heads], from_hidden);
        self.norm(&name("ssm_norm.weight"), state.value_dim, 1.0);
        let back = self.branch_spread() / GATED_SPREAD / (value_width as f32).sqrt();
        self.matrix(&name("ssm_out.weight"), MatrixRole::Plain, &[value_width, hidden], back);
    }

    fn mamba(&mut self, name: &impl Fn(&str) -> String, recurrent: RecurrentSpec) {
        let RecurrentSpec::Mamba2 { n_groups, inner_size, .. } = recurrent else { return };
        let hidden = self.shape.hidden_size;
        let state = recurrent.state(hidden);
        let rows = inner_size + state.n_channels + state.n_heads;
        self.matrix(&name("ssm_in.weight"), MatrixRole::Plain, &[hidden, rows], self.spread_from_hidden());
        self.taps(&name("ssm_conv1d.weight"), state.n_taps, state.n_channels);
        self.vector(&name("ssm_conv1d.bias"), state.n_channels, 0.0, RELATIVE_SPREAD);
        self.decay(name, &[1, state.n_heads], state.n_heads);
        self.floats(&name("ssm_d"), &[1, state.n_heads], 1.0, RELATIVE_SPREAD);
        self.floats(&name("ssm_norm.weight"), &[inner_size / n_groups, n_groups], 1.0, RELATIVE_SPREAD);
        let back = self.branch_spread() / (inner_size as f32).sqrt();
        self.matrix(&name("ssm_out.weight"), MatrixRole::Plain, &[inner_size, hidden], back);
    }

    /// The taps of a convolution that keeps the spread of its input.
    fn taps(&mut self, name: &str, n_taps: usize, n_channels: usize) {
        self.floats(name, &[n_taps, n_channels], 0.0, (n_taps as f32).sqrt().recip());
    }

    /// The decay of a state: a step around softplus(-3) = 0.05, times a negative rate, so that a state remembers some
    /// twenty tokens, as in trained models.
    fn decay(&mut self, name: &impl Fn(&str) -> String, dimensions: &[usize], n_heads: usize) {
        self.floats(&name("ssm_a"), dimensions, -1.0, 0.4);
        self.vector(&name("ssm_dt.bias"), n_heads, -3.0, 1.0);
    }
}
