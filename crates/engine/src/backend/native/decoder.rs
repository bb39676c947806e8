//! The decoder as a program of the kernels.
//!
//! The last layer's feed-forward, and everything after it, runs only over the tokens whose logits are wanted: nothing
//! reads the results of the others.

use hone_kernels::step::{
    AttentionOptions, KvLayerId, MatrixId, Part, ProductOutput, Program, ProgramBuilder, QuantizedRows, RopeId,
    RowOperation, RowSet, Rows, VectorId,
};
use hone_kernels::{ActivationBits, KvFormat};

use super::weights::{Linear, Weights};
use crate::backend::tensors::{AttentionProjections, GatedProjections, LayerParts};
use crate::decoder::{DecoderSpec, RopeTable, Sharpening};

/// The formats in which a decoder stores what it computes.
#[derive(Clone, Copy)]
pub(super) struct Formats {
    pub(super) kv_cache: KvFormat,
    pub(super) activations: ActivationBits,
}

/// Describes the decoder of `spec` with these weights. Also returns the rows of the residual stream after its
/// [state layer](DecoderSpec::state_layer).
pub(super) fn program(spec: &DecoderSpec, weights: Weights, formats: Formats) -> (Program, Rows) {
    let Weights { mut builder, parts } = weights;
    let ropes: Vec<RopeId> = spec.ropes.iter().map(|table| rope(&mut builder, table)).collect();
    let tokens = Stream::new(&mut builder, spec, RowSet::Tokens, formats.activations);
    let selected = Stream::new(&mut builder, spec, RowSet::Selected, formats.activations);
    let state = State {
        tokens: builder.rows(RowSet::Tokens, spec.hidden_size),
        selected: builder.rows(RowSet::Selected, spec.hidden_size),
    };
    let projected = builder.rows(RowSet::Tokens, (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim);
    let mut description = Description { spec, builder, kv_format: formats.kv_cache, projected, pending: Vec::new() };
    description.embed(&tokens, parts.embeddings, &ropes);
    let last = parts.layers.len() - 1;
    for (index, layer) in parts.layers.iter().enumerate() {
        let rope = spec.layers[index].rope.map(|rope| ropes[rope]);
        description.attention(&tokens, layer, rope, spec.layers[index].window);
        let stream = if index == last { &selected } else { &tokens };
        if index == last {
            description.select(&tokens, &selected, &state);
        }
        description.after_attention(stream, layer);
        description.feed_forward(stream, layer);
        if index == spec.state_layer() && index != last {
            description.pending.push(RowOperation::Copy { from: tokens.hidden.all(), to: state.tokens.all() });
        }
    }
    let output = parts.output.unwrap_or(Linear { matrix: parts.embeddings, bias: None });
    let states = if spec.state_layer() == last { selected.hidden } else { state.selected };
    (description.logits(&selected, parts.output_norm, output), states)
}

/// The residual stream after the state layer: of all tokens, and of those whose logits are wanted.
struct State {
    tokens: Rows,
    selected: Rows,
}

fn rope(builder: &mut ProgramBuilder, table: &RopeTable) -> RopeId {
    builder.rope(table.pairs, table.inverse_frequencies.clone(), table.magnitude)
}

/// The buffers that layers pass on for one set of rows.
struct Stream {
    set: RowSet,
    /// The residual stream.
    hidden: Rows,
    normed: Rows,
    /// The normed rows, as products read them.
    input: QuantizedRows,
    attended: Rows,
    attended_input: QuantizedRows,
    /// Gate and up, concatenated.
    gated: Rows,
    gated_input: QuantizedRows,
    /// The output of attention or feed-forward, if it is normed before it is added.
    branch: Rows,
}

impl Stream {
    fn new(builder: &mut ProgramBuilder, spec: &DecoderSpec, set: RowSet, bits: ActivationBits) -> Self {
        let query_width = spec.n_heads * spec.head_dim;
        Stream {
            set,
            hidden: builder.rows(set, spec.hidden_size),
            normed: builder.rows(set, spec.hidden_size),
            input: builder.quantized(set, spec.hidden_size, bits),
            attended: builder.rows(set, query_width),
            attended_input: builder.quantized(set, query_width, bits),
            gated: builder.rows(set, 2 * spec.ffn_size),
            gated_input: builder.quantized(set, spec.ffn_size, bits),
            branch: builder.rows(set, spec.hidden_size),
        }
    }
}

/// Names of a layer's weights.
type Layer = LayerParts<Linear, VectorId>;

/// A program under construction.
struct Description<'a> {
    spec: &'a DecoderSpec,
    builder: ProgramBuilder,
    kv_format: KvFormat,
    /// Queries, keys and values, concatenated.
    projected: Rows,
    /// Operations on every row before the next product. They form one phase, however many parts of the model they come
    /// from.
    pending: Vec<RowOperation>,
}

