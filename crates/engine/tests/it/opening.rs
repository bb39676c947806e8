//! The cost of opening: files crafted to cost more than their size, and files with the largest vocabularies. None takes
//! more than its size and 64 MiB, including header, decoder, tokenizer and template.

use hone_engine::gguf::Gguf;
use hone_engine::{ChatTemplate, DecoderSpec, EncodeOptions, TemplateHost, Tokenizer};

use crate::support::counting::peak_of;
use crate::support::metadata::Metadata;

const ALLOWANCE: usize = 64 << 20;
const TEXT: &str = "Grüße, 世界! <|im_end|> The quick brown fox jumps over the lazy dog.\n\n    12345 ";
const SPECIAL: EncodeOptions = EncodeOptions { parse_special: true, add_special: true };

/// Opens a file and everything in it. Returns the first error, if any.
fn open(bytes: Vec<u8>) -> Result<(), String> {
    let gguf = Gguf::from_bytes(bytes).map_err(|error| error.to_string())?;
    let _ = DecoderSpec::from_gguf(&gguf, None);
    let tokenizer = Tokenizer::from_gguf(&gguf).map_err(|error| error.to_string())?;
    assert!(!tokenizer.encode(&TEXT.repeat(20), SPECIAL).unwrap().is_empty());
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer, &TemplateHost::InProcess);
    template.map(drop).map_err(|error| error.to_string())
}

#[track_caller]
fn check(what: &str, bytes: Vec<u8>, complaint: Option<&str>) {
    let n_bytes = bytes.len();
    let (outcome, peak) = peak_of(|| open(bytes));
    println!("{what}: {:.1} MB, {:.1} MB to open", n_bytes as f64 / 1e6, peak as f64 / 1e6);
    assert!(peak <= (n_bytes + ALLOWANCE) as isize, "{what}: {peak} bytes to open {n_bytes}");
    match (complaint, outcome) {
        (None, outcome) => assert_eq!(outcome, Ok(()), "{what}"),
        (Some(part), outcome) => {
            let error = outcome.unwrap_err();
            assert!(error.contains(part), "{what}: {error}");
        }
    }
}

/// Byte-level BPE with these tokens in addition to the first ones, which are ordinary.
fn byte_level(tokens: &[String], types: &[i32], merges: &[String]) -> Metadata {
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    Metadata::default()
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "llama-bpe")
        .string("tokenizer.chat_template", "{{ messages }}")
        .strings("tokenizer.ggml.tokens", &tokens)
        .integers("tokenizer.ggml.token_type", types)
        .strings("tokenizer.ggml.merges", &merges)
}

/// The letters of byte-level BPE that stand for themselves.
fn letters() -> Vec<String> {
    ('!'..='~').map(String::from).collect()
}

/// Letters and `n` tokens of kind `kind`, named `name(index)`.
fn with_tokens(n: usize, kind: i32, name: impl Fn(usize) -> String) -> Vec<u8> {
    let mut tokens = letters();
    let mut types = vec![1; tokens.len()];
    tokens.extend((0..n).map(name));
    types.resize(tokens.len(), kind);
    byte_level(&tokens, &types, &[]).bytes()
}

#[test]
fn names_of_special_tokens_cost_what_they_weigh() {
    let long = with_tokens(1, 3, |_| "x".repeat(15_000_000));
    check("a control token of 15 MB", long, Some("tokens[94] has 15000000 bytes: a special token may have 1024"));
    let long = with_tokens(1, 3, |_| "x".repeat(30_000_000));
    check("a control token of 30 MB", long, Some("bytes of text: the limit is 16777216"));
    check("500 000 user-defined tokens", with_tokens(500_000, 4, |index| format!("<u{index}>")), None);
    check("500 000 control tokens", with_tokens(500_000, 3, |index| format!("<|{index:x}|>")), None);
    check("long user-defined tokens", with_tokens(16_000, 4, |index| format!("{index:a>1000}")), None);
    let many = with_tokens(2_000_000, 1, |index| format!("{index:x}g"));
    check("2 000 000 tokens", many, Some("tokens has 2000094 entries: the limit is 1048576"));
}

