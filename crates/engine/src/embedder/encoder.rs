//! An encoder in a GGUF file, and the dense layers after it where the file has them.

use candle_core::{Device, Result as CandleResult, Tensor};
use hone_protocol::{TextLength, with_causes};

use super::tokens::{self, MAX_TOKENS};
use super::vectors::{Vectors, normalized};
use crate::encoder::tensors::{Linear, n_rows};
use crate::encoder::{Encoder, EncoderRow};
use crate::gguf::Gguf;
use crate::pooling::Pooling;

/// The loaded model.
pub(super) struct PooledEncoder {
    encoder: Encoder,
    pooling: Pooling,
    dense: Vec<Linear>,
}

impl PooledEncoder {
    /// Reads the model.
    ///
    /// # Errors
    /// When something is missing, or has a value or shape that cannot be computed.
    pub(super) fn load(gguf: Gguf, row: &'static EncoderRow) -> Result<PooledEncoder, String> {
        let pooling = pooling(&gguf, row)?;
        let encoder = Encoder::load(gguf, row)?;
        let dense = dense_layers(encoder.gguf(), encoder.width())?;
        Ok(PooledEncoder { encoder, pooling, dense })
    }

    fn most_tokens(&self) -> usize {
        self.encoder.n_positions().min(MAX_TOKENS)
    }

    fn through_dense_layers(&self, pooled: Vec<Vec<f32>>) -> CandleResult<Vec<Vec<f32>>> {
        if self.dense.is_empty() {
            return Ok(pooled);
        }
        let mut rows = Tensor::from_vec(pooled.concat(), (pooled.len(), self.encoder.width()), &Device::Cpu)?;
        for layer in &self.dense {
            rows = layer.apply(&rows)?;
        }
        rows.to_vec2()
    }
}

fn pooling(gguf: &Gguf, row: &EncoderRow) -> Result<Pooling, String> {
    let key = format!("{}.pooling_type", row.name);
    match gguf.unsigned(&key).map_err(|error| with_causes(&error))? {
        None | Some(0) => Ok(Pooling::Mean),
        Some(number) => Pooling::numbered(number).ok_or_else(|| {
            format!("its pooling ({number}) is not supported: the mean (1), the first token (2) and the last (3) are")
        }),
    }
}

/// The layers after pooling, of which a file has both or neither.
fn dense_layers(gguf: &Gguf, width: usize) -> Result<Vec<Linear>, String> {
    let Some(between) = n_rows(gguf, "dense_2.weight") else { return Ok(Vec::new()) };
    let last = n_rows(gguf, "dense_3.weight").unwrap_or_default();
    Ok(vec![
        Linear::read(gguf, "dense_2", [between, width], false)?,
        Linear::read(gguf, "dense_3", [last, between], false)?,
    ])
}

impl Vectors for PooledEncoder {
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, String> {
        tokens::lengths(self.encoder.tokenizer(), self.most_tokens(), texts)
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let tokens = |text: &&str| Ok(tokens::of_text(self.encoder.tokenizer(), self.most_tokens(), text)?.0);
        let texts = texts.iter().map(tokens).collect::<Result<Vec<Vec<u32>>, String>>()?;
        let pooled = self.encoder.pooled(&texts, self.pooling)?;
        let vectors = self.through_dense_layers(pooled).map_err(|error| error.to_string())?;
        vectors.into_iter().map(normalized).collect()
    }
}
