//! Layers that keep a state of all earlier tokens.

use hone_kernels::Activation;
use hone_kernels::step::{ConvolutionOptions, KeySharing, Part, RecurOptions, RowOperation};

use super::buffers::Stream;
use super::{Description, InProgram};
use crate::backend::tensors::{DeltaNetParts, Mamba2Parts, MixerParts, ShortConvolutionParts};
use crate::decoder::RecurrentSpec;

impl<S: InProgram> Description<'_, S> {
    /// Everything up to the input of the layer's last product.
    pub(super) fn recurrent(&mut self, stream: &Stream, parts: &MixerParts<S>, recurrent: &RecurrentSpec) -> Part {
        self.cached.push(None);
        match parts {
            MixerParts::ShortConvolution(parts) => self.short_convolution(stream, parts, recurrent),
            MixerParts::DeltaNet(parts) => self.delta_net(stream, parts, recurrent),
            MixerParts::Mamba2(parts) => self.mamba(stream, parts, recurrent),
            MixerParts::Attention(_) => unreachable!("the parts were found for this spec"),
        }
    }

    fn short_convolution(
        &mut self,
        stream: &Stream,
        parts: &ShortConvolutionParts<S>,
        recurrent: &RecurrentSpec,
    ) -> Part {
        let width = self.spec.hidden_size;
        let &Stream { projected, mixed, .. } = stream;
        let [before, after, values] = [0, 1, 2].map(|index| projected.part(index * width, width));
        self.product(stream.input, &[(parts.input, projected.part(0, 3 * width))]);
        self.pending.push(RowOperation::Multiply { by: before, to: values });
        self.flush(stream.set);
        let layer = self.builder.state_layer(recurrent.state(width));
        let to = mixed.part(0, width);
        let options = ConvolutionOptions { layer, from: values, to, taps: parts.taps, bias: None, has_silu: false };
        self.builder.convolution(&options);
        self.pending.push(RowOperation::Multiply { by: after, to });
        to
    }

    fn delta_net(&mut self, stream: &Stream, parts: &DeltaNetParts<S>, recurrent: &RecurrentSpec) -> Part {
        let state = recurrent.state(self.spec.hidden_size);
        let (channels, n_heads) = (state.n_channels, state.n_heads);
        let value_width = n_heads * state.value_dim;
        let key_width = (channels - value_width) / 2;
        let &Stream { projected, prepared, mixed, .. } = stream;
        let inputs = projected.part(0, channels);
        let gate = projected.part(channels, value_width);
        let steps = projected.part(channels + value_width, n_heads);
        let strengths = projected.part(channels + value_width + n_heads, n_heads);
        let products = [(parts.input, inputs), (parts.gate, gate), (parts.alpha, steps), (parts.beta, strengths)];
        self.product(stream.input, &products);
        self.flush(stream.set);

        let layer = self.builder.state_layer(state);
        let to = prepared.part(0, channels);
        let taps = parts.taps;
        self.builder.convolution(&ConvolutionOptions { layer, from: inputs, to, taps, bias: None, has_silu: true });
        let queries = prepared.part(0, key_width);
        let keys = prepared.part(key_width, key_width);
        let values = prepared.part(2 * key_width, value_width);
        let decays = prepared.part(channels, n_heads);
        // A mean is a sum divided by the width, and so is the epsilon added to it.
        let epsilon = self.spec.norm_epsilon / state.key_dim as f32;
        self.norm_with(queries, parts.query_scale, epsilon);
        self.norm_with(keys, parts.key_scale, epsilon);
        self.pending.push(RowOperation::Decay { steps, decays, bias: parts.step_bias, rates: parts.rates });
        self.pending.push(RowOperation::Sigmoid { values: strengths });
        self.flush(stream.set);

        let to = mixed.part(0, value_width);
        let sharing = KeySharing::Interleaved;
        let is_delta = true;
        self.builder.recur(&RecurOptions { layer, keys, queries, values, decays, strengths, is_delta, sharing, to });
        self.norm(to, parts.norm);
        self.pending.push(RowOperation::Gate { activation: Activation::Silu, gate, up: to });
        gate
    }

    fn mamba(&mut self, stream: &Stream, parts: &Mamba2Parts<S>, recurrent: &RecurrentSpec) -> Part {
        let state = recurrent.state(self.spec.hidden_size);
        let (channels, n_heads) = (state.n_channels, state.n_heads);
        let inner = n_heads * state.value_dim;
        let group_width = (channels - inner) / 2;
        let &Stream { projected, prepared, mixed, .. } = stream;
        let gate = projected.part(0, inner);
        let inputs = projected.part(inner, channels);
        let steps = projected.part(inner + channels, n_heads);
        self.product(stream.input, &[(parts.input, projected.part(0, inner + channels + n_heads))]);
        self.flush(stream.set);

        let layer = self.builder.state_layer(state);
        let to = prepared.part(0, channels);
        let (taps, bias) = (parts.taps, parts.convolution_bias);
        self.builder.convolution(&ConvolutionOptions { layer, from: inputs, to, taps, bias, has_silu: true });
        let values = prepared.part(0, inner);
        let keys = prepared.part(inner, group_width);
        let queries = prepared.part(inner + group_width, group_width);
        let decays = prepared.part(channels, n_heads);
        self.pending.push(RowOperation::Decay { steps, decays, bias: parts.step_bias, rates: parts.rates });
        self.flush(stream.set);

        let to = mixed.part(0, inner);
        let (strengths, sharing) = (steps, KeySharing::Grouped);
        let is_delta = false;
        self.builder.recur(&RecurOptions { layer, keys, queries, values, decays, strengths, is_delta, sharing, to });
        self.pending.push(RowOperation::AddHeads { from: values, factors: parts.skip, to });
        self.pending.push(RowOperation::Gate { activation: Activation::Silu, gate, up: to });
        let width = inner / parts.norms.len();
        for (group, norm) in parts.norms.iter().enumerate() {
            self.norm(projected.part(group * width, width), *norm);
        }
        gate
    }
}
