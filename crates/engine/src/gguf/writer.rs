//! Writes GGUF files, version 3.
//!
//! A file is written front to back in one pass and never held in memory: [`Writer`] collects the metadata and the
//! tensor directory, [`Writer::begin`] writes both, and [`TensorWriter`] then takes the tensors' bytes in the order of
//! the directory, in pieces of any length. Anything the reader would refuse (a duplicate key, rows that are not whole
//! blocks, a wrong number of bytes) is already an error here.

use std::collections::BTreeSet;
use std::io::{self, Write};

use thiserror::Error;

use super::header::{DEFAULT_ALIGNMENT, MAX_DIMENSIONS, MAX_KEY_BYTES, checked_n_bytes};
use super::{Gguf, GgufError, TensorType, Value, ValueType};

/// Maximum length of a tensor name in bytes: other readers keep it in a buffer of 64 with a terminating zero.
const MAX_NAME_BYTES: usize = 63;
const ALIGNMENT: usize = DEFAULT_ALIGNMENT as usize;
const VERSION: u32 = 3;

/// Why a GGUF file cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Writing to the output failed.
    #[error("cannot write {what}")]
    Io {
        /// The part being written.
        what: String,
        /// The output's error.
        source: io::Error,
    },
    /// The file would not be valid.
    #[error(transparent)]
    Invalid(#[from] GgufError),
}

impl WriteError {
    fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        WriteError::Invalid(GgufError::invalid(field, reason))
    }
}

