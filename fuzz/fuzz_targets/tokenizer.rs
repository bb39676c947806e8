//! Builds a tokenizer from any lists, and encodes and decodes a text: `cargo +nightly fuzz run tokenizer`.
#![no_main]

use hone_engine::gguf::{Gguf, WriteError, WriteValue, Writer};
use hone_engine::{EncodeOptions, Tokenizer};
use libfuzzer_sys::fuzz_target;

/// Whether it is byte-level, the tokens with their types between zeros, the merges likewise, and a text.
type Input<'a> = (bool, &'a str, &'a [u8], &'a str, &'a str);

fuzz_target!(|input: Input<'_>| {
    let Some(gguf) = file(&input).ok().and_then(|bytes| Gguf::from_bytes(bytes).ok()) else { return };
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else { return };
    for parse_special in [false, true] {
        let options = EncodeOptions { parse_special, add_special: true };
        let ids = tokenizer.encode(input.4, options).unwrap_or_default();
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.n_tokens()));
        let _ = tokenizer.decode(&ids, true);
    }
    let _ = tokenizer.token_with_text(input.4);
});

fn file((is_byte_level, tokens, types, merges, _): &Input<'_>) -> Result<Vec<u8>, WriteError> {
    let tokens: Vec<&str> = tokens.split('\0').collect();
    let types: Vec<i32> = (0..tokens.len()).map(|index| types.get(index).map_or(1, |kind| i32::from(*kind))).collect();
    let scores: Vec<f32> = types.iter().map(|kind| *kind as f32).collect();
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.model", WriteValue::String(if *is_byte_level { "gpt2" } else { "llama" }))?;
    writer.metadata("tokenizer.ggml.tokens", WriteValue::Strings(&tokens))?;
    writer.metadata("tokenizer.ggml.token_type", WriteValue::I32s(&types))?;
    writer.metadata("tokenizer.ggml.scores", WriteValue::F32s(&scores))?;
    let merges: Vec<&str> = merges.split_terminator('\0').collect();
    writer.metadata("tokenizer.ggml.merges", WriteValue::Strings(&merges))?;
    writer.begin(Vec::new())?.finish()
}
