//! Encoders in GGUF files: a BERT, or a NomicBert, which rotates positions and gates its feed-forward parts.
//!
//! The names of keys and tensors are those of
//! <https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py>. Weights are decoded to floats, because
//! candle's encoders take no others.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{bert, nomic_bert};
use hone_protocol::with_causes;
use serde_json::{Map, Value, json};

use super::super::tensors::take;
use super::super::tokens::MAX_TOKENS;
use super::{Encoder, EncoderPooling, Network, tokenizer};
use crate::decoder::SpecError;
use crate::decoder::keys::Keys;
use crate::gguf::Gguf;

/// An architecture of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::embedder) enum Family {
    Bert,
    NomicBert,
}

impl Family {
    /// The family with this name of an architecture.
    pub(in crate::embedder) fn named(architecture: &str) -> Option<Family> {
        [Family::Bert, Family::NomicBert].into_iter().find(|family| family.name() == architecture)
    }

    fn name(self) -> &'static str {
        match self {
            Family::Bert => "bert",
            Family::NomicBert => "nomic-bert",
        }
    }
}

/// Reads the model.
///
/// # Errors
/// When something is missing, or has a value or shape that cannot be computed.
pub(in crate::embedder) fn load(gguf: &Gguf, family: Family) -> Result<Encoder, String> {
    let sizes = EncoderSizes::read(gguf, family).map_err(|error| with_causes(&error))?;
    let pooling = pooling(gguf, family)?;
    let tokenizer = tokenizer(&vocabulary(gguf, sizes.n_tokens)?, sizes.n_positions.min(MAX_TOKENS))?;
    let failed = |error: candle_core::Error| error.to_string();
    let network = match family {
        Family::Bert => {
            let model = bert::BertModel::load(bert_weights(gguf, &sizes)?, &sizes.of_bert());
            Network::Bert(model.map_err(failed)?)
        }
        Family::NomicBert => {
            let config = sizes.of_nomic(gguf).map_err(|error| with_causes(&error))?;
            let model = nomic_bert::NomicBertModel::load(nomic_weights(gguf, &sizes)?, &config);
            Network::NomicBert(model.map_err(failed)?)
        }
    };
    Ok(Encoder { tokenizer, network, pooling })
}

/// <https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h> (`llama_pooling_type`).
fn pooling(gguf: &Gguf, family: Family) -> Result<EncoderPooling, String> {
    let key = format!("{}.pooling_type", family.name());
    match gguf.unsigned(&key).map_err(|error| with_causes(&error))? {
        None | Some(0 | 1) => Ok(EncoderPooling::Mean),
        Some(2) => Ok(EncoderPooling::First),
        Some(other) => Err(format!(
            "its pooling ({other}) is not supported: of encoders, only the mean (1) and the first token (2) are"
        )),
    }
}

struct EncoderSizes {
    n_layers: usize,
    width: usize,
    n_heads: usize,
    inner: usize,
    n_positions: usize,
    n_tokens: usize,
    n_types: usize,
    epsilon: f64,
}

impl EncoderSizes {
    fn read(gguf: &Gguf, family: Family) -> Result<EncoderSizes, SpecError> {
        let keys = Keys { gguf, architecture: family.name() };
        let width = keys.size("embedding_length", 1..=1 << 16)?;
        let n_heads = keys.size("attention.head_count", 1..=width)?;
        // Rotations work on pairs.
        if !width.is_multiple_of(2 * n_heads) {
            let reason = format!("is {n_heads}: {width} dimensions cannot be divided among them in pairs");
            return Err(keys.invalid("attention.head_count", reason));
        }
        let rows = |name: &str| gguf.tensor(name).and_then(|tensor| tensor.dimensions.get(1)).copied();
        Ok(EncoderSizes {
            n_layers: keys.size("block_count", 1..=1024)?,
            width,
            n_heads,
            inner: keys.size("feed_forward_length", 1..=1 << 20)?,
            n_positions: keys.size("context_length", 3..=1 << 24)?,
            n_tokens: rows("token_embd.weight").unwrap_or(0),
            n_types: rows("token_types.weight").unwrap_or(1),
            epsilon: f64::from(keys.required_positive_float("attention.layer_norm_epsilon")?),
        })
    }

    fn of_bert(&self) -> bert::Config {
        bert::Config {
            vocab_size: self.n_tokens,
            hidden_size: self.width,
            num_hidden_layers: self.n_layers,
            num_attention_heads: self.n_heads,
            intermediate_size: self.inner,
            max_position_embeddings: self.n_positions,
            type_vocab_size: self.n_types,
            layer_norm_eps: self.epsilon,
            ..bert::Config::default()
        }
    }

