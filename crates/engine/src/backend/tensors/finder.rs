//! Finds a model's tensors by their names, and checks their shapes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{
    AttentionParts, AttentionProjections, DeltaNetParts, DenseParts, ExpertParts, ExpertTensors, GatedProjections,
    HeadParts, InFile, LayerInputs, LayerParts, LinearTensors, Mamba2Parts, MatrixTensor, MixerParts, ModelParts,
    ModelTensors, OwnInputParts, ShortConvolutionParts,
};
use crate::backend::BackendError;
use crate::decoder::{
    AttentionSpec, DecoderSpec, DenseSpec, ExpertsSpec, KeysAndValues, LayerSpec, Mixer, QkNorm, RecurrentSpec,
};
use crate::gguf::{Gguf, TensorInfo, dequantize};

/// Finds everything that the spec needs.
///
/// # Errors
/// When a tensor is missing, or has another shape than the spec says.
pub(in crate::backend) fn find<'a>(gguf: &'a Gguf, spec: &DecoderSpec) -> Result<ModelTensors<'a>, BackendError> {
    let mut finder = Finder { gguf, spec, used: BTreeSet::new() };
    let embeddings = finder.matrix("token_embd.weight", spec.vocab_size, spec.hidden_size)?;
    let layer_inputs = spec.layer_input_width.map(|width| finder.layer_inputs(width)).transpose()?;
    let layers = spec.layers.iter().enumerate().map(|(index, layer)| finder.layer(index, layer));
    let layers = layers.collect::<Result<_, _>>()?;
    let output_norm = finder.vector(&format!("{}.weight", spec.output_norm), spec.hidden_size)?;
    let output = match spec.tied_embeddings {
        true => None,
        false => Some(finder.linear("output", spec.vocab_size, spec.hidden_size)?),
    };
    let head = spec.head.as_ref().map(|layer| finder.head(layer)).transpose()?;
    finder.warn_of_unused();
    Ok(ModelParts { embeddings: Some(embeddings), layer_inputs, layers, output_norm, output, head })
}

struct Finder<'a, 'b> {
    gguf: &'a Gguf,
    spec: &'b DecoderSpec,
    used: BTreeSet<String>,
}

type Found<T> = Result<T, BackendError>;

