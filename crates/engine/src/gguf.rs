//! GGUF model files, versions 2 and 3: metadata, tensor directory, and the tensors' bytes, memory-mapped.
//!
//! A file comes from an unknown source and is not trusted. The header is walked once, front to back, and everything in
//! it is checked against the bytes actually present before anything is allocated for it: a count that cannot fit, a
//! length past the end, a product that overflows, overlapping tensors. Each such error names the field. Arrays (a
//! vocabulary has hundreds of thousands of strings) and strings stay in the mapping and are decoded where they are
//! used. A file may have 65 536 tensors, as many metadata keys, and a million entries in an array that is read: far
//! more than any model has, and few enough that opening a file takes its size plus at most 64 MiB, including tokenizer
//! and template. A model may be split into several such files (`parts`); it is then opened as one.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod header;
mod mapping;
mod parts;
#[cfg(test)]
mod tests;
mod value;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hone_protocol::{ModelFile, PartError};
use thiserror::Error;

use header::Entry;
pub use hone_kernels::{TensorType, dequantize};
pub use mapping::Mapping;
use parts::FileParts;
pub use value::{Array, Strings, Value, ValueType};
pub use writer::{TensorWriter, WriteError, WriteValue, Writer};

/// Why a file cannot be read as GGUF.
#[derive(Debug, Error)]
pub enum GgufError {
    /// An I/O error.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// It is not a GGUF file.
    #[error("not a GGUF file: it {}", beginning(found))]
    Magic {
        /// The first bytes, four at most.
        found: Vec<u8>,
    },
    /// The file ends before the field does.
    #[error(
        "{field} needs {needed} bytes at offset {offset} and the file has {available} left: it is cut off or damaged"
    )]
    Truncated {
        /// The field being read.
        field: String,
        /// The offset in bytes from the start.
        offset: usize,
        /// Bytes required.
        needed: u64,
        /// Bytes available.
        available: usize,
    },
    /// A field has a value that no valid file has.
    #[error("{field} {reason}")]
    Invalid {
        /// The field.
        field: String,
        /// The problem.
        reason: String,
    },
    /// The file is valid, but holds something that hone cannot run.
    #[error("{what} is not supported; supported are {supported}")]
    Unsupported {
        /// The unsupported content.
        what: String,
        /// The supported alternatives.
        supported: String,
    },
    /// A part of a split model is not valid, or does not belong to the others.
    #[error("{part} cannot be used")]
    Part {
        /// The part, with its file.
        part: String,
        /// The problem.
        source: Box<GgufError>,
    },
    /// Parts of a model are missing, or the given file is not its first part.
    #[error(transparent)]
    Parts(#[from] PartError),
}

/// The beginning of a file that is not a GGUF file, in words.
fn beginning(found: &[u8]) -> String {
    match found {
        [] => "is empty".to_owned(),
        _ => format!("starts with the bytes {found:02x?} and not with \"GGUF\""),
    }
}

impl GgufError {
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        GgufError::Invalid { field: field.into(), reason: reason.into() }
    }
}

/// One entry of the tensor directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, unique in the model.
    pub name: String,
    /// Dimensions in GGUF order: the first is the length of a row, and rows are contiguous.
    pub dimensions: Vec<usize>,
    /// How the elements are stored.
    pub tensor_type: TensorType,
    /// Offset of its bytes from the start of the model's bytes, counted through all parts.
    pub offset: usize,
    /// Number of bytes.
    pub n_bytes: usize,
}

impl TensorInfo {
    /// Number of elements.
    pub fn n_elements(&self) -> usize {
        self.dimensions.iter().product()
    }
}

/// A model file whose header has been checked.
#[derive(Clone, Debug)]
pub struct Gguf {
    parts: Arc<FileParts>,
    metadata: Vec<Entry>,
    tensors: Vec<TensorInfo>,
}

