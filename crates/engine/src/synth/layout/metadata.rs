//! The model's metadata, except the tokenizer's.

use crate::decoder::RecurrentSpec;
use crate::gguf::{WriteError, WriteValue, Writer};
use crate::synth::Quantization;
use crate::synth::shape::{Architecture, Experts, Gemma4Shape, LayerSet, RopeScaling, Shape};

/// The number that stands for a sigmoid in `expert_gating_func`.
const SIGMOID_GATING: usize = 2;

/// Adds the model's metadata, except the tokenizer's.
pub(in crate::synth) fn metadata(
    shape: &Shape,
    quantization: Quantization,
    vocab_size: usize,
    writer: &mut Writer,
) -> Result<(), WriteError> {
    writer.metadata("general.architecture", WriteValue::String(shape.architecture.name()))?;
    writer.metadata("general.name", WriteValue::String(&format!("{}, random weights", shape.name)))?;
    writer.metadata("general.file_type", WriteValue::U32(quantization.file_type()))?;
    writer.metadata("general.quantization_version", WriteValue::U32(2))?;
    let mut keys = MetadataWriter { shape, writer };
    keys.size("vocab_size", vocab_size)?;
    keys.size("context_length", shape.context_length)?;
    keys.size("embedding_length", shape.hidden_size)?;
    keys.size("block_count", shape.n_blocks())?;
    keys.sizes("feed_forward_length", |layer| shape.ffn_size_of(layer))?;
    keys.size("attention.head_count", shape.n_heads)?;
    keys.sizes("attention.head_count_kv", |layer| shape.n_kv_heads_of(layer))?;
    keys.float("attention.layer_norm_rms_epsilon", Some(shape.norm_epsilon))?;
    keys.float("rope.freq_base", Some(shape.rope_base))?;
    if shape.architecture.names_rotated_dim() {
        keys.size("rope.dimension_count", shape.rotated_dim())?;
    }
    if shape.architecture.names_head_dim() {
        keys.size("attention.key_length", shape.head_dim)?;
        keys.size("attention.value_length", shape.head_dim)?;
    }
    if let Some(window) = shape.sliding_window {
        keys.size("attention.sliding_window", window)?;
    }
    if shape.global_layers.is_some() {
        let has_window: Vec<bool> = (0..shape.n_layers).map(|layer| !shape.is_global(layer)).collect();
        keys.add("attention.sliding_window_pattern", WriteValue::Bools(&has_window))?;
    }
    keys.float("attn_logit_softcapping", shape.attention_soft_cap)?;
    keys.float("final_logit_softcapping", shape.logit_soft_cap)?;
    keys.float("attention.temperature_scale", shape.temperature_scale)?;
    keys.rope_scaling()?;
    keys.recurrence()?;
    keys.experts()?;
    keys.multipliers()?;
    keys.gemma4()
}

/// The metadata keys of one model.
struct MetadataWriter<'a> {
    shape: &'a Shape,
    writer: &'a mut Writer,
}

