//! Measures the cost of a tensor type in perplexity, and the difference between the two backends.
//!
//! ```text
//! cargo run --release -p hone-engine --example tensor_types -- MODEL.gguf TEXT FOLDER [N_CHUNKS] [TYPE,TYPE,…]
//! ```
//!
//! Writes the model's weights into FOLDER in every tensor type that can be encoded here (existing files are kept), then
//! measures the perplexity of the text for each: on the native backend, and on candle, which computes prompts without
//! rounding activations. The difference between the two is the cost of rounding.
//!
//! The K types need rows of whole blocks of 256, which small models do not have. So widths are padded with zeros and
//! with heads that attend to nothing, and the norms' weights are lowered by as much as a longer row lowers its mean
//! square. The model's results stay the same.
//!
//! Q2_K in every matrix ruins a small model. As in llama.cpp's own mixes, only some matrices use it; the others are in
//! Q4_K.

#![allow(clippy::unwrap_used, reason = "a tool for developers, which may end where it stands")]

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use hone_engine::gguf::{Gguf, TensorInfo, TensorType, Value, WriteValue, Writer, dequantize};
use hone_engine::{BackendChoice, DeviceChoice, Model, ModelOptions, perplexity};
use hone_protocol::ModelFile;

/// Tokens per chunk.
const CONTEXT: usize = 512;
/// The widest block of a tensor type.
const BLOCK: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, text, folder, rest @ ..] = arguments.as_slice() else { panic!("MODEL TEXT FOLDER are needed") };
    let (source, folder) = (Gguf::open(Path::new(model)).unwrap(), Path::new(folder));
    let text = std::fs::read_to_string(text).unwrap();
    let n_chunks = rest.first().map_or(usize::MAX, |number| number.parse().unwrap());
    let wanted: Vec<String> = rest.get(1).iter().flat_map(|list| list.split(',')).map(str::to_lowercase).collect();
    println!("| type | native | candle | difference |");
    println!("| --- | --- | --- | --- |");
    for tensor_type in TensorType::ALL.into_iter() {
        let name = tensor_type.name().to_lowercase();
        let can_encode = tensor_type == TensorType::IQ4_NL || candle_type(tensor_type).is_some();
        if !can_encode || !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let path = folder.join(format!("{name}.gguf"));
        write_once(&source, &path, tensor_type);
        let native = score(&path, BackendChoice::Native, &text, n_chunks);
        let candle = score(&path, BackendChoice::Candle, &text, n_chunks);
        println!("| {name} | {native:.4} | {candle:.4} | {:+.3} % |", 100.0 * (native / candle - 1.0));
    }
}

fn score(path: &Path, backend: BackendChoice, text: &str, n_chunks: usize) -> f64 {
    let file = ModelFile::at_path(path).unwrap();
    let device = DeviceChoice::Cpu;
    let options = ModelOptions { device, backend, context_length: Some(CONTEXT), ..ModelOptions::default() };
    let mut model = Model::load(&file, &options).unwrap();
    let tokens = model.tokenizer().encode(text, Default::default()).unwrap();
    let end = tokens.len().min(n_chunks.saturating_mul(CONTEXT));
    let text = if end < tokens.len() { decode_text(&model, &tokens[..end]) } else { text.to_owned() };
    perplexity(&mut model, &text, CONTEXT, |_| {}).unwrap().value
}

