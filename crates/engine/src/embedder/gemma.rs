//! EmbeddingGemma in a GGUF file: the layers of Gemma 3, whose tokens attend to those after them, too; the mean of their
//! normed states; and dense layers after it, where the file has them.
//!
//! <https://arxiv.org/abs/2509.20354>; the names of keys and tensors are those of
//! <https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py>.

use candle_core::{Device, Result as CandleResult, Tensor};
use candle_nn::ops::{rms_norm, softmax_last_dim};
use candle_nn::rotary_emb::rope;
use candle_transformers::utils::repeat_kv;
use hone_kernels::dequantize;
use hone_protocol::{TextLength, with_causes};

use super::tensors::take;
use super::tokens::{self, MAX_TOKENS};
use super::vectors::{Vectors, normalized};
use crate::decoder::SpecError;
use crate::decoder::keys::Keys;
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

/// The architecture's name.
pub(super) const ARCHITECTURE: &str = "gemma-embedding";

/// Of so many layers the last one sees the whole text, if the file does not say it.
const WINDOW_PERIOD: usize = 6;

/// The base of the rotations of layers with a window, if the file does not say it.
const WINDOW_BASE: f32 = 10_000.0;

/// The loaded model.
pub(super) struct Gemma {
    gguf: Gguf,
    tokenizer: Tokenizer,
    sizes: GemmaSizes,
    layers: Vec<GemmaLayer>,
    norm: Tensor,
    dense: Vec<Tensor>,
}

struct GemmaSizes {
    width: usize,
    inner: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    n_positions: usize,
    /// Tokens at most this far away are seen, in layers with a window.
    reach: usize,
    /// Which layers have a window.
    windows: Vec<bool>,
    epsilon: f32,
    bases: Bases,
}

/// The bases of rotations.
struct Bases {
    whole: f32,
    window: f32,
}

impl GemmaSizes {
    fn read(gguf: &Gguf) -> Result<GemmaSizes, SpecError> {
        let keys = Keys { gguf, architecture: ARCHITECTURE };
        let n_heads = keys.size("attention.head_count", 1..=1024)?;
        let n_kv_heads = keys.size("attention.head_count_kv", 1..=n_heads)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            let reason = format!("is {n_kv_heads}: {n_heads} heads cannot be divided among them");
            return Err(keys.invalid("attention.head_count_kv", reason));
        }
        let head_dim = keys.size("attention.key_length", 2..=1 << 12)?;
        if !head_dim.is_multiple_of(2) {
            return Err(keys.invalid("attention.key_length", format!("is {head_dim}: rotations work on pairs")));
        }
        if keys.float("rope.scaling.factor")?.is_some_and(|factor| factor != 1.0) {
            return Err(keys.invalid("rope.scaling.factor", "is not supported for this architecture"));
        }
        let n_layers = keys.size("block_count", 1..=1024)?;
        Ok(GemmaSizes {
            width: keys.size("embedding_length", 1..=1 << 16)?,
            inner: keys.size("feed_forward_length", 1..=1 << 20)?,
            n_heads,
            n_kv_heads,
            head_dim,
            n_positions: keys.size("context_length", 1..=1 << 24)?.min(MAX_TOKENS),
            reach: keys.size("attention.sliding_window", 1..=1 << 24)? / 2,
            windows: windows(&keys, n_layers)?,
            epsilon: keys.required_positive_float("attention.layer_norm_rms_epsilon")?,
            bases: Bases {
                whole: keys.required_positive_float("rope.freq_base")?,
                window: keys.positive_float("rope.freq_base_swa")?.unwrap_or(WINDOW_BASE),
            },
        })
    }
}

/// The key holds a truth for every layer, or how many layers there are up to one without a window.
fn windows(keys: &Keys<'_>, n_layers: usize) -> Result<Vec<bool>, SpecError> {
    let key = "attention.sliding_window_pattern";
    if let Some(windows) = keys.truths(key, n_layers)? {
        return Ok(windows);
    }
    let period = keys.optional_size(key, 1..=1024)?.unwrap_or(WINDOW_PERIOD);
    Ok((0..n_layers).map(|layer| layer % period < period - 1).collect())
}

struct GemmaLayer {
    has_window: bool,
    norm: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_norm: Tensor,
    key_norm: Tensor,
    output: Tensor,
    post_norm: Tensor,
    ffn_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    post_ffn_norm: Tensor,
}

