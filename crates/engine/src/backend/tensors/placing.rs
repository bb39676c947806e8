//! Hands all parts of a model to a backend, and lists its matrices.

use super::{
    AttentionParts, AttentionProjections, DeltaNetParts, DenseParts, ExpertParts, ExpertTensors, GatedProjections,
    HeadParts, InFile, LayerInputs, LayerParts, LinearTensors, Mamba2Parts, MatrixTensor, MixerParts, ModelParts,
    ModelTensors, OwnInputParts, Placing, ShortConvolutionParts, Storage,
};
use crate::backend::BackendError;

impl<'a> ModelTensors<'a> {
    /// The matrices of all experts, one by one.
    pub(in crate::backend) fn expert_matrices(&self) -> impl Iterator<Item = MatrixTensor<'a>> + '_ {
        self.blocks().flat_map(|layer| &layer.experts).flat_map(ExpertParts::matrices)
    }

    /// The layers, and the block of the head.
    fn blocks(&self) -> impl Iterator<Item = &LayerParts<InFile<'a>>> {
        self.layers.iter().chain(self.head.iter().map(|head| &head.layer))
    }

    /// Every other matrix of the model.
    pub(in crate::backend) fn matrices(&self) -> impl Iterator<Item = MatrixTensor<'a>> + '_ {
        let layers = self.blocks().flat_map(|layer| layer.linears().map(|linear| linear.weight.clone()));
        let inputs = self.layer_inputs.iter().flat_map(|inputs| [&inputs.embeddings, &inputs.projection.weight]);
        let output = self.output.iter().map(|output| &output.weight);
        let head = self.head.iter().flat_map(|head| {
            let own_output = head.output.as_ref().map(|output| &output.weight);
            [Some(&head.input.weight), head.embeddings.as_ref(), own_output].into_iter().flatten()
        });
        self.embeddings.iter().chain(inputs).chain(output).chain(head).cloned().chain(layers)
    }

    /// Its first layers, and the rest of it. The embeddings belong to both if the rest needs them.
    #[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
    pub(in crate::backend) fn divide(mut self, n_layers: usize) -> [Self; 2] {
        let head_needs_them = self.head.as_ref().is_some_and(|head| head.embeddings.is_none());
        let needs_embeddings = self.output.is_none() || head_needs_them;
        let rest = ModelParts {
            embeddings: self.embeddings.clone().filter(|_| needs_embeddings),
            layer_inputs: None,
            layers: self.layers.split_off(n_layers),
            output_norm: self.output_norm.clone(),
            output: self.output.take(),
            head: self.head.take(),
        };
        [self, rest]
    }

    /// Bytes of all matrices.
    #[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
    pub(in crate::backend) fn n_bytes(&self) -> u64 {
        self.matrices().chain(self.expert_matrices()).map(|tensor| tensor.bytes.len() as u64).sum()
    }

    /// Hands every part to a backend.
    ///
    /// # Errors
    /// When the backend cannot take one.
    pub(in crate::backend) fn place<P: Placing>(self, place: &mut P) -> Result<ModelParts<P>, BackendError> {
        Ok(ModelParts {
            embeddings: self.embeddings.map(|embeddings| place.matrix(embeddings)).transpose()?,
            layer_inputs: self.layer_inputs.map(|inputs| inputs.place(place)).transpose()?,
            layers: self.layers.into_iter().map(|layer| layer.place(place)).collect::<Result<_, _>>()?,
            output_norm: place.vector(self.output_norm)?,
            output: self.output.map(|output| place.linear(output)).transpose()?,
            head: self.head.map(|head| head.place(place)).transpose()?,
        })
    }
}

impl HeadParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<HeadParts<P>, BackendError> {
        Ok(HeadParts {
            embeddings: self.embeddings.map(|embeddings| place.matrix(embeddings)).transpose()?,
            token_norm: place.vector(self.token_norm)?,
            hidden_norm: place.vector(self.hidden_norm)?,
            input: place.linear(self.input)?,
            layer: self.layer.place(place)?,
            norm: vector(place, self.norm)?,
            output: linear(place, self.output)?,
        })
    }
}

