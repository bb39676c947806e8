//! Models that end in a head, and encoders.
//!
//! Two tests compare them with llama.cpp. Its tiny models and figures are not part of the repository:
//! `HONE_REFERENCE_HEADS` names their folder, with a file `heads.json` and a `NAME-a.gguf` for each model. Run those
//! with `--ignored`. The others run everywhere: with figures that hone gave when it agreed with llama.cpp, and with a
//! decoder whose head is a part of its own matrix of logits.

use std::path::{Path, PathBuf};

use hone_engine::gguf::{Gguf, WriteValue};
use hone_engine::{
    Advance, CachedSequence, Embedder, EncodeOptions, FileUse, Model, ModelOptions, ModelPurpose, Reranker,
    TemplateHost, check_file, model_purpose,
};
use hone_protocol::{
    Embed, FinishReason, Generate, GenerateRequest, Generation, Lane, Message, Prompt, Relevance, Rerank, Role,
};
use serde_json::Value;

use crate::support;
use crate::support::made_up::{Weights, arbitrary, file_of};

const WIDTH: usize = 16;
const INNER: usize = 24;

const HEADS: [&str; 6] =
    ["qwen3-reward", "qwen3-reranker", "llama-reward", "modern-bert-cls", "bert-rerank", "xlmr-rerank"];
const EMBEDDERS: [&str; 2] = ["modern-bert-emb", "jina-bert-v3"];

struct Recorded {
    folder: PathBuf,
    figures: Value,
}

impl Recorded {
    fn read() -> Self {
        let folder =
            std::env::var_os("HONE_REFERENCE_HEADS").expect("HONE_REFERENCE_HEADS names the folder of heads.json");
        let folder = PathBuf::from(folder);
        let figures = std::fs::read_to_string(folder.join("heads.json")).unwrap();
        Recorded { figures: serde_json::from_str(&figures).unwrap(), folder }
    }

    fn file(&self, name: &str) -> hone_protocol::ModelFile {
        support::whole(&self.folder.join(format!("{name}-a.gguf")))
    }
}