impl GemmaLayer {
    fn read(gguf: &Gguf, sizes: &GemmaSizes, index: usize) -> Result<GemmaLayer, String> {
        let GemmaSizes { width, inner, head_dim, .. } = *sizes;
        let (heads, kv_heads) = (sizes.n_heads * head_dim, sizes.n_kv_heads * head_dim);
        let part = |name: &str, shape: &[usize]| take(gguf, &format!("blk.{index}.{name}.weight"), shape);
        Ok(GemmaLayer {
            has_window: sizes.windows[index],
            norm: part("attn_norm", &[width])?,
            query: part("attn_q", &[heads, width])?,
            key: part("attn_k", &[kv_heads, width])?,
            value: part("attn_v", &[kv_heads, width])?,
            query_norm: part("attn_q_norm", &[head_dim])?,
            key_norm: part("attn_k_norm", &[head_dim])?,
            output: part("attn_output", &[width, heads])?,
            post_norm: part("post_attention_norm", &[width])?,
            ffn_norm: part("ffn_norm", &[width])?,
            gate: part("ffn_gate", &[inner, width])?,
            up: part("ffn_up", &[inner, width])?,
            down: part("ffn_down", &[width, inner])?,
            post_ffn_norm: part("post_ffw_norm", &[width])?,
        })
    }
}

/// What layers of one kind need of a text's positions.
struct Positions {
    cosines: Tensor,
    sines: Tensor,
    /// What is added to the scores.
    mask: Option<Tensor>,
}

impl Positions {
    fn new(n_tokens: usize, head_dim: usize, base: f32, reach: Option<usize>) -> CandleResult<Positions> {
        let frequencies = (0..head_dim / 2).map(|pair| base.powf(-((2 * pair) as f32) / head_dim as f32));
        let frequencies: Vec<f32> = frequencies.collect();
        let angles = (0..n_tokens).flat_map(|position| frequencies.iter().map(move |step| position as f32 * step));
        let angles = Tensor::from_iter(angles, &Device::Cpu)?.reshape((n_tokens, head_dim / 2))?;
        let reach = reach.filter(|reach| *reach < n_tokens);
        let mask = reach.map(|reach| {
            let pairs = (0..n_tokens).flat_map(|from| (0..n_tokens).map(move |to| from.abs_diff(to)));
            let scores = pairs.map(|distance| if distance > reach { f32::NEG_INFINITY } else { 0.0 });
            Tensor::from_iter(scores, &Device::Cpu)?.reshape((1, 1, n_tokens, n_tokens))
        });
        Ok(Positions { cosines: angles.cos()?, sines: angles.sin()?, mask: mask.transpose()? })
    }
}

impl Gemma {
    /// Reads the model.
    ///
    /// # Errors
    /// When something is missing, or has a value or shape that cannot be computed.
    pub(super) fn load(gguf: Gguf) -> Result<Gemma, String> {
        let sizes = GemmaSizes::read(&gguf).map_err(|error| with_causes(&error))?;
        let pooling = gguf.unsigned(&format!("{ARCHITECTURE}.pooling_type")).map_err(|error| with_causes(&error))?;
        if pooling.is_some_and(|pooling| pooling > 1) {
            return Err(format!(
                "its pooling ({}) is not supported: only the mean (1) is",
                pooling.unwrap_or_default()
            ));
        }
        let tokenizer = Tokenizer::from_gguf(&gguf).map_err(|error| with_causes(&error))?;
        let embeddings = gguf.tensor(EMBEDDINGS).ok_or_else(|| format!("the tensor {EMBEDDINGS} is missing"))?;
        if embeddings.dimensions != [sizes.width, tokenizer.n_tokens()] {
            let (found, n_tokens) = (&embeddings.dimensions, tokenizer.n_tokens());
            return Err(format!("the tensor {EMBEDDINGS} has the shape {found:?}, not {:?}", [sizes.width, n_tokens]));
        }
        let layers =
            (0..sizes.windows.len()).map(|index| GemmaLayer::read(&gguf, &sizes, index)).collect::<Result<_, _>>()?;
        let norm = take(&gguf, "output_norm.weight", &[sizes.width])?;
        let dense = dense_layers(&gguf, sizes.width)?;
        Ok(Gemma { gguf, tokenizer, sizes, layers, norm, dense })
    }

    /// The embeddings of tokens, of which only these rows are decoded.
    fn embedded(&self, tokens: &[u32]) -> CandleResult<Tensor> {
        let tensor = self.gguf.tensor(EMBEDDINGS).expect("it was found when the model was loaded");
        let (bytes, width) = (self.gguf.tensor_bytes(tensor), self.sizes.width);
        let row_bytes = tensor.n_bytes / tensor.dimensions[1];
        let mut rows = vec![0.0; tokens.len() * width];
        for (token, row) in tokens.iter().zip(rows.chunks_exact_mut(width)) {
            dequantize(tensor.tensor_type, &bytes[*token as usize * row_bytes..][..row_bytes], row);
        }
        Tensor::from_vec(rows, (tokens.len(), width), &Device::Cpu)? * (width as f64).sqrt()
    }

