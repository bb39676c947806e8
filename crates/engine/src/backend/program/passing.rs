//! A decoder as two programs: the first layers on one device, and the rest on another.
//!
//! Between them, for every token: the residual stream, the own inputs of the layers that follow, and the residual
//! stream after the [state layer](DecoderSpec::state_layer) if that is behind it. Each program has the cache and the
//! states of its own layers.

use hone_kernels::step::{Part, ProgramBuilder, RowOperation, RowSet, Rows};

use super::buffers::Stream;
use super::{Description, Formats, InProgram, Results, Weights};
use crate::decoder::DecoderSpec;

/// The rows that one program passes to the other, in an order that both know.
pub(in crate::backend) struct Passed(pub(in crate::backend) Vec<Rows>);

/// Describes the first layers of `spec`, as many as there are weights for. The rows that they pass on are those of the
/// selected tokens, so that all tokens must be selected.
pub(in crate::backend) fn describe_beginning<S: InProgram>(
    spec: &DecoderSpec,
    weights: Weights<S>,
    formats: Formats,
) -> (ProgramBuilder<S::Weights>, Passed) {
    let Weights { builder, parts } = weights;
    let n_layers = parts.layers.len();
    let (mut description, tokens) = Description::new(spec, 0..n_layers, builder, formats);
    description.begin(&tokens, &parts);
    for (index, layer) in parts.layers.iter().enumerate() {
        let mixed = description.mix(&tokens, layer, &spec.layers[index].mixer);
        description.end_layer(&tokens, layer, index, mixed);
    }
    description.flush(RowSet::Tokens);
    let mut pass = |from: Part| {
        let rows = description.builder.rows(RowSet::Selected, from.width());
        description.pending.push(RowOperation::Gather { from, to: rows.all() });
        rows
    };
    let passed = Passed(passed(spec, n_layers, &tokens).into_iter().map(&mut pass).collect());
    description.flush(RowSet::Selected);
    (description.builder, passed)
}

/// Describes the rest of `spec`, from layer `first` on. The rows are those of all tokens, to be filled before a step
/// runs.
pub(in crate::backend) fn describe_rest<S: InProgram>(
    spec: &DecoderSpec,
    first: usize,
    weights: Weights<S>,
    formats: Formats,
) -> (ProgramBuilder<S::Weights>, Passed, Results) {
    let Weights { builder, parts } = weights;
    let (mut description, tokens) = Description::new(spec, first..spec.layers.len(), builder, formats);
    // Its own inputs begin with those of the first layer here, so that the parts that are passed on are whole rows.
    let rows = [Some(tokens.hidden), tokens.own_inputs, (spec.state_layer < first).then_some(tokens.state)];
    description.angles(&tokens);
    let results = description.end(&tokens, &parts);
    (description.builder, Passed(rows.into_iter().flatten().collect()), results)
}

/// What the layers from `first` on need of a token.
fn passed(spec: &DecoderSpec, first: usize, stream: &Stream) -> Vec<Part> {
    let own_inputs = stream.own_inputs.zip(spec.layer_input_width).map(|(inputs, width)| {
        let width = width * (spec.layers.len() - first);
        inputs.part(inputs.width() - width, width)
    });
    let state = (spec.state_layer < first).then(|| stream.state.all());
    [Some(stream.hidden.all()), own_inputs, state].into_iter().flatten().collect()
}
