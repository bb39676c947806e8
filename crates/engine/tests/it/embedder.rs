//! The embedder against vectors computed by an independent implementation (numpy, in 64 bits), and with broken files.

use std::path::Path;

use candle_core::{DType, Device};
use hone_engine::gguf::{Gguf, WriteValue};
use hone_engine::{Advance, CachedSequence, Embedder, EncodeOptions, Model, ModelOptions};
use hone_protocol::{Embed, ModelFile, TextLength};
use serde_json::Value;

use crate::support;
use crate::support::made_up::{Weights, arbitrary, file_of};

const NAME: &str = "all-minilm:l6-v2";

/// The shape of a small decoder.
const SHAPE: &str = "tiny-qwen3";

/// A text, and the first components of its vector.
const RECORDED: [(&str, [f32; 8]); 5] = [
    ("The cat sits on the mat.", [0.13418, -0.0329, -0.0248, 0.04144, -0.03635, 0.04181, 0.03122, 0.0372]),
    ("A kitten is resting on a rug.", [0.07536, 0.01511, 0.01209, 0.06079, -0.00402, 0.05636, -0.02714, -0.0021]),
    (
        "Interest rates rose again in the second quarter.",
        [0.03446, -0.06194, -0.01432, 0.03848, 0.03181, -0.02896, -0.13886, 0.01905],
    ),
    ("Grüße aus Köln: 日本語 🦙", [0.00312, 0.10265, 0.07965, -0.05172, -0.03484, 0.07132, 0.07466, 0.03225]),
    ("", [-0.11884, 0.0483, -0.00255, -0.01101, 0.05195, 0.01029, 0.11543, 0.0007]),
];

/// The vector of "word " repeated 400 times, of which 256 tokens count.
const LONG: [f32; 8] = [-0.00812, -0.09559, -0.03867, 0.04966, -0.04379, 0.02372, -0.01814, -0.02021];

/// The cosines of the first three texts: first and second, first and third, second and third.
const COSINES: [f32; 3] = [0.64113, -0.03437, -0.04679];

const TOLERANCE: f32 = 1e-4;

fn folder() -> std::path::PathBuf {
    support::test_model("all-MiniLM-L6-v2/model.safetensors").parent().unwrap().to_path_buf()
}

