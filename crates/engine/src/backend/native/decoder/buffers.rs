//! The buffers of a program. Layers share them, so each is as wide as the widest layer needs.

use hone_kernels::ActivationBits;
use hone_kernels::step::{ProgramBuilder, QuantizedRows, RouterId, RowSet, Rows};

use crate::decoder::{AttentionSpec, DecoderSpec, ExpertsSpec, LayerSpec, Mixer, RecurrentSpec};

/// Buffers of all tokens, and those in the form that products read.
pub(super) struct Buffers {
    /// What a mixer's first products give.
    pub(super) projected: Rows,
    /// What a mixer makes of that.
    pub(super) prepared: Rows,
    /// What a mixer gives.
    pub(super) mixed: Rows,
    /// The residual stream after the state layer.
    pub(super) state_of_tokens: Rows,
    pub(super) state_of_selected: Rows,
    /// The layers' own inputs, one after the other.
    pub(super) layer_inputs: Option<Rows>,
    pub(super) input_projections: Option<Rows>,
    quantized: Vec<(RowSet, usize, QuantizedRows)>,
}

impl Buffers {
    pub(super) fn new(builder: &mut ProgramBuilder, spec: &DecoderSpec) -> Self {
        let widest = |width: fn(&DecoderSpec, &LayerSpec) -> usize| {
            spec.layers.iter().map(|layer| width(spec, layer)).max().unwrap_or(0)
        };
        let all_inputs = spec.layer_input_width.map(|width| width * spec.layers.len());
        Buffers {
            projected: builder.rows(RowSet::Tokens, widest(projected_width)),
            prepared: builder.rows(RowSet::Tokens, widest(prepared_width)),
            mixed: builder.rows(RowSet::Tokens, widest(mixed_width)),
            state_of_tokens: builder.rows(RowSet::Tokens, spec.hidden_size),
            state_of_selected: builder.rows(RowSet::Selected, spec.hidden_size),
            layer_inputs: all_inputs.map(|width| builder.rows(RowSet::Tokens, width)),
            input_projections: all_inputs.map(|width| builder.rows(RowSet::Tokens, width)),
            quantized: Vec::new(),
        }
    }

    /// Rows of this width in the form that products read. A phase's product must not read the same rows as another
    /// input of the same set and width that is still needed.
    pub(super) fn quantized(
        &mut self,
        builder: &mut ProgramBuilder,
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

/// The width of what a mixer gives.
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

/// Queries, keys and values; and queries with their gates before they are taken apart.
fn attention_width(spec: &DecoderSpec, attention: &AttentionSpec) -> usize {
    let zipped = if spec.output_gate { 2 * attention.query_width() } else { 0 };
    attention.query_width() + 2 * attention.kv_width() + zipped
}

/// Gates of attention's output, or what a convolution gives, and the decays of the heads.
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
    /// What the last mixer gives, for selected rows.
    pub(super) mixed: Rows,
    /// Gate and up, concatenated.
    pub(super) gated: Rows,
    /// The one gate of a shared expert's output.
    pub(super) scalar_gate: Rows,
    /// The output of attention or feed-forward, if something is done to it before it is added.
    pub(super) branch: Rows,
    /// The last layer's own input, for selected rows.
    pub(super) own_input: Option<Rows>,
    pub(super) mixture: Option<Mixture>,
}

impl Stream {
    pub(super) fn new(builder: &mut ProgramBuilder, spec: &DecoderSpec, set: RowSet, bits: ActivationBits) -> Self {
        let is_selected = set == RowSet::Selected;
        let dense_width = spec.layers.iter().filter_map(|layer| layer.dense).map(|dense| 2 * dense.width).max();
        let gated_width = dense_width.unwrap_or(0).max(spec.layer_input_width.unwrap_or(0));
        let last = spec.layers.last().filter(|_| is_selected);
        let own_input = spec.layer_input_width.filter(|_| is_selected);
        Stream {
            set,
            hidden: builder.rows(set, spec.hidden_size),
            normed: builder.rows(set, spec.hidden_size),
            input: builder.quantized(set, spec.hidden_size, bits),
            mixed: builder.rows(set, last.map_or(0, |layer| mixed_width(spec, layer))),
            gated: builder.rows(set, gated_width),
            scalar_gate: builder.rows(set, 1),
            branch: builder.rows(set, spec.hidden_size),
            own_input: own_input.map(|width| builder.rows(set, width)),
            mixture: spec.experts.map(|experts| Mixture::new(builder, &experts, spec.hidden_size, set, bits)),
        }
    }
}

/// The buffers of a mixture of experts, for the tokens of one set.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    pub(super) router: RouterId,
    pub(super) logits: Rows,
    /// What the router reads, if it is not what the experts read.
    pub(super) router_input: QuantizedRows,
    /// What the experts read, if it is not what the dense part reads.
    pub(super) own_input: QuantizedRows,
    /// What the experts read, a row for every choice.
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
        builder: &mut ProgramBuilder,
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