impl<'a> Finder<'a, '_> {
    fn layer_inputs(&mut self, width: usize) -> Found<LayerInputs<InFile<'a>>> {
        let all = width * self.spec.layers.len();
        Ok(LayerInputs {
            embeddings: self.matrix("per_layer_token_embd.weight", self.spec.vocab_size, all)?,
            projection: self.linear("per_layer_model_proj", all, self.spec.hidden_size)?,
            projection_norm: self.vector("per_layer_proj_norm.weight", width)?,
        })
    }

    fn layer(&mut self, index: usize, layer: &LayerSpec) -> Found<LayerParts<InFile<'a>>> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let hidden = self.spec.hidden_size;
        let (before, after) = (self.spec.norm_placement.is_before(), self.spec.norm_placement.is_after());
        let ffn_norm = name(&format!("{}.weight", self.spec.ffn_norm));
        let own_input = self.spec.layer_input_width.map(|width| self.own_input(&name, width)).transpose()?;
        Ok(LayerParts {
            mixer_norm: self.vector_if(before, &name("attn_norm.weight"), hidden)?,
            mixer: match &layer.mixer {
                Mixer::Attention(attention) => MixerParts::Attention(self.attention(&name, attention)?),
                Mixer::Recurrent(recurrent) => self.recurrent(&name, recurrent)?,
            },
            post_mixer_norm: self.vector_if(after, &name("post_attention_norm.weight"), hidden)?,
            ffn_norm: self.vector_if(before, &ffn_norm, hidden)?,
            dense: layer.dense.map(|dense| self.dense(&name, dense)).transpose()?,
            experts: match self.spec.experts.filter(|_| layer.has_experts) {
                Some(experts) => Some(self.experts(&name, &experts)?),
                None => None,
            },
            post_ffn_norm: self.vector_if(after, &name("post_ffw_norm.weight"), hidden)?,
            own_input,
            output_scale: self.optional_vector(&name("layer_output_scale.weight"), 1)?.map(|scale| scale[0]),
        })
    }

    /// The block after the last layer.
    fn head(&mut self, layer: &LayerSpec) -> Found<HeadParts<InFile<'a>>> {
        let index = self.spec.layers.len();
        let name = |part: &str| format!("blk.{index}.nextn.{part}");
        let (hidden, vocab_size) = (self.spec.hidden_size, self.spec.vocab_size);
        let has = |part: &str| self.gguf.tensor(&name(part)).is_some();
        let (has_embeddings, has_output) = (has("embed_tokens.weight"), has("shared_head_head.weight"));
        Ok(HeadParts {
            embeddings: match has_embeddings {
                true => Some(self.matrix(&name("embed_tokens.weight"), vocab_size, hidden)?),
                false => None,
            },
            token_norm: self.vector(&name("enorm.weight"), hidden)?,
            hidden_norm: self.vector(&name("hnorm.weight"), hidden)?,
            input: self.linear(&name("eh_proj"), hidden, 2 * hidden)?,
            layer: self.layer(index, layer)?,
            norm: self.optional_vector(&name("shared_head_norm.weight"), hidden)?,
            output: self.linear_if(has_output, &name("shared_head_head"), vocab_size, hidden)?,
        })
    }

    fn own_input(&mut self, name: &impl Fn(&str) -> String, width: usize) -> Found<OwnInputParts<InFile<'a>>> {
        Ok(OwnInputParts {
            gate: self.linear(&name("inp_gate"), width, self.spec.hidden_size)?,
            projection: self.linear(&name("proj"), self.spec.hidden_size, width)?,
            post_norm: self.vector(&name("post_norm.weight"), self.spec.hidden_size)?,
        })
    }

    fn attention(
        &mut self,
        name: &impl Fn(&str) -> String,
        attention: &AttentionSpec,
    ) -> Found<AttentionParts<InFile<'a>>> {
        let (query_width, kv_width, head_dim) = (attention.query_width(), attention.kv_width(), attention.head_dim);
        let has_keys = attention.has_cache();
        let ones = || vec![1.0; head_dim];
        let (query_norm, key_norm) = match attention.qk_norm {
            None => (None, None),
            Some(QkNorm::BareAfterRotation) => (Some(ones()), Some(ones())),
            Some(norm) => {
                let is_whole = norm == QkNorm::Whole;
                let widths = if is_whole { (query_width, kv_width) } else { (head_dim, head_dim) };
                let query_norm = self.vector(&name("attn_q_norm.weight"), widths.0)?;
                (Some(query_norm), self.vector_if(has_keys, &name("attn_k_norm.weight"), widths.1)?)
            }
        };
        Ok(AttentionParts {
            input: self.attention_projections(name, attention)?,
            query_norm,
            key_norm,
            value_norm: self.spec.value_norm.then(ones),
            sinks: self.optional_vector(&name("attn_sinks.weight"), attention.n_heads)?,
            output: self.linear(&name("attn_output"), self.spec.hidden_size, query_width)?,
        })
    }

    fn attention_projections(
        &mut self,
        name: &impl Fn(&str) -> String,
        attention: &AttentionSpec,
    ) -> Found<AttentionProjections<LinearTensors<'a>>> {
        let hidden = self.spec.hidden_size;
        let (query_width, kv_width) = (attention.query_width(), attention.kv_width());
        if self.spec.fused_projections {
            let fused = self.linear(&name("attn_qkv"), query_width + 2 * kv_width, hidden)?;
            return Ok(AttentionProjections::Fused(fused));
        }
        let query_width = if self.spec.output_gate { 2 * query_width } else { query_width };
        let (has_keys, has_values) = match attention.keys_and_values {
            KeysAndValues::Own => (true, true),
            KeysAndValues::ValuesAreKeys => (true, false),
            KeysAndValues::OfLayer(_) => (false, false),
        };
        Ok(AttentionProjections::Split {
            query: self.linear(&name("attn_q"), query_width, hidden)?,
            key: self.linear_if(has_keys, &name("attn_k"), kv_width, hidden)?,
            value: self.linear_if(has_values, &name("attn_v"), kv_width, hidden)?,
        })
    }

    fn recurrent(
        &mut self,
        name: &impl Fn(&str) -> String,
        recurrent: &RecurrentSpec,
    ) -> Found<MixerParts<InFile<'a>>> {
        match *recurrent {
            RecurrentSpec::ShortConvolution { n_taps } => {
                let hidden = self.spec.hidden_size;
                Ok(MixerParts::ShortConvolution(ShortConvolutionParts {
                    input: self.linear(&name("shortconv.in_proj"), 3 * hidden, hidden)?,
                    taps: self.taps(&name("shortconv.conv.weight"), hidden, n_taps)?,
                    output: self.linear(&name("shortconv.out_proj"), hidden, hidden)?,
                }))
            }
            RecurrentSpec::DeltaNet { n_taps, n_key_heads, n_value_heads, head_dim } => {
                let parts = self.delta_net(name, n_taps, n_key_heads, n_value_heads, head_dim)?;
                Ok(MixerParts::DeltaNet(Box::new(parts)))
            }
            RecurrentSpec::Mamba2 { .. } => Ok(MixerParts::Mamba2(Box::new(self.mamba(name, recurrent)?))),
        }
    }

    /// Queries and keys are divided by their length, queries also by the root of their width: as a norm by the root
    /// mean square, that is a weight of 1/√width, and another 1/√width.
    fn delta_net(
        &mut self,
        name: &impl Fn(&str) -> String,
        n_taps: usize,
        n_key_heads: usize,
        n_value_heads: usize,
        head_dim: usize,
    ) -> Found<DeltaNetParts<InFile<'a>>> {
        let hidden = self.spec.hidden_size;
        let (value_width, channels) = (n_value_heads * head_dim, (2 * n_key_heads + n_value_heads) * head_dim);
        let length_scale = (head_dim as f32).sqrt().recip();
        Ok(DeltaNetParts {
            input: self.linear(&name("attn_qkv"), channels, hidden)?,
            gate: self.linear(&name("attn_gate"), value_width, hidden)?,
            alpha: self.linear(&name("ssm_alpha"), n_value_heads, hidden)?,
            beta: self.linear(&name("ssm_beta"), n_value_heads, hidden)?,
            taps: self.taps(&name("ssm_conv1d.weight"), channels, n_taps)?,
            step_bias: self.vector(&name("ssm_dt.bias"), n_value_heads)?,
            rates: self.vector(&name("ssm_a"), n_value_heads)?,
            query_scale: vec![length_scale * length_scale; head_dim],
            key_scale: vec![length_scale; head_dim],
            norm: self.vector(&name("ssm_norm.weight"), head_dim)?,
            output: self.linear(&name("ssm_out"), hidden, value_width)?,
        })
    }

    fn mamba(&mut self, name: &impl Fn(&str) -> String, recurrent: &RecurrentSpec) -> Found<Mamba2Parts<InFile<'a>>> {
        let RecurrentSpec::Mamba2 { n_taps, n_heads, n_groups, inner_size, .. } = *recurrent else {
            unreachable!("the caller has matched the kind")
        };
        let hidden = self.spec.hidden_size;
        let channels = recurrent.state(hidden).n_channels;
        let norm = self.vector(&name("ssm_norm.weight"), inner_size)?;
        Ok(Mamba2Parts {
            input: self.linear(&name("ssm_in"), inner_size + channels + n_heads, hidden)?,
            taps: self.taps(&name("ssm_conv1d.weight"), channels, n_taps)?,
            convolution_bias: self.optional_vector(&name("ssm_conv1d.bias"), channels)?,
            step_bias: self.vector(&name("ssm_dt.bias"), n_heads)?,
            rates: self.vector(&name("ssm_a"), n_heads)?,
            skip: self.vector(&name("ssm_d"), n_heads)?,
            norms: norm.chunks_exact(inner_size / n_groups).map(<[f32]>::to_vec).collect(),
            output: self.linear(&name("ssm_out"), hidden, inner_size)?,
        })
    }

    fn dense(&mut self, name: &impl Fn(&str) -> String, dense: DenseSpec) -> Found<DenseParts<InFile<'a>>> {
        let (width, hidden) = (dense.width, self.spec.hidden_size);
        let suffix = if dense.is_shared_expert { "_shexp" } else { "" };
        let name = |part: &str| name(&format!("{part}{suffix}"));
        let input = match self.spec.fused_projections {
            true => GatedProjections::Fused(self.linear(&name("ffn_up"), 2 * width, hidden)?),
            false => GatedProjections::Split {
                gate: self.linear(&name("ffn_gate"), width, hidden)?,
                up: self.linear(&name("ffn_up"), width, hidden)?,
            },
        };
        let post_norm = name("post_ffw_norm_1.weight");
        Ok(DenseParts {
            input,
            output: self.linear(&name("ffn_down"), hidden, width)?,
            scalar_gate: match dense.is_shared_expert {
                true => self.optional_row(&name("ffn_gate_inp"), hidden)?,
                false => None,
            },
            post_norm: self.optional_vector(&post_norm, hidden)?,
        })
    }

    fn experts(&mut self, name: &impl Fn(&str) -> String, experts: &ExpertsSpec) -> Found<ExpertParts<InFile<'a>>> {
        let (hidden, n_experts, width) = (self.spec.hidden_size, experts.n_experts, experts.width);
        let input = match self.gguf.tensor(&name("ffn_gate_up_exps.weight")) {
            Some(_) => {
                GatedProjections::Fused(self.expert_linear(&name("ffn_gate_up_exps"), n_experts, 2 * width, hidden)?)
            }
            None => GatedProjections::Split {
                gate: self.expert_linear(&name("ffn_gate_exps"), n_experts, width, hidden)?,
                up: self.expert_linear(&name("ffn_up_exps"), n_experts, width, hidden)?,
            },
        };
        // The router of Gemma 4 reads the residual stream, normed and divided by the root of its width.
        let router_norm = self.optional_vector(&name("ffn_gate_inp.scale"), hidden)?.map(|mut scale| {
            scale.iter_mut().for_each(|scale| *scale /= (hidden as f32).sqrt());
            scale
        });
        Ok(ExpertParts {
            router: self.linear(&name("ffn_gate_inp"), n_experts, hidden)?,
            router_norm,
            norm: self.optional_vector(&name("pre_ffw_norm_2.weight"), hidden)?,
            selection_bias: self.optional_vector(&name("exp_probs_b.bias"), n_experts)?,
            output_scales: self.optional_vector(&name("ffn_down_exps.scale"), n_experts)?,
            input,
            output: self.expert_linear(&name("ffn_down_exps"), n_experts, hidden, width)?,
            post_norm: self.optional_vector(&name("post_ffw_norm_2.weight"), hidden)?,
        })
    }

    /// A linear layer `name.weight` `[n_out, n_in]` with its `name.bias`, where there is one.
    fn linear(&mut self, name: &str, n_out: usize, n_in: usize) -> Found<LinearTensors<'a>> {
        let weight = self.matrix(&format!("{name}.weight"), n_out, n_in)?;
        Ok(LinearTensors { weight, bias: self.optional_vector(&format!("{name}.bias"), n_out)? })
    }

    fn linear_if(&mut self, wanted: bool, name: &str, n_out: usize, n_in: usize) -> Found<Option<LinearTensors<'a>>> {
        wanted.then(|| self.linear(name, n_out, n_in)).transpose()
    }

    /// A vector `name.weight`, if it exists, as a linear layer with one output.
    fn optional_row(&mut self, name: &str, n_in: usize) -> Found<Option<LinearTensors<'a>>> {
        let name = format!("{name}.weight");
        if self.gguf.tensor(&name).is_none() {
            return Ok(None);
        }
        let tensor = self.find(&name, &[n_in])?;
        Ok(Some(LinearTensors { weight: self.as_matrix(name, tensor, 1, n_in), bias: None }))
    }

    /// A linear layer of every expert: `name.weight` `[n_experts, n_out, n_in]`, and `name.bias` `[n_experts, n_out]`
    /// where there is one.
    fn expert_linear(&mut self, name: &str, n_experts: usize, n_out: usize, n_in: usize) -> Found<ExpertTensors<'a>> {
        let weights = format!("{name}.weight");
        let tensor = self.find(&weights, &[n_in, n_out, n_experts])?;
        let bias = self.optional_vector(&format!("{name}.bias"), n_out * n_experts)?;
        Ok(ExpertTensors { weights: self.as_matrix(weights, tensor, n_experts * n_out, n_in), n_experts, bias })
    }

    fn matrix(&mut self, name: &str, n_rows: usize, n_columns: usize) -> Found<MatrixTensor<'a>> {
        // GGUF names the row length first.
        let tensor = self.find(name, &[n_columns, n_rows])?;
        Ok(self.as_matrix(name.to_owned(), tensor, n_rows, n_columns))
    }

    fn as_matrix(&self, name: String, tensor: &TensorInfo, n_rows: usize, n_columns: usize) -> MatrixTensor<'a> {
        let bytes = self.gguf.tensor_bytes(tensor);
        MatrixTensor { name: Cow::Owned(name), n_rows, n_columns, tensor_type: tensor.tensor_type, bytes }
    }

    /// The taps of a convolution, which the file stores channel by channel, as a row of channels for every tap.
    fn taps(&mut self, name: &str, n_channels: usize, n_taps: usize) -> Found<Vec<f32>> {
        let by_channel = self.values(name, &[n_taps, n_channels])?;
        let of_tap = |tap: usize| by_channel.iter().skip(tap).step_by(n_taps).copied();
        Ok((0..n_taps).flat_map(of_tap).collect())
    }

    fn vector(&mut self, name: &str, width: usize) -> Found<Vec<f32>> {
        self.values(name, &[width])
    }

    fn vector_if(&mut self, wanted: bool, name: &str, width: usize) -> Found<Option<Vec<f32>>> {
        wanted.then(|| self.vector(name, width)).transpose()
    }

    fn optional_vector(&mut self, name: &str, width: usize) -> Found<Option<Vec<f32>>> {
        self.vector_if(self.gguf.tensor(name).is_some(), name, width)
    }

    /// The numbers of a tensor. One dimension may be stored as several.
    fn values(&mut self, name: &str, dimensions: &[usize]) -> Found<Vec<f32>> {
        let error = |reason: String| BackendError::Tensor { name: name.into(), reason };
        let tensor = self.gguf.tensor(name).ok_or_else(|| error("is missing from the file".into()))?;
        let n_values = dimensions.iter().product();
        let fits = match dimensions {
            [_] => tensor.dimensions.iter().product::<usize>() == n_values,
            _ => tensor.dimensions == dimensions,
        };
        if !fits {
            return Err(error(format!("has the shape {:?} where {dimensions:?} is expected", tensor.dimensions)));
        }
        if tensor.tensor_type.block_elements() != 1 {
            return Err(error(format!("is {}: norms and biases must be F32, F16 or BF16", tensor.tensor_type)));
        }
        self.used.insert(name.to_owned());
        let mut values = vec![0.0; n_values];
        dequantize(tensor.tensor_type, self.gguf.tensor_bytes(tensor), &mut values);
        Ok(values)
    }

    fn find(&mut self, name: &str, dimensions: &[usize]) -> Found<&'a TensorInfo> {
        let error = |reason: String| BackendError::Tensor { name: name.into(), reason };
        let tensor = self.gguf.tensor(name).ok_or_else(|| error("is missing from the file".into()))?;
        if tensor.dimensions != dimensions {
            return Err(error(format!("has the shape {:?} where {dimensions:?} is expected", tensor.dimensions)));
        }
        self.used.insert(name.to_owned());
        Ok(tensor)
    }

    /// Warns of tensors that nothing reads: the model may not be computed as intended.
    fn warn_of_unused(&self) {
        let read_elsewhere = ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];
        // Layers after the last predict further tokens.
        let n_layers = self.spec.layers.len();
        let is_predicting = |name: &str| {
            let index = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
            index.and_then(|index| index.parse().ok()).is_some_and(|index: usize| index >= n_layers)
        };
        let is_of_head = |name: &str| name.starts_with("cls.");
        let is_read = |name: &str| self.used.contains(name) || read_elsewhere.contains(&name);
        let is_unused = |name: &&str| !is_read(name) && !is_predicting(name) && !is_of_head(name);
        let mut unused = self.gguf.tensors().map(|tensor| tensor.name.as_str()).filter(is_unused);
        if let Some(first) = unused.next() {
            let n_others = unused.count();
            tracing::warn!(tensor = first, n_others, "the model has tensors that are not used");
        }
    }
}
