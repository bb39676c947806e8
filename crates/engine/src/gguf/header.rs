//! Walks a file's header and checks it.

use std::ops::Range;

use hone_kernels::UnknownTensorType;

use super::{Array, GgufError, TensorInfo, TensorType, Value, ValueType};

/// The contents of a file before the tensors' bytes.
pub(super) struct Header {
    /// In the order of the keys.
    pub(super) metadata: Vec<Entry>,
    /// In the order of the names.
    pub(super) tensors: Vec<TensorInfo>,
}

/// A metadata entry. Its strings stay in the file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    key: Range<usize>,
    value: Stored,
}

#[derive(Clone, Debug)]
enum Stored {
    Fixed(Value<'static>),
    Text(Range<usize>),
    Array(Array),
}

impl Entry {
    pub(super) fn key<'g>(&self, file: &'g [u8]) -> &'g str {
        text(file, &self.key)
    }

    pub(super) fn value<'g>(&'g self, file: &'g [u8]) -> Value<'g> {
        match &self.value {
            Stored::Fixed(value) => *value,
            Stored::Text(range) => Value::String(text(file, range)),
            Stored::Array(array) => Value::Array(array),
        }
    }
}

/// A string that has been checked.
fn text<'g>(file: &'g [u8], range: &Range<usize>) -> &'g str {
    std::str::from_utf8(&file[range.clone()]).unwrap_or_default()
}

/// The entry with a key.
pub(super) fn find<'g>(metadata: &'g [Entry], file: &'g [u8], key: &str) -> Option<&'g Entry> {
    let index = metadata.binary_search_by(|entry| entry.key(file).cmp(key)).ok()?;
    metadata.get(index)
}

/// Maximum number of tensors of a file, and of all parts of a model: the largest models have a few thousand.
pub(super) const MAX_TENSORS: u64 = 65_536;
/// Maximum number of metadata keys: the files of known models have fewer than a hundred.
const MAX_ENTRIES: u64 = 65_536;
/// The longest key that the format allows, in bytes.
pub(super) const MAX_KEY_BYTES: u64 = 65_535;
/// The longest tensor name; the format says 64, but some writers exceed it.
const MAX_NAME_BYTES: u64 = 256;
pub(super) const MAX_DIMENSIONS: u32 = 4;
const MAX_ARRAY_NESTING: usize = 4;
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
/// The format demands a multiple of 8; alignments above this make no sense.
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=1 << 20;
/// Fewest bytes of a metadata entry: length of the key, type, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Fewest bytes of a directory entry: length of the name, number of dimensions, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

pub(super) fn read(file: &[u8]) -> Result<Header, GgufError> {
    let mut cursor = HeaderBytes { file, position: 0 };
    check_magic_and_version(&mut cursor)?;
    let n_tensors = cursor.count_up_to(MAX_TENSORS, "tensor count", MIN_TENSOR_BYTES)?;
    let n_entries = cursor.count_up_to(MAX_ENTRIES, "metadata count", MIN_ENTRY_BYTES)?;
    let metadata = read_metadata(&mut cursor, n_entries)?;
    let alignment = alignment(&metadata, file)?;
    let mut directory = Vec::new();
    for index in 0..n_tensors {
        directory.push(read_directory_entry(&mut cursor, index, alignment)?);
    }
    let data_start = cursor.position.next_multiple_of(alignment);
    place_tensors(&mut directory, data_start, file.len())?;
    Ok(Header { metadata, tensors: in_order_of_names(directory)? })
}

fn check_magic_and_version(cursor: &mut HeaderBytes<'_>) -> Result<(), GgufError> {
    let start = &cursor.file[..cursor.file.len().min(4)];
    if start != b"GGUF" {
        return Err(GgufError::Magic { found: start.to_vec() });
    }
    cursor.position = 4;
    match cursor.u32("version")? {
        2 | 3 => Ok(()),
        version if matches!(version.swap_bytes(), 1..=3) => {
            Err(GgufError::Unsupported { what: "a big-endian file".into(), supported: "little-endian files".into() })
        }
        version => Err(GgufError::Unsupported { what: format!("GGUF version {version}"), supported: "2 and 3".into() }),
    }
}

fn read_metadata(cursor: &mut HeaderBytes<'_>, n_entries: u64) -> Result<Vec<Entry>, GgufError> {
    let mut metadata = Vec::new();
    for index in 0..n_entries {
        let key = cursor.string(&format!("key of metadata entry {index}"), MAX_KEY_BYTES)?;
        let range = cursor.position - key.len()..cursor.position;
        let value_type = ValueType::from_id(cursor.u32(key)?, key)?;
        metadata.push(Entry { key: range, value: cursor.value(key, value_type)? });
    }
    let file = cursor.file;
    metadata.sort_unstable_by(|first, second| first.key(file).cmp(second.key(file)));
    match metadata.windows(2).find(|pair| pair[0].key(file) == pair[1].key(file)) {
        Some(twice) => Err(GgufError::invalid(format!("metadata key {:?}", twice[0].key(file)), "appears twice")),
        None => Ok(metadata),
    }
}