    /// The mean of the tokens' states, through the dense layers.
    fn pooled(&self, tokens: &[u32]) -> CandleResult<Vec<f32>> {
        let GemmaSizes { head_dim, reach, epsilon, ref bases, .. } = self.sizes;
        let whole = Positions::new(tokens.len(), head_dim, bases.whole, None)?;
        let window = Positions::new(tokens.len(), head_dim, bases.window, Some(reach))?;
        let mut states = self.embedded(tokens)?;
        for layer in &self.layers {
            let positions = if layer.has_window { &window } else { &whole };
            states = self.through(layer, positions, &states)?;
        }
        let mut vector = rms_norm(&states, &self.norm, epsilon)?.mean_keepdim(0)?;
        for dense in &self.dense {
            vector = linear(&vector, dense)?;
        }
        vector.squeeze(0)?.to_vec1()
    }

    fn through(&self, layer: &GemmaLayer, positions: &Positions, states: &Tensor) -> CandleResult<Tensor> {
        let epsilon = self.sizes.epsilon;
        let attended = self.attended(layer, positions, &rms_norm(states, &layer.norm, epsilon)?)?;
        let states = (rms_norm(&attended, &layer.post_norm, epsilon)? + states)?;
        let read = rms_norm(&states, &layer.ffn_norm, epsilon)?;
        let gated = (linear(&read, &layer.gate)?.gelu()? * linear(&read, &layer.up)?)?;
        rms_norm(&linear(&gated, &layer.down)?, &layer.post_ffn_norm, epsilon)? + states
    }

    fn attended(&self, layer: &GemmaLayer, positions: &Positions, read: &Tensor) -> CandleResult<Tensor> {
        let GemmaSizes { n_heads, n_kv_heads, head_dim, epsilon, .. } = self.sizes;
        let n_tokens = read.dim(0)?;
        let heads = |weights: &Tensor, n_heads: usize| {
            linear(read, weights)?.reshape((1, n_tokens, n_heads, head_dim))?.transpose(1, 2)?.contiguous()
        };
        let rotated = |heads: Tensor, norm: &Tensor| {
            rope(&rms_norm(&heads, norm, epsilon)?, &positions.cosines, &positions.sines)
        };
        let queries = rotated(heads(&layer.query, n_heads)?, &layer.query_norm)?;
        let keys = repeat_kv(rotated(heads(&layer.key, n_kv_heads)?, &layer.key_norm)?, n_heads / n_kv_heads)?;
        let values = repeat_kv(heads(&layer.value, n_kv_heads)?, n_heads / n_kv_heads)?;
        let mut scores = (queries.matmul(&keys.transpose(2, 3)?.contiguous()?)? / (head_dim as f64).sqrt())?;
        if let Some(mask) = &positions.mask {
            scores = scores.broadcast_add(mask)?;
        }
        let mixed = softmax_last_dim(&scores)?.matmul(&values.contiguous()?)?;
        linear(&mixed.transpose(1, 2)?.reshape((n_tokens, n_heads * head_dim))?, &layer.output)
    }
}

const EMBEDDINGS: &str = "token_embd.weight";

/// The layers after pooling, of which a file has both or neither.
fn dense_layers(gguf: &Gguf, width: usize) -> Result<Vec<Tensor>, String> {
    let Some(first) = gguf.tensor("dense_2.weight") else { return Ok(Vec::new()) };
    let between = first.dimensions.get(1).copied().unwrap_or_default();
    let last_width = gguf.tensor("dense_3.weight").and_then(|last| last.dimensions.get(1)).copied().unwrap_or_default();
    Ok(vec![take(gguf, "dense_2.weight", &[between, width])?, take(gguf, "dense_3.weight", &[last_width, between])?])
}

/// Rows times the rows of a matrix.
fn linear(rows: &Tensor, matrix: &Tensor) -> CandleResult<Tensor> {
    rows.matmul(&matrix.t()?)
}

impl Vectors for Gemma {
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, String> {
        tokens::lengths(&self.tokenizer, self.sizes.n_positions, texts)
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let vector = |text: &&str| {
            let (tokens, _) = tokens::of_text(&self.tokenizer, self.sizes.n_positions, text)?;
            normalized(self.pooled(&tokens).map_err(|error| error.to_string())?)
        };
        texts.iter().map(vector).collect()
    }
}
