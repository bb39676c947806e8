//! Synthesized models: the file has the requested contents, in every shape and format.

use std::path::Path;

use hone_engine::gguf::{Gguf, TensorInfo, TensorType, Value, WriteValue, Writer, dequantize};
use hone_engine::synth::{self, Architecture, Quantization, RopeScaling, Shape, WriteProgress};
use hone_protocol::with_causes;

/// A tokenizer of 300 tokens, with the keys that a synthesizer needs.
fn vocabulary() -> Gguf {
    let tokens: Vec<String> = (0..300).map(|id| format!("token{id}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.metadata("general.architecture", WriteValue::String("other")).unwrap();
    writer.metadata("tokenizer.ggml.model", WriteValue::String("llama")).unwrap();
    writer.metadata("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)).unwrap();
    writer.metadata("tokenizer.ggml.scores", WriteValue::F32s(&[-1.0; 300])).unwrap();
    writer.metadata("tokenizer.ggml.token_type", WriteValue::I32s(&[1; 300])).unwrap();
    writer.metadata("tokenizer.ggml.bos_token_id", WriteValue::U32(1)).unwrap();
    writer.metadata("tokenizer.ggml.add_bos_token", WriteValue::Bool(true)).unwrap();
    Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

fn tiny_shapes() -> impl Iterator<Item = &'static Shape> {
    Shape::all().iter().filter(|shape| shape.name.starts_with("tiny-"))
}

fn synthesize(shape: &Shape, quantization: Quantization) -> Gguf {
    let mut bytes = Vec::new();
    let mut last = WriteProgress { written_bytes: 0, total_bytes: 0 };
    let summary =
        synth::write_to(shape, quantization, &vocabulary(), 5, &mut bytes, &mut |progress| last = progress).unwrap();
    assert_eq!(bytes.len() as u64, summary.n_bytes);
    assert_eq!(last, WriteProgress { written_bytes: summary.n_bytes, total_bytes: summary.n_bytes });
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let factors = gguf.tensors().filter(|tensor| tensor.name.starts_with("rope_f"));
    let n_factors: usize = factors.map(|tensor| tensor.n_elements()).sum();
    let n_elements: usize = gguf.tensors().map(|tensor| tensor.n_elements()).sum();
    assert_eq!(summary.n_parameters as usize, n_elements - n_factors);
    gguf
}

fn weights(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.tensor(name).unwrap_or_else(|| panic!("no tensor {name}"));
    let mut weights = vec![0.0; tensor.n_elements()];
    dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut weights);
    weights
}

fn unsigned(gguf: &Gguf, key: &str) -> usize {
    gguf.unsigned(key).unwrap().unwrap_or_else(|| panic!("no key {key}")) as usize
}

/// Tensors that llama.cpp keeps as they are in every file: vectors, routers, convolutions, factors of states.
fn is_never_quantized(tensor: &TensorInfo) -> bool {
    let kept = ["ssm_conv1d", "ssm_norm", "shortconv.conv", "ffn_gate_inp", ".bias", "ssm_a", "ssm_d"];
    let is_state_matrix = tensor.name.contains("ssm_alpha");
    tensor.dimensions.len() == 1 || !is_state_matrix && kept.iter().any(|part| tensor.name.contains(part))
}

#[test]
fn every_tiny_shape_is_written_in_every_quantization() {
    for shape in tiny_shapes() {
        for quantization in Quantization::all() {
            let gguf = synthesize(shape, quantization);
            for tensor in gguf.tensors() {
                let fits = |wanted: &TensorType| tensor.dimensions[0].is_multiple_of(wanted.block_elements());
                let name = format!("{} of {} in {quantization}", tensor.name, shape.name);
                match quantization {
                    _ if is_never_quantized(tensor) => assert_eq!(tensor.tensor_type, TensorType::F32, "{name}"),
                    _ if tensor.name.starts_with("per_layer_model_proj") => {
                        assert_eq!(tensor.tensor_type.block_elements(), 1, "{name}");
                    }
                    Quantization::Uniform(wanted) if fits(&wanted) => assert_eq!(tensor.tensor_type, wanted, "{name}"),
                    Quantization::Uniform(wanted) => assert_ne!(tensor.tensor_type, wanted, "{name}"),
                    Quantization::Q4_K_M => assert_ne!(tensor.tensor_type, TensorType::F32, "{name}"),
                    Quantization::MXFP4_MOE => {
                        let wanted = if tensor.dimensions.len() == 3 { TensorType::MXFP4 } else { TensorType::Q8_0 };
                        assert_eq!(tensor.tensor_type, wanted, "{name}");
                    }
                }
                let weights = weights(&gguf, &tensor.name);
                assert!(weights.iter().all(|weight| weight.is_finite()), "{name}");
                if tensor.name.ends_with("norm.weight") {
                    assert!(weights.iter().all(|weight| *weight > 0.0), "{name}");
                }
                if tensor.name.ends_with("ssm_a") {
                    assert!(weights.iter().all(|weight| *weight < 0.0), "{name}: a state would grow");
                }
            }
        }
    }
}

#[test]
fn metadata_says_what_the_shape_is() {
    for shape in tiny_shapes() {
        let gguf = synthesize(shape, Quantization::Uniform(TensorType::F16));
        let name = shape.architecture.name();
        let size = |key: &str| unsigned(&gguf, &format!("{name}.{key}"));
        assert_eq!(gguf.string("general.architecture").unwrap(), Some(name));
        // One number, or one a layer; a size that all layers lack is not in the file.
        let sizes = |key: &str| match gguf.value(&format!("{name}.{key}")) {
            Some(Value::Array(_)) => gguf.integers(&format!("{name}.{key}")).unwrap().unwrap(),
            _ => vec![gguf.unsigned(&format!("{name}.{key}")).unwrap().unwrap_or(0) as i64],
        };
        assert_eq!(size("block_count"), shape.n_layers + shape.n_predicting);
        assert_eq!(size("embedding_length"), shape.hidden_size);
        assert_eq!(sizes("feed_forward_length")[0], shape.ffn_size as i64);
        assert_eq!(size("attention.head_count"), shape.n_heads);
        assert!(sizes("attention.head_count_kv").contains(&(shape.n_kv_heads as i64)), "{}", shape.name);
        assert_eq!(size("context_length"), shape.context_length);
        assert_eq!(gguf.float(&format!("{name}.rope.freq_base")).unwrap(), Some(shape.rope_base));
        let window = gguf.unsigned(&format!("{name}.attention.sliding_window")).unwrap();
        assert_eq!(window, shape.sliding_window.map(|window| window as u64));
        let cap = |key: &str| gguf.float(&format!("{name}.{key}")).unwrap();
        assert_eq!(cap("attn_logit_softcapping"), shape.attention_soft_cap);
        assert_eq!(cap("final_logit_softcapping"), shape.logit_soft_cap);
        assert_eq!(gguf.tensor("output.weight").is_none(), shape.tied_embeddings);
        assert_eq!(gguf.tensor("token_embd.weight").unwrap().dimensions, [shape.hidden_size, 300]);
    }
}

#[test]
fn each_architecture_has_its_tensors() {
    let check = |shape: &str, tensor: &str, dimensions: &[usize]| {
        let gguf = synthesize(&Shape::named(shape).unwrap(), Quantization::Q4_K_M);
        let found = gguf.tensor(tensor).map(|tensor| tensor.dimensions.as_slice());
        assert_eq!(found, Some(dimensions), "{tensor} of {shape}");
    };
    check("tiny-llama", "blk.2.attn_q.weight", &[256, 256]);
    check("tiny-llama", "blk.2.attn_k.weight", &[256, 64]);
    check("tiny-llama", "blk.2.attn_v.weight", &[256, 64]);
    check("tiny-llama", "blk.2.attn_output.weight", &[256, 256]);
    check("tiny-llama", "blk.2.ffn_gate.weight", &[256, 512]);
    check("tiny-llama", "blk.2.ffn_down.weight", &[512, 256]);
    check("tiny-llama", "output_norm.weight", &[256]);
    check("tiny-llama3", "rope_freqs.weight", &[16]);
    check("tiny-qwen2", "blk.0.attn_k.bias", &[64]);
    check("tiny-qwen3", "blk.0.attn_q.weight", &[256, 512]);
    check("tiny-qwen3", "blk.0.attn_q_norm.weight", &[64]);
    check("tiny-gemma2", "blk.1.post_attention_norm.weight", &[256]);
    check("tiny-gemma2", "blk.1.post_ffw_norm.weight", &[256]);
    check("tiny-gemma3", "blk.6.attn_k_norm.weight", &[64]);
    check("tiny-phi3", "blk.0.attn_qkv.weight", &[256, 384]);
    check("tiny-phi3", "blk.0.ffn_up.weight", &[256, 1024]);
    check("tiny-phi3-longrope", "rope_factors_long.weight", &[16]);
    check("tiny-phi3-longrope", "rope_factors_short.weight", &[16]);
    check("tiny-qwen3moe", "blk.1.ffn_gate_exps.weight", &[256, 256, 5]);
    check("tiny-qwen3moe", "blk.1.ffn_gate_inp.weight", &[256, 5]);
    check("tiny-qwen35", "blk.0.attn_qkv.weight", &[256, 512]);
    check("tiny-qwen35", "blk.0.ssm_conv1d.weight", &[4, 512]);
    check("tiny-qwen35", "blk.2.attn_q.weight", &[256, 512]);
    check("tiny-qwen35", "blk.3.ssm_out.weight", &[256, 256]);
    check("tiny-qwen35", "blk.4.nextn.eh_proj.weight", &[512, 256]);
    check("tiny-qwen35moe", "blk.3.ffn_down_shexp.weight", &[512, 256]);
    check("tiny-qwen35moe", "blk.1.ffn_gate_inp_shexp.weight", &[256]);
    check("tiny-gemma4", "per_layer_token_embd.weight", &[6 * 32, 300]);
    check("tiny-gemma4", "blk.3.attn_v.weight", &[256, 128]);
    check("tiny-gemma4", "blk.5.ffn_up.weight", &[256, 512]);
    check("tiny-gemma4", "rope_freqs.weight", &[64]);
    check("tiny-gemma4moe", "blk.2.attn_k.weight", &[256, 128]);
    check("tiny-gemma4moe", "blk.0.ffn_gate_up_exps.weight", &[256, 512, 5]);
    check("tiny-gemma4moe", "blk.0.ffn_down_exps.scale", &[5]);
    check("tiny-gpt-oss", "blk.0.attn_sinks.weight", &[4]);
    check("tiny-gpt-oss", "blk.0.ffn_down_exps.bias", &[256, 5]);
    check("tiny-lfm2", "blk.0.shortconv.in_proj.weight", &[256, 768]);
    check("tiny-lfm2", "token_embd_norm.weight", &[256]);
    check("tiny-lfm2moe", "blk.0.ffn_gate.weight", &[256, 256]);
    check("tiny-lfm2moe", "blk.1.exp_probs_b.bias", &[5]);
    check("tiny-granitehybrid", "blk.0.ssm_in.weight", &[256, 512 + 640 + 8]);
    check("tiny-granitehybrid", "blk.0.ssm_norm.weight", &[256, 2]);
    check("tiny-olmo2", "blk.0.attn_k_norm.weight", &[256]);
    check("tiny-llama4", "blk.3.ffn_up_shexp.weight", &[256, 256]);
    check("tiny-llama4", "blk.2.ffn_up.weight", &[256, 512]);
}

#[test]
fn layers_lack_what_they_do_not_compute() {
    let check = |shape: &str, tensor: &str| {
        let gguf = synthesize(&Shape::named(shape).unwrap(), Quantization::Q4_K_M);
        assert!(gguf.tensor(tensor).is_none(), "{tensor} of {shape}");
    };
    check("tiny-qwen35", "blk.0.attn_q.weight");
    check("tiny-qwen35moe", "blk.0.ffn_up.weight");
    check("tiny-gemma4", "blk.4.attn_k.weight");
    check("tiny-gemma4", "blk.5.attn_k_norm.weight");
    check("tiny-gemma4moe", "blk.2.attn_v.weight");
    check("tiny-lfm2moe", "blk.0.ffn_gate_inp.weight");
    check("tiny-olmo2", "blk.0.attn_norm.weight");
    check("tiny-llama4", "blk.0.ffn_gate_inp.weight");
}

#[test]
fn metadata_says_which_layers_differ() {
    let of = |shape: &str| synthesize(&Shape::named(shape).unwrap(), Quantization::Q4_K_M);
    let gemma4 = of("tiny-gemma4");
    let pattern = gemma4.booleans("gemma4.attention.sliding_window_pattern").unwrap().unwrap();
    assert_eq!(pattern, [true, false, true, false, true, false]);
    assert_eq!(gemma4.integers("gemma4.feed_forward_length").unwrap().unwrap(), [256, 256, 256, 256, 512, 512]);
    assert_eq!(of("tiny-gemma4moe").integers("gemma4.attention.head_count_kv").unwrap().unwrap(), [2, 2, 1]);
    assert_eq!(of("tiny-lfm2").integers("lfm2.attention.head_count_kv").unwrap().unwrap(), [0, 1, 0, 1]);
    let is_recurrent = of("tiny-qwen35moe").booleans("qwen35moe.attention.recurrent_layers").unwrap().unwrap();
    assert_eq!(is_recurrent, [true, false, true, false]);
    assert_eq!(unsigned(&of("tiny-qwen35"), "qwen35.full_attention_interval"), 3);
    assert_eq!(of("tiny-qwen35").integers("qwen35.rope.dimension_sections").unwrap().unwrap(), [3, 3, 2, 0]);
    assert_eq!(unsigned(&of("tiny-lfm2moe"), "lfm2moe.leading_dense_block_count"), 1);
    assert_eq!(of("tiny-granitehybrid").boolean("granitehybrid.rope.scaling.finetuned").unwrap(), Some(false));
}

#[test]
fn a_mixture_has_the_formats_of_the_files_in_circulation() {
    let check = |shape: &str, tensor: &str, expected: TensorType| {
        let gguf = synthesize(&Shape::named(shape).unwrap(), Quantization::Q4_K_M);
        assert_eq!(gguf.tensor(tensor).unwrap().tensor_type, expected, "{tensor} of {shape}");
        assert_eq!(unsigned(&gguf, "general.file_type"), 15);
    };
    check("tiny-llama", "token_embd.weight", TensorType::Q4_K);
    check("tiny-llama", "output.weight", TensorType::Q6_K);
    check("tiny-llama", "blk.0.attn_v.weight", TensorType::Q4_K);
    check("tiny-llama", "blk.2.attn_v.weight", TensorType::Q6_K);
    check("tiny-llama", "blk.2.ffn_down.weight", TensorType::Q6_K);
    check("tiny-llama", "blk.2.ffn_up.weight", TensorType::Q4_K);
    check("tiny-llama3", "token_embd.weight", TensorType::Q6_K);
    check("tiny-phi3", "blk.2.attn_qkv.weight", TensorType::Q5_K);
    check("tiny-qwen3moe", "blk.0.ffn_up_exps.weight", TensorType::Q4_K);
    check("tiny-qwen3moe", "blk.1.ffn_down_exps.weight", TensorType::Q6_K);
    check("tiny-qwen35", "blk.4.ffn_down.weight", TensorType::Q6_K);
    check("tiny-gpt-oss", "blk.0.ffn_up_exps.weight", TensorType::MXFP4);
    check("tiny-gpt-oss", "blk.2.ffn_down_exps.weight", TensorType::MXFP4);
    check("tiny-gpt-oss", "blk.0.attn_q.weight", TensorType::Q4_K);
    check("tiny-gemma4", "per_layer_token_embd.weight", TensorType::Q8_0);
    check("tiny-gemma4", "per_layer_model_proj.weight", TensorType::BF16);
}

#[test]
fn the_tokenizer_is_copied_and_nothing_else() {
    let gguf = synthesize(&Shape::named("tiny-llama").unwrap(), Quantization::Q4_K_M);
    let vocabulary = vocabulary();
    assert_eq!(gguf.strings("tokenizer.ggml.tokens").unwrap(), vocabulary.strings("tokenizer.ggml.tokens").unwrap());
    assert_eq!(gguf.floats("tokenizer.ggml.scores").unwrap().unwrap(), [-1.0; 300]);
    assert_eq!(gguf.integers("tokenizer.ggml.token_type").unwrap().unwrap(), [1; 300]);
    assert_eq!(unsigned(&gguf, "tokenizer.ggml.bos_token_id"), 1);
    assert_eq!(gguf.boolean("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
    assert_eq!(gguf.string("general.architecture").unwrap(), Some("llama"));
}

#[test]
fn a_vocabulary_without_tokens_is_refused() {
    let empty = Gguf::from_bytes(Writer::new().begin(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let shape = Shape::named("tiny-llama").unwrap();
    let result = synth::write_to(&shape, Quantization::Q4_K_M, &empty, 1, Vec::new(), &mut |_| {});
    let message = with_causes(&result.unwrap_err());
    assert!(message.contains("tokenizer.ggml.tokens is missing or empty"), "{message}");
}

#[test]
fn a_shape_that_does_not_exist_is_an_error_that_lists_those_that_do() {
    let message = Shape::named("mistral-8b").unwrap_err().to_string();
    assert!(message.starts_with("there is no shape \"mistral-8b\"; there are mistral-7b, llama-1b"), "{message}");
}

/// The standard deviations follow from the sizes: a product with a vector of unit spread has unit spread again, and the
/// branches of all layers sum to at least 1, and to twelve times the embedding.
#[test]
fn weights_keep_a_forward_pass_in_range() {
    let spread = |weights: &[f32]| (weights.iter().map(|w| w * w).sum::<f32>() / weights.len() as f32).sqrt();
    let is_plain = |shape: &&Shape| {
        let differs = shape.experts.is_some() || shape.recurrence.is_some() || shape.gemma4.is_some();
        shape.architecture != Architecture::Phi3 && !differs
    };
    for shape in tiny_shapes().filter(is_plain) {
        let gguf = synthesize(shape, Quantization::Uniform(TensorType::Q8_0));
        let of = |name: &str| spread(&weights(&gguf, name));
        let hidden = (shape.hidden_size as f32).sqrt();
        assert!((of("blk.1.attn_v.weight") * hidden - 1.0).abs() < 0.05, "{}", shape.name);
        let logit_divisor = shape.multipliers.map_or(1.0, |multipliers| multipliers.logit_divisor);
        assert!((of("token_embd.weight") * hidden / logit_divisor - 3.0).abs() < 0.1, "{}", shape.name);
        let branch = of("blk.1.ffn_down.weight") * (shape.ffn_size as f32).sqrt() * 0.6;
        let sum_of_branches = branch * (2.0 * shape.n_layers as f32).sqrt();
        let scales_embeddings = matches!(shape.architecture, Architecture::Gemma2 | Architecture::Gemma3);
        let expected = match shape.multipliers {
            Some(multipliers) => 2.25 * logit_divisor * multipliers.embedding / multipliers.branch,
            None if scales_embeddings => 36.0,
            None => 2.25,
        };
        assert!((sum_of_branches / expected - 1.0).abs() < 0.05, "{}: {sum_of_branches}", shape.name);
    }
}

#[test]
fn scaling_of_positions_is_written() {
    let mut shape = Shape::named("tiny-llama").unwrap();
    shape.rope_scaling = RopeScaling::Linear(4.0);
    let gguf = synthesize(&shape, Quantization::Q4_K_M);
    assert_eq!(gguf.string("llama.rope.scaling.type").unwrap(), Some("linear"));
    assert_eq!(gguf.float("llama.rope.scaling.factor").unwrap(), Some(4.0));

    let gguf = synthesize(&Shape::named("tiny-phi3-longrope").unwrap(), Quantization::Q4_K_M);
    assert_eq!(unsigned(&gguf, "phi3.rope.scaling.original_context_length"), 64);
    let factor = gguf.float("phi3.rope.scaling.attn_factor").unwrap().unwrap();
    assert!((factor - (1.0 + 8f32.ln() / 64f32.ln()).sqrt()).abs() < 1e-6, "{factor}");
}

#[test]
fn the_same_seed_gives_the_same_file_and_nothing_else_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape::named("tiny-gemma3").unwrap();
    let write = |name: &str, seed: u64| {
        let path = folder.path().join(name);
        synth::write(&shape, Quantization::Q4_K_M, &vocabulary(), seed, &path, &mut |_| {}).unwrap();
        std::fs::read(path).unwrap()
    };
    let first = write("first.gguf", 1);
    assert!(write("second.gguf", 1) == first, "the same seed gives another file");
    assert!(write("first.gguf", 2) != first, "the file that was there has not been replaced");
    assert_eq!(names_in(folder.path()), ["first.gguf", "second.gguf"]);
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let check = |output: &Path| {
        let shape = Shape::named("tiny-llama").unwrap();
        let result = synth::write(&shape, Quantization::Q4_K_M, &vocabulary(), 1, output, &mut |_| {});
        let message = with_causes(&result.unwrap_err());
        assert!(message.starts_with(&format!("cannot write {}: ", output.display())), "{message}");
    };
    check(&folder.path().join("no such folder").join("model.gguf"));
    std::fs::create_dir(folder.path().join("folder.gguf")).unwrap();
    check(&folder.path().join("folder.gguf"));
    assert_eq!(names_in(folder.path()), ["folder.gguf"]);
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}