fn decode_text(model: &Model, tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| model.tokenizer().token_bytes(*token).to_vec()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The type in which a tensor is stored when `tensor_type` is under test.
fn stored_type(tensor: &TensorInfo, tensor_type: TensorType) -> TensorType {
    match tensor_type {
        _ if tensor.dimensions.len() == 1 => TensorType::F32,
        TensorType::Q2_K if !bears_two_bits(&tensor.name) => TensorType::Q4_K,
        _ => tensor_type,
    }
}

/// Whether this is the gate or up matrix of every other layer's feed-forward.
fn bears_two_bits(name: &str) -> bool {
    let mut parts = name.split('.').skip(1);
    let layer = parts.next().and_then(|layer| layer.parse::<usize>().ok());
    layer.is_some_and(|layer| layer % 2 == 1) && parts.next().is_some_and(|part| ["ffn_gate", "ffn_up"].contains(&part))
}

/// Writes the widened model with its matrices in one type, unless the file exists.
fn write_once(source: &Gguf, path: &Path, tensor_type: TensorType) {
    if path.exists() {
        return;
    }
    let widths = Widths::of(source);
    let mut writer = Writer::new();
    for (key, value) in source.metadata().filter(|(key, _)| !key.starts_with("tokenizer.")) {
        widths.metadata(&mut writer, key, value);
    }
    writer.copy_metadata(source, "tokenizer.").unwrap();
    let tensors: Vec<&TensorInfo> = source.tensors().collect();
    let stored = |tensor: &TensorInfo| stored_type(tensor, tensor_type);
    for tensor in &tensors {
        writer.tensor(&tensor.name, &widths.dimensions(tensor), stored(tensor)).unwrap();
    }
    let partial = path.with_extension("partial");
    let mut file = writer.begin(BufWriter::new(File::create(&partial).unwrap())).unwrap();
    for tensor in &tensors {
        let bytes = encode(stored(tensor), &widths.values(source, tensor));
        file.write(&tensor.name, &bytes).unwrap();
    }
    file.finish().unwrap();
    std::fs::rename(partial, path).unwrap();
}

/// The widths of a Llama model, from which the padded ones follow.
struct Widths {
    architecture: String,
    hidden: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

impl Widths {
    fn of(source: &Gguf) -> Widths {
        let architecture = source.string("general.architecture").unwrap().unwrap().to_owned();
        let number = |key: &str| source.unsigned(&format!("{architecture}.{key}")).unwrap().unwrap() as usize;
        let (hidden, n_heads) = (number("embedding_length"), number("attention.head_count"));
        let n_kv_heads = number("attention.head_count_kv");
        Widths { hidden, n_heads, n_kv_heads, head_dim: hidden / n_heads, architecture }
    }

    fn wide_hidden(&self) -> usize {
        self.hidden.next_multiple_of(BLOCK)
    }

    /// The number of KV heads after padding: groups of query heads are added until the queries fill whole blocks.
    fn wide_kv_heads(&self) -> usize {
        let group = self.n_heads / self.n_kv_heads;
        (self.n_kv_heads..).find(|n_kv_heads| (n_kv_heads * group * self.head_dim).is_multiple_of(BLOCK)).unwrap()
    }

    fn wide_heads(&self) -> usize {
        self.n_heads / self.n_kv_heads * self.wide_kv_heads()
    }

    /// The padded form of a width of the source.
    fn widened(&self, name: &str, axis: usize, width: usize) -> usize {
        match (name.rsplit('.').nth(1).unwrap_or(""), axis) {
            ("attn_q", 1) | ("attn_output", 0) => self.wide_heads() * self.head_dim,
            ("attn_k" | "attn_v", 1) => self.wide_kv_heads() * self.head_dim,
            ("ffn_gate" | "ffn_up", 1) | ("ffn_down", 0) | ("token_embd" | "output", 1) => width,
            _ => self.wide_hidden(),
        }
    }

    fn dimensions(&self, tensor: &TensorInfo) -> Vec<usize> {
        let widths = tensor.dimensions.iter().enumerate();
        widths.map(|(axis, width)| self.widened(&tensor.name, axis, *width)).collect()
    }

    /// The tensor's values in its new shape.
    fn values(&self, source: &Gguf, tensor: &TensorInfo) -> Vec<f32> {
        let values = decode(tensor.tensor_type, source.tensor_bytes(tensor), tensor.n_elements());
        let (from, to) = (&tensor.dimensions, self.dimensions(tensor));
        let factor = if from.len() == 1 { (self.hidden as f32 / self.wide_hidden() as f32).sqrt() } else { 1.0 };
        let mut wide = vec![0.0; to.iter().product()];
        for (wide, row) in wide.chunks_exact_mut(to[0]).zip(values.chunks_exact(from[0])) {
            wide.iter_mut().zip(row).for_each(|(wide, value)| *wide = factor * value);
        }
        wide
    }

    fn metadata(&self, writer: &mut Writer, key: &str, value: Value<'_>) {
        let name = key.strip_prefix(&format!("{}.", self.architecture)).unwrap_or(key);
        let wide = |width: usize| WriteValue::U32(width as u32);
        let value = match (name, value) {
            ("embedding_length", _) => wide(self.wide_hidden()),
            ("attention.head_count", _) => wide(self.wide_heads()),
            ("attention.head_count_kv", _) => wide(self.wide_kv_heads()),
            ("attention.layer_norm_rms_epsilon", Value::Float(epsilon)) => {
                WriteValue::F32((epsilon * self.hidden as f64 / self.wide_hidden() as f64) as f32)
            }
            (_, Value::Unsigned(number)) => WriteValue::U32(number as u32),
            (_, Value::Float(number)) => WriteValue::F32(number as f32),
            (_, Value::Bool(truth)) => WriteValue::Bool(truth),
            (_, Value::String(text)) => WriteValue::String(text),
            (_, Value::Signed(_) | Value::Array(_)) => return,
        };
        writer.metadata(key, value).unwrap();
    }
}

fn decode(tensor_type: TensorType, bytes: &[u8], n_elements: usize) -> Vec<f32> {
    let mut values = vec![0.0; n_elements];
    dequantize(tensor_type, bytes, &mut values);
    values
}

fn encode(tensor_type: TensorType, values: &[f32]) -> Vec<u8> {
    let dtype = match tensor_type {
        TensorType::F32 => return values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        TensorType::F16 => return values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        TensorType::BF16 => return values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        TensorType::IQ4_NL => return values.chunks_exact(32).flat_map(iq4_nl).collect(),
        other => candle_type(other).unwrap(),
    };
    let tensor = Tensor::from_slice(values, values.len(), &Device::Cpu).unwrap();
    QTensor::quantize(&tensor, dtype).unwrap().data().unwrap().into_owned()
}

/// A block of 32: the largest element gets the first of the codebook's values.
fn iq4_nl(values: &[f32]) -> [u8; 18] {
    const CODEBOOK: [f32; 16] =
        [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];
    let largest =
        values.iter().copied().fold(0.0f32, |largest, value| if value.abs() > largest.abs() { value } else { largest });
    let scale = f16::from_f32(largest / CODEBOOK[0]);
    let quant = |value: f32| {
        let distance = |idx: &usize| (scale.to_f32() * CODEBOOK[*idx] - value).abs();
        (0..16).min_by(|left, right| distance(left).total_cmp(&distance(right))).unwrap() as u8
    };
    let mut block = [0; 18];
    block[..2].copy_from_slice(&scale.to_le_bytes());
    for (idx, byte) in block[2..].iter_mut().enumerate() {
        *byte = quant(values[idx]) | quant(values[idx + 16]) << 4;
    }
    block
}

/// candle's name for a type that it can encode.
fn candle_type(tensor_type: TensorType) -> Option<GgmlDType> {
    Some(match tensor_type {
        TensorType::F32 => GgmlDType::F32,
        TensorType::F16 => GgmlDType::F16,
        TensorType::BF16 => GgmlDType::BF16,
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q2_K => GgmlDType::Q2K,
        TensorType::Q3_K => GgmlDType::Q3K,
        TensorType::Q4_K => GgmlDType::Q4K,
        TensorType::Q5_K => GgmlDType::Q5K,
        TensorType::Q6_K => GgmlDType::Q6K,
        _ => return None,
    })
}
