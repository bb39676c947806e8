//! A decoder in a GGUF file that was trained for vectors, such as Qwen3-Embedding.

use hone_protocol::{ModelFile, TextLength, with_causes};

use super::tokens::{self, MAX_TOKENS};
use super::vectors::{Vectors, normalized};
use crate::gguf::{Gguf, GgufError};
use crate::pooled_decoder::PooledDecoder;
use crate::pooling::Pooling;
use crate::template::TemplateHost;

/// The pooling for a text's vector.
fn pooling(gguf: &Gguf) -> Result<Pooling, String> {
    let failed = |error: GgufError| with_causes(&error);
    let text = |key: &str| gguf.string(key).map_err(failed).map(Option::unwrap_or_default);
    let architecture = text("general.architecture")?;
    let is_named_so = text("general.name")?.to_lowercase().contains("embed");
    let number = gguf.unsigned(&format!("{architecture}.pooling_type")).map_err(failed)?;
    match number.and_then(Pooling::numbered) {
        Some(pooling @ (Pooling::Mean | Pooling::Last)) => Ok(pooling),
        // Older files leave it to the program.
        None if number.unwrap_or(0) == 0 && is_named_so => Ok(Pooling::Last),
        None if number.unwrap_or(0) == 0 => {
            Err("it is a model that answers, and was not trained for vectors".to_owned())
        }
        _ => Err(format!(
            "its pooling ({}) is not supported: only the mean (1) and the last token (3) are",
            number.unwrap_or(0)
        )),
    }
}

/// The loaded model.
pub(super) struct Decoder {
    states: PooledDecoder,
    pooling: Pooling,
}

impl Decoder {
    /// Loads the model on the processor.
    ///
    /// # Errors
    /// When the file is broken, not supported, or not made for vectors.
    pub(super) fn load(gguf: &Gguf, file: &ModelFile) -> Result<Decoder, String> {
        let pooling = pooling(gguf)?;
        let states = PooledDecoder::load(file, MAX_TOKENS, &TemplateHost::InProcess)?;
        Ok(Decoder { states, pooling })
    }
}

impl Vectors for Decoder {
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, String> {
        let model = self.states.model();
        tokens::lengths(model.tokenizer(), model.context_length(), texts)
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let mut model = self.states.model();
        let vector = |text: &&str| {
            let (tokens, _) = tokens::of_text(model.tokenizer(), model.context_length(), text)?;
            normalized(self.states.pooled(&mut model, None, &tokens, self.pooling)?)
        };
        texts.iter().map(vector).collect()
    }
}