/// An optional vector.
fn vector<P: Placing>(place: &mut P, values: Option<Vec<f32>>) -> Result<Option<P::Vector>, BackendError> {
    values.map(|values| place.vector(values)).transpose()
}

/// An optional linear layer.
fn linear<P: Placing>(place: &mut P, tensors: Option<LinearTensors<'_>>) -> Result<Option<P::Linear>, BackendError> {
    tensors.map(|tensors| place.linear(tensors)).transpose()
}

impl LayerInputs<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<LayerInputs<P>, BackendError> {
        Ok(LayerInputs {
            embeddings: place.matrix(self.embeddings)?,
            projection: place.linear(self.projection)?,
            projection_norm: place.vector(self.projection_norm)?,
        })
    }
}

impl<S: Storage> LayerParts<S> {
    /// Every linear layer except those of experts.
    fn linears(&self) -> impl Iterator<Item = &S::Linear> {
        let mixer = match &self.mixer {
            MixerParts::Attention(parts) => match &parts.input {
                AttentionProjections::Split { query, key, value } => {
                    [Some(query), key.as_ref(), value.as_ref(), Some(&parts.output), None]
                }
                AttentionProjections::Fused(all) => [Some(all), Some(&parts.output), None, None, None],
            },
            MixerParts::ShortConvolution(parts) => [Some(&parts.input), Some(&parts.output), None, None, None],
            MixerParts::DeltaNet(parts) => {
                [&parts.input, &parts.gate, &parts.alpha, &parts.beta, &parts.output].map(Some)
            }
            MixerParts::Mamba2(parts) => [Some(&parts.input), Some(&parts.output), None, None, None],
        };
        let dense = self.dense.iter().flat_map(|dense| {
            let [gate, up] = dense.input.both();
            [gate, up, Some(&dense.output), dense.scalar_gate.as_ref()].into_iter().flatten()
        });
        let own_input = self.own_input.iter().flat_map(|parts| [&parts.gate, &parts.projection]);
        let router = self.experts.iter().map(|experts| &experts.router);
        mixer.into_iter().flatten().chain(dense).chain(own_input).chain(router)
    }
}

impl<'a> ExpertParts<InFile<'a>> {
    fn matrices(&self) -> impl Iterator<Item = MatrixTensor<'a>> + '_ {
        let [gate, up] = self.input.both();
        [gate, up, Some(&self.output)].into_iter().flatten().flat_map(ExpertTensors::matrices)
    }
}

impl<L> GatedProjections<L> {
    fn both(&self) -> [Option<&L>; 2] {
        match self {
            GatedProjections::Split { gate, up } => [Some(gate), Some(up)],
            GatedProjections::Fused(all) => [Some(all), None],
        }
    }

    fn map<M>(self, mut map: impl FnMut(L) -> Result<M, BackendError>) -> Result<GatedProjections<M>, BackendError> {
        Ok(match self {
            GatedProjections::Split { gate, up } => GatedProjections::Split { gate: map(gate)?, up: map(up)? },
            GatedProjections::Fused(all) => GatedProjections::Fused(map(all)?),
        })
    }
}

impl LayerParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<LayerParts<P>, BackendError> {
        Ok(LayerParts {
            mixer_norm: vector(place, self.mixer_norm)?,
            mixer: self.mixer.place(place)?,
            post_mixer_norm: vector(place, self.post_mixer_norm)?,
            ffn_norm: vector(place, self.ffn_norm)?,
            dense: self.dense.map(|dense| dense.place(place)).transpose()?,
            experts: self.experts.map(|experts| experts.place(place)).transpose()?,
            post_ffn_norm: vector(place, self.post_ffn_norm)?,
            own_input: self.own_input.map(|parts| parts.place(place)).transpose()?,
            output_scale: self.output_scale,
        })
    }
}

