//! A BERT in three files, whose names the store knows.
//!
//! Texts with the same number of tokens are computed together, which for short texts is up to twice as fast as one by
//! one; padding would cost longer texts as much as it saves short ones.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use hone_protocol::{ModelFile, TextLength, with_causes};
use tokenizers::{PostProcessor, Tokenizer, TruncationParams};

use super::vectors::{Vectors, normalized};
use crate::gguf::Mapping;

/// Maximum number of tokens of a text that are used, including the two at its ends; such a model was not trained on
/// more.
const MAX_TOKENS: usize = 256;

/// Maximum number of texts computed together; more gain nothing.
const MAX_BATCH: usize = 16;

/// The files of a model.
#[derive(Clone, Debug)]
pub(super) struct BertFiles {
    pub(super) config: ModelFile,
    pub(super) tokenizer: ModelFile,
    pub(super) weights: ModelFile,
}

/// The loaded model.
pub(super) struct Bert {
    tokenizer: Tokenizer,
    model: BertModel,
}

impl Bert {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them is broken, or has a shape that cannot be computed.
    pub(super) fn load(files: &BertFiles) -> Result<Self, String> {
        let config = read(&files.config, |bytes| serde_json::from_slice(bytes).map_err(|error| with_causes(&error)))?;
        check_config(&config).map_err(|reason| cannot_use(&files.config, &reason))?;
        let max_tokens = config.max_position_embeddings.min(MAX_TOKENS);
        let tokenizer = read(&files.tokenizer, |bytes| tokenizer(bytes, max_tokens))?;
        let model = read(&files.weights, |bytes| {
            let weights = VarBuilder::from_slice_safetensors(bytes, DType::F32, &Device::Cpu);
            weights.and_then(|weights| BertModel::load(weights, &config)).map_err(|error| error.to_string())
        })?;
        Ok(Bert { tokenizer, model })
    }

    /// The means of the states after the last layer, for texts with the same number of tokens.
    fn pooled(&self, rows: &[&[u32]]) -> candle_core::Result<Vec<Vec<f32>>> {
        let ids = Tensor::from_vec(rows.concat(), (rows.len(), rows[0].len()), &Device::Cpu)?;
        self.model.forward(&ids, &ids.zeros_like()?, None)?.mean(1)?.to_vec2()
    }
}

impl Vectors for Bert {
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, String> {
        let length = |text: &&str| {
            let encoding = self.tokenizer.encode_fast(*text, true).map_err(|error| error.to_string())?;
            Ok(TextLength { tokens: encoding.len(), is_cut: !encoding.get_overflowing().is_empty() })
        };
        texts.iter().map(length).collect()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let encode = |text: &&str| Ok(self.tokenizer.encode_fast(*text, true)?.get_ids().to_vec());
        let ids: Vec<Vec<u32>> =
            texts.iter().map(encode).collect::<tokenizers::Result<_>>().map_err(|error| error.to_string())?;
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|index| ids[*index].len());
        let mut vectors = vec![Vec::new(); texts.len()];
        for same_length in order.chunk_by(|a, b| ids[*a].len() == ids[*b].len()) {
            for batch in same_length.chunks(MAX_BATCH) {
                let rows: Vec<&[u32]> = batch.iter().map(|index| ids[*index].as_slice()).collect();
                let pooled = self.pooled(&rows).map_err(|error| error.to_string())?;
                for (index, vector) in batch.iter().zip(pooled) {
                    vectors[*index] = normalized(vector)?;
                }
            }
        }
        Ok(vectors)
    }
}

fn tokenizer(bytes: &[u8], max_tokens: usize) -> Result<Tokenizer, String> {
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    let n_added = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
    if n_added >= max_tokens {
        return Err(format!("it adds {n_added} tokens to every text, and the model takes {max_tokens}"));
    }
    let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
    tokenizer.with_truncation(Some(truncation)).map_err(|error| error.to_string())?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

/// Refuses shapes by which candle would divide without checking.
fn check_config(config: &Config) -> Result<(), String> {
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    if heads == 0 || hidden == 0 || !hidden.is_multiple_of(heads) {
        return Err(format!("{hidden} dimensions cannot be divided among {heads} heads"));
    }
    if config.max_position_embeddings < 3 {
        return Err(format!("it has room for {} tokens", config.max_position_embeddings));
    }
    Ok(())
}

/// Reads a file and parses it.
fn read<T>(file: &ModelFile, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
    let mapping = Mapping::region(file).map_err(|error| with_causes(&error))?;
    parse(mapping.bytes()).map_err(|reason| cannot_use(file, &reason))
}

fn cannot_use(file: &ModelFile, reason: &str) -> String {
    format!("{} cannot be used: {reason}", file.path.display())
}
