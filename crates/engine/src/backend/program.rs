//! The decoder as a program, which every program-running backend executes.
//!
//! After the last layer that stores something for every token, only the tokens whose logits are wanted are computed:
//! nothing reads the results of the others. In most models that leaves out the last feed-forward. Where the last layers
//! attend to the cache of an earlier one, as in Gemma 4, a prompt skips them entirely. A model with a head computes all
//! tokens to the end, because the head reads every one of them.

mod attention;
mod buffers;
mod feed_forward;
mod head;
#[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
pub(super) mod passing;
mod recurrent;

use std::ops::Range;

use hone_kernels::step::{
    ExpertsId, MatrixId, Part, ProductOutput, ProgramBuilder, QuantizedRows, RowOperation, RowSet, Rows, VectorId,
    WeightMatrix,
};
use hone_kernels::{Activation, ActivationBits, KvFormat};

use crate::backend::tensors::{LayerInputs, LayerParts, MixerParts, ModelParts, OwnInputParts, Storage};
use crate::decoder::{DecoderSpec, Mixer};
use attention::CachedLayer;
use buffers::{Buffers, Stream};
use head::{HeadRows, ModelEnds};

/// A linear layer, as ids in the program.
#[derive(Clone, Copy)]
pub(super) struct Linear {
    pub(super) matrix: MatrixId,
    pub(super) bias: Option<VectorId>,
}

/// A linear layer of every expert.
#[derive(Clone, Copy)]
pub(super) struct Experts {
    pub(super) matrices: ExpertsId,
    pub(super) biases: Option<VectorId>,
}

/// A model whose parts are in a program, wherever their weights are.
pub(super) trait InProgram:
    Storage<Matrix = MatrixId, Linear = Linear, Experts = Experts, Vector = VectorId>
{
    /// A matrix of the program.
    type Weights: WeightMatrix;
}

/// A model's weights, and the program that holds them.
pub(super) struct Weights<S: InProgram> {
    pub(super) builder: ProgramBuilder<S::Weights>,
    pub(super) parts: ModelParts<S>,
}

/// The storage formats of a decoder's results.
#[derive(Clone, Copy)]
pub(super) struct Formats {
    pub(super) kv_cache: KvFormat,
    pub(super) activations: ActivationBits,
}

/// A program's results for the selected tokens.
pub(super) struct Results {
    pub(super) logits: Rows,
    /// The residual stream after the [state layer](DecoderSpec::state_layer).
    pub(super) states: Rows,
    /// If the model has a head.
    pub(super) head: Option<HeadRows>,
}

/// Describes the decoder of `spec` with these weights.
pub(super) fn describe<S: InProgram>(
    spec: &DecoderSpec,
    weights: Weights<S>,
    formats: Formats,
) -> (ProgramBuilder<S::Weights>, Results) {
    let Weights { builder, parts } = weights;
    let (mut description, tokens) = Description::new(spec, 0..spec.layers.len(), builder, formats);
    description.begin(&tokens, &parts);
    let results = description.end(&tokens, &parts);
    (description.builder, results)
}

/// A program under construction.
struct Description<'a, S: InProgram> {
    spec: &'a DecoderSpec,
    /// The layers that are described.
    layers: Range<usize>,
    builder: ProgramBuilder<S::Weights>,
    formats: Formats,
    buffers: Buffers,
    /// By layer, from the first of these on.
    cached: Vec<Option<CachedLayer>>,
    /// The head's cache; the head is described twice: in a step, and after it.
    head_cache: Option<CachedLayer>,
    /// Operations on every row before the next product. They form one phase, regardless of how many parts of the model
    /// they come from.
    pending: Vec<RowOperation>,
}

impl<'a, S: InProgram> Description<'a, S> {
    /// A program without phases, and its buffers for all tokens.
    fn new(
        spec: &'a DecoderSpec,
        layers: Range<usize>,
        mut builder: ProgramBuilder<S::Weights>,
        formats: Formats,
    ) -> (Self, Stream) {
        let buffers = Buffers::new(&mut builder, spec, layers.start == 0);
        let tokens = Stream::new(&mut builder, spec, layers.clone(), RowSet::Tokens, formats.activations);
        let (cached, pending) = (Vec::new(), Vec::new());
        (Description { spec, layers, builder, formats, buffers, cached, head_cache: None, pending }, tokens)
    }

    /// Everything before the first layer.
    fn begin(&mut self, tokens: &Stream, parts: &ModelParts<S>) {
        self.embed(tokens, parts.embeddings.expect("the first layers come with the embeddings"));
        if let Some(inputs) = &parts.layer_inputs {
            self.layer_inputs(tokens, inputs);
        }
    }

