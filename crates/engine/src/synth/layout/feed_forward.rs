//! The tensors of the feed-forward part, of the end of a layer, and of blocks that predict further tokens.

use super::{BIAS_SPREAD, GATED_SPREAD, LayoutPlan, RELATIVE_SPREAD, SCORE_SPREAD};
use crate::synth::Quantization;
use crate::synth::quantization::MatrixRole;
use crate::synth::shape::{Architecture, Experts};

impl LayoutPlan<'_> {
    pub(super) fn feed_forward(&mut self, layer: usize) {
        let (architecture, hidden) = (self.shape.architecture, self.shape.hidden_size);
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        if architecture.has_norms_before() {
            self.norm(&name(architecture.ffn_norm()), hidden, 1.0);
        }
        let experts = self.shape.experts_of(layer);
        let is_gemma4 = architecture == Architecture::Gemma4;
        if experts.is_none() || is_gemma4 {
            self.dense(layer, "", self.shape.ffn_size_of(layer));
        }
        if let Some(experts) = experts {
            self.experts(layer, &experts);
        }
        if experts.is_some() && is_gemma4 {
            for norm in ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"] {
                self.norm(&name(&format!("{norm}.weight")), hidden, 1.0);
            }
        }
        if architecture.has_norms_after() {
            self.norm(&name("post_ffw_norm.weight"), hidden, self.branch_spread());
        }
        if is_gemma4 {
            self.own_input(layer);
        }
    }

    /// A dense part, or with a suffix the expert that every token passes.
    fn dense(&mut self, layer: usize, suffix: &str, width: usize) {
        let hidden = self.shape.hidden_size;
        let from_hidden = self.spread_from_hidden();
        let name = |tensor: &str| format!("blk.{layer}.{tensor}{suffix}.weight");
        if self.shape.architecture == Architecture::Phi3 {
            self.matrix(&name("ffn_up"), MatrixRole::Plain, &[hidden, 2 * width], from_hidden);
        } else {
            self.matrix(&name("ffn_gate"), MatrixRole::Plain, &[hidden, width], from_hidden);
            self.matrix(&name("ffn_up"), MatrixRole::Plain, &[hidden, width], from_hidden);
        }
        let role = MatrixRole::Sensitive { index: layer, count: self.shape.n_blocks() };
        self.matrix(&name("ffn_down"), role, &[width, hidden], self.back_from(width));
    }

    fn experts(&mut self, layer: usize, experts: &Experts) {
        let (architecture, hidden) = (self.shape.architecture, self.shape.hidden_size);
        let Experts { n_experts, width, .. } = *experts;
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let is_gemma4 = architecture == Architecture::Gemma4;
        // The input of Gemma 4's router has the length 1, others have 1 per element.
        let router_spread = if is_gemma4 { SCORE_SPREAD } else { SCORE_SPREAD * self.spread_from_hidden() };
        self.floats(&name("ffn_gate_inp.weight"), &[hidden, n_experts], 0.0, router_spread);
        let from_hidden = self.spread_from_hidden();
        if experts.is_merged {
            self.expert_matrix(
                &name("ffn_gate_up_exps"),
                MatrixRole::Expert,
                [hidden, 2 * width, n_experts],
                from_hidden,
            );
        } else {
            self.expert_matrix(&name("ffn_gate_exps"), MatrixRole::Expert, [hidden, width, n_experts], from_hidden);
            self.expert_matrix(&name("ffn_up_exps"), MatrixRole::Expert, [hidden, width, n_experts], from_hidden);
        }
        let role = MatrixRole::SensitiveExpert { index: layer, count: self.shape.n_blocks() };
        self.expert_matrix(&name("ffn_down_exps"), role, [width, hidden, n_experts], self.back_from(width));
        match architecture {
            Architecture::Gemma4 => {
                self.vector(&name("ffn_gate_inp.scale"), hidden, 1.0, RELATIVE_SPREAD);
                self.vector(&name("ffn_down_exps.scale"), n_experts, 1.0, RELATIVE_SPREAD);
            }
            Architecture::GptOss => self.vector(&name("ffn_gate_inp.bias"), n_experts, 0.0, BIAS_SPREAD),
            Architecture::Lfm2Moe => self.vector(&name("exp_probs_b.bias"), n_experts, 0.0, RELATIVE_SPREAD),
            _ => {}
        }
        if let Some(width) = experts.shared_width {
            self.dense(layer, "_shexp", width);
            if architecture.has_output_gate() {
                self.vector(&name("ffn_gate_inp_shexp.weight"), hidden, 0.0, from_hidden);
            }
        }
    }

    /// A matrix of every expert. gpt-oss is published with experts in MXFP4, which are never quantized again.
    fn expert_matrix(&mut self, name: &str, role: MatrixRole, dimensions: [usize; 3], standard_deviation: f32) {
        let is_gpt_oss = self.shape.architecture == Architecture::GptOss;
        let chosen = self.quantization;
        if is_gpt_oss && chosen == Quantization::Q4_K_M {
            self.quantization = Quantization::MXFP4_MOE;
        }
        self.matrix(&format!("{name}.weight"), role, &dimensions, standard_deviation);
        self.quantization = chosen;
        if is_gpt_oss {
            let [n_in, n_out, n_experts] = dimensions;
            // Relative to the matrix's output for an input of 1 per element.
            let spread = BIAS_SPREAD * standard_deviation * (n_in as f32).sqrt();
            self.floats(&format!("{name}.bias"), &[n_out, n_experts], 0.0, spread);
        }
    }

    /// The tensors for the own input of Gemma 4's layers, and the factor at their end.
    fn own_input(&mut self, layer: usize) {
        let hidden = self.shape.hidden_size;
        let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
        if let Some(width) = self.layer_input_width() {
            self.matrix(&name("inp_gate"), MatrixRole::Plain, &[hidden, width], self.spread_from_hidden());
            self.matrix(&name("proj"), MatrixRole::Plain, &[width, hidden], (width as f32).sqrt().recip());
            self.norm(&name("post_norm"), hidden, self.branch_spread());
        }
        self.vector(&name("layer_output_scale"), 1, 1.0, RELATIVE_SPREAD);
    }

    /// The tensors of all layers' own inputs.
    pub(super) fn layer_inputs(&mut self, vocab_size: usize) {
        let Some(width) = self.layer_input_width() else { return };
        let (hidden, all) = (self.shape.hidden_size, width * self.shape.n_layers);
        let unit = (width as f32).sqrt().recip();
        let role = self.embedding_role();
        self.matrix("per_layer_token_embd.weight", role, &[all, vocab_size], unit);
        self.matrix("per_layer_model_proj.weight", MatrixRole::Kept, &[hidden, all], self.spread_from_hidden());
        self.norm("per_layer_proj_norm.weight", width, 1.0);
    }

    fn layer_input_width(&self) -> Option<usize> {
        self.shape.gemma4.map(|gemma| gemma.layer_input_width).filter(|width| *width > 0)
    }

    /// The tensors that a block that predicts further tokens has in addition to a layer's.
    pub(super) fn predicting(&mut self, block: usize) {
        let hidden = self.shape.hidden_size;
        let name = |tensor: &str| format!("blk.{block}.nextn.{tensor}.weight");
        let spread = (2.0 * hidden as f32).sqrt().recip();
        self.matrix(&name("eh_proj"), MatrixRole::Plain, &[2 * hidden, hidden], spread);
        for norm in ["enorm", "hnorm", "shared_head_norm"] {
            self.norm(&name(norm), hidden, 1.0);
        }
    }

    /// Standard deviation of a matrix that reads `width` gated numbers and gives a branch.
    fn back_from(&self, width: usize) -> f32 {
        self.branch_spread() / GATED_SPREAD / (width as f32).sqrt()
    }
}