fn alignment(metadata: &[Entry], file: &[u8]) -> Result<usize, GgufError> {
    let Some(entry) = find(metadata, file, "general.alignment") else { return Ok(DEFAULT_ALIGNMENT as usize) };
    let value = entry.value(file);
    let sound = value.as_u64().filter(|number| number.is_power_of_two() && ALIGNMENTS.contains(number));
    sound.map(|number| number as usize).ok_or_else(|| {
        GgufError::invalid(
            "general.alignment",
            format!("is {value}: it must be a power of two from 8 to {}", ALIGNMENTS.end()),
        )
    })
}

/// Reads one entry; its offset is still relative to the start of the data.
fn read_directory_entry(cursor: &mut HeaderBytes<'_>, index: u64, alignment: usize) -> Result<TensorInfo, GgufError> {
    let name = cursor.string(&format!("name of tensor {index}"), MAX_NAME_BYTES)?;
    let field = |what: &str| format!("{what} of tensor {name:?}");
    let n_dimensions = cursor.u32(&field("number of dimensions"))?;
    if !(1..=MAX_DIMENSIONS).contains(&n_dimensions) {
        let reason = format!("is {n_dimensions}: it must be 1 to {MAX_DIMENSIONS}");
        return Err(GgufError::invalid(field("number of dimensions"), reason));
    }
    let mut dimensions = Vec::with_capacity(n_dimensions as usize);
    for _ in 0..n_dimensions {
        let dimension = cursor.u64(&field("dimension"))?;
        dimensions.push(usize::try_from(dimension).unwrap_or(usize::MAX));
    }
    let tensor_type = supported(TensorType::from_id(cursor.u32(&field("type"))?), name)?;
    let offset = cursor.u64(&field("offset"))?;
    let n_bytes = checked_n_bytes(name, &dimensions, tensor_type)?;
    if offset % alignment as u64 != 0 {
        return Err(GgufError::invalid(field("offset"), format!("is {offset}: it must be a multiple of {alignment}")));
    }
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(TensorInfo { name: name.to_owned(), dimensions, tensor_type, offset, n_bytes })
}

fn supported(tensor_type: Result<TensorType, UnknownTensorType>, tensor: &str) -> Result<TensorType, GgufError> {
    tensor_type.map_err(|unknown| GgufError::Unsupported {
        what: format!("{unknown} of tensor {tensor:?}"),
        supported: TensorType::ALL.map(TensorType::name).join(", "),
    })
}

pub(super) fn checked_n_bytes(name: &str, dimensions: &[usize], tensor_type: TensorType) -> Result<usize, GgufError> {
    let invalid = |reason: String| GgufError::invalid(format!("shape {dimensions:?} of tensor {name:?}"), reason);
    if dimensions.contains(&0) {
        return Err(invalid("has a dimension of 0".into()));
    }
    if !dimensions[0].is_multiple_of(tensor_type.block_elements()) {
        let reason = format!("has rows that are not whole blocks of {} ({tensor_type})", tensor_type.block_elements());
        return Err(invalid(reason));
    }
    dimensions
        .iter()
        .try_fold(1usize, |product, dimension| product.checked_mul(*dimension))
        .and_then(|n_elements| tensor_type.n_bytes(n_elements))
        .ok_or_else(|| invalid("has more elements than can be counted".into()))
}

/// Makes the offsets absolute and checks that tensors lie within the file and do not overlap.
fn place_tensors(directory: &mut [TensorInfo], data_start: usize, file_len: usize) -> Result<(), GgufError> {
    directory.sort_unstable_by_key(|tensor| tensor.offset);
    let mut taken_to = data_start;
    for tensor in directory {
        let start = data_start.checked_add(tensor.offset);
        let end = start.and_then(|start| start.checked_add(tensor.n_bytes));
        let (Some(start), Some(end)) = (start, end.filter(|end| *end <= file_len)) else {
            return Err(GgufError::Truncated {
                field: format!("tensor {:?}", tensor.name),
                offset: data_start.saturating_add(tensor.offset),
                needed: tensor.n_bytes as u64,
                available: file_len.saturating_sub(data_start.saturating_add(tensor.offset)),
            });
        };
        if start < taken_to {
            return Err(GgufError::invalid(format!("tensor {:?}", tensor.name), "overlaps another tensor"));
        }
        tensor.offset = start;
        taken_to = end;
    }
    Ok(())
}