impl MetadataWriter<'_> {
    fn rope_scaling(&mut self) -> Result<(), WriteError> {
        match self.shape.rope_scaling {
            RopeScaling::None | RopeScaling::Llama3 { .. } => Ok(()),
            RopeScaling::Linear(factor) => {
                self.text("rope.scaling.type", "linear")?;
                self.float("rope.scaling.factor", Some(factor))
            }
            RopeScaling::Yarn { factor, original_context, log_multiplier } => {
                self.text("rope.scaling.type", "yarn")?;
                self.float("rope.scaling.factor", Some(factor))?;
                self.size("rope.scaling.original_context_length", original_context)?;
                self.float("rope.scaling.yarn_log_multiplier", log_multiplier)
            }
            RopeScaling::LongRope { original_context } => {
                self.size("rope.scaling.original_context_length", original_context)?;
                let stretch = (self.shape.context_length as f32 / original_context as f32).max(1.0);
                let attention_factor = (1.0 + stretch.ln() / (original_context as f32).ln()).sqrt();
                self.float("rope.scaling.attn_factor", Some(attention_factor))
            }
        }
    }

    /// The layers that keep a state, where the number of key and value heads does not tell, and their sizes.
    fn recurrence(&mut self) -> Result<(), WriteError> {
        let Some(recurrence) = self.shape.recurrence else { return Ok(()) };
        match recurrence.layer {
            RecurrentSpec::ShortConvolution { n_taps } => self.size("shortconv.l_cache", n_taps),
            RecurrentSpec::DeltaNet { n_taps, n_key_heads, n_value_heads, head_dim } => {
                self.state_space([n_taps, n_value_heads, n_key_heads, head_dim, n_value_heads * head_dim])?;
                // Pairs are divided among time, height and width of a picture, as evenly as 11, 11 and 10 are.
                let n_pairs = (self.shape.rotated_dim() / 2) as i32;
                let (time, height) = ((n_pairs + 2) / 3, (n_pairs + 1) / 3);
                let sections = [time, height, n_pairs - time - height, 0];
                self.add("rope.dimension_sections", WriteValue::I32s(&sections))?;
                if let LayerSet::Every(interval) = recurrence.attention {
                    return self.size("full_attention_interval", interval);
                }
                let blocks = 0..self.shape.n_blocks();
                let is_recurrent: Vec<bool> = blocks.map(|block| self.shape.recurrence_of(block).is_some()).collect();
                self.add("attention.recurrent_layers", WriteValue::Bools(&is_recurrent))
            }
            RecurrentSpec::Mamba2 { n_taps, n_heads, n_groups, state_size, inner_size } => {
                self.state_space([n_taps, n_heads, n_groups, state_size, inner_size])
            }
        }
    }

    fn state_space(&mut self, sizes: [usize; 5]) -> Result<(), WriteError> {
        let keys = ["conv_kernel", "time_step_rank", "group_count", "state_size", "inner_size"];
        std::iter::zip(keys, sizes).try_for_each(|(key, size)| self.size(&format!("ssm.{key}"), size))
    }

    fn experts(&mut self) -> Result<(), WriteError> {
        if self.shape.n_predicting > 0 {
            self.size("nextn_predict_layers", self.shape.n_predicting)?;
        }
        let Some(Experts { n_experts, n_used, width, shared_width, layers, .. }) = self.shape.experts else {
            return Ok(());
        };
        self.size("expert_count", n_experts)?;
        self.size("expert_used_count", n_used)?;
        // Granite's experts are as wide as `feed_forward_length` says, Llama 4's shared one as the others.
        if self.shape.architecture != Architecture::GraniteHybrid {
            self.size("expert_feed_forward_length", width)?;
        }
        if let Some(width) = shared_width.filter(|_| self.shape.architecture != Architecture::Llama4) {
            self.size("expert_shared_feed_forward_length", width)?;
        }
        match (self.shape.architecture, layers) {
            (Architecture::Llama4, LayerSet::Every(step)) => self.size("interleave_moe_layer_step", step),
            (Architecture::Lfm2Moe, LayerSet::From(n_dense)) => {
                self.size("leading_dense_block_count", n_dense)?;
                self.size("expert_gating_func", SIGMOID_GATING)
            }
            _ => Ok(()),
        }
    }

    fn multipliers(&mut self) -> Result<(), WriteError> {
        if self.shape.architecture == Architecture::GraniteHybrid {
            self.add("rope.scaling.finetuned", WriteValue::Bool(self.shape.is_rotated))?;
        }
        let Some(multipliers) = self.shape.multipliers else { return Ok(()) };
        self.float("embedding_scale", Some(multipliers.embedding))?;
        self.float("residual_scale", Some(multipliers.branch))?;
        self.float("attention.scale", Some(multipliers.attention))?;
        self.float("logit_scale", Some(multipliers.logit_divisor))
    }

    fn gemma4(&mut self) -> Result<(), WriteError> {
        let Some(gemma) = self.shape.gemma4 else { return Ok(()) };
        let Gemma4Shape { local_head_dim, local_rope_base, n_sharing_layers, layer_input_width, .. } = gemma;
        self.size("attention.key_length_swa", local_head_dim)?;
        self.size("attention.value_length_swa", local_head_dim)?;
        self.size("rope.dimension_count_swa", local_head_dim)?;
        self.float("rope.freq_base_swa", Some(local_rope_base))?;
        self.size("attention.shared_kv_layers", n_sharing_layers)?;
        self.size("embedding_length_per_layer_input", layer_input_width)
    }

    fn add(&mut self, key: &str, value: WriteValue<'_>) -> Result<(), WriteError> {
        self.writer.metadata(&format!("{}.{key}", self.shape.architecture.name()), value).map(drop)
    }

    fn size(&mut self, key: &str, size: usize) -> Result<(), WriteError> {
        self.add(key, WriteValue::U32(size as u32))
    }

    /// One number if all blocks have the same size, which is left out if it is 0, or an array.
    fn sizes(&mut self, key: &str, size_of: impl Fn(usize) -> usize) -> Result<(), WriteError> {
        let sizes: Vec<i32> = (0..self.shape.n_blocks()).map(|block| size_of(block) as i32).collect();
        // The architectures whose layers are named by other keys give one number.
        let is_uniform = self.shape.architecture.has_output_gate() || sizes.windows(2).all(|pair| pair[0] == pair[1]);
        match sizes.last() {
            Some(0) if is_uniform => Ok(()),
            Some(size) if is_uniform => self.size(key, *size as usize),
            _ => self.add(key, WriteValue::I32s(&sizes)),
        }
    }

    fn float(&mut self, key: &str, number: Option<f32>) -> Result<(), WriteError> {
        number.map_or(Ok(()), |number| self.add(key, WriteValue::F32(number)))
    }

    fn text(&mut self, key: &str, text: &str) -> Result<(), WriteError> {
        self.add(key, WriteValue::String(text))
    }
}
