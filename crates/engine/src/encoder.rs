//! Encoders in GGUF files: transformers in which every token also sees the tokens after it. Embedders and rerankers
//! build on them.
//!
//! The metadata and a table row describe an encoder completely; there is one forward pass. Keys and tensors are named
//! as in <https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py>. Weights are decoded to floats.

mod architecture;
mod layer;
mod positions;
mod sizes;
pub(crate) mod tensors;

use candle_core::{Device, Result as CandleResult, Tensor};
use hone_kernels::dequantize;
use hone_protocol::with_causes;

pub(crate) use self::architecture::{EncoderRow, HeadActivation};
use self::architecture::{NormPlacement, PositionKind};
use self::layer::{Extent, Layer};
use self::positions::Positions;
use self::sizes::EncoderSizes;
use self::tensors::{Norm, n_rows, take};
use crate::gguf::{Gguf, TensorInfo};
use crate::pooling::Pooling;
use crate::tokenizer::Tokenizer;

/// Maximum number of tokens computed together; more gain nothing.
const MAX_BATCH_TOKENS: usize = 2048;

const EMBEDDINGS: &str = "token_embd.weight";

/// A loaded encoder.
pub(crate) struct Encoder {
    row: &'static EncoderRow,
    gguf: Gguf,
    tokenizer: Tokenizer,
    sizes: EncoderSizes,
    /// The position embeddings, if any.
    positions: Option<Tensor>,
    /// Added to every embedding.
    token_type: Option<Tensor>,
    embedding_norm: Option<Norm>,
    layers: Vec<Layer>,
    output_norm: Option<Norm>,
}

impl Encoder {
    /// Reads the model.
    ///
    /// # Errors
    /// When something is missing, or has a value or shape that cannot be computed.
    pub(crate) fn load(gguf: Gguf, row: &'static EncoderRow) -> Result<Encoder, String> {
        let sizes = EncoderSizes::read(&gguf, row).map_err(|error| with_causes(&error))?;
        let tokenizer = Tokenizer::from_gguf(&gguf).map_err(|error| with_causes(&error))?;
        let n_rows = embeddings(&gguf, sizes.width)?.dimensions[1];
        if tokenizer.n_tokens() > n_rows {
            return Err(format!("the vocabulary has {} tokens and {EMBEDDINGS} {n_rows} rows", tokenizer.n_tokens()));
        }
        let norm = |name: &str| Norm::read(&gguf, name, sizes.width, row.norms, sizes.epsilon);
        let layers = (0..sizes.layers.len()).map(|index| Layer::read(&gguf, row, &sizes, index));
        Ok(Encoder {
            positions: match row.positions {
                PositionKind::Learned => Some(take(&gguf, "position_embd.weight", &[sizes.n_positions, sizes.width])?),
                PositionKind::Rotated => None,
            },
            token_type: if row.has_types { first_type(&gguf, sizes.width)? } else { None },
            embedding_norm: row.norms_embeddings.then(|| norm("token_embd_norm")).transpose()?,
            layers: layers.collect::<Result<_, _>>()?,
            output_norm: (row.placement != NormPlacement::After).then(|| norm("output_norm")).transpose()?,
            row,
            tokenizer,
            sizes,
            gguf,
        })
    }

    pub(crate) fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Width of a state.
    pub(crate) fn width(&self) -> usize {
        self.sizes.width
    }

    /// Added to the variance in norms.
    pub(crate) fn epsilon(&self) -> f32 {
        self.sizes.epsilon
    }

    /// Maximum number of tokens in a text.
    pub(crate) fn n_positions(&self) -> usize {
        self.sizes.n_positions
    }

    /// The pooled state of each text, given as tokens. Texts of the same length are computed together, which for short
    /// ones is up to twice as fast as one by one; padding would cost longer texts as much as it saves short ones.
    ///
    /// # Errors
    /// When a text has no tokens or too many.
    pub(crate) fn pooled(&self, texts: &[Vec<u32>], pooling: Pooling) -> Result<Vec<Vec<f32>>, String> {
        Ok(self.pooled_unless(texts, pooling, &|| false)?.unwrap_or_default())
    }