fn in_order_of_names(mut directory: Vec<TensorInfo>) -> Result<Vec<TensorInfo>, GgufError> {
    directory.sort_unstable_by(|first, second| first.name.cmp(&second.name));
    match directory.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(twice) => Err(GgufError::invalid(format!("tensor {:?}", twice[0].name), "appears twice in the directory")),
        None => Ok(directory),
    }
}

struct HeaderBytes<'a> {
    file: &'a [u8],
    position: usize,
}

impl<'a> HeaderBytes<'a> {
    fn take(&mut self, field: &str, needed: u64) -> Result<&'a [u8], GgufError> {
        let available = self.file.len() - self.position;
        if needed > available as u64 {
            return Err(GgufError::Truncated { field: field.to_owned(), offset: self.position, needed, available });
        }
        let start = self.position;
        self.position += needed as usize;
        Ok(&self.file[start..self.position])
    }

    fn u32(&mut self, field: &str) -> Result<u32, GgufError> {
        let bytes = self.take(field, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self, field: &str) -> Result<u64, GgufError> {
        let low = self.u32(field)?;
        let high = self.u32(field)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Reads the count of items that follow, each of which takes at least `min_bytes` bytes.
    fn count(&mut self, field: &str, min_bytes: u64) -> Result<u64, GgufError> {
        let count = self.u64(field)?;
        let available = self.file.len() - self.position;
        match count.checked_mul(min_bytes) {
            Some(needed) if needed <= available as u64 => Ok(count),
            needed => Err(GgufError::Truncated {
                field: format!("{field} ({count})"),
                offset: self.position,
                needed: needed.unwrap_or(u64::MAX),
                available,
            }),
        }
    }

    /// Reads the count of items that follow, of which there may be at most `most`.
    fn count_up_to(&mut self, most: u64, field: &str, min_bytes: u64) -> Result<u64, GgufError> {
        match self.count(field, min_bytes)? {
            count if count > most => Err(GgufError::invalid(field, format!("is {count}: the limit is {most}"))),
            count => Ok(count),
        }
    }

    fn string(&mut self, field: &str, max_bytes: u64) -> Result<&'a str, GgufError> {
        let length = self.u64(field)?;
        if length > max_bytes {
            return Err(GgufError::invalid(field, format!("has {length} bytes: the limit is {max_bytes}")));
        }
        let bytes = self.take(field, length)?;
        std::str::from_utf8(bytes).map_err(|error| GgufError::invalid(field, format!("is not text: {error}")))
    }

    fn value(&mut self, key: &str, value_type: ValueType) -> Result<Stored, GgufError> {
        match value_type {
            ValueType::String => {
                let length = self.u64(key)?;
                let bytes = self.take(key, length)?;
                let text = text_of(key, bytes)?;
                let start = self.position - bytes.len();
                Ok(Stored::Text(start..start + text.len()))
            }
            ValueType::Array => Ok(Stored::Array(self.array(key, 1)?)),
            fixed => {
                let bytes = self.take(key, fixed.fixed_bytes().unwrap_or(0) as u64)?;
                let value = Value::from_fixed(fixed, bytes).map(Stored::Fixed);
                value.ok_or_else(|| GgufError::invalid(key, "cannot be decoded"))
            }
        }
    }

    fn array(&mut self, key: &str, depth: usize) -> Result<Array, GgufError> {
        if depth > MAX_ARRAY_NESTING {
            return Err(GgufError::invalid(key, format!("nests arrays more than {MAX_ARRAY_NESTING} deep")));
        }
        let element_type = ValueType::from_id(self.u32(key)?, key)?;
        let min_bytes = match element_type {
            ValueType::Array => 12,
            _ => element_type.fixed_bytes().unwrap_or(8) as u64,
        };
        let len = self.count(key, min_bytes)?;
        let start = self.position;
        match element_type {
            ValueType::String => (0..len).try_for_each(|_| self.skip_string(key))?,
            ValueType::Array => (0..len).try_for_each(|_| self.array(key, depth + 1).map(drop))?,
            _ => self.take(key, len * min_bytes).map(drop)?,
        }
        Ok(Array { element_type, len: len as usize, range: start..self.position })
    }

    fn skip_string(&mut self, key: &str) -> Result<(), GgufError> {
        let length = self.u64(key)?;
        self.take(key, length).map(drop)
    }
}

/// The text of a value, without the trailing zero bytes that some programs write. In a value that only describes the
/// file, the text ends before the first invalid UTF-8.
fn text_of<'a>(key: &str, bytes: &'a [u8]) -> Result<&'a str, GgufError> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let bytes = &bytes[..end];
    std::str::from_utf8(bytes).or_else(|error| {
        let describes = key.starts_with("general.") && key != "general.architecture";
        match std::str::from_utf8(&bytes[..error.valid_up_to()]) {
            Ok(beginning) if describes => Ok(beginning),
            _ => Err(GgufError::invalid(key, format!("is not text: {error}"))),
        }
    })
}