    fn of_nomic(&self, gguf: &Gguf) -> Result<nomic_bert::Config, SpecError> {
        let keys = Keys { gguf, architecture: Family::NomicBert.name() };
        let base = keys.positive_float("rope.freq_base")?.map(f64::from);
        let default = nomic_bert::Config::default();
        Ok(nomic_bert::Config {
            vocab_size: self.n_tokens,
            n_embd: self.width,
            n_head: self.n_heads,
            n_layer: self.n_layers,
            n_inner: self.inner,
            // There is a row of a table for each.
            n_positions: self.n_positions.min(MAX_TOKENS),
            type_vocab_size: self.n_types,
            layer_norm_epsilon: self.epsilon,
            rotary_emb_base: base.unwrap_or(default.rotary_emb_base),
            ..default
        })
    }
}

fn bert_weights(gguf: &Gguf, sizes: &EncoderSizes) -> Result<VarBuilder<'static>, String> {
    let (width, inner) = (sizes.width, sizes.inner);
    let mut weights = EncoderWeights { gguf, tensors: HashMap::new() };
    weights.embeddings(sizes, "embeddings.LayerNorm")?;
    weights.matrix("embeddings.position_embeddings", "position_embd", [sizes.n_positions, width])?;
    for layer in 0..sizes.n_layers {
        let (to, from) = (format!("encoder.layer.{layer}"), format!("blk.{layer}"));
        for (part, name) in [("query", "attn_q"), ("key", "attn_k"), ("value", "attn_v")] {
            weights.layer(&format!("{to}.attention.self.{part}"), &format!("{from}.{name}"), [width, width])?;
        }
        weights.layer(&format!("{to}.attention.output.dense"), &format!("{from}.attn_output"), [width, width])?;
        weights.norm(&format!("{to}.attention.output.LayerNorm"), &format!("{from}.attn_output_norm"), width)?;
        weights.layer(&format!("{to}.intermediate.dense"), &format!("{from}.ffn_up"), [inner, width])?;
        weights.layer(&format!("{to}.output.dense"), &format!("{from}.ffn_down"), [width, inner])?;
        weights.norm(&format!("{to}.output.LayerNorm"), &format!("{from}.layer_output_norm"), width)?;
    }
    Ok(weights.build())
}

fn nomic_weights(gguf: &Gguf, sizes: &EncoderSizes) -> Result<VarBuilder<'static>, String> {
    let (width, inner) = (sizes.width, sizes.inner);
    let mut weights = EncoderWeights { gguf, tensors: HashMap::new() };
    weights.embeddings(sizes, "emb_ln")?;
    for layer in 0..sizes.n_layers {
        let (to, from) = (format!("encoder.layers.{layer}"), format!("blk.{layer}"));
        weights.matrix(&format!("{to}.attn.Wqkv"), &format!("{from}.attn_qkv"), [3 * width, width])?;
        weights.matrix(&format!("{to}.attn.out_proj"), &format!("{from}.attn_output"), [width, width])?;
        weights.norm(&format!("{to}.norm1"), &format!("{from}.attn_output_norm"), width)?;
        weights.matrix(&format!("{to}.mlp.fc11"), &format!("{from}.ffn_up"), [inner, width])?;
        weights.matrix(&format!("{to}.mlp.fc12"), &format!("{from}.ffn_gate"), [inner, width])?;
        weights.matrix(&format!("{to}.mlp.fc2"), &format!("{from}.ffn_down"), [width, inner])?;
        weights.norm(&format!("{to}.norm2"), &format!("{from}.layer_output_norm"), width)?;
    }
    Ok(weights.build())
}

/// Weights by the names that candle knows.
struct EncoderWeights<'a> {
    gguf: &'a Gguf,
    tensors: HashMap<String, Tensor>,
}