fn floats(values: &Value) -> Vec<f32> {
    values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max)
}

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE_HEADS"]
fn scores_are_those_of_llama_cpp() {
    let recorded = Recorded::read();
    let mut failures = Vec::new();
    for name in HEADS {
        let expected = &recorded.figures["models"][name];
        let tolerance = |key: &str| expected[key].as_f64().unwrap() as f32;
        let reranker = Reranker::new(name, recorded.file(name), TemplateHost::InProcess, None);
        let prompts = expected["prompts"].as_array().unwrap();
        for prompt in prompts {
            let (query, text) = (prompt["query"].as_str().unwrap(), prompt["document"].as_str().unwrap());
            let alone = reranker.rerank(query, &[text], &|| false).unwrap().remove(0);
            let of_query = prompts.iter().filter(|other| other["query"] == prompt["query"]);
            let texts: Vec<&str> = of_query.map(|other| other["document"].as_str().unwrap()).collect();
            let place = texts.iter().position(|other| *other == text).unwrap();
            let together = reranker.rerank(query, &texts, &|| false).unwrap().remove(place);
            for relevance in [alone, together] {
                let outputs = largest_difference(&relevance.outputs, &floats(&prompt["raw"]));
                let score = (relevance.score - prompt["score"].as_f64().unwrap() as f32).abs();
                let n_tokens = prompt["prompt_ids"].as_array().unwrap().len();
                println!("{name}: {outputs:.5} {score:.5}, {} of {n_tokens} tokens", relevance.tokens);
                if !(outputs <= tolerance("tolerance") && score <= tolerance("score_tolerance"))
                    || relevance.tokens != n_tokens
                {
                    failures.push(format!("{name}: {outputs} {score}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE_HEADS"]
fn vectors_of_encoders_are_those_of_llama_cpp() {
    let recorded = Recorded::read();
    for name in EMBEDDERS {
        let expected = &recorded.figures["models"][name];
        let embedder = Embedder::of_gguf(name, recorded.file(name));
        for prompt in expected["prompts"].as_array().unwrap() {
            let text = prompt["text"].as_str().unwrap();
            let vector = embedder.embed(&[text]).unwrap().remove(0);
            let difference = largest_difference(&vector, &floats(&prompt["normalised"]));
            let n_tokens = embedder.lengths(&[text]).unwrap()[0].tokens;
            println!("{name}: {difference:.5}");
            assert_eq!(n_tokens, prompt["prompt_ids"].as_array().unwrap().len());
            assert!(difference <= expected["tolerance"].as_f64().unwrap() as f32, "{name}: {difference}");
        }
    }
}

/// The names and shapes of an encoder's weights: of every layer, and the others.
fn encoder_shapes(n_layers: usize, of_layer: &[(&str, &[usize])], others: &[(&str, &[usize])]) -> Vec<Weights> {
    let named = |(name, shape): &(&str, &[usize])| ((*name).to_owned(), shape.to_vec());
    let layers = (0..n_layers)
        .flat_map(|layer| of_layer.iter().map(move |(name, shape)| (format!("blk.{layer}.{name}"), shape.to_vec())));
    arbitrary(others.iter().map(named).chain(layers).collect())
}

/// A vocabulary of unigrams: letters, within words and at their beginnings.
fn unigrams() -> (Vec<String>, Vec<f32>, Vec<i32>) {
    let special = [("<s>", 3), ("</s>", 3), ("<unk>", 2)].map(|(text, kind)| (text.to_owned(), 0.0, kind));
    let letters =
        ('a'..='z').flat_map(|letter| [(format!("\u{2581}{letter}"), -2.0, 1), (letter.to_string(), -3.0, 1)]);
    let (mut tokens, mut scores, mut types) = (Vec::new(), Vec::new(), Vec::new());
    for (text, score, kind) in special.into_iter().chain(letters) {
        tokens.push(text);
        scores.push(score);
        types.push(kind);
    }
    (tokens, scores, types)
}

/// An encoder of this architecture with a vocabulary of unigrams.
fn encoder_file(
    architecture: &str,
    sizes: &[(&str, usize)],
    others: &[(&str, WriteValue<'_>)],
    weights: &[Weights],
) -> tempfile::NamedTempFile {
    let (tokens, scores, types) = unigrams();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let epsilon = format!("{architecture}.attention.layer_norm_epsilon");
    let mut all = vec![
        (epsilon.as_str(), WriteValue::F32(1e-5)),
        ("tokenizer.ggml.model", WriteValue::String("t5")),
        ("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)),
        ("tokenizer.ggml.scores", WriteValue::F32s(&scores)),
        ("tokenizer.ggml.token_type", WriteValue::I32s(&types)),
        ("tokenizer.ggml.bos_token_id", WriteValue::U32(0)),
        ("tokenizer.ggml.eos_token_id", WriteValue::U32(1)),
        ("tokenizer.ggml.seperator_token_id", WriteValue::U32(1)),
        ("tokenizer.ggml.unknown_token_id", WriteValue::U32(2)),
        ("tokenizer.ggml.add_bos_token", WriteValue::Bool(true)),
        ("tokenizer.ggml.add_sep_token", WriteValue::Bool(true)),
    ];
    all.extend_from_slice(others);
    let mut all_sizes = vec![
        ("context_length", 64),
        ("embedding_length", WIDTH),
        ("feed_forward_length", INNER),
        ("attention.head_count", 2),
    ];
    all_sizes.extend_from_slice(sizes);
    file_of(architecture, &all_sizes, &all, None, weights)
}

/// A ModernBERT that tells three labels apart; one of its two layers sees a window of two tokens on either side.
fn modern_bert(activation: &str) -> tempfile::NamedTempFile {
    let of_layer: [(&str, &[usize]); 6] = [
        ("attn_norm.weight", &[WIDTH]),
        ("attn_qkv.weight", &[3 * WIDTH, WIDTH]),
        ("attn_output.weight", &[WIDTH, WIDTH]),
        ("ffn_norm.weight", &[WIDTH]),
        ("ffn_up.weight", &[2 * INNER, WIDTH]),
        ("ffn_down.weight", &[WIDTH, INNER]),
    ];
    let others: [(&str, &[usize]); 7] = [
        ("token_embd.weight", &[55, WIDTH]),
        ("token_embd_norm.weight", &[WIDTH]),
        ("output_norm.weight", &[WIDTH]),
        ("cls.weight", &[WIDTH, WIDTH]),
        ("cls.norm.weight", &[WIDTH]),
        ("cls.output.weight", &[3, WIDTH]),
        ("cls.output.bias", &[3]),
    ];
    let mut weights = encoder_shapes(2, &of_layer, &others);
    // The first layer has no norm before its attention.
    weights.retain(|(name, ..)| name != "blk.0.attn_norm.weight");
    let sizes = [("block_count", 2), ("attention.sliding_window", 5), ("classifier.pooling_type", 1)];
    let others = [
        ("modern-bert.rope.freq_base", WriteValue::F32(1000.0)),
        ("modern-bert.rope.freq_base_swa", WriteValue::F32(100.0)),
        ("modern-bert.hidden_activation", WriteValue::String(activation)),
        ("modern-bert.classifier.output_labels", WriteValue::Strings(&["entailment", "neutral", "contradiction"])),
    ];
    encoder_file("modern-bert", &sizes, &others, &weights)
}

const BERT_LAYER: [(&str, &[usize]); 12] = [
    ("attn_qkv.weight", &[3 * WIDTH, WIDTH]),
    ("attn_qkv.bias", &[3 * WIDTH]),
    ("attn_output.weight", &[WIDTH, WIDTH]),
    ("attn_output.bias", &[WIDTH]),
    ("attn_output_norm.weight", &[WIDTH]),
    ("attn_output_norm.bias", &[WIDTH]),
    ("ffn_up.weight", &[INNER, WIDTH]),
    ("ffn_up.bias", &[INNER]),
    ("ffn_down.weight", &[WIDTH, INNER]),
    ("ffn_down.bias", &[WIDTH]),
    ("layer_output_norm.weight", &[WIDTH]),
    ("layer_output_norm.bias", &[WIDTH]),
];

const BERT_EMBEDDINGS: [(&str, &[usize]); 4] = [
    ("token_embd.weight", &[55, WIDTH]),
    ("token_types.weight", &[1, WIDTH]),
    ("token_embd_norm.weight", &[WIDTH]),
    ("token_embd_norm.bias", &[WIDTH]),
];

/// An XLM-RoBERTa with a reranker's head, perhaps in a file that leaves out the dimension of single rows.
fn reranker_file(has_single_rows: bool) -> tempfile::NamedTempFile {
    let mut others = BERT_EMBEDDINGS.to_vec();
    others.extend::<[(&str, &[usize]); 5]>([
        ("position_embd.weight", &[64, WIDTH]),
        ("cls.weight", &[WIDTH, WIDTH]),
        ("cls.bias", &[WIDTH]),
        ("cls.output.weight", &[1, WIDTH]),
        ("cls.output.bias", &[1]),
    ]);
    let mut weights = encoder_shapes(2, &BERT_LAYER, &others);
    for (_, shape, _) in weights.iter_mut().filter(|_| !has_single_rows) {
        if let [1, width] = shape[..] {
            *shape = vec![width];
        }
    }
    encoder_file("bert", &[("block_count", 2)], &[], &weights)
}

/// A Jina embeddings v3, which rotates its positions.
fn jina_bert(pooling: usize) -> tempfile::NamedTempFile {
    let base = [("jina-bert-v3.rope.freq_base", WriteValue::F32(200.0))];
    let weights = encoder_shapes(2, &BERT_LAYER, &BERT_EMBEDDINGS);
    encoder_file("jina-bert-v3", &[("block_count", 2), ("pooling_type", pooling)], &base, &weights)
}

fn reranker(path: &Path) -> Reranker {
    Reranker::new("tiny", support::whole(path), TemplateHost::InProcess, None)
}

#[track_caller]
fn check_outputs(found: &[Relevance], expected: &[&[f32]]) {
    let found: Vec<&[f32]> = found.iter().map(|relevance| relevance.outputs.as_slice()).collect();
    let is_near = |(found, expected): (&&[f32], &&[f32])| largest_difference(found, expected) < 1e-4;
    assert!(found.iter().zip(expected).all(is_near), "{found:?}");
}

const QUERY: &str = "a question";
const TEXTS: [&str; 2] = ["its answer", "something that is longer than a window"];

#[test]
fn a_modern_bert_scores_pairs() {
    let file = modern_bert("gelu");
    let reranker_of_file = reranker(file.path());
    assert_eq!(reranker_of_file.labels().unwrap(), ["entailment", "neutral", "contradiction"]);
    let scores = reranker_of_file.rerank(QUERY, &TEXTS, &|| false).unwrap();
    check_outputs(&scores, &[&[-2.9032, 0.02165, -1.92889], &[-3.40831, 0.02563, -1.50447]]);
    assert_eq!(scores[0].score, scores[0].outputs[0]);
    let other = reranker(modern_bert("silu").path()).rerank(QUERY, &TEXTS[..1], &|| false).unwrap();
    assert!(largest_difference(&other[0].outputs, &scores[0].outputs) > 0.01);
}

#[test]
fn a_cross_encoder_scores_pairs_and_cuts_long_texts() {
    let file = reranker_file(true);
    let reranker = reranker(file.path());
    let scores = reranker.rerank(QUERY, &TEXTS, &|| false).unwrap();
    check_outputs(&scores, &[&[3.8653], &[3.85127]]);
    let without = self::reranker(reranker_file(false).path()).rerank(QUERY, &TEXTS, &|| false).unwrap();
    assert_eq!(without, scores);
    let stopped = reranker.rerank(QUERY, &TEXTS, &|| true).unwrap_err();
    assert_eq!(stopped.to_string(), "the reranking was stopped");
    // BOS, ten letters, EOS, SEP, ten letters, EOS.
    assert_eq!(scores.iter().map(|relevance| relevance.tokens).collect::<Vec<_>>(), [22, 45]);
    let long = "abc ".repeat(100);
    let cut = reranker.rerank(QUERY, &[&long], &|| false).unwrap().remove(0);
    assert!(cut.is_cut && (50..=64).contains(&cut.tokens), "{cut:?}");
    let error = reranker.rerank(&long, &["a"], &|| false).unwrap_err().to_string();
    assert!(error.contains("the query and what surrounds it have") && error.contains("the model takes 64"), "{error}");
}

#[test]
fn an_encoder_pools_as_its_file_says() {
    let of_pooling = |pooling: usize| {
        let file = jina_bert(pooling);
        let vectors = Embedder::of_gguf("tiny", support::whole(file.path())).embed(&TEXTS).unwrap();
        vectors.into_iter().map(|vector| vector[..4].to_vec()).collect::<Vec<_>>()
    };
    let expected = [[0.26903, 0.30814, -0.14703, 0.32988], [0.26513, 0.30704, -0.15157, 0.37044]];
    let (mean, first, last) = (of_pooling(1), of_pooling(2), of_pooling(3));
    let is_near = |(found, expected): (&Vec<f32>, &[f32; 4])| largest_difference(found, expected) < 1e-4;
    assert!(mean.iter().zip(&expected).all(is_near), "{mean:?}");
    for (one, other) in [(&mean, &first), (&mean, &last), (&first, &last)] {
        assert!(largest_difference(&one[0], &other[0]) > 0.001);
    }
}

/// A decoder like the one in this file, whose head is made of the rows of its matrix of logits that belong to some
/// tokens.
fn with_head(source: &Gguf, tokens: &[usize], others: &[(&str, WriteValue<'_>)]) -> tempfile::NamedTempFile {
    let floats = |name: &str| {
        let tensor = source.tensor(name).unwrap();
        let mut floats = vec![0.0; tensor.n_elements()];
        hone_kernels::dequantize(tensor.tensor_type, source.tensor_bytes(tensor), &mut floats);
        floats
    };
    let shape = |dimensions: &[usize]| dimensions.iter().rev().copied().collect();
    let mut weights: Vec<Weights> =
        source.tensors().map(|tensor| (tensor.name.clone(), shape(&tensor.dimensions), floats(&tensor.name))).collect();
    let logits = if source.tensor("output.weight").is_some() { "output.weight" } else { "token_embd.weight" };
    let (rows, width) = (floats(logits), source.tensor(logits).unwrap().dimensions[0]);
    let head = tokens.iter().flat_map(|token| rows[token * width..][..width].to_vec()).collect();
    weights.push(("cls.output.weight".to_owned(), vec![tokens.len(), width], head));
    let architecture = source.string("general.architecture").unwrap().unwrap().to_owned();
    support::made_up::file_like(source, &architecture, others, &weights)
}

#[test]
fn a_decoder_with_rows_of_its_logits_as_a_head_gives_these_logits() {
    let plain = tempfile::NamedTempFile::new().unwrap();
    support::synthesize_few_tokens("tiny-qwen3", "f32", plain.path());
    let source = Gguf::open(plain.path()).unwrap();
    let chosen = [7, 3];
    let mut model = Model::load(&support::whole(plain.path()), ModelOptions::default()).unwrap();
    let mut logits_of = |text: &str| {
        let options = EncodeOptions { parse_special: false, add_special: true };
        let tokens = model.tokenizer().encode(text, options).unwrap();
        let mut sequence = CachedSequence::default();
        let entry = Advance { sequence: &mut sequence, tokens: &tokens, logits: tokens.len() - 1..tokens.len() };
        let row = model.advance(&mut [entry]).unwrap().rows().next().unwrap().to_vec();
        model.release(sequence);
        chosen.map(|token| row[token])
    };

    let template = WriteValue::String("ask{query}say{document}");
    let labels = WriteValue::Strings(&["yes", "no"]);
    let yes_and_no = [("tokenizer.chat_template.rerank", template), ("qwen3.classifier.output_labels", labels)];
    let file = with_head(&source, &chosen, &yes_and_no);
    let reranker = reranker(file.path());
    let texts = ["letters", "others", ""];
    for (found, text) in reranker.rerank("the question", &texts, &|| false).unwrap().iter().zip(texts) {
        let expected = logits_of(&format!("askthe questionsay{text}"));
        assert!(largest_difference(&found.outputs, &expected) < 0.02, "{:?} {expected:?}", found.outputs);
        let [yes, no] = [found.outputs[0], found.outputs[1]].map(f32::exp);
        assert!((found.score - yes / (yes + no)).abs() < 1e-5);
    }

    let usage = |path: &Path| check_file(&support::whole(path), &TemplateHost::InProcess).unwrap();
    assert!(matches!(usage(file.path()), FileUse::Scores));
    assert!(matches!(usage(jina_bert(1).path()), FileUse::Embeds));
    assert!(matches!(usage(reranker_file(true).path()), FileUse::Scores));
    let error = Model::load(&support::whole(file.path()), ModelOptions::default()).err().unwrap().to_string();
    assert!(error.contains("hone rerank"), "{error}");
    let error = Model::load(&support::whole(jina_bert(1).path()), ModelOptions::default()).err().unwrap().to_string();
    assert!(error.contains("jina-bert-v3 is an encoder"), "{error}");
    let error = Embedder::of_gguf("tiny", support::whole(file.path())).embed(&["a"]).unwrap_err().to_string();
    assert!(error.contains("hone rerank"), "{error}");
}

#[test]
fn a_reward_model_reads_a_conversation() {
    let plain = tempfile::NamedTempFile::new().unwrap();
    support::synthesize_few_tokens("tiny-qwen3", "f32", plain.path());
    let source = Gguf::open(plain.path()).unwrap();
    let template = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
                    {% if add_generation_prompt %}[answer]{% endif %}";
    let labels = WriteValue::Strings(&["good", "bad"]);
    let chat = [("tokenizer.chat_template", WriteValue::String(template)), ("qwen3.classifier.output_labels", labels)];
    let bare = [("qwen3.classifier.output_labels", labels)];
    let score = |others: &[(&str, WriteValue<'_>)], query: &str, text: &str| {
        let file = with_head(&source, &[7, 3], others);
        reranker(file.path()).rerank(query, &[text], &|| false).unwrap().remove(0)
    };
    let conversation = score(&chat, "question", "answer");
    let written_out = score(&bare, "[user]question", "[assistant]answer");
    assert_eq!(conversation, written_out);
    assert_ne!(conversation.outputs, score(&bare, "question", "answer").outputs);
    assert_eq!(conversation.score, conversation.outputs[0]);
}

/// In every lane, beside others, after a request with the same beginning, and in one pass.
#[test]
fn an_engine_rates_answers_as_the_reranker_does() {
    let plain = tempfile::NamedTempFile::new().unwrap();
    support::synthesize_few_tokens("tiny-qwen3", "f32", plain.path());
    let source = Gguf::open(plain.path()).unwrap();
    let template = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
                    {% if add_generation_prompt %}[answer]{% endif %}";
    let chat = [("tokenizer.chat_template", WriteValue::String(template))];
    let file = with_head(&source, &[7], &chat);
    let purpose = |path: &Path| model_purpose(&support::whole(path));
    assert_eq!([file.path(), plain.path()].map(purpose), [ModelPurpose::Rewards, ModelPurpose::Text].map(Some));
    let engine = support::engine(support::options());
    let texts = ["answer", "another answer, which is longer than the first", "answer", ""];
    let request = |lane: Lane, text: &str| GenerateRequest {
        lane,
        wants_reward: true,
        ..GenerateRequest::new(
            file.path().to_str().unwrap(),
            Prompt::Chat(vec![Message::new(Role::User, "question"), Message::new(Role::Assistant, text)]),
        )
    };
    let lanes = [Lane::Background, Lane::Interactive, Lane::Batch, Lane::Background];
    let running: Vec<Generation> =
        std::iter::zip(lanes, texts).map(|(lane, text)| engine.generate(request(lane, text)).unwrap()).collect();
    let expected = reranker(file.path()).rerank("question", &texts, &|| false).unwrap();
    for (generation, expected) in std::iter::zip(running, expected) {
        let completion = generation.complete().unwrap();
        assert!((completion.reward.unwrap() - expected.score).abs() < 1e-4, "{completion:?} {expected:?}");
        assert_eq!((completion.text.as_str(), completion.finish_reason), ("", Some(FinishReason::Stop)));
        assert_eq!(completion.prompt_token_ids.len(), expected.tokens);
    }

    let refused = |request: GenerateRequest| engine.generate(request).unwrap().complete().unwrap_err().to_string();
    let answer = GenerateRequest { wants_reward: false, ..request(Lane::Interactive, "answer") };
    assert!(refused(answer).contains("`hone rerank` runs it"));
    let text = GenerateRequest { prompt: Prompt::Tokens(vec![1]), ..request(Lane::Interactive, "answer") };
    assert!(refused(text).contains("a reward is for a conversation"));
    let of_chat = GenerateRequest { model: support::smollm2().to_string_lossy().into(), ..request(Lane::Batch, "x") };
    assert!(refused(of_chat).contains("is not a reward model"));
}

#[test]
fn what_cannot_score_is_named() {
    let complaint = |path: &Path| reranker(path).rerank("a", &["b"], &|| false).unwrap_err().to_string();
    assert!(complaint(jina_bert(1).path()).contains("has no head"));
    let broken = |architecture: &str, key: &str, value: WriteValue<'_>| {
        let key = format!("{architecture}.{key}");
        let weights =
            encoder_shapes(2, &BERT_LAYER, &[&BERT_EMBEDDINGS[..], &[("cls.output.weight", &[1, WIDTH])]].concat());
        complaint(encoder_file(architecture, &[("block_count", 2)], &[(&key, value)], &weights).path())
    };
    let labels = WriteValue::Strings(&["one", "two"]);
    let reason = broken("jina-bert-v3", "classifier.output_labels", labels);
    assert!(reason.contains("cls.output.weight has the shape [1, 16], not [2, 16]"), "{reason}");
    let reason = broken("jina-bert-v3", "decision.type", WriteValue::String("span"));
    assert!(reason.contains("a decision model of the type \"span\""), "{reason}");
    let reason = broken("jina-bert-v3", "attention.causal", WriteValue::Bool(true));
    assert!(reason.contains("attention.causal is true"), "{reason}");
    let reason = broken("jina-bert-v3", "classifier.pooling_type", WriteValue::U32(9));
    assert!(reason.contains("pooling (9) is not supported"), "{reason}");
}

#[test]
fn a_changed_file_is_an_error_or_a_score_and_never_a_panic() {
    let mut seed = 1u64;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for file in [modern_bert("gelu"), reranker_file(true)] {
        let content = std::fs::read(file.path()).unwrap();
        for round in 0..1_000 {
            let mut changed = content.clone();
            // Most possible errors are in the header, before the weights.
            let end = if round % 4 == 0 { content.len() } else { 5_000 };
            for _ in 0..=round % 3 {
                changed[below(end)] = below(256) as u8;
            }
            std::fs::write(file.path(), changed).unwrap();
            let _ = reranker(file.path()).rerank("some text", &["another", ""], &|| false);
        }
    }
}