    /// The layers, which end with the model's last, and everything after them.
    fn end(&mut self, tokens: &Stream, parts: &ModelParts<S>) -> Results {
        let spec = self.spec;
        let last_kept = if spec.head.is_some() { spec.layers.len() } else { spec.last_kept_layer() };
        let kept = spec.last_kept_layer()..self.layers.end;
        let selected = Stream::new(&mut self.builder, spec, kept, RowSet::Selected, self.formats.activations);
        for (index, layer) in self.layers.clone().zip(&parts.layers) {
            let before = if index <= last_kept { tokens } else { &selected };
            let mut mixed = self.mix(before, layer, &spec.layers[index].mixer);
            if index == last_kept {
                mixed = self.select(tokens, &selected, mixed);
            }
            let stream = if index < last_kept { tokens } else { &selected };
            self.end_layer(stream, layer, index, mixed);
        }
        let logits = self.builder.rows(RowSet::Selected, spec.vocab_size);
        let tied = || Linear { matrix: parts.embeddings.expect("they compute the logits"), bias: None };
        let output = parts.output.unwrap_or_else(tied);
        let head = match (&parts.head, &spec.head) {
            (Some(head), Some(layer)) => {
                let model = ModelEnds { embeddings: parts.embeddings, norm: parts.output_norm, output, logits };
                Some(self.head([tokens, &selected], head, &layer.mixer, &model))
            }
            _ => {
                self.read_stream(&selected, Some(parts.output_norm));
                self.logits(&selected, output, logits);
                None
            }
        };
        Results { logits, states: selected.state, head }
    }

    /// Everything after a layer's mixer.
    fn end_layer(&mut self, stream: &Stream, layer: &LayerParts<S>, index: usize, mixed: Part) {
        self.after_mixer(stream, layer, mixed);
        self.feed_forward(stream, layer);
        self.finish_layer(stream, layer, index);
        if index == self.spec.state_layer {
            self.pending.push(RowOperation::Copy { from: stream.hidden.all(), to: stream.state.all() });
        }
    }

    fn embed(&mut self, stream: &Stream, table: MatrixId) {
        let scale = self.spec.embedding_scale.unwrap_or(1.0);
        self.pending.push(RowOperation::Embed { table, scale, to: stream.hidden });
        self.angles(stream);
    }

    fn angles(&mut self, stream: &Stream) {
        self.pending.extend(stream.ropes.iter().map(|rope| RowOperation::Angles(*rope)));
    }

    /// Every layer's own input: the token's row of a separate table, and a projection of its embedding.
    fn layer_inputs(&mut self, stream: &Stream, inputs: &LayerInputs<S>) {
        let (Some(all), Some(width)) = (stream.own_inputs, self.spec.layer_input_width) else { return };
        let projected = self.buffers.input_projections.expect("it exists with the inputs").all();
        self.pending.push(RowOperation::Quantize { from: stream.hidden.all(), to: stream.input });
        self.flush(stream.set);
        self.product(stream.input, &[(inputs.projection, projected)]);
        let factor = (self.spec.hidden_size as f32).sqrt().recip();
        self.pending.push(RowOperation::Scale { values: projected, factor });
        self.norm(projected, inputs.projection_norm);
        self.pending.push(RowOperation::Embed { table: inputs.embeddings, scale: (width as f32).sqrt(), to: all });
        self.pending.push(RowOperation::Add { from: projected, to: all.all() });
        self.pending.push(RowOperation::Scale { values: all.all(), factor: std::f32::consts::FRAC_1_SQRT_2 });
    }

    /// Everything up to the last product of attention or recurrence. Returns the input of that product.
    fn mix(&mut self, stream: &Stream, layer: &LayerParts<S>, mixer: &Mixer) -> Part {
        self.read_stream(stream, layer.mixer_norm);
        match (&layer.mixer, mixer) {
            (MixerParts::Attention(parts), Mixer::Attention(attention)) => self.attention(stream, parts, attention),
            (parts, Mixer::Recurrent(recurrent)) => self.recurrent(stream, parts, recurrent),
            _ => unreachable!("the parts were found for this spec"),
        }
    }

    /// From here on, only the tokens whose logits are wanted are computed.
    fn select(&mut self, tokens: &Stream, selected: &Stream, mixed: Part) -> Part {
        self.flush(tokens.set);
        let to = selected.mixed.part(0, mixed.width());
        let pairs =
            [(tokens.state.all(), selected.state.all()), (tokens.hidden.all(), selected.hidden.all()), (mixed, to)];
        self.pending.extend(pairs.map(|(from, to)| RowOperation::Gather { from, to }));
        if let (Some(from), Some(to)) = (tokens.own_inputs, selected.own_inputs) {
            let from = from.part(from.width() - to.width(), to.width());
            self.pending.push(RowOperation::Gather { from, to: to.all() });
        }
        self.angles(selected);
        to
    }

    fn after_mixer(&mut self, stream: &Stream, layer: &LayerParts<S>, mixed: Part) {
        let input = self.quantize(stream.set, mixed);
        let output = match &layer.mixer {
            MixerParts::Attention(parts) => parts.output,
            MixerParts::ShortConvolution(parts) => parts.output,
            MixerParts::DeltaNet(parts) => parts.output,
            MixerParts::Mamba2(parts) => parts.output,
        };
        self.flush(stream.set);
        self.add_branch(stream, input, output, layer.post_mixer_norm);
    }

