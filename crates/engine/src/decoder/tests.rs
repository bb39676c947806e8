use super::*;
use crate::support;
use crate::synth::{self, Quantization};

/// The backends' agreement proves nothing if the reader makes another model of a file than its shape.
#[test]
fn the_engine_reads_the_shape_that_was_written() {
    for shape in support::tiny_shapes() {
        let mut bytes = Vec::new();
        let vocabulary = support::few_tokens();
        synth::write_to(shape, Quantization::Q4_K_M, &vocabulary, 1, &mut bytes, &mut |_| ()).unwrap();
        let gguf = Gguf::from_bytes(bytes).unwrap();
        let spec = DecoderSpec::from_gguf(&gguf, None).unwrap_or_else(|error| panic!("{}: {error}", shape.name));
        assert_eq!(spec.layers.len(), shape.n_layers, "{}", shape.name);
        for (index, layer) in spec.layers.iter().enumerate() {
            let recurrence = shape.recurrence.filter(|recurrence| !recurrence.attention.contains(index));
            assert_eq!(layer.recurrence(), recurrence.map(|recurrence| recurrence.layer).as_ref(), "{}", shape.name);
            let experts = shape.experts.filter(|experts| experts.layers.contains(index));
            assert_eq!(layer.has_experts, experts.is_some(), "layer {index} of {}", shape.name);
        }
        assert_eq!(
            spec.experts.map(|experts| (experts.n_experts, experts.n_used, experts.width)),
            shape.experts.map(|experts| (experts.n_experts, experts.n_used, experts.width)),
            "{}",
            shape.name
        );
    }
}
