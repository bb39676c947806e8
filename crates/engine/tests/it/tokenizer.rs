//! The tokenizers of real models, against ids from llama.cpp.

use std::collections::HashMap;

use hone_engine::gguf::Gguf;
use hone_engine::{EncodeOptions, Tokenizer};

use crate::support;
use crate::support::metadata::Metadata;
use crate::support::model_files;
use crate::support::random::Random;

const PLAIN: EncodeOptions = EncodeOptions { parse_special: false, add_special: false };
const SPECIAL: EncodeOptions = EncodeOptions { parse_special: true, add_special: false };
const COMPLETE: EncodeOptions = EncodeOptions { parse_special: true, add_special: true };

fn llama() -> Tokenizer {
    model_files::tokenizer(&model_files::llama_vocabulary())
}

fn smollm2() -> Tokenizer {
    model_files::tokenizer(&model_files::smollm2())
}

/// Texts that are known to trip up tokenizers.
fn odd_texts() -> Vec<String> {
    let texts = [
        "",
        " ",
        "  ",
        "\n",
        "\n\n\n",
        "\t \t\t",
        " \n \r\n \t",
        "a\u{0}b\u{0}",
        "🚀 👩‍👩‍👧‍👦🏳️‍🌈",
        "e\u{301}\u{323}\u{300}é",
        "我想在apple工作1314151天～",
        "กขค ភាសាខ្មែរ नमस्ते",
        "مرحبا بالعالم",
        "\u{feff}bom",
        "\u{fffd}\u{10ffff}\u{e000}",
        "''''```\"\"\"...!!!",
        "I've y'all'RE",
        "    indented\n        more",
        "x ",
        " x",
        "<0x41><0x0A>",
        "½ Ⅷ ٣",
        "\u{a0}\u{2003}\u{3000}",
        "Ġnot a space",
    ];
    let long = ["a".repeat(100_000), " ".repeat(10_000), "ab ".repeat(5_000), "7".repeat(10_000), "🙂".repeat(3_000)];
    texts.iter().map(|text| (*text).to_owned()).chain(long).collect()
}

/// The vocabularies that llama.cpp tests itself with.
const VOCABULARIES: [&str; 14] = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

/// The texts that llama.cpp tests a vocabulary with, and their ids.
fn recorded(name: &str) -> Vec<(String, Vec<u32>)> {
    let read = |ending: &str| {
        let path = support::test_model(&format!("vocab-{name}.{ending}"));
        std::fs::read_to_string(path).unwrap()
    };
    let separator = "\n__ggml_vocab_test__\n";
    let (inputs, outputs) = (read("inp"), read("out"));
    let inputs: Vec<&str> = inputs.strip_suffix(separator).unwrap_or(&inputs).split(separator).collect();
    assert_eq!(inputs.len(), outputs.lines().count(), "{name}");
    assert!(inputs.len() >= 46, "{name}");
    let ids = |line: &str| line.split_whitespace().map(|id| id.parse().unwrap()).collect();
    inputs.iter().map(|text| (*text).to_owned()).zip(outputs.lines().map(ids)).collect()
}