/// A metadata value to be written, with its type in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum WriteValue<'a> {
    U32(u32),
    U64(u64),
    I32(i32),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(&'a str),
    Strings(&'a [&'a str]),
    F32s(&'a [f32]),
    I32s(&'a [i32]),
    Bools(&'a [bool]),
}

/// Metadata and tensor directory of a file to be written.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    keys: BTreeSet<String>,
    metadata: Vec<u8>,
    names: BTreeSet<String>,
    tensors: Vec<DirectoryEntry>,
    /// Bytes of the tensors so far, with their padding.
    data_bytes: usize,
}

#[derive(Clone, Debug)]
struct DirectoryEntry {
    name: String,
    dimensions: Vec<usize>,
    tensor_type: TensorType,
    /// Bytes from the start of the data to the tensor.
    offset: usize,
    n_bytes: usize,
}

impl Writer {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metadata entry.
    ///
    /// # Errors
    /// When the key already exists, is empty or too long, or is `general.alignment`, which the writer sets itself.
    pub fn metadata(&mut self, key: &str, value: WriteValue<'_>) -> Result<&mut Self, WriteError> {
        self.add_key(key)?;
        encode_value(&mut self.metadata, value);
        Ok(self)
    }

    /// Copies every metadata entry of `source` whose key starts with `prefix`, including arrays of every type. Returns
    /// the number of entries. Integers are written in 32 bits if they fit, as other writers do.
    ///
    /// # Errors
    /// When one of the keys already exists.
    pub fn copy_metadata(&mut self, source: &Gguf, prefix: &str) -> Result<usize, WriteError> {
        let mut n_copied = 0;
        for (key, value) in source.metadata().filter(|(key, _)| key.starts_with(prefix)) {
            self.add_key(key)?;
            match value {
                Value::Array(array) => {
                    put_u32(&mut self.metadata, ValueType::Array as u32);
                    put_array_start(&mut self.metadata, array.element_type(), array.len());
                    self.metadata.extend_from_slice(&source.first_part()[array.range.clone()]);
                }
                single => encode_value(&mut self.metadata, narrowed(single)),
            }
            n_copied += 1;
        }
        Ok(n_copied)
    }

    /// Adds an entry to the tensor directory. `dimensions` are in GGUF order: the first is the length of a row.
    ///
    /// # Errors
    /// When the name already exists, is empty or longer than 63 bytes, or when the shape is not valid for the type.
    pub fn tensor(
        &mut self,
        name: &str,
        dimensions: &[usize],
        tensor_type: TensorType,
    ) -> Result<&mut Self, WriteError> {
        let invalid = |reason: String| Err(WriteError::invalid(format!("tensor {name:?}"), reason));
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return invalid(format!("has a name of {} bytes: it must have 1 to {MAX_NAME_BYTES}", name.len()));
        }
        if !(1..=MAX_DIMENSIONS as usize).contains(&dimensions.len()) {
            return invalid(format!("has {} dimensions: it must have 1 to {MAX_DIMENSIONS}", dimensions.len()));
        }
        let n_bytes = checked_n_bytes(name, dimensions, tensor_type)?;
        let padded = n_bytes.checked_next_multiple_of(ALIGNMENT);
        let Some(data_bytes) = padded.and_then(|padded| self.data_bytes.checked_add(padded)) else {
            return invalid("makes the file longer than can be counted".into());
        };
        if !self.names.insert(name.to_owned()) {
            return invalid("is declared twice".into());
        }
        self.tensors.push(DirectoryEntry {
            name: name.to_owned(),
            dimensions: dimensions.to_vec(),
            tensor_type,
            offset: self.data_bytes,
            n_bytes,
        });
        self.data_bytes = data_bytes;
        Ok(self)
    }

    /// Size of the whole file, including padding.
    pub fn file_bytes(&self) -> u64 {
        self.header().len() as u64 + self.data_bytes as u64
    }

    /// Writes everything that precedes the tensors' bytes.
    ///
    /// # Errors
    /// When writing fails.
    pub fn begin<W: Write>(self, mut output: W) -> Result<TensorWriter<W>, WriteError> {
        let header = self.header();
        output.write_all(&header).map_err(|source| WriteError::Io { what: "the header".into(), source })?;
        let left = self.tensors.first().map_or(0, |tensor| tensor.n_bytes);
        Ok(TensorWriter { output, tensors: self.tensors, current: 0, left })
    }

    fn add_key(&mut self, key: &str) -> Result<(), WriteError> {
        let invalid = |reason: String| Err(WriteError::invalid(format!("metadata key {key:?}"), reason));
        if key == "general.alignment" {
            return invalid("is set by the writer: leave it out".into());
        }
        if key.is_empty() || key.len() as u64 > MAX_KEY_BYTES {
            return invalid(format!("has {} bytes: it must have 1 to {MAX_KEY_BYTES}", key.len()));
        }
        if !self.keys.insert(key.to_owned()) {
            return invalid("is given twice".into());
        }
        put_string(&mut self.metadata, key);
        Ok(())
    }

    fn header(&self) -> Vec<u8> {
        let mut header = b"GGUF".to_vec();
        put_u32(&mut header, VERSION);
        put_u64(&mut header, self.tensors.len() as u64);
        put_u64(&mut header, self.keys.len() as u64);
        header.extend_from_slice(&self.metadata);
        for tensor in &self.tensors {
            put_string(&mut header, &tensor.name);
            put_u32(&mut header, tensor.dimensions.len() as u32);
            tensor.dimensions.iter().for_each(|dimension| put_u64(&mut header, *dimension as u64));
            put_u32(&mut header, tensor.tensor_type.id());
            put_u64(&mut header, tensor.offset as u64);
        }
        header.resize(header.len().next_multiple_of(ALIGNMENT), 0);
        header
    }
}

/// Takes the tensors' bytes, in the order of the directory.
#[derive(Debug)]
pub struct TensorWriter<W> {
    output: W,
    tensors: Vec<DirectoryEntry>,
    current: usize,
    /// Bytes still missing from the current tensor.
    left: usize,
}