    /// The end of a layer, after the feed-forward part: the layer's own input, and a factor.
    fn finish_layer(&mut self, stream: &Stream, layer: &LayerParts<S>, index: usize) {
        if let Some(parts) = &layer.own_input {
            self.own_input(stream, parts, index);
        }
        self.scale(stream.hidden.all(), layer.output_scale);
    }

    fn own_input(&mut self, stream: &Stream, parts: &OwnInputParts<S>, index: usize) {
        let (Some(width), Some(inputs)) = (self.spec.layer_input_width, stream.own_inputs) else { return };
        // The rows end with the last layer's input.
        let n_left = self.spec.layers.len() - index;
        let own = inputs.part(inputs.width() - n_left * width, width);
        let gate = stream.gated.part(0, width);
        self.pending.push(RowOperation::Quantize { from: stream.hidden.all(), to: stream.input });
        self.flush(stream.set);
        self.product(stream.input, &[(parts.gate, gate)]);
        self.pending.push(RowOperation::Gate { activation: Activation::GeluTanh, gate, up: own });
        let input = self.quantize(stream.set, gate);
        self.flush(stream.set);
        let branch = stream.branch.all();
        self.product(input, &[(parts.projection, branch)]);
        self.norm(branch, parts.post_norm);
        self.pending.push(RowOperation::Add { from: branch, to: stream.hidden.all() });
    }

    /// The logits, from the input of the stream's next product.
    fn logits(&mut self, stream: &Stream, output: Linear, logits: Rows) {
        self.product(stream.input, &[(output, logits.all())]);
        self.scale(logits.all(), self.spec.logit_scale);
        if let Some(cap) = self.spec.logit_soft_cap {
            self.pending.push(RowOperation::SoftCap { values: logits.all(), cap });
        }
        self.flush(stream.set);
    }

    /// Adds a product to the residual stream: directly, or after it was normed and scaled if the model does so.
    fn add_branch(&mut self, stream: &Stream, input: QuantizedRows, linear: Linear, norm: Option<VectorId>) {
        let is_direct = norm.is_none() && self.spec.branch_scale.is_none();
        let to = if is_direct { stream.hidden } else { stream.branch }.all();
        self.builder.product(input, &[ProductOutput { matrix: linear.matrix, to, add: is_direct }]);
        self.bias(linear, to);
        if !is_direct {
            self.add_to_stream(stream, to, norm);
        }
    }

    /// Adds rows to the residual stream, normed and scaled if the model does so.
    fn add_to_stream(&mut self, stream: &Stream, branch: Part, norm: Option<VectorId>) {
        if let Some(weight) = norm {
            self.norm(branch, weight);
        }
        self.scale(branch, self.spec.branch_scale);
        self.pending.push(RowOperation::Add { from: branch, to: stream.hidden.all() });
    }

    /// Makes the residual stream the input of the next product, normed if there is a weight.
    fn read_stream(&mut self, stream: &Stream, norm: Option<VectorId>) {
        self.prepare_input(stream, norm, stream.input);
        self.flush(stream.set);
    }

    fn prepare_input(&mut self, stream: &Stream, norm: Option<VectorId>, to: QuantizedRows) {
        let mut from = stream.hidden.all();
        if let Some(weight) = norm {
            self.pending.push(RowOperation::Copy { from, to: stream.normed.all() });
            from = stream.normed.all();
            self.norm(from, weight);
        }
        self.pending.push(RowOperation::Quantize { from, to });
    }

    /// Brings rows into the form that products read.
    fn quantize(&mut self, set: RowSet, from: Part) -> QuantizedRows {
        let bits = self.formats.activations;
        let to = self.buffers.quantized(&mut self.builder, set, from.width(), bits);
        self.pending.push(RowOperation::Quantize { from, to });
        to
    }

    fn product(&mut self, input: QuantizedRows, layers: &[(Linear, Part)]) {
        let outputs: Vec<ProductOutput> =
            layers.iter().map(|&(linear, to)| ProductOutput { matrix: linear.matrix, to, add: false }).collect();
        self.builder.product(input, &outputs);
        for &(linear, to) in layers {
            self.bias(linear, to);
        }
    }

    fn bias(&mut self, linear: Linear, to: Part) {
        if let Some(bias) = linear.bias {
            self.pending.push(RowOperation::AddBias { bias, to });
        }
    }

    fn scale(&mut self, values: Part, factor: Option<f32>) {
        self.pending.extend(factor.map(|factor| RowOperation::Scale { values, factor }));
    }

    fn norm(&mut self, values: Part, weight: VectorId) {
        self.norm_with(values, weight, self.spec.norm_epsilon);
    }

    fn norm_with(&mut self, values: Part, weight: VectorId, epsilon: f32) {
        self.pending.push(RowOperation::Norm { values, weight, epsilon });
    }

    /// Turns the collected operations into one phase.
    fn flush(&mut self, set: RowSet) {
        let operations = std::mem::take(&mut self.pending);
        if !operations.is_empty() {
            self.builder.for_each_row(set, operations);
        }
    }
}