#[test]
fn lists_that_no_model_needs_are_refused() {
    let merges: Vec<String> = (0..3_000_000).map(|_| "a b".to_owned()).collect();
    let mut tokens = letters();
    tokens.push("ab".into());
    let types = vec![1; tokens.len()];
    let expected = "tokenizer.ggml.merges has 3000000 entries: the limit is 1048576";
    check("3 000 000 merges", byte_level(&tokens, &types, &merges).bytes(), Some(expected));
    let keys =
        (0..2_000_000).fold(Metadata::default(), |metadata, index| metadata.boolean(&format!("{index:x}"), true));
    check("2 000 000 keys", keys.bytes(), Some("metadata count is 2000000: the limit is 65536"));
    let keys = (0..65_536).fold(Metadata::default(), |metadata, index| metadata.boolean(&format!("{index:x}"), true));
    check("65 536 keys", keys.bytes(), Some("tokenizer.ggml.model"));
    let template =
        byte_level(&letters(), &vec![1; 94], &[]).string("tokenizer.chat_template.tool_use", &"x".repeat(49 << 20));
    check("a template of 49 MiB", template.bytes(), Some("has 51380224 bytes: a chat template may have 1048576"));
}

#[test]
fn tensors_cost_what_they_weigh() {
    let directory = |n: u64| {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(n.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        for index in 0..n {
            let name = format!("{index:0>64}");
            file.extend((name.len() as u64).to_le_bytes());
            file.extend(name.as_bytes());
            file.extend(1u32.to_le_bytes());
            file.extend(8u64.to_le_bytes());
            file.extend(0u32.to_le_bytes());
            file.extend((index * 32).to_le_bytes());
        }
        file.resize(file.len().next_multiple_of(32) + n as usize * 32, 0);
        file
    };
    check("1 000 000 tensors", directory(1_000_000), Some("tensor count is 1000000: the limit is 65536"));
    check("65 536 tensors", directory(65_536), Some("tokenizer.ggml.model"));
}

/// Byte-level BPE with `n_tokens` tokens. Each, except the letters, is an earlier one followed by a letter.
fn large_byte_level(n_tokens: usize) -> Vec<u8> {
    let (letters, mut tokens, mut merges) = (letters(), letters(), Vec::new());
    for index in 0..n_tokens - letters.len() {
        let (left, right) = (tokens[index / letters.len()].clone(), &letters[index % letters.len()]);
        merges.push(format!("{left} {right}"));
        tokens.push(format!("{left}{right}"));
    }
    let types = vec![1; tokens.len()];
    byte_level(&tokens, &types, &merges).bytes()
}

/// As many pieces as Gemma has, with its user-defined tokens.
fn large_sentence_piece() -> Vec<u8> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    let mut types = vec![2, 3, 3];
    types.extend([6; 256]);
    tokens.extend((0..6400).map(|index| format!("<unused{index}>")));
    types.resize(tokens.len(), 4);
    let letters = ["a", "b", "e", "n", "o", "r", "s", "▁"];
    let mut pieces: Vec<String> = letters.map(String::from).to_vec();
    for index in 0..262_144 - tokens.len() - pieces.len() {
        pieces.push(format!("{}{}", pieces[index / letters.len()], letters[index % letters.len()]));
    }
    tokens.extend(pieces);
    types.resize(tokens.len(), 1);
    let scores: Vec<f32> = (0..tokens.len()).map(|index| -(index as f32)).collect();
    Metadata::default()
        .string("tokenizer.ggml.model", "llama")
        .string("tokenizer.chat_template", "{{ messages }}")
        .strings("tokenizer.ggml.tokens", &tokens.iter().map(String::as_str).collect::<Vec<_>>())
        .integers("tokenizer.ggml.token_type", &types)
        .floats("tokenizer.ggml.scores", &scores)
        .bytes()
}

#[test]
fn the_largest_vocabularies_open_within_the_bound() {
    check("128 256 tokens and as many merges", large_byte_level(128_256), None);
    check("600 000 tokens and as many merges", large_byte_level(600_000), None);
    check("262 144 pieces", large_sentence_piece(), None);
}