impl MixerParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<MixerParts<P>, BackendError> {
        Ok(match self {
            MixerParts::Attention(parts) => MixerParts::Attention(parts.place(place)?),
            MixerParts::ShortConvolution(parts) => MixerParts::ShortConvolution(ShortConvolutionParts {
                input: place.linear(parts.input)?,
                taps: place.vector(parts.taps)?,
                output: place.linear(parts.output)?,
            }),
            MixerParts::DeltaNet(parts) => MixerParts::DeltaNet(Box::new(parts.place(place)?)),
            MixerParts::Mamba2(parts) => MixerParts::Mamba2(Box::new(parts.place(place)?)),
        })
    }
}

impl AttentionParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<AttentionParts<P>, BackendError> {
        Ok(AttentionParts {
            input: match self.input {
                AttentionProjections::Split { query, key, value } => AttentionProjections::Split {
                    query: place.linear(query)?,
                    key: linear(place, key)?,
                    value: linear(place, value)?,
                },
                AttentionProjections::Fused(all) => AttentionProjections::Fused(place.linear(all)?),
            },
            query_norm: vector(place, self.query_norm)?,
            key_norm: vector(place, self.key_norm)?,
            value_norm: vector(place, self.value_norm)?,
            sinks: vector(place, self.sinks)?,
            output: place.linear(self.output)?,
        })
    }
}

impl DeltaNetParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<DeltaNetParts<P>, BackendError> {
        Ok(DeltaNetParts {
            input: place.linear(self.input)?,
            gate: place.linear(self.gate)?,
            alpha: place.linear(self.alpha)?,
            beta: place.linear(self.beta)?,
            taps: place.vector(self.taps)?,
            step_bias: place.vector(self.step_bias)?,
            rates: place.vector(self.rates)?,
            query_scale: place.vector(self.query_scale)?,
            key_scale: place.vector(self.key_scale)?,
            norm: place.vector(self.norm)?,
            output: place.linear(self.output)?,
        })
    }
}

impl Mamba2Parts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<Mamba2Parts<P>, BackendError> {
        Ok(Mamba2Parts {
            input: place.linear(self.input)?,
            taps: place.vector(self.taps)?,
            convolution_bias: vector(place, self.convolution_bias)?,
            step_bias: place.vector(self.step_bias)?,
            rates: place.vector(self.rates)?,
            skip: place.vector(self.skip)?,
            norms: self.norms.into_iter().map(|norm| place.vector(norm)).collect::<Result<_, _>>()?,
            output: place.linear(self.output)?,
        })
    }
}

impl DenseParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<DenseParts<P>, BackendError> {
        Ok(DenseParts {
            input: self.input.map(|tensors| place.linear(tensors))?,
            output: place.linear(self.output)?,
            scalar_gate: linear(place, self.scalar_gate)?,
            post_norm: vector(place, self.post_norm)?,
        })
    }
}

impl ExpertParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<ExpertParts<P>, BackendError> {
        Ok(ExpertParts {
            router: place.linear(self.router)?,
            router_norm: vector(place, self.router_norm)?,
            norm: vector(place, self.norm)?,
            selection_bias: vector(place, self.selection_bias)?,
            output_scales: vector(place, self.output_scales)?,
            input: self.input.map(|tensors| place.experts(tensors))?,
            output: place.experts(self.output)?,
            post_norm: vector(place, self.post_norm)?,
        })
    }
}

impl OwnInputParts<InFile<'_>> {
    fn place<P: Placing>(self, place: &mut P) -> Result<OwnInputParts<P>, BackendError> {
        Ok(OwnInputParts {
            gate: place.linear(self.gate)?,
            projection: place.linear(self.projection)?,
            post_norm: place.vector(self.post_norm)?,
        })
    }
}