impl<W: Write> TensorWriter<W> {
    /// Writes the next bytes of the tensor `name`: all of them, or a piece.
    ///
    /// # Errors
    /// When writing fails, when another tensor's bytes come next, or when there are more bytes than the tensor has.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let invalid = |reason: String| Err(WriteError::invalid(format!("tensor {name:?}"), reason));
        let Some(tensor) = self.tensors.get(self.current) else {
            return invalid("comes after the last tensor of the directory".into());
        };
        if tensor.name != name {
            return invalid(format!("comes where {:?} is next in the directory", tensor.name));
        }
        if bytes.len() > self.left {
            return invalid(format!("gets {} bytes where {} are left of {}", bytes.len(), self.left, tensor.n_bytes));
        }
        let io_error = |source| WriteError::Io { what: format!("tensor {name:?}"), source };
        self.output.write_all(bytes).map_err(io_error)?;
        self.left -= bytes.len();
        if self.left == 0 {
            let padding = tensor.n_bytes.next_multiple_of(ALIGNMENT) - tensor.n_bytes;
            self.output.write_all(&[0; ALIGNMENT][..padding]).map_err(io_error)?;
            self.current += 1;
            self.left = self.tensors.get(self.current).map_or(0, |next| next.n_bytes);
        }
        Ok(())
    }

    /// Flushes the output and returns it.
    ///
    /// # Errors
    /// When writing fails, or a tensor is incomplete.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some(tensor) = self.tensors.get(self.current) {
            let reason = format!("lacks {} of its {} bytes", self.left, tensor.n_bytes);
            return Err(WriteError::invalid(format!("tensor {:?}", tensor.name), reason));
        }
        self.output.flush().map_err(|source| WriteError::Io { what: "the end of the file".into(), source })?;
        Ok(self.output)
    }
}

