//! The buffers of a program. Layers share them, so each is as wide as the widest layer needs.

use std::ops::Range;

use hone_kernels::ActivationBits;
use hone_kernels::step::{ProgramBuilder, QuantizedRows, RopeId, RouterId, RowSet, Rows, WeightMatrix};

use crate::decoder::{AttentionSpec, DecoderSpec, ExpertsSpec, LayerSpec, Mixer, RecurrentSpec, RopeTable};

/// Buffers in addition to the streams': one for the layers' own inputs, and those in the form that products read.
pub(super) struct Buffers {
    /// The projections that become the layers' own inputs, if they are described.
    pub(super) input_projections: Option<Rows>,
    quantized: Vec<(RowSet, usize, QuantizedRows)>,
}

impl Buffers {
    pub(super) fn new(builder: &mut ProgramBuilder<impl WeightMatrix>, spec: &DecoderSpec, begins: bool) -> Self {
        let all_inputs = spec.layer_input_width.filter(|_| begins).map(|width| width * spec.layers.len());
        let input_projections = all_inputs.map(|width| builder.rows(RowSet::Tokens, width));
        Buffers { input_projections, quantized: Vec::new() }
    }

    /// Rows of this width in the form that products read. A phase's product must not read the same rows as another
    /// input of the same set and width that is still needed.
    pub(super) fn quantized(
        &mut self,
        builder: &mut ProgramBuilder<impl WeightMatrix>,
        set: RowSet,
        width: usize,
        bits: ActivationBits,
    ) -> QuantizedRows {
        let known = self.quantized.iter().find(|(of, with, _)| (*of, *with) == (set, width));
        match known {
            Some((_, _, rows)) => *rows,
            None => {
                let rows = builder.quantized(set, width, bits);
                self.quantized.push((set, width, rows));
                rows
            }
        }
    }
}

fn rope(builder: &mut ProgramBuilder<impl WeightMatrix>, set: RowSet, table: &RopeTable) -> RopeId {
    builder.rope(set, table.pairs, table.inverse_frequencies.clone(), table.magnitude)
}

/// Width of a mixer's output.
fn mixed_width(spec: &DecoderSpec, layer: &LayerSpec) -> usize {
    match &layer.mixer {
        Mixer::Attention(attention) => attention.query_width(),
        Mixer::Recurrent(RecurrentSpec::ShortConvolution { .. }) => spec.hidden_size,
        Mixer::Recurrent(RecurrentSpec::DeltaNet { n_value_heads, head_dim, .. }) => n_value_heads * head_dim,
        Mixer::Recurrent(RecurrentSpec::Mamba2 { inner_size, .. }) => *inner_size,
    }
}

fn projected_width(spec: &DecoderSpec, layer: &LayerSpec) -> usize {
    match &layer.mixer {
        Mixer::Attention(attention) => attention_width(spec, attention),
        Mixer::Recurrent(recurrent) => {
            let channels = recurrent.state(spec.hidden_size).n_channels;
            match *recurrent {
                RecurrentSpec::ShortConvolution { .. } => 3 * channels,
                RecurrentSpec::DeltaNet { n_value_heads, head_dim, .. } => {
                    channels + n_value_heads * head_dim + 2 * n_value_heads
                }
                RecurrentSpec::Mamba2 { n_heads, inner_size, .. } => inner_size + channels + n_heads,
            }
        }
    }
}

/// Width of queries, keys and values, and of queries with their gates before they are separated.
fn attention_width(spec: &DecoderSpec, attention: &AttentionSpec) -> usize {
    let zipped = if spec.output_gate { 2 * attention.query_width() } else { 0 };
    attention.query_width() + 2 * attention.kv_width() + zipped
}

/// Width of the gates of attention's output, or of a convolution's output and the decays of the heads.
fn prepared_width(spec: &DecoderSpec, layer: &LayerSpec) -> usize {
    match &layer.mixer {
        Mixer::Attention(attention) if spec.output_gate => attention.query_width(),
        Mixer::Attention(_) => 0,
        Mixer::Recurrent(recurrent) => {
            let state = recurrent.state(spec.hidden_size);
            state.n_channels + state.n_heads
        }
    }
}