#[track_caller]
fn check(vector: &[f32], expected: &[f32; 8]) {
    assert_eq!(vector.len(), 384);
    assert!((dot(vector, vector) - 1.0).abs() < TOLERANCE);
    for (value, expected) in vector.iter().zip(expected) {
        assert!((value - expected).abs() < TOLERANCE, "{:?} is not {expected:?}", &vector[..8]);
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn vectors_are_those_of_the_model() {
    let embedder = Embedder::in_folder(NAME, &folder()).unwrap();
    let vectors = embedder.embed(&RECORDED.map(|(text, _)| text)).unwrap();
    assert_eq!((embedder.model(), vectors.len()), (NAME, RECORDED.len()));
    for (vector, (_, expected)) in vectors.iter().zip(&RECORDED) {
        check(vector, expected);
    }
    let cosines = [dot(&vectors[0], &vectors[1]), dot(&vectors[0], &vectors[2]), dot(&vectors[1], &vectors[2])];
    for (cosine, expected) in cosines.iter().zip(COSINES) {
        assert!((cosine - expected).abs() < TOLERANCE, "{cosines:?}");
    }
    assert!(embedder.embed(&[]).unwrap().is_empty());
    let many: Vec<&str> = RECORDED.iter().cycle().take(87).map(|(text, _)| *text).collect();
    for (vector, (_, expected)) in embedder.embed(&many).unwrap().iter().zip(RECORDED.iter().cycle()) {
        check(vector, expected);
    }
}

#[test]
fn a_long_text_counts_with_its_beginning() {
    let embedder = Embedder::in_folder(NAME, &folder()).unwrap();
    let long = "word ".repeat(400);
    let vectors = embedder.embed(&[&long, &(long.clone() + "and something else")]).unwrap();
    check(&vectors[0], &LONG);
    assert_eq!(vectors[0], vectors[1]);
    let lengths = embedder.lengths(&["The cat sits on the mat.", &long]).unwrap();
    assert_eq!(lengths, [TextLength { tokens: 9, is_cut: false }, TextLength { tokens: 256, is_cut: true }]);
}

/// The error that appears when the model is used after a change to one of its files.
fn complaint(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let scratch = support::scratch();
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(folder().join(name), scratch.path().join(name)).unwrap();
    }
    let mut bytes = std::fs::read(folder().join(name)).unwrap();
    change(&mut bytes);
    std::fs::write(scratch.path().join(name), bytes).unwrap();
    let embedder = Embedder::in_folder(NAME, scratch.path()).unwrap();
    let error = embedder.embed(&["text"]).unwrap_err();
    assert_eq!(error.model, NAME);
    error.reason
}

#[track_caller]
fn check_refused(name: &str, change: impl FnOnce(&mut Vec<u8>), part: &str) {
    let reason = complaint(name, change);
    assert!(reason.contains(name) && reason.contains(part), "{reason:?} does not say {name} and {part:?}");
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    let text = String::from_utf8(std::mem::take(bytes)).unwrap();
    assert!(text.contains(from));
    *bytes = text.replace(from, to).into_bytes();
}

#[test]
fn files_that_are_broken_are_named() {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        check_refused(name, |bytes| bytes.truncate(bytes.len() / 2), "cannot be used");
        check_refused(name, Vec::clear, "cannot be used");
        check_refused(name, |bytes| bytes[..8].fill(0xff), "cannot be used");
    }
    let heads =
        |n_heads: &'static str| move |bytes: &mut Vec<u8>| replace(bytes, "\"num_attention_heads\": 12", n_heads);
    check_refused("config.json", heads("\"num_attention_heads\": 0"), "384 dimensions cannot be divided among 0 heads");
    let reason = complaint("config.json", |bytes| replace(bytes, "\"hidden_size\": 384", "\"hidden_size\": 768"));
    assert!(reason.contains("model.safetensors") && reason.contains("shape"), "{reason}");
    let reason = complaint("model.safetensors", |bytes| {
        let start = bytes.len() - 4_000_000;
        bytes[start..].fill(0xff);
    });
    assert!(reason.contains("the weights are damaged"), "{reason}");
}

#[test]
fn a_file_that_is_missing_is_named_at_once() {
    let file = |name: &str| (name.to_owned(), ModelFile::new(folder().join(name), 0, 10));
    let error = Embedder::open(NAME, [file("config.json"), file("1_Pooling/config.json"), file("tokenizer.json")]);
    assert!(error.unwrap_err().to_string().contains("model.safetensors is missing"));
    assert!(Embedder::in_folder(NAME, Path::new("nowhere")).is_err());
}

#[test]
fn a_model_is_read_when_it_is_used_and_again_after_a_failure() {
    let scratch = support::scratch();
    let at = |name: &str| scratch.path().join(name);
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::write(at(name), "not yet").unwrap();
    }
    let files = ["config.json", "tokenizer.json", "model.safetensors"].map(|name| {
        let length = folder().join(name).metadata().unwrap().len();
        (name.to_owned(), ModelFile::new(at(name), 0, length))
    });
    let embedder = Embedder::open(NAME, files.clone()).unwrap();
    assert!(embedder.embed(&[]).unwrap().is_empty(), "nothing to do, nothing read");
    assert!(embedder.embed(&["text"]).is_err());
    for (name, file) in files {
        std::fs::copy(folder().join(&name), &file.path).unwrap();
    }
    assert!(embedder.embed(&["text"]).is_ok());
}

/// A small model of random weights that says how its states are pooled.
fn with_pooling(pooling: u32) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    support::synthesize_few_tokens(SHAPE, "f32", file.path());
    let content = std::fs::read(file.path()).unwrap();
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    // Two further keys: a 32-bit number (type 4), and a text (8) that keeps the tensors aligned.
    let number = [text("qwen3.pooling_type"), 4u32.to_le_bytes().to_vec(), pooling.to_le_bytes().to_vec()].concat();
    let key = [text("general.comment"), 8u32.to_le_bytes().to_vec()].concat();
    let filling = (number.len() + key.len() + 8).wrapping_neg() % 32;
    let n_keys = u64::from_le_bytes(content[16..24].try_into().unwrap()) + 2;
    let header = [&content[..16], &n_keys.to_le_bytes(), &number, &key, &text(&" ".repeat(filling))].concat();
    std::fs::write(file.path(), [&header, &content[24..]].concat()).unwrap();
    file
}