/// The value with its integer or float narrowed to 32 bits, if that loses nothing.
fn narrowed(value: Value<'_>) -> WriteValue<'_> {
    match value {
        Value::Unsigned(number) => u32::try_from(number).map_or(WriteValue::U64(number), WriteValue::U32),
        Value::Signed(number) => i32::try_from(number).map_or(WriteValue::I64(number), WriteValue::I32),
        Value::Float(number) if f64::from(number as f32) == number => WriteValue::F32(number as f32),
        Value::Float(number) => WriteValue::F64(number),
        Value::Bool(truth) => WriteValue::Bool(truth),
        Value::String(text) => WriteValue::String(text),
        Value::Array(_) => unreachable!("arrays are copied as they lie in the file"),
    }
}

fn encode_value(bytes: &mut Vec<u8>, value: WriteValue<'_>) {
    put_u32(bytes, value_type(value) as u32);
    match value {
        WriteValue::U32(number) => bytes.extend_from_slice(&number.to_le_bytes()),
        WriteValue::U64(number) => bytes.extend_from_slice(&number.to_le_bytes()),
        WriteValue::I32(number) => bytes.extend_from_slice(&number.to_le_bytes()),
        WriteValue::I64(number) => bytes.extend_from_slice(&number.to_le_bytes()),
        WriteValue::F32(number) => bytes.extend_from_slice(&number.to_le_bytes()),
        WriteValue::F64(number) => bytes.extend_from_slice(&number.to_le_bytes()),
        WriteValue::Bool(truth) => bytes.push(u8::from(truth)),
        WriteValue::String(text) => put_string(bytes, text),
        WriteValue::Strings(texts) => {
            put_array_start(bytes, ValueType::String, texts.len());
            texts.iter().for_each(|text| put_string(bytes, text));
        }
        WriteValue::F32s(numbers) => {
            put_array_start(bytes, ValueType::F32, numbers.len());
            numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        WriteValue::I32s(numbers) => {
            put_array_start(bytes, ValueType::I32, numbers.len());
            numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        WriteValue::Bools(truths) => {
            put_array_start(bytes, ValueType::Bool, truths.len());
            bytes.extend(truths.iter().map(|truth| u8::from(*truth)));
        }
    }
}

fn value_type(value: WriteValue<'_>) -> ValueType {
    match value {
        WriteValue::U32(_) => ValueType::U32,
        WriteValue::U64(_) => ValueType::U64,
        WriteValue::I32(_) => ValueType::I32,
        WriteValue::I64(_) => ValueType::I64,
        WriteValue::F32(_) => ValueType::F32,
        WriteValue::F64(_) => ValueType::F64,
        WriteValue::Bool(_) => ValueType::Bool,
        WriteValue::String(_) => ValueType::String,
        WriteValue::Strings(_) | WriteValue::F32s(_) | WriteValue::I32s(_) | WriteValue::Bools(_) => ValueType::Array,
    }
}

fn put_u32(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    put_u64(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn put_array_start(bytes: &mut Vec<u8>, element_type: ValueType, len: usize) {
    put_u32(bytes, element_type as u32);
    put_u64(bytes, len as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error<T: std::fmt::Debug>(result: Result<T, WriteError>, expected: &str) {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?} does not say {expected:?}");
    }

    fn file() -> Vec<u8> {
        let mut writer = Writer::new();
        writer.metadata("a.u32", WriteValue::U32(7)).unwrap();
        writer.metadata("a.u64", WriteValue::U64(u64::MAX)).unwrap();
        writer.metadata("a.i32", WriteValue::I32(-7)).unwrap();
        writer.metadata("a.i64", WriteValue::I64(i64::MIN)).unwrap();
        writer.metadata("a.f32", WriteValue::F32(0.1)).unwrap();
        writer.metadata("a.f64", WriteValue::F64(0.1)).unwrap();
        writer.metadata("a.bool", WriteValue::Bool(true)).unwrap();
        writer.metadata("a.string", WriteValue::String("höne")).unwrap();
        writer.metadata("b.strings", WriteValue::Strings(&["", "▁a", "<0x0A>"])).unwrap();
        writer.metadata("b.f32s", WriteValue::F32s(&[-1.5, 0.0])).unwrap();
        writer.metadata("b.i32s", WriteValue::I32s(&[1, -2, 3])).unwrap();
        writer.metadata("b.bools", WriteValue::Bools(&[true, false])).unwrap();
        writer.tensor("first", &[3], TensorType::F32).unwrap();
        writer.tensor("second", &[32, 2], TensorType::Q4_0).unwrap();
        let file_bytes = writer.file_bytes();
        let mut tensors = writer.begin(Vec::new()).unwrap();
        tensors.write("first", &[1; 12]).unwrap();
        tensors.write("second", &[2; 10]).unwrap();
        tensors.write("second", &[3; 26]).unwrap();
        let bytes = tensors.finish().unwrap();
        assert_eq!(bytes.len() as u64, file_bytes);
        bytes
    }

    fn check_content(gguf: &Gguf) {
        assert_eq!(gguf.unsigned("a.u32").unwrap(), Some(7));
        assert_eq!(gguf.value("a.u64"), Some(Value::Unsigned(u64::MAX)));
        assert_eq!(gguf.value("a.i32"), Some(Value::Signed(-7)));
        assert_eq!(gguf.value("a.i64"), Some(Value::Signed(i64::MIN)));
        assert_eq!(gguf.value("a.f32"), Some(Value::Float(f64::from(0.1f32))));
        assert_eq!(gguf.value("a.f64"), Some(Value::Float(0.1)));
        assert_eq!(gguf.boolean("a.bool").unwrap(), Some(true));
        assert_eq!(gguf.string("a.string").unwrap(), Some("höne"));
        assert_eq!(gguf.strings("b.strings").unwrap().unwrap(), ["", "▁a", "<0x0A>"]);
        assert_eq!(gguf.floats("b.f32s").unwrap().unwrap(), [-1.5, 0.0]);
        assert_eq!(gguf.integers("b.i32s").unwrap().unwrap(), [1, -2, 3]);
        assert_eq!(gguf.booleans("b.bools").unwrap().unwrap(), [true, false]);
        assert_eq!(gguf.metadata().count(), 12);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let gguf = Gguf::from_bytes(file()).unwrap();
        check_content(&gguf);
        let first = gguf.tensor("first").unwrap();
        assert_eq!((first.dimensions.as_slice(), first.tensor_type), ([3].as_slice(), TensorType::F32));
        assert_eq!(gguf.tensor_bytes(first), [1; 12]);
        let second = gguf.tensor("second").unwrap();
        assert_eq!((second.dimensions.as_slice(), second.tensor_type), ([32, 2].as_slice(), TensorType::Q4_0));
        assert_eq!(gguf.tensor_bytes(second), [[2; 10].as_slice(), &[3; 26]].concat());
        assert!(gguf.tensors().all(|tensor| tensor.offset % ALIGNMENT == 0));
    }

    #[test]
    fn metadata_is_copied_from_another_file() {
        let source = Gguf::from_bytes(file()).unwrap();
        let mut writer = Writer::new();
        assert_eq!(writer.copy_metadata(&source, "b.").unwrap(), 4);
        assert_eq!(writer.copy_metadata(&source, "a.").unwrap(), 8);
        check_error(writer.copy_metadata(&source, "a.u"), "metadata key \"a.u32\" is given twice");
        let mut writer = Writer::new();
        writer.copy_metadata(&source, "").unwrap();
        check_content(&Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap());
    }

    #[test]
    fn a_header_that_would_not_be_read_is_refused() {
        let mut writer = Writer::new();
        writer.metadata("key", WriteValue::U32(1)).unwrap();
        check_error(writer.metadata("key", WriteValue::U32(2)), "metadata key \"key\" is given twice");
        check_error(writer.metadata("", WriteValue::U32(2)), "has 0 bytes");
        check_error(writer.metadata("general.alignment", WriteValue::U32(2)), "leave it out");
        writer.tensor("t", &[32], TensorType::F32).unwrap();
        check_error(writer.tensor("t", &[32], TensorType::F32), "tensor \"t\" is declared twice");
        check_error(writer.tensor("", &[32], TensorType::F32), "has a name of 0 bytes");
        check_error(writer.tensor(&"n".repeat(64), &[32], TensorType::F32), "has a name of 64 bytes");
        check_error(writer.tensor("u", &[], TensorType::F32), "tensor \"u\" has 0 dimensions");
        check_error(writer.tensor("u", &[1; 5], TensorType::F32), "tensor \"u\" has 5 dimensions");
        check_error(writer.tensor("u", &[0], TensorType::F32), "has a dimension of 0");
        check_error(writer.tensor("u", &[48], TensorType::Q8_0), "not whole blocks of 32 (Q8_0)");
        check_error(writer.tensor("u", &[usize::MAX, 2], TensorType::F32), "more elements than can be counted");
        check_error(writer.tensor("u", &[usize::MAX / 4], TensorType::F32), "longer than can be counted");
    }

    #[test]
    fn tensor_bytes_that_do_not_add_up_are_refused() {
        let mut writer = Writer::new();
        writer.tensor("a", &[2], TensorType::F32).unwrap();
        writer.tensor("b", &[2], TensorType::F32).unwrap();
        let mut tensors = writer.begin(Vec::new()).unwrap();
        check_error(tensors.write("b", &[0; 8]), "tensor \"b\" comes where \"a\" is next in the directory");
        tensors.write("a", &[0; 6]).unwrap();
        check_error(tensors.write("a", &[0; 3]), "tensor \"a\" gets 3 bytes where 2 are left of 8");
        tensors.write("a", &[0; 2]).unwrap();
        tensors.write("b", &[0; 8]).unwrap();
        check_error(tensors.write("b", &[0; 8]), "tensor \"b\" comes after the last tensor");
        assert!(tensors.finish().is_ok());

        let mut writer = Writer::new();
        writer.tensor("a", &[2], TensorType::F32).unwrap();
        check_error(writer.begin(Vec::new()).unwrap().finish(), "tensor \"a\" lacks 8 of its 8 bytes");
    }

    #[test]
    fn an_output_that_is_full_is_an_error_that_names_the_tensor() {
        let mut writer = Writer::new();
        writer.tensor("a", &[64], TensorType::F32).unwrap();
        let mut space = [0u8; 128];
        let mut tensors = writer.begin(space.as_mut_slice()).unwrap();
        check_error(tensors.write("a", &[0; 256]), "cannot write tensor \"a\"");
    }
}