    /// Like [`Encoder::pooled`], but returns `None` if `is_over` returns true, which is checked before each batch.
    ///
    /// # Errors
    /// As for [`Encoder::pooled`].
    pub(crate) fn pooled_unless(
        &self,
        texts: &[Vec<u32>],
        pooling: Pooling,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Vec<f32>>>, String> {
        let most = self.n_positions();
        if let Some(wrong) = texts.iter().find(|text| text.is_empty() || text.len() > most) {
            return Err(format!("a text has {} tokens: the model takes 1 to {most}", wrong.len()));
        }
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|index| texts[*index].len());
        let mut pooled = vec![Vec::new(); texts.len()];
        for same_length in order.chunk_by(|a, b| texts[*a].len() == texts[*b].len()) {
            let n_texts = (MAX_BATCH_TOKENS / texts[same_length[0]].len()).max(1);
            for batch in same_length.chunks(n_texts) {
                if is_over() {
                    return Ok(None);
                }
                let rows: Vec<&[u32]> = batch.iter().map(|index| texts[*index].as_slice()).collect();
                let states = self.pooled_batch(&rows, pooling).map_err(|error| error.to_string())?;
                batch.iter().zip(states).for_each(|(index, state)| pooled[*index] = state);
            }
        }
        Ok(Some(pooled))
    }

    /// For texts with the same number of tokens.
    fn pooled_batch(&self, texts: &[&[u32]], pooling: Pooling) -> CandleResult<Vec<Vec<f32>>> {
        let extent = Extent { n_texts: texts.len(), n_tokens: texts[0].len() };
        let states = self.states(extent, &texts.concat())?;
        let states = states.reshape((extent.n_texts, extent.n_tokens, self.sizes.width))?;
        match pooling {
            Pooling::Mean => states.mean(1)?.to_vec2(),
            Pooling::First => states.narrow(1, 0, 1)?.squeeze(1)?.to_vec2(),
            Pooling::Last => states.narrow(1, extent.n_tokens - 1, 1)?.squeeze(1)?.to_vec2(),
        }
    }

    /// The states after the last layer: a row for every token.
    fn states(&self, extent: Extent, tokens: &[u32]) -> CandleResult<Tensor> {
        let EncoderSizes { head_dim, ref layers, .. } = self.sizes;
        let mut kinds: Vec<(Option<f32>, Positions)> = Vec::new();
        for kind in layers {
            if !kinds.iter().any(|(base, _)| *base == kind.base) {
                kinds.push((kind.base, Positions::new(extent.n_tokens, head_dim, kind.base)?));
            }
        }
        let mut states = self.embedded(extent, tokens)?;
        for layer in &self.layers {
            let (_, positions) = kinds.iter().find(|(base, _)| *base == layer.kind.base).expect("it was made above");
            states = layer.through(&self.sizes, extent, positions, &states)?;
        }
        match &self.output_norm {
            Some(norm) => norm.apply(&states),
            None => Ok(states),
        }
    }

    /// The embeddings of tokens; only their rows are decoded.
    fn embedded(&self, extent: Extent, tokens: &[u32]) -> CandleResult<Tensor> {
        let tensor = self.gguf.tensor(EMBEDDINGS).expect("it was found when the model was loaded");
        let (bytes, width) = (self.gguf.tensor_bytes(tensor), self.sizes.width);
        let row_bytes = tensor.n_bytes / tensor.dimensions[1];
        let mut rows = vec![0.0; tokens.len() * width];
        for (token, row) in tokens.iter().zip(rows.chunks_exact_mut(width)) {
            dequantize(tensor.tensor_type, &bytes[*token as usize * row_bytes..][..row_bytes], row);
        }
        let mut states = Tensor::from_vec(rows, (tokens.len(), width), &Device::Cpu)?;
        if self.row.scales_embeddings {
            states = (states * (width as f64).sqrt())?;
        }
        if let Some(token_type) = &self.token_type {
            states = states.broadcast_add(token_type)?;
        }
        if let Some(positions) = &self.positions {
            let shape = (extent.n_texts, extent.n_tokens, width);
            let positions = positions.narrow(0, 0, extent.n_tokens)?;
            states = states.reshape(shape)?.broadcast_add(&positions)?.reshape((tokens.len(), width))?;
        }
        match &self.embedding_norm {
            Some(norm) => norm.apply(&states),
            None => Ok(states),
        }
    }
}

/// The matrix of embeddings, whose rows have this width.
fn embeddings(gguf: &Gguf, width: usize) -> Result<&TensorInfo, String> {
    let tensor = gguf.tensor(EMBEDDINGS).ok_or_else(|| format!("the tensor {EMBEDDINGS} is missing"))?;
    match *tensor.dimensions {
        [found, n_rows] if found == width && n_rows > 0 => Ok(tensor),
        ref found => Err(format!("the tensor {EMBEDDINGS} has the shape {found:?}, not rows of {width}")),
    }
}

/// The embedding of the first type of tokens, if the file has types.
fn first_type(gguf: &Gguf, width: usize) -> Result<Option<Tensor>, String> {
    let name = "token_types.weight";
    let Some(n_types) = n_rows(gguf, name) else { return Ok(None) };
    let types = take(gguf, name, &[n_types, width])?;
    types.get(0).map(Some).map_err(|error| error.to_string())
}