/// The buffers that layers pass on for one set of rows.
pub(super) struct Stream {
    pub(super) set: RowSet,
    /// The residual stream.
    pub(super) hidden: Rows,
    pub(super) normed: Rows,
    /// The normed rows, as products read them.
    pub(super) input: QuantizedRows,
    /// Output of a mixer's first products.
    pub(super) projected: Rows,
    /// Intermediate results that a mixer derives from them.
    pub(super) prepared: Rows,
    /// Output of a mixer.
    pub(super) mixed: Rows,
    /// The residual stream after the state layer.
    pub(super) state: Rows,
    /// The positions of these rows.
    pub(super) ropes: Vec<RopeId>,
    /// Gate and up, concatenated.
    pub(super) gated: Rows,
    /// The single gate of a shared expert's output.
    pub(super) scalar_gate: Rows,
    /// The output of attention or feed-forward, if it is processed before it is added.
    pub(super) branch: Rows,
    /// The own inputs of the layers that these rows pass through, and of all later ones, one after the other.
    pub(super) own_inputs: Option<Rows>,
    pub(super) mixture: Option<Mixture>,
}

impl Stream {
    /// Buffers for these layers. Selected rows join the first of them after its mixer.
    pub(super) fn new(
        builder: &mut ProgramBuilder<impl WeightMatrix>,
        spec: &DecoderSpec,
        layers: Range<usize>,
        set: RowSet,
        bits: ActivationBits,
    ) -> Self {
        let n_joined = usize::from(set == RowSet::Selected);
        // The head is computed with the buffers of the last layers.
        let head = spec.head.as_ref().filter(|_| layers.end == spec.layers.len());
        let widest = |layers: &[LayerSpec], width: fn(&DecoderSpec, &LayerSpec) -> usize| {
            layers.iter().chain(head).map(|layer| width(spec, layer)).max().unwrap_or(0)
        };
        let (all, mixing) = (&spec.layers[layers.clone()], &spec.layers[layers.start + n_joined..layers.end]);
        let ropes = if mixing.is_empty() { &[] } else { &*spec.ropes };
        let dense_width = spec.layers.iter().filter_map(|layer| layer.dense).map(|dense| 2 * dense.width).max();
        let gated_width = dense_width.unwrap_or(0).max(spec.layer_input_width.unwrap_or(0));
        let own_inputs = spec.layer_input_width.map(|width| width * (spec.layers.len() - layers.start));
        Stream {
            set,
            hidden: builder.rows(set, spec.hidden_size),
            normed: builder.rows(set, spec.hidden_size),
            input: builder.quantized(set, spec.hidden_size, bits),
            projected: builder.rows(set, widest(mixing, projected_width)),
            prepared: builder.rows(set, widest(mixing, prepared_width)),
            mixed: builder.rows(set, widest(all, mixed_width)),
            state: builder.rows(set, spec.hidden_size),
            ropes: ropes.iter().map(|table| rope(builder, set, table)).collect(),
            gated: builder.rows(set, gated_width),
            scalar_gate: builder.rows(set, 1),
            branch: builder.rows(set, spec.hidden_size),
            own_inputs: own_inputs.map(|width| builder.rows(set, width)),
            mixture: spec.experts.map(|experts| Mixture::new(builder, &experts, spec.hidden_size, set, bits)),
        }
    }
}

/// The buffers of a mixture of experts, for the tokens of one set.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    pub(super) router: RouterId,
    pub(super) logits: Rows,
    /// The router's input, if it differs from the experts'.
    pub(super) router_input: QuantizedRows,
    /// The experts' input, if it differs from the dense part's.
    pub(super) own_input: QuantizedRows,
    /// The experts' input, with a row for every choice.
    pub(super) input: QuantizedRows,
    /// Gate and up, concatenated.
    pub(super) gated: Rows,
    pub(super) gated_input: QuantizedRows,
    pub(super) output: Rows,
    /// The sum of a token's experts.
    pub(super) sum: Rows,
}

impl Mixture {
    fn new(
        builder: &mut ProgramBuilder<impl WeightMatrix>,
        experts: &ExpertsSpec,
        hidden_size: usize,
        set: RowSet,
        bits: ActivationBits,
    ) -> Self {
        let router = builder.router(set, experts.n_experts, experts.n_used);
        let routed = RowSet::Routed(router);
        Mixture {
            router,
            logits: builder.rows(set, experts.n_experts),
            router_input: builder.quantized(set, hidden_size, bits),
            own_input: builder.quantized(set, hidden_size, bits),
            input: builder.quantized(routed, hidden_size, bits),
            gated: builder.rows(routed, 2 * experts.width),
            gated_input: builder.quantized(routed, experts.width, bits),
            output: builder.rows(routed, hidden_size),
            sum: builder.rows(set, hidden_size),
        }
    }
}
