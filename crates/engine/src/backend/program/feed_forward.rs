//! The feed-forward part of a layer: dense, a mixture of experts, or both.

use hone_kernels::step::{
    ExpertInput, ExpertOutput, Part, ProductOutput, QuantizedRows, RoutingOptions, RowOperation, RowSet,
};

use super::buffers::{Mixture, Stream};
use super::{Description, Experts, InProgram, Linear};
use crate::backend::tensors::{DenseParts, ExpertParts, GatedProjections, LayerParts};
use crate::decoder::ExpertsSpec;

impl<S: InProgram> Description<'_, S> {
    pub(super) fn feed_forward(&mut self, stream: &Stream, layer: &LayerParts<S>) {
        let mixture = layer.experts.as_ref().zip(stream.mixture);
        self.prepare_input(stream, layer.ffn_norm, stream.input);
        let mut products = Vec::new();
        if let Some((parts, mixture)) = mixture {
            self.prepare_experts(stream, parts, &mixture);
            if parts.router_norm.is_none() {
                products.push((parts.router, mixture.logits.all()));
            }
        }
        self.flush(stream.set);
        let scalar_gate = layer.dense.as_ref().and_then(|dense| self.gated_products(stream, dense, &mut products));
        self.product(stream.input, &products);
        if let Some((parts, mixture)) = mixture.filter(|(parts, _)| parts.router_norm.is_some()) {
            self.product(mixture.router_input, &[(parts.router, mixture.logits.all())]);
        }
        let dense = layer.dense.as_ref().map(|dense| (dense, self.gate(stream, dense, scalar_gate)));
        let Some((parts, mixture)) = mixture else {
            if let Some((dense, input)) = dense {
                self.flush(stream.set);
                self.add_branch(stream, input, dense.output, layer.post_ffn_norm);
            }
            return;
        };
        self.mixture(stream, parts, &mixture);
        if let Some((dense, input)) = dense {
            self.add_dense(stream, dense, input, mixture.sum.all());
        }
        self.add_to_stream(stream, mixture.sum.all(), layer.post_ffn_norm);
    }

    /// The inputs of router and experts, where they differ from the dense part's.
    fn prepare_experts(&mut self, stream: &Stream, parts: &ExpertParts<S>, mixture: &Mixture) {
        if parts.norm.is_some() {
            self.prepare_input(stream, parts.norm, mixture.own_input);
        }
        if parts.router_norm.is_some() {
            self.prepare_input(stream, parts.router_norm, mixture.router_input);
        }
    }

    /// Adds the products of a dense part to those of the layer's input. Returns where its scalar gate is, if it has
    /// one.
    fn gated_products(
        &mut self,
        stream: &Stream,
        dense: &DenseParts<S>,
        products: &mut Vec<(Linear, Part)>,
    ) -> Option<Part> {
        let [gate, up] = gate_and_up(stream, self.width_of(dense));
        match dense.input {
            GatedProjections::Split { gate: gate_layer, up: up_layer } => {
                products.extend([(gate_layer, gate), (up_layer, up)]);
            }
            GatedProjections::Fused(all) => products.push((all, stream.gated.part(0, gate.width() + up.width()))),
        }
        dense.scalar_gate.map(|linear| {
            let to = stream.scalar_gate.all();
            products.push((linear, to));
            to
        })
    }

    /// The input of a dense part's last product.
    fn gate(&mut self, stream: &Stream, dense: &DenseParts<S>, scalar_gate: Option<Part>) -> QuantizedRows {
        let [gate, up] = gate_and_up(stream, self.width_of(dense));
        self.pending.push(RowOperation::Gate { activation: self.spec.activation, gate, up });
        // The product is linear, so that its input may be gated in place of its output.
        self.pending.extend(scalar_gate.map(|scalar| RowOperation::GateSigmoid { values: gate, gate: scalar }));
        self.quantize(stream.set, gate)
    }

    fn width_of(&self, dense: &DenseParts<S>) -> usize {
        self.builder.n_columns(dense.output.matrix)
    }

    /// Adds the dense part to the sum of the experts.
    fn add_dense(&mut self, stream: &Stream, dense: &DenseParts<S>, input: QuantizedRows, sum: Part) {
        let to = stream.branch.all();
        self.flush(stream.set);
        self.builder.product(input, &[ProductOutput { matrix: dense.output.matrix, to, add: false }]);
        self.bias(dense.output, to);
        if let Some(weight) = dense.post_norm {
            self.norm(to, weight);
        }
        self.pending.push(RowOperation::Add { from: to, to: sum });
    }

    /// Everything from the router's logits to the sum of a token's experts.
    fn mixture(&mut self, stream: &Stream, parts: &ExpertParts<S>, mixture: &Mixture) {
        let experts = self.spec.experts.expect("a layer has experts if the model has");
        let ExpertsSpec { gating, is_normalized, scale, weighs_input, .. } = experts;
        self.pending.push(RowOperation::Route {
            router: mixture.router,
            logits: mixture.logits.all(),
            options: RoutingOptions { gating, is_normalized, scale },
            selection_bias: parts.selection_bias,
            output_scales: parts.output_scales,
        });
        self.flush(stream.set);
        let routed = RowSet::Routed(mixture.router);
        let (gate, up) = (mixture.gated.part(0, experts.width), mixture.gated.part(experts.width, experts.width));
        let chosen = if parts.norm.is_some() { mixture.own_input } else { stream.input };
        let input = ExpertInput::Chosen(chosen, mixture.input);
        match parts.input {
            GatedProjections::Split { gate: gate_layer, up: up_layer } => {
                self.expert_product(mixture, input, &[(gate_layer, gate), (up_layer, up)]);
            }
            GatedProjections::Fused(all) => self.expert_product(mixture, input, &[(all, mixture.gated.all())]),
        }
        if weighs_input {
            self.pending.push(RowOperation::Weigh { values: mixture.gated.all() });
        }
        self.pending.push(RowOperation::Gate { activation: self.spec.activation, gate, up });
        self.pending.push(RowOperation::Quantize { from: gate, to: mixture.gated_input });
        self.flush(routed);
        self.expert_product(mixture, ExpertInput::Routed(mixture.gated_input), &[(parts.output, mixture.output.all())]);
        self.flush(routed);
        let (router, from, to) = (mixture.router, mixture.output, mixture.sum.all());
        self.pending.push(RowOperation::Combine { router, from, is_weighted: !weighs_input, to });
        if let Some(weight) = parts.post_norm {
            self.norm(to, weight);
        }
    }

    fn expert_product(&mut self, mixture: &Mixture, input: ExpertInput, layers: &[(Experts, Part)]) {
        let outputs: Vec<ExpertOutput> =
            layers.iter().map(|&(Experts { matrices: experts, .. }, to)| ExpertOutput { experts, to }).collect();
        self.builder.expert_product(mixture.router, input, &outputs);
        for &(Experts { biases, .. }, to) in layers {
            self.pending.extend(biases.map(|biases| RowOperation::AddExpertBias { biases, to }));
        }
    }
}

/// The places of a dense part's gate and up rows.
fn gate_and_up(stream: &Stream, width: usize) -> [Part; 2] {
    [stream.gated.part(0, width), stream.gated.part(width, width)]
}