#[test]
fn every_vocabulary_gives_the_ids_of_llama_cpp() {
    let mut wrong = Vec::new();
    for name in VOCABULARIES {
        let tokenizer = model_files::tokenizer(&model_files::vocabulary(name));
        for (text, expected) in recorded(name) {
            let ids = tokenizer.encode(&text, PLAIN).unwrap();
            if ids != expected {
                wrong.push(format!("{name}: {text:?} is {ids:?}, not {expected:?}"));
            }
            assert_eq!(tokenizer.decode(&expected, true), text, "{name}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Such a vocabulary does not keep the whole text.
#[test]
fn the_vocabulary_of_bert_gives_the_ids_of_llama_cpp() {
    let tokenizer = model_files::tokenizer(&model_files::vocabulary("bert-bge"));
    for (text, expected) in recorded("bert-bge") {
        assert_eq!(tokenizer.encode(&text, PLAIN).unwrap(), expected, "{text:?}");
    }
    let with_ends = EncodeOptions { add_special: true, ..PLAIN };
    assert_eq!(tokenizer.encode("", with_ends).unwrap(), [101, 102]);
    // A word in which no piece fits is unknown as a whole, however long it is.
    assert_eq!(tokenizer.encode("a\u{10ffff}b", PLAIN).unwrap(), [100]);
    let long = "word".repeat(40);
    assert_eq!(tokenizer.encode(&long, PLAIN).unwrap().len(), 40);
}

/// The pieces of a small vocabulary of unigrams, with their scores and types.
const UNIGRAMS: [(&str, f32, i32); 9] = [
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("<unk>", 0.0, 2),
    ("▁", -3.0, 1),
    ("a", -2.0, 1),
    ("b", -2.5, 1),
    ("ab", -4.0, 1),
    ("▁ab", -4.5, 1),
    ("bba", -1.0, 1),
];

#[test]
fn unigrams_are_cut_where_the_sum_of_scores_is_largest() {
    let tokens: Vec<&str> = UNIGRAMS.iter().map(|(text, ..)| *text).collect();
    let scores: Vec<f32> = UNIGRAMS.iter().map(|(_, score, _)| *score).collect();
    let types: Vec<i32> = UNIGRAMS.iter().map(|(.., kind)| *kind).collect();
    let metadata = Metadata::default()
        .string(MODEL, "t5")
        .strings(TOKENS, &tokens)
        .floats("tokenizer.ggml.scores", &scores)
        .integers("tokenizer.ggml.token_type", &types)
        .unsigned("tokenizer.ggml.bos_token_id", 0)
        .unsigned("tokenizer.ggml.eos_token_id", 1)
        .unsigned("tokenizer.ggml.unknown_token_id", 2);
    let tokenizer = model_files::tokenizer(&metadata.gguf());
    let check = |text: &str, expected: &[u32]| assert_eq!(tokenizer.encode(text, PLAIN).unwrap(), expected, "{text:?}");
    check("", &[]);
    check("ab", &[7]);
    // ▁ a bba is -6, ▁ab b a is -9.
    check("abba", &[3, 4, 8]);
    // White space counts once, and a word begins with it.
    check("  ab   ab ", &[7, 7]);
    // Unknown letters side by side are one token, and a control token's name is text.
    check("axyzb", &[3, 4, 2, 5]);
    check("<s>a", &[3, 2, 4]);
    let with_ends = EncodeOptions { add_special: true, ..PLAIN };
    assert_eq!(tokenizer.encode("ab", with_ends).unwrap(), [7, 1]);
    assert_eq!(tokenizer.decode(&[7, 3, 4], false), "ab a");
}

/// Where a file says how many tensors it has, which no tokenizer needs.
const N_TENSORS: std::ops::Range<usize> = 8..16;

#[test]
#[ignore = "needs the recorded models in HONE_REFERENCE"]
fn recorded_prompts_of_this_years_models_give_the_ids_of_llama_cpp() {
    let folder = std::env::var_os("HONE_REFERENCE").expect("HONE_REFERENCE names the folder of arch2026.json");
    let folder = std::path::PathBuf::from(folder);
    let recorded = std::fs::read_to_string(folder.join("arch2026.json")).unwrap();
    let recorded: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    let models = recorded["models"].as_object().unwrap();
    assert_eq!(models.len(), 15);
    for (name, model) in models {
        let mut file = std::fs::read(folder.join(model["file"].as_str().unwrap())).unwrap();
        file[N_TENSORS].fill(0);
        let tokenizer = model_files::tokenizer(&Gguf::from_bytes(file).unwrap());
        assert_eq!(tokenizer.n_tokens() as u64, model["vocabulary"].as_u64().unwrap(), "{name}");
        for prompt in model["prompts"].as_array().unwrap() {
            let text = prompt["text"].as_str().unwrap();
            let expected: Vec<u32> = serde_json::from_value(prompt["prompt_ids"].clone()).unwrap();
            let options = EncodeOptions { parse_special: false, add_special: true };
            assert_eq!(tokenizer.encode(text, options).unwrap(), expected, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&expected, false), text, "{name}");
        }
    }
}

#[test]
fn smollm2_prompts_give_the_ids_of_llama_cpp() {
    let tokenizer = smollm2();
    let cases: Vec<serde_json::Value> = serde_json::from_str(include_str!("data/smollm2_greedy.json")).unwrap();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let prompt = case["prompt"].as_str().unwrap();
        let expected: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(prompt, SPECIAL).unwrap(), expected, "{prompt:?}");
        assert_eq!(tokenizer.encode(prompt, COMPLETE).unwrap(), expected, "the file asks for no BOS");
        assert_eq!(tokenizer.decode(&expected, true), prompt);
    }
}

#[test]
fn every_text_comes_back_from_its_ids() {
    let gemma4 = model_files::tokenizer(&model_files::vocabulary("gemma-4"));
    for (name, tokenizer) in [("llama", llama()), ("smollm2", smollm2()), ("gemma4", gemma4)] {
        for text in odd_texts() {
            let ids = tokenizer.encode(&text, PLAIN).unwrap();
            let start: String = text.chars().take(40).collect();
            assert_eq!(tokenizer.decode(&ids, false), text, "{name}: {start:?}");
        }
    }
}

#[test]
fn control_tokens_are_parsed_only_where_asked() {
    let tokenizer = smollm2();
    let text = "a<|im_end|>b";
    let parsed = tokenizer.encode(text, SPECIAL).unwrap();
    let plain = tokenizer.encode(text, PLAIN).unwrap();
    let end = tokenizer.token_with_text("<|im_end|>").unwrap();
    assert_eq!(parsed.iter().filter(|id| **id == end).count(), 1);
    assert!(!plain.contains(&end));
    assert_eq!(tokenizer.decode(&plain, false), text);
    assert_eq!(tokenizer.decode(&parsed, false), "ab");
    assert_eq!(tokenizer.decode(&parsed, true), text);
    assert!(tokenizer.is_control(end) && tokenizer.is_end_of_generation(end));
    assert_eq!(tokenizer.eos(), Some(end));
}

#[test]
fn a_space_prefix_follows_every_special_token_of_a_sentence_piece_vocabulary() {
    let tokenizer = llama();
    let ids = |text, options| tokenizer.encode(text, options).unwrap();
    assert_eq!(ids("Hello", COMPLETE), [1, 15043]);
    assert_eq!(ids("<s>Hello</s>Hello", SPECIAL), [1, 15043, 2, 15043]);
    assert_eq!(ids("", COMPLETE), [1]);
    assert!(ids("", PLAIN).is_empty());
    assert_eq!(tokenizer.decode(&[1, 15043, 3186], false), "Hello world");
    assert_eq!(tokenizer.decode(&[3186], false), "world");
    assert_eq!(tokenizer.decode(&[3186, 3186], false), "world world");
}

#[test]
fn tokens_are_found_by_the_text_that_they_stand_for() {
    let check = |tokenizer: &Tokenizer, text: &str| {
        let id = tokenizer.token_with_text(text).unwrap_or_else(|| panic!("{text:?}"));
        assert_eq!(tokenizer.token_bytes(id), text.as_bytes());
    };
    for tokenizer in [llama(), smollm2(), model_files::tokenizer(&model_files::vocabulary("gemma-4"))] {
        for text in [" yes", "yes", "1", "\n", "A", " ", "é"] {
            check(&tokenizer, text);
        }
        assert_eq!(tokenizer.token_with_text("no token is this long and has this text"), None);
    }
    check(&llama(), "</s>");
    assert_eq!(llama().token_with_text("\n"), Some(13));
    check(&smollm2(), "<|im_start|>");
}

#[test]
fn bytes_of_tokens_that_are_no_token_are_empty() {
    let tokenizer = llama();
    assert_eq!(tokenizer.n_tokens(), 32_000);
    assert_eq!(tokenizer.token_bytes(32_000), b"");
    assert_eq!(tokenizer.token_bytes(u32::MAX), b"");
    assert!(!tokenizer.is_control(u32::MAX));
    assert_eq!(tokenizer.decode(&[u32::MAX], true), "");
    assert_eq!(tokenizer.token_bytes(13), b"\n");
    assert_eq!(tokenizer.token_bytes(15043), " Hello".as_bytes());
}

#[test]
fn a_character_in_several_tokens_is_whole_in_the_end() {
    let tokenizer = llama();
    let ids = tokenizer.encode("🦙", PLAIN).unwrap();
    assert!(ids.len() > 2, "{ids:?}");
    assert_eq!(tokenizer.decode(&ids, false), "🦙");
    assert_eq!(tokenizer.decode(&ids[..ids.len() - 1], false), "\u{fffd}");
}

/// The SentencePiece algorithm as stated in llama.cpp, searching for the best pair anew every time.
fn reference_pieces(text: &str, scores: &HashMap<&str, (u32, f32)>) -> Vec<u32> {
    let spaced = format!(" {text}").replace(' ', "▁");
    let mut symbols: Vec<&str> = spaced.split_inclusive(|_| true).collect();
    let mut starts: Vec<usize> = spaced.char_indices().map(|(start, _)| start).collect();
    loop {
        let mut best: Option<(usize, f32)> = None;
        for index in 1..symbols.len() {
            let joined = &spaced[starts[index - 1]..starts[index] + symbols[index].len()];
            if let Some((_, score)) = scores.get(joined)
                && best.is_none_or(|(_, best)| *score > best)
            {
                best = Some((index, *score));
            }
        }
        let Some((index, _)) = best else { break };
        symbols[index - 1] = &spaced[starts[index - 1]..starts[index] + symbols[index].len()];
        symbols.remove(index);
        starts.remove(index);
    }
    symbols
        .iter()
        .flat_map(|symbol| match scores.get(symbol) {
            Some((id, _)) => vec![*id],
            None => symbol.bytes().map(|byte| scores[format!("<0x{byte:02X}>").as_str()].0).collect(),
        })
        .collect()
}

#[test]
fn merges_by_score_agree_with_the_algorithm_on_random_texts() {
    let gguf = model_files::llama_vocabulary();
    let tokenizer = model_files::tokenizer(&gguf);
    let texts = gguf.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    let scores = gguf.floats("tokenizer.ggml.scores").unwrap().unwrap();
    let by_text: HashMap<&str, (u32, f32)> =
        texts.iter().zip(0..).zip(&scores).map(|((text, id), score)| (*text, (id, *score))).collect();
    let mut random = Random::new(7);
    let alphabets = ["ab ", "aaaab", "-=_. ", "the inoras", "0123 ", "éàßñ中文 ", "\n\t {}();"];
    for round in 0..1500 {
        let letters: Vec<char> = alphabets[round % alphabets.len()].chars().collect();
        let text: String = (0..1 + random.below(60)).map(|_| random.pick(&letters)).collect();
        assert_eq!(tokenizer.encode(&text, PLAIN).unwrap(), reference_pieces(&text, &by_text), "{text:?}");
    }
    for _ in 0..300 {
        let text: String = (0..8).map(|_| random.pick(&texts[259..])).collect();
        let text = text.replace('▁', " ");
        assert_eq!(tokenizer.encode(&text, PLAIN).unwrap(), reference_pieces(&text, &by_text), "{text:?}");
    }
}

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

fn pieces() -> Metadata {
    Metadata::default().string(MODEL, "llama").strings(TOKENS, &["<unk>", "<s>", "</s>", "▁", "a", "▁a"])
}

fn byte_level() -> Metadata {
    Metadata::default().string(MODEL, "gpt2").string(PRE, "gpt-2").strings(TOKENS, &["a", "b", "ab"])
}

fn check_refused(metadata: Metadata, expected: &[&str]) {
    let error = Tokenizer::from_gguf(&metadata.gguf()).unwrap_err().to_string();
    for part in expected {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn broken_metadata_is_an_error_that_names_the_field() {
    let scores = [0.0; 6];
    check_refused(Metadata::default(), &[MODEL, "no tokenizer"]);
    check_refused(Metadata::default().string(MODEL, "rwkv"), &[MODEL, "\"rwkv\"", "gpt2", "llama", "bert"]);
    check_refused(Metadata::default().string(MODEL, "llama"), &[TOKENS]);
    check_refused(Metadata::default().string(MODEL, "llama").strings(TOKENS, &[]), &[TOKENS, "0 entries"]);
    check_refused(Metadata::default().string(MODEL, "llama").unsigned(TOKENS, 3), &[TOKENS]);
    check_refused(pieces(), &[SCORES]);
    check_refused(pieces().floats(SCORES, &scores[..5]), &[SCORES, "5", "6"]);
    check_refused(pieces().floats(SCORES, &[f32::NAN; 6]), &[SCORES]);
    check_refused(pieces().floats(SCORES, &scores).integers(TYPES, &[1]), &[TYPES, "1", "6"]);
    check_refused(pieces().floats(SCORES, &scores).integers(TYPES, &[2, 3, 3, 6, 1, 1]), &["tokens[3]", "byte"]);
    for id in ["bos", "eos", "eot", "eom", "unknown"] {
        let key = format!("tokenizer.ggml.{id}_token_id");
        check_refused(pieces().floats(SCORES, &scores).unsigned(&key, 6), &[&key, "is 6", "6 tokens"]);
    }
    check_refused(byte_level(), &[MERGES]);
    check_refused(byte_level().strings(MERGES, &["a b", "ab c"]), &["merges[1]", "\"c\""]);
    check_refused(byte_level().strings(MERGES, &["a b", "b a"]), &["merges[1]", "\"ba\""]);
    check_refused(byte_level().strings(MERGES, &["ab"]), &["merges[0]", "\"ab\""]);
    check_refused(byte_level().strings(MERGES, &[""]), &["merges[0]"]);
    let twice = Metadata::default().string(MODEL, "gpt2").strings(TOKENS, &["a", "a"]).strings(MERGES, &[]);
    check_refused(twice, &["tokens[1]", "\"a\"", "tokens[0]"]);
    let unknown = Metadata::default().string(MODEL, "gpt2").string(PRE, "elvish").strings(TOKENS, &["a"]);
    check_refused(unknown.strings(MERGES, &[]), &[PRE, "elvish", "llama-bpe"]);
}

#[test]
fn characters_that_a_gemma_4_vocabulary_lacks_become_their_bytes() {
    let tokens = ["<bos>", "a", "b", "ab", "▁", "\n", "\n\n", "<0xC3>", "<0xA9>"];
    let metadata = Metadata::default()
        .string(MODEL, "gemma4")
        .strings(TOKENS, &tokens)
        .integers(TYPES, &[3, 1, 1, 1, 1, 1, 1, 6, 6])
        .strings(MERGES, &["a b"])
        .unsigned("tokenizer.ggml.bos_token_id", 0)
        .boolean("tokenizer.ggml.add_bos_token", false);
    let tokenizer = Tokenizer::from_gguf(&metadata.gguf()).unwrap();
    let check = |text: &str, options, expected: &[u32]| {
        let ids = tokenizer.encode(text, options).unwrap();
        assert_eq!(ids, expected, "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false), text);
    };
    check("ab ba", COMPLETE, &[0, 3, 4, 2, 1]);
    check("aéb", PLAIN, &[1, 7, 8, 2]);
    check(" ab\n\nb\n", PLAIN, &[4, 3, 6, 2, 5]);
}

#[test]
fn a_tiny_vocabulary_works_without_what_it_does_not_need() {
    let tokenizer = Tokenizer::from_gguf(&byte_level().strings(MERGES, &["a b"]).gguf()).unwrap();
    assert_eq!(tokenizer.encode("abba", COMPLETE).unwrap(), [2, 1, 0]);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (None, None));
    assert!(tokenizer.encode("é", PLAIN).unwrap().is_empty(), "bytes without a token are left out");
    let metadata = pieces().floats(SCORES, &[0.0; 6]).integers(TYPES, &[2, 3, 3, 1, 1, 1]);
    let tokenizer = Tokenizer::from_gguf(&metadata.gguf()).unwrap();
    assert_eq!(tokenizer.encode("a a", COMPLETE).unwrap(), [1, 5, 5]);
    assert_eq!(tokenizer.encode("zz", PLAIN).unwrap(), [3, 0], "without byte tokens what is unknown is one <unk>");
    assert!(tokenizer.is_end_of_generation(2));
}

#[test]
fn user_defined_tokens_are_found_in_every_text_and_turn_markers_are_not() {
    let tokens = ["a", "b", "aab", "<|im_end|>", "aa", "<x>"];
    let metadata = Metadata::default()
        .string(MODEL, "gpt2")
        .string(PRE, "gpt-2")
        .strings(TOKENS, &tokens)
        .integers(TYPES, &[1, 1, 4, 4, 4, 3])
        .strings(MERGES, &[]);
    let tokenizer = Tokenizer::from_gguf(&metadata.gguf()).unwrap();
    let check = |text: &str, options, expected: &[u32]| {
        assert_eq!(tokenizer.encode(text, options).unwrap(), expected, "{text:?}");
    };
    check("aaba", PLAIN, &[2, 0]);
    check("aaab", PLAIN, &[4, 0, 1]);
    check("<x>a", SPECIAL, &[5, 0]);
    check("<x>a", PLAIN, &[0]);
    check("a<|im_end|>", PLAIN, &[0]);
    check("a<|im_end|>", SPECIAL, &[0, 3]);
    assert!(tokenizer.is_end_of_generation(3));
}

#[test]
fn the_end_of_a_message_does_not_end_a_turn_that_has_several() {
    let check = |tokens: &[&str], kind: i32, expected: &[&str]| {
        let metadata = Metadata::default()
            .string(MODEL, "gpt2")
            .string(PRE, "gpt-2")
            .strings(TOKENS, tokens)
            .integers(TYPES, &vec![kind; tokens.len()])
            .strings(MERGES, &[]);
        let tokenizer = Tokenizer::from_gguf(&metadata.gguf()).unwrap();
        let ends: Vec<&str> = tokenizer.end_of_generation_tokens().map(|id| tokens[id as usize]).collect();
        assert_eq!(ends, expected);
        for id in 0..tokens.len() as u32 {
            assert!(tokenizer.is_control(id), "{}", tokens[id as usize]);
        }
    };
    let (control, user_defined) = (3, 4);
    check(&["<|user|>", "<|end|>"], control, &["<|end|>"]);
    check(&["<|start|>", "<|end|>", "<|return|>", "<|call|>"], control, &["<|return|>", "<|call|>"]);
    check(&["<|start|>", "<|end|>", "<|return|>"], control, &["<|end|>", "<|return|>"]);
    let gemma4 = ["<eos>", "<|turn>", "<turn|>", "<|channel>", "<|tool_call>", "<|tool_response>", "</s>"];
    check(&gemma4, user_defined, &["<eos>", "<turn|>", "<|tool_response>"]);
    check(&["<|im_start|>", "<|im_end|>"], user_defined, &["<|im_end|>"]);
}