fn of_gguf(path: &Path) -> Embedder {
    Embedder::of_gguf("tiny", support::whole(path))
}

/// Names of a BERT's tensors in a GGUF file.
const BERT_NAMES: [(&str, &str); 13] = [
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("encoder.layer.", "blk."),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// The embedder's tokens as a GGUF file has them, and their types.
fn bert_tokens() -> (Vec<String>, Vec<i32>) {
    let content: Value = serde_json::from_slice(&std::fs::read(folder().join("tokenizer.json")).unwrap()).unwrap();
    let mut tokens: Vec<(&String, u64)> =
        content["model"]["vocab"].as_object().unwrap().iter().map(|(text, id)| (text, id.as_u64().unwrap())).collect();
    tokens.sort_by_key(|(_, id)| *id);
    let is_special = |text: &str| ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].contains(&text);
    let token = |text: &str| match text.strip_prefix("##") {
        Some(piece) => piece.to_owned(),
        None if is_special(text) => text.to_owned(),
        None => format!("\u{2581}{text}"),
    };
    tokens.into_iter().map(|(text, _)| (token(text), if is_special(text) { 3 } else { 1 })).unzip()
}

/// The embedder in one GGUF file, without the tensors that `is_kept` refuses.
fn bert_file(pooling: usize, is_kept: impl Fn(&str) -> bool) -> tempfile::NamedTempFile {
    let tensors = candle_core::safetensors::load(folder().join("model.safetensors"), &Device::Cpu).unwrap();
    let weights = tensors.into_iter().filter(|(name, tensor)| tensor.dtype() == DType::F32 && !name.contains("pooler"));
    let mut weights: Vec<Weights> = weights
        .map(|(name, tensor)| {
            let name = BERT_NAMES.iter().fold(name, |name, (from, to)| name.replace(from, to));
            (name, tensor.dims().to_vec(), tensor.flatten_all().unwrap().to_vec1().unwrap())
        })
        .collect();
    weights.retain(|(name, _, _)| is_kept(name));
    weights.sort_by(|one, other| one.0.cmp(&other.0));
    let sizes = [
        ("block_count", 6),
        ("context_length", 512),
        ("embedding_length", 384),
        ("feed_forward_length", 1536),
        ("attention.head_count", 12),
        ("pooling_type", pooling),
    ];
    let (tokens, types) = bert_tokens();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let others = [
        ("bert.attention.layer_norm_epsilon", WriteValue::F32(1e-12)),
        ("tokenizer.ggml.model", WriteValue::String("bert")),
        ("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)),
        ("tokenizer.ggml.token_type", WriteValue::I32s(&types)),
    ];
    file_of("bert", &sizes, &others, None, &weights)
}

#[test]
fn a_bert_in_one_file_gives_the_same_vectors() {
    let file = bert_file(1, |_| true);
    let embedder = of_gguf(file.path());
    for (vector, (_, expected)) in embedder.embed(&RECORDED.map(|(text, _)| text)).unwrap().iter().zip(&RECORDED) {
        check(vector, expected);
    }
    let lengths = embedder.lengths(&["The cat sits on the mat.", &"word ".repeat(600)]).unwrap();
    assert_eq!(lengths, [TextLength { tokens: 9, is_cut: false }, TextLength { tokens: 512, is_cut: true }]);
}

#[test]
fn what_a_bert_lacks_is_named() {
    let complaint = |file: tempfile::NamedTempFile| of_gguf(file.path()).embed(&["a text"]).unwrap_err().to_string();
    let reason = complaint(bert_file(1, |name| name != "blk.3.ffn_up.bias"));
    assert!(reason.contains("the tensor blk.3.ffn_up.bias is missing"), "{reason}");
    let reason = complaint(bert_file(4, |_| true));
    assert!(reason.contains("pooling (4) is not supported"), "{reason}");
}

/// A NomicBert of arbitrary weights, with a vocabulary of letters.
fn nomic_file() -> tempfile::NamedTempFile {
    const WIDTH: usize = 16;
    const INNER: usize = 24;
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(str::to_owned);
    let letters = ('a'..='z').flat_map(|letter| [format!("\u{2581}{letter}"), letter.to_string()]);
    let tokens: Vec<String> = special.into_iter().chain(letters).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let types: Vec<i32> = std::iter::repeat_n(3, 4).chain(std::iter::repeat_n(1, 52)).collect();
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("token_embd.weight".into(), vec![56, WIDTH]),
        ("token_types.weight".into(), vec![2, WIDTH]),
        ("token_embd_norm.weight".into(), vec![WIDTH]),
        ("token_embd_norm.bias".into(), vec![WIDTH]),
    ];
    for layer in 0..2 {
        let of_layer = [
            ("attn_qkv.weight", vec![3 * WIDTH, WIDTH]),
            ("attn_output.weight", vec![WIDTH, WIDTH]),
            ("attn_output_norm.weight", vec![WIDTH]),
            ("attn_output_norm.bias", vec![WIDTH]),
            ("ffn_up.weight", vec![INNER, WIDTH]),
            ("ffn_gate.weight", vec![INNER, WIDTH]),
            ("ffn_down.weight", vec![WIDTH, INNER]),
            ("layer_output_norm.weight", vec![WIDTH]),
            ("layer_output_norm.bias", vec![WIDTH]),
        ];
        shapes.extend(of_layer.map(|(name, shape)| (format!("blk.{layer}.{name}"), shape)));
    }
    let sizes = [
        ("block_count", 2),
        ("context_length", 64),
        ("embedding_length", WIDTH),
        ("feed_forward_length", INNER),
        ("attention.head_count", 2),
        ("pooling_type", 1),
    ];
    let others = [
        ("nomic-bert.attention.layer_norm_epsilon", WriteValue::F32(1e-12)),
        ("nomic-bert.attention.causal", WriteValue::Bool(false)),
        ("nomic-bert.rope.freq_base", WriteValue::F32(500.0)),
        ("tokenizer.ggml.model", WriteValue::String("bert")),
        ("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)),
        ("tokenizer.ggml.token_type", WriteValue::I32s(&types)),
        ("tokenizer.ggml.token_type_count", WriteValue::U32(2)),
        ("tokenizer.ggml.unknown_token_id", WriteValue::U32(1)),
        ("tokenizer.ggml.cls_token_id", WriteValue::U32(2)),
        ("tokenizer.ggml.bos_token_id", WriteValue::U32(2)),
        ("tokenizer.ggml.seperator_token_id", WriteValue::U32(3)),
        ("tokenizer.ggml.padding_token_id", WriteValue::U32(0)),
    ];
    file_of("nomic-bert", &sizes, &others, None, &arbitrary(shapes))
}

/// A small EmbeddingGemma of arbitrary weights, with a vocabulary of letters; two of its three layers have a window.
fn gemma_file(has_dense_layers: bool) -> tempfile::NamedTempFile {
    const WIDTH: usize = 16;
    const INNER: usize = 24;
    const HEAD: usize = 8;
    const N_TOKENS: usize = 94;
    let mut shapes: Vec<(String, Vec<usize>)> =
        vec![("token_embd.weight".into(), vec![N_TOKENS, WIDTH]), ("output_norm.weight".into(), vec![WIDTH])];
    for layer in 0..3 {
        let of_layer = [
            ("attn_norm", vec![WIDTH]),
            ("attn_q", vec![4 * HEAD, WIDTH]),
            ("attn_k", vec![2 * HEAD, WIDTH]),
            ("attn_v", vec![2 * HEAD, WIDTH]),
            ("attn_q_norm", vec![HEAD]),
            ("attn_k_norm", vec![HEAD]),
            ("attn_output", vec![WIDTH, 4 * HEAD]),
            ("post_attention_norm", vec![WIDTH]),
            ("ffn_norm", vec![WIDTH]),
            ("ffn_gate", vec![INNER, WIDTH]),
            ("ffn_up", vec![INNER, WIDTH]),
            ("ffn_down", vec![WIDTH, INNER]),
            ("post_ffw_norm", vec![WIDTH]),
        ];
        shapes.extend(of_layer.map(|(name, shape)| (format!("blk.{layer}.{name}.weight"), shape)));
    }
    let mut sizes = vec![
        ("block_count", 3),
        ("context_length", 64),
        ("embedding_length", WIDTH),
        ("feed_forward_length", INNER),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", HEAD),
        ("attention.value_length", HEAD),
        ("attention.sliding_window", 4),
        ("attention.sliding_window_pattern", 2),
        ("pooling_type", 1),
    ];
    if has_dense_layers {
        shapes.extend([("dense_2.weight".into(), vec![20, WIDTH]), ("dense_3.weight".into(), vec![WIDTH, 20])]);
        sizes.extend([("dense_2_feat_in", WIDTH), ("dense_2_feat_out", 20)]);
        sizes.extend([("dense_3_feat_in", 20), ("dense_3_feat_out", WIDTH)]);
    }
    let others = [
        ("gemma-embedding.attention.layer_norm_rms_epsilon", WriteValue::F32(1e-6)),
        ("gemma-embedding.rope.freq_base", WriteValue::F32(1000.0)),
        ("gemma-embedding.rope.freq_base_swa", WriteValue::F32(100.0)),
        ("tokenizer.ggml.add_bos_token", WriteValue::Bool(false)),
    ];
    file_of("gemma-embedding", &sizes, &others, Some(&support::vocabulary(N_TOKENS)), &arbitrary(shapes))
}

/// A text, its number of tokens, and its vector by llama.cpp (as llama-cpp-python 0.3.36 has it).
type Recorded = (&'static str, usize, [f32; 16]);

const OF_NOMIC: [Recorded; 2] = [
    (
        "some letters and more",
        20,
        [
            -0.043981, -0.151080, -0.165761, -0.513178, 0.018752, -0.209640, 0.168340, -0.230700, 0.286464, -0.212065,
            0.015475, 0.217661, -0.044870, -0.532541, -0.058154, 0.308069,
        ],
    ),
    (
        "q",
        3,
        [
            0.059142, -0.273666, -0.170882, -0.231554, -0.044902, -0.223912, 0.092489, -0.270592, 0.635821, -0.204278,
            0.049589, 0.211559, 0.040319, -0.374490, -0.177756, 0.195409,
        ],
    ),
];

const OF_GEMMA: [Recorded; 2] = [
    (
        "somelettersandmore",
        18,
        [
            0.061378, -0.105789, 0.231176, -0.205642, 0.120008, -0.059756, -0.188438, -0.185453, 0.007883, -0.012809,
            0.850879, 0.164004, -0.205729, -0.041637, -0.051209, 0.060303,
        ],
    ),
    (
        "q",
        1,
        [
            0.19882, 0.047249, 0.014058, -0.057887, 0.328212, -0.312952, -0.057207, -0.177161, -0.077072, 0.141793,
            -0.317847, 0.205533, 0.686255, 0.007787, 0.271204, -0.022256,
        ],
    ),
];

const OF_GEMMA_WITH_DENSE_LAYERS: [Recorded; 2] = [
    (
        "somelettersandmore",
        18,
        [
            -0.033267, -0.13223, -0.457193, -0.185672, 0.091137, -0.308693, -0.344858, -0.142772, 0.005189, 0.03207,
            -0.195659, 0.120825, -0.034033, -0.286603, -0.235653, 0.549756,
        ],
    ),
    (
        "q",
        1,
        [
            0.185867, 0.245534, 0.181148, -0.109894, -0.116531, 0.124599, 0.484431, 0.535797, 0.122019, -0.144214,
            0.179188, -0.108815, 0.024423, 0.340216, 0.033593, -0.335129,
        ],
    ),
];

#[track_caller]
fn check_recorded(file: &tempfile::NamedTempFile, recorded: &[Recorded]) {
    let embedder = of_gguf(file.path());
    let texts: Vec<&str> = recorded.iter().map(|(text, _, _)| *text).collect();
    let lengths = embedder.lengths(&texts).unwrap();
    let vectors = embedder.embed(&texts).unwrap();
    for ((vector, length), (text, n_tokens, expected)) in vectors.iter().zip(lengths).zip(recorded) {
        assert_eq!((length.tokens, vector.len()), (*n_tokens, expected.len()), "{text}");
        for (value, expected) in vector.iter().zip(expected) {
            assert!((value - expected).abs() < TOLERANCE, "{text}: {vector:?}");
        }
    }
}

#[test]
fn a_nomic_bert_gives_the_vectors_of_llama_cpp() {
    check_recorded(&nomic_file(), &OF_NOMIC);
}

#[test]
fn an_embedding_gemma_gives_the_vectors_of_llama_cpp() {
    check_recorded(&gemma_file(false), &OF_GEMMA);
    check_recorded(&gemma_file(true), &OF_GEMMA_WITH_DENSE_LAYERS);
}

#[test]
fn a_changed_file_is_an_error_or_a_vector_and_never_a_panic() {
    let mut seed = 1u64;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for file in [nomic_file(), gemma_file(true)] {
        let content = std::fs::read(file.path()).unwrap();
        for round in 0..1_000 {
            let mut changed = content.clone();
            // Most possible errors are in the header, before the weights.
            let end = if round % 4 == 0 { content.len() } else { 6_000 };
            for _ in 0..=round % 3 {
                changed[below(end)] = below(256) as u8;
            }
            std::fs::write(file.path(), changed).unwrap();
            let _ = of_gguf(file.path()).embed(&["some text", ""]);
        }
    }
}

/// The logits of a text's last token are products of the head with its normed state, and so, up to a factor, with the
/// vector.
#[test]
fn a_decoder_gives_the_state_that_makes_the_logits() {
    let (file, text) = (with_pooling(3), "some letters");
    let vector = of_gguf(file.path()).embed(&[text]).unwrap().remove(0);
    assert!((dot(&vector, &vector) - 1.0).abs() < TOLERANCE);
    let gguf = Gguf::open(file.path()).unwrap();
    let head = gguf.tensor("output.weight").or_else(|| gguf.tensor("token_embd.weight")).unwrap();
    let mut rows = vec![0.0; head.n_elements()];
    hone_kernels::dequantize(head.tensor_type, gguf.tensor_bytes(head), &mut rows);
    let products: Vec<f32> = rows.chunks_exact(vector.len()).map(|row| dot(row, &vector)).collect();

    let mut model = Model::load(&support::whole(file.path()), ModelOptions::default()).unwrap();
    let options = EncodeOptions { parse_special: false, add_special: true };
    let tokens = model.tokenizer().encode(text, options).unwrap();
    let mut sequence = CachedSequence::default();
    let entry = Advance { sequence: &mut sequence, tokens: &tokens, logits: tokens.len() - 1..tokens.len() };
    let logits = model.advance(&mut [entry]).unwrap().rows().next().unwrap().to_vec();
    let cosine = dot(&products, &logits) / (dot(&products, &products) * dot(&logits, &logits)).sqrt();
    assert!(cosine > 0.999, "{cosine}");
}

#[test]
fn a_decoder_pools_as_its_file_says() {
    let (last, mean) = (with_pooling(3), with_pooling(1));
    let (last, mean) = (of_gguf(last.path()), of_gguf(mean.path()));
    // A text of one token has one state.
    assert_eq!(last.lengths(&["a"]).unwrap()[0].tokens, 1);
    assert!((dot(&last.embed(&["a"]).unwrap()[0], &mean.embed(&["a"]).unwrap()[0]) - 1.0).abs() < TOLERANCE);
    let texts = ["letters", "others"];
    assert!(dot(&last.embed(&texts).unwrap()[0], &mean.embed(&texts).unwrap()[0]) < 0.999);
    // A text gets the same vector alone and alongside others, and a long one is cut.
    assert_eq!(last.embed(&texts).unwrap()[1], last.embed(&texts[1..]).unwrap()[0]);
    assert_eq!(last.embed(&[""]).unwrap()[0].len(), last.embed(&["a"]).unwrap()[0].len());
    let long = "letters".repeat(2000);
    assert!(last.lengths(&[&long]).unwrap()[0].is_cut);
    assert_eq!(mean.embed(&[&long]).unwrap().len(), 1);
}

#[test]
fn a_model_that_is_not_made_for_it_is_refused() {
    let check = |path: &Path, expected: &str| {
        let error = of_gguf(path).embed(&["a text"]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&support::smollm2(), "was not trained for vectors");
    check(with_pooling(4).path(), "pooling (4) is not supported");
}
