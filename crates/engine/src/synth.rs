//! Model files of any size without a download: a real model's shape, another file's tokenizer, random weights.
//!
//! Speed, memory and loading depend on shapes and formats, not on the values of the weights, so a synthesized 7B gives
//! the same measurements as a real one; and a tiny model of each architecture lets tests run the whole engine in
//! milliseconds. The weights are drawn so that a forward pass stays in the range of a trained model: norms of about 1,
//! hidden states that neither vanish nor explode over the layers, logits that spread over a few units.
//!
//! No weights are quantized: the blocks are drawn directly, which makes gigabytes in seconds.
//! A given shape, quantization, vocabulary and seed give the same file on every machine.

mod layout;
mod quantization;
mod shape;
mod weights;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use hone_files::staged_file;
use thiserror::Error;

use crate::gguf::{Gguf, GgufError, WriteError, Writer};
use layout::{Content, PlannedTensor};

pub use crate::decoder::RecurrentSpec;
pub use quantization::Quantization;
pub use shape::{Architecture, Experts, Gemma4Shape, LayerSet, Multipliers, Recurrence, RopeScaling, Shape};

const TOKENS: &str = "tokenizer.ggml.tokens";

/// Why a model cannot be synthesized.
#[derive(Debug, Error)]
pub enum SynthError {
    /// The shape does not exist.
    #[error("there is no shape {name:?}; there are {known}")]
    UnknownShape {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The quantization does not exist.
    #[error("there is no quantization {name:?}; there are {known}")]
    UnknownQuantization {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The file given for its tokenizer has none.
    #[error("the vocabulary cannot be used")]
    Vocabulary(#[source] GgufError),
    /// An I/O error.
    #[error("cannot write {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The model cannot be laid out as a file.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Summary of a written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the file.
    pub n_bytes: u64,
    /// Weights of the model, norms and biases included.
    pub n_parameters: u64,
}

/// Progress of writing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteProgress {
    /// Bytes so far.
    pub written_bytes: u64,
    /// Bytes of the whole file.
    pub total_bytes: u64,
}

/// Writes a model to the file `output`, with the tokenizer of `vocabulary` (every `tokenizer.*` key; the model has as
/// many tokens). `progress` is called every few megabytes.
///
/// The file appears under its name once it is complete, replacing any existing file.
///
/// # Errors
/// When `vocabulary` has no tokens, or the file cannot be written; nothing is left behind.
pub fn write(
    shape: &Shape,
    quantization: Quantization,
    vocabulary: &Gguf,
    seed: u64,
    output: &Path,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<Summary, SynthError> {
    let io_error = |source| SynthError::Io { path: output.to_path_buf(), source };
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let staged = staged_file(folder, "synth").map_err(io_error)?;
    let written = write_to(shape, quantization, vocabulary, seed, BufWriter::new(staged.as_file()), progress);
    let summary = written.map_err(|error| match error {
        SynthError::Write(WriteError::Io { source, .. }) => io_error(source),
        other => other,
    })?;
    staged.as_file().sync_all().map_err(io_error)?;
    staged.persist(output).map_err(|error| io_error(error.error))?;
    Ok(summary)
}

/// Writes a model like [`write()`], to any output.
///
/// # Errors
/// When `vocabulary` has no tokens, or writing fails.
pub fn write_to(
    shape: &Shape,
    quantization: Quantization,
    vocabulary: &Gguf,
    seed: u64,
    output: impl Write,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<Summary, SynthError> {
    let vocab_size = vocab_size(vocabulary)?;
    let tensors = layout::tensors(shape, quantization, vocab_size);
    let mut writer = Writer::new();
    layout::metadata(shape, quantization, vocab_size, &mut writer)?;
    writer.copy_metadata(vocabulary, "tokenizer.")?;
    for tensor in &tensors {
        writer.tensor(&tensor.name, &tensor.dimensions, tensor.tensor_type)?;
    }
    let total_bytes = writer.file_bytes();
    let data_bytes: u64 = tensors.iter().map(|tensor| tensor.n_bytes() as u64).sum();
    let mut written_bytes = total_bytes - data_bytes;
    let mut file = writer.begin(output)?;
    for (index, tensor) in tensors.iter().enumerate() {
        let stream = weights::RandomStream { seed, tensor: index as u32 };
        let mut write_piece = |piece: &[u8]| {
            file.write(&tensor.name, piece)?;
            written_bytes += piece.len() as u64;
            progress(WriteProgress { written_bytes, total_bytes });
            Ok::<(), WriteError>(())
        };
        match &tensor.content {
            Content::Random(distribution) => {
                weights::draw(tensor.tensor_type, *distribution, tensor.n_elements(), stream, &mut write_piece)?;
            }
            Content::Values(values) => {
                write_piece(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())?;
            }
        }
    }
    file.finish()?;
    let n_parameters = tensors.iter().map(PlannedTensor::n_parameters).sum();
    Ok(Summary { n_bytes: total_bytes, n_parameters })
}

fn vocab_size(vocabulary: &Gguf) -> Result<usize, SynthError> {
    match vocabulary.strings(TOKENS).map_err(SynthError::Vocabulary)? {
        Some(tokens) if !tokens.is_empty() => Ok(tokens.len()),
        _ => {
            Err(SynthError::Vocabulary(GgufError::invalid(TOKENS, "is missing or empty: give a file with a tokenizer")))
        }
    }
}