impl Description<'_> {
    fn embed(&mut self, stream: &Stream, table: MatrixId, ropes: &[RopeId]) {
        let scale = self.spec.embedding_scale.unwrap_or(1.0);
        self.pending.push(RowOperation::Embed { table, scale, to: stream.hidden });
        self.pending.extend(ropes.iter().map(|rope| RowOperation::Angles(*rope)));
    }

    /// Everything up to the attention output.
    fn attention(&mut self, stream: &Stream, layer: &Layer, rope: Option<RopeId>, window: Option<usize>) {
        let spec = self.spec;
        let (query_width, kv_width) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        let queries = self.projected.part(0, query_width);
        let keys = self.projected.part(query_width, kv_width);
        let values = self.projected.part(query_width + kv_width, kv_width);
        self.read_stream(stream, layer.attention_norm);
        match layer.attention_input {
            AttentionProjections::Split { query, key, value } => {
                self.product(stream.input, &[(query, queries), (key, keys), (value, values)]);
            }
            AttentionProjections::Fused(all) => self.product(stream.input, &[(all, self.projected.all())]),
        }
        let kv_layer = self.builder.kv_layer(self.kv_format, spec.n_kv_heads, spec.head_dim);
        self.position_and_store(layer, rope, [queries, keys, values], kv_layer);
        self.flush(stream.set);
        self.builder.attention(&AttentionOptions {
            layer: kv_layer,
            queries,
            to: stream.attended,
            scale: spec.attention_scale,
            soft_cap: spec.attention_soft_cap,
            window,
        });
    }

    fn position_and_store(&mut self, layer: &Layer, rope: Option<RopeId>, parts: [Part; 3], kv_layer: KvLayerId) {
        let [queries, keys, values] = parts;
        for (heads, norm) in [(queries, layer.query_norm), (keys, layer.key_norm)] {
            if let Some(weight) = norm {
                self.norm(heads, weight);
            }
            let head_dim = self.spec.head_dim;
            self.pending.extend(rope.map(|rope| RowOperation::Rotate { heads, head_dim, rope }));
        }
        if let Some(Sharpening { rate, interval }) = self.spec.sharpening {
            self.pending.push(RowOperation::Sharpen { values: queries, rate, interval });
        }
        self.pending.push(RowOperation::WriteKv { layer: kv_layer, keys, values });
    }

    /// From here on, only the tokens whose logits are wanted are computed.
    fn select(&mut self, tokens: &Stream, selected: &Stream, state: &State) {
        self.pending.push(RowOperation::Gather { from: state.tokens, to: state.selected });
        self.pending.push(RowOperation::Gather { from: tokens.hidden, to: selected.hidden });
        self.pending.push(RowOperation::Gather { from: tokens.attended, to: selected.attended });
    }

    fn after_attention(&mut self, stream: &Stream, layer: &Layer) {
        self.pending.push(RowOperation::Quantize { from: stream.attended.all(), to: stream.attended_input });
        self.flush(stream.set);
        self.add_branch(stream, stream.attended_input, layer.attention_output, layer.post_attention_norm);
    }

    fn feed_forward(&mut self, stream: &Stream, layer: &Layer) {
        let ffn_size = self.spec.ffn_size;
        let (gate, up) = (stream.gated.part(0, ffn_size), stream.gated.part(ffn_size, ffn_size));
        self.read_stream(stream, layer.ffn_norm);
        match layer.ffn_input {
            GatedProjections::Split { gate: gate_layer, up: up_layer } => {
                self.product(stream.input, &[(gate_layer, gate), (up_layer, up)]);
            }
            GatedProjections::Fused(all) => self.product(stream.input, &[(all, stream.gated.all())]),
        }
        self.pending.push(RowOperation::Gate { activation: self.spec.activation, gate, up });
        self.pending.push(RowOperation::Quantize { from: gate, to: stream.gated_input });
        self.flush(stream.set);
        self.add_branch(stream, stream.gated_input, layer.ffn_output, layer.post_ffn_norm);
    }

    fn logits(mut self, stream: &Stream, norm: VectorId, output: Linear) -> Program {
        let logits = self.builder.rows(RowSet::Selected, self.spec.vocab_size);
        self.read_stream(stream, Some(norm));
        self.product(stream.input, &[(output, logits.all())]);
        self.scale(logits.all(), self.spec.logit_scale);
        if let Some(cap) = self.spec.logit_soft_cap {
            self.pending.push(RowOperation::SoftCap { values: logits.all(), cap });
        }
        self.flush(stream.set);
        self.builder.finish(logits)
    }

    /// Adds a product to the residual stream: at once, or after it was normed and scaled if the model does so.
    fn add_branch(&mut self, stream: &Stream, input: QuantizedRows, linear: Linear, norm: Option<VectorId>) {
        let is_direct = norm.is_none() && self.spec.branch_scale.is_none();
        let to = if is_direct { stream.hidden } else { stream.branch }.all();
        self.builder.product(input, &[ProductOutput { matrix: linear.matrix, to, add: is_direct }]);
        self.bias(linear, to);
        if let Some(weight) = norm {
            self.norm(to, weight);
        }
        self.scale(to, self.spec.branch_scale);
        if !is_direct {
            self.pending.push(RowOperation::Add { from: to, to: stream.hidden.all() });
        }
    }

    /// Makes the residual stream the input of the next product, normed if there is a weight.
    fn read_stream(&mut self, stream: &Stream, norm: Option<VectorId>) {
        let mut from = stream.hidden.all();
        if let Some(weight) = norm {
            self.pending.push(RowOperation::Copy { from, to: stream.normed.all() });
            from = stream.normed.all();
            self.norm(from, weight);
        }
        self.pending.push(RowOperation::Quantize { from, to: stream.input });
        self.flush(stream.set);
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
        self.pending.push(RowOperation::Norm { values, weight, epsilon: self.spec.norm_epsilon });
    }

    /// Turns the collected operations into one phase.
    fn flush(&mut self, set: RowSet) {
        let operations = std::mem::take(&mut self.pending);
        if !operations.is_empty() {
            self.builder.for_each_row(set, operations);
        }
    }
}