impl Gguf {
    /// Maps a whole file, along with the parts next to it if it is the first of several, and checks its header.
    ///
    /// # Errors
    /// When it cannot be read, is not a valid GGUF file, is not the first part, or parts are missing.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        Self::open_region(&ModelFile::at_path(path)?)
    }

    /// Maps the model in `file`, with all its parts, and checks its header.
    ///
    /// # Errors
    /// As [`Gguf::open`], and when a region does not lie within its file.
    pub fn open_region(file: &ModelFile) -> Result<Self, GgufError> {
        let map = |part: &ModelFile| Ok((Mapping::region(part)?, Some(part.path.clone())));
        Self::from_parts(FileParts::new(file.parts().map(map).collect::<Result<_, GgufError>>()?))
    }

    /// Checks the header of bytes in memory.
    ///
    /// # Errors
    /// When they are not a valid GGUF file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::from_parts(FileParts::new(vec![(Mapping::in_memory(bytes), None)]))
    }

    /// Checks the headers of a model whose parts are in memory: the first one, and the rest in order.
    ///
    /// # Errors
    /// When one of them is not a valid GGUF file, or they are not all parts of one model.
    #[cfg(test)]
    pub fn from_bytes_of_parts(first: Vec<u8>, rest: Vec<Vec<u8>>) -> Result<Self, GgufError> {
        let parts = std::iter::once(first).chain(rest).map(|bytes| (Mapping::in_memory(bytes), None));
        Self::from_parts(FileParts::new(parts.collect()))
    }

    fn from_parts(parts: FileParts) -> Result<Self, GgufError> {
        let header = parts.read_header()?;
        Ok(Gguf { parts: Arc::new(parts), metadata: header.metadata, tensors: header.tensors })
    }

    /// Every metadata key with its value, in the order of the keys.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        let file = self.first_part();
        self.metadata.iter().map(move |entry| (entry.key(file), entry.value(file)))
    }

    /// The tensor directory, in the order of the names.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The directory entry of a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let index = self.tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(name)).ok()?;
        self.tensors.get(index)
    }

    /// The bytes of a tensor of this file.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> &[u8] {
        self.parts.slice(tensor.offset, tensor.n_bytes)
    }

    /// Asks the system to read the bytes that follow a part of the file, as far ahead as is useful, while the part is
    /// in use.
    pub(crate) fn prefetch_behind(&self, part: &[u8]) {
        self.parts.prefetch_behind(part);
    }

    /// Asks the system to read a part of the file before it is needed.
    pub(crate) fn prefetch(&self, part: &[u8]) {
        self.parts.prefetch(part);
    }

    /// Returns the memory of a part of a tensor's bytes to the system; it is mapped again when next read.
    pub(crate) fn release(&self, part: &[u8]) {
        self.parts.release(part);
    }

    /// Size of the file, or of all parts together, in bytes.
    pub fn n_bytes(&self) -> usize {
        self.parts.n_bytes()
    }

    /// The value under `key`.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        let file = self.first_part();
        header::find(&self.metadata, file, key).map(|entry| entry.value(file))
    }

    /// The string under `key`, if there is one.
    ///
    /// # Errors
    /// When the key holds another type.
    pub fn string(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// The number under `key`, of any integer type and not negative, if there is one.
    ///
    /// # Errors
    /// When the key holds another type.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "an integer that is not negative", Value::as_u64)
    }

    /// The number under `key`, of any numeric type and finite, if there is one.
    ///
    /// # Errors
    /// When the key holds another type.
    pub fn float(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a finite number", Value::as_f32)
    }

    /// The boolean under `key`, if there is one.
    ///
    /// # Errors
    /// When the key holds another type.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// The strings under `key`, if there are any.
    ///
    /// # Errors
    /// When the key holds another type, or a string is not UTF-8.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, GgufError> {
        self.each_string(key)?.map(|strings| strings.collect()).transpose()
    }

    /// Iterates over the strings under `key`.
    ///
    /// # Errors
    /// When the key holds another type, or too many entries. Each string may itself be an error if it is not UTF-8.
    pub(crate) fn each_string<'g>(&'g self, key: &str) -> Result<Option<Strings<'g>>, GgufError> {
        let Some(array) = self.typed(key, "an array", Value::as_array)? else { return Ok(None) };
        array.each_string(key, self.first_part()).map(Some)
    }

    /// The numbers under `key`, as 32-bit floats, if there are any.
    ///
    /// # Errors
    /// When the key holds another type.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let Some(array) = self.typed(key, "an array", Value::as_array)? else { return Ok(None) };
        array.floats(key, self.first_part()).map(Some)
    }

    /// The integers under `key`, if there are any.
    ///
    /// # Errors
    /// When the key holds another type.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, GgufError> {
        let Some(array) = self.typed(key, "an array", Value::as_array)? else { return Ok(None) };
        array.integers(key, self.first_part()).map(Some)
    }

    /// The booleans under `key`, if there are any.
    ///
    /// # Errors
    /// When the key holds another type.
    pub fn booleans(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        let Some(array) = self.typed(key, "an array", Value::as_array)? else { return Ok(None) };
        array.booleans(key, self.first_part()).map(Some)
    }

    /// The bytes that metadata refers to.
    fn first_part(&self) -> &[u8] {
        self.parts.first()
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => {
                // Printed without a fraction, the float would look like the expected integer.
                let kind = if matches!(value, Value::Float(_)) { "the float " } else { "" };
                Err(GgufError::invalid(key, format!("is {kind}{value} where {expected} is expected")))
            }
        }
    }
}