impl EncoderWeights<'_> {
    fn take(&mut self, to: &str, from: &str, shape: &[usize]) -> Result<(), String> {
        self.tensors.insert(to.to_owned(), take(self.gguf, from, shape)?);
        Ok(())
    }

    fn matrix(&mut self, to: &str, from: &str, shape: [usize; 2]) -> Result<(), String> {
        self.take(&format!("{to}.weight"), &format!("{from}.weight"), &shape)
    }

    /// A matrix of `[outputs, inputs]` with a bias.
    fn layer(&mut self, to: &str, from: &str, shape: [usize; 2]) -> Result<(), String> {
        self.matrix(to, from, shape)?;
        self.take(&format!("{to}.bias"), &format!("{from}.bias"), &shape[..1])
    }

    fn norm(&mut self, to: &str, from: &str, width: usize) -> Result<(), String> {
        ["weight", "bias"]
            .iter()
            .try_for_each(|part| self.take(&format!("{to}.{part}"), &format!("{from}.{part}"), &[width]))
    }

    fn embeddings(&mut self, sizes: &EncoderSizes, norm: &str) -> Result<(), String> {
        self.matrix("embeddings.word_embeddings", "token_embd", [sizes.n_tokens, sizes.width])?;
        self.matrix("embeddings.token_type_embeddings", "token_types", [sizes.n_types, sizes.width])?;
        self.norm(norm, "token_embd_norm", sizes.width)
    }

    fn build(self) -> VarBuilder<'static> {
        VarBuilder::from_tensors(self.tensors, DType::F32, &Device::Cpu)
    }
}

/// What begins a word, which WordPiece leaves unmarked; it marks the other pieces instead.
const WORD_START: char = '\u{2581}';

/// The type of tokens that are not text.
const CONTROL: i64 = 3;

/// The tokenizer, of so many tokens, as a file of the library that runs it.
fn vocabulary(gguf: &Gguf, n_tokens: usize) -> Result<Vec<u8>, String> {
    let failed = |error: crate::gguf::GgufError| with_causes(&error);
    let kind = gguf.string("tokenizer.ggml.model").map_err(failed)?.unwrap_or_default();
    if kind != "bert" {
        return Err(format!("its tokenizer is {kind:?}: encoders have one of the kind \"bert\" (WordPiece)"));
    }
    let tokens = gguf.strings("tokenizer.ggml.tokens").map_err(failed)?.unwrap_or_default();
    if tokens.len() != n_tokens {
        return Err(format!(
            "tokenizer.ggml.tokens has {} tokens, and token_embd.weight {n_tokens} rows",
            tokens.len()
        ));
    }
    let types = gguf.integers("tokenizer.ggml.token_type").map_err(failed)?.unwrap_or_default();
    let piece = |index: usize, token: &str| match token.strip_prefix(WORD_START) {
        _ if types.get(index) == Some(&CONTROL) => token.to_owned(),
        Some(word) => word.to_owned(),
        None => format!("##{token}"),
    };
    let special = |key: &str, default: u64| {
        let id = gguf.unsigned(&format!("tokenizer.ggml.{key}_token_id")).map_err(failed)?.unwrap_or(default);
        let token = usize::try_from(id).ok().and_then(|id| Some(piece(id, tokens.get(id)?)));
        token
            .map(|token| (token, id))
            .ok_or_else(|| format!("tokenizer.ggml.{key}_token_id is {id}, which is no token"))
    };
    // The numbers of the original BERT stand where a file has none.
    let (begin, end, unknown) = (special("cls", 101)?, special("seperator", 102)?, special("unknown", 100)?);
    let vocabulary: Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| (piece(id, token), Value::from(id))).collect();
    let is_lower = gguf.boolean("tokenizer.ggml.normalizer.lowercase").map_err(failed)?.unwrap_or(true);
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": true,
            "strip_accents": gguf.boolean("tokenizer.ggml.normalizer.strip_accents").map_err(failed)?,
            "lowercase": is_lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": begin, "sep": end},
        "decoder": null,
        "model": {
            "type": "WordPiece",
            "unk_token": unknown.0,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    });
    Ok(tokenizer.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn texts_become_the_tokens_of_llama_cpp() {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-models");
        let folder = std::env::var_os("HONE_TEST_MODELS").map_or_else(default, PathBuf::from);
        let gguf = Gguf::open(&folder.join("vocab-bert-bge.gguf")).unwrap();
        let tokenizer = tokenizer(&vocabulary(&gguf, 30522).unwrap(), MAX_TOKENS).unwrap();
        let read = |ending: &str| std::fs::read_to_string(folder.join(format!("vocab-bert-bge.{ending}"))).unwrap();
        let (texts, expected) = (read("inp"), read("out"));
        let separator = "\n__ggml_vocab_test__\n";
        let texts = texts.strip_suffix(separator).unwrap_or(&texts).split(separator);
        let mut n_texts = 0;
        for (text, expected) in texts.zip(expected.lines()) {
            let expected: Vec<u32> = expected.split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert_eq!(tokenizer.encode_fast(text, false).unwrap().get_ids(), expected, "{text:?}");
            n_texts += 1;
        }
        assert!(n_texts >= 46);
    }
}
