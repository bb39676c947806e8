//! Models in several files, as llama.cpp splits them: every part is a GGUF file with tensors and their bytes. The
//! metadata is in the first, and each states its own number (`split.no`, from 0), the number of parts (`split.count`),
//! and the total number of tensors (`split.tensors.count`).
//!
//! A part is as untrusted as a whole file, and its header is checked in the same way. Beyond that, the parts have to
//! fit together. A part of another model that fits (same number of parts and tensors, different names, nothing
//! contradictory in the metadata) cannot be detected here; the hashes of pulled models detect it.

use std::path::PathBuf;

use hone_protocol::PartName;

use super::header::{self, Header, MAX_TENSORS};
use super::{GgufError, Mapping};

/// How far ahead of the current position the disk is asked to read.
const READ_AHEAD: usize = 64 << 20;

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const N_TENSORS: &str = "split.tensors.count";

/// The bytes of a model. An offset into them counts through all parts, as if they were one file.
#[derive(Debug)]
pub(super) struct FileParts(Vec<FilePart>);

#[derive(Debug)]
struct FilePart {
    /// The offset of its first byte.
    start: usize,
    mapping: Mapping,
    /// Its file, if it comes from one.
    path: Option<PathBuf>,
}

impl FileParts {
    /// The parts in order, each with its file, if it has one. There must be at least one.
    pub(super) fn new(mappings: Vec<(Mapping, Option<PathBuf>)>) -> Self {
        let mut start = 0usize;
        let place = |(mapping, path): (Mapping, Option<PathBuf>)| {
            let part = FilePart { start, mapping, path };
            // More bytes than can be addressed cannot be mapped.
            start = start.saturating_add(part.mapping.bytes().len());
            part
        };
        FileParts(mappings.into_iter().map(place).collect())
    }

    /// The bytes of the first part, which has the metadata.
    pub(super) fn first(&self) -> &[u8] {
        self.0[0].mapping.bytes()
    }

    /// Size of all parts together in bytes.
    pub(super) fn n_bytes(&self) -> usize {
        self.0.iter().map(|part| part.mapping.bytes().len()).sum()
    }

    /// `n_bytes` bytes, all of them in one part.
    pub(super) fn slice(&self, offset: usize, n_bytes: usize) -> &[u8] {
        let part = &self.0[self.0.partition_point(|part| part.start <= offset) - 1];
        &part.mapping.bytes()[offset - part.start..offset - part.start + n_bytes]
    }

    /// Asks the system to read a slice of these bytes before it is needed.
    pub(super) fn prefetch(&self, slice: &[u8]) {
        if let Some((index, start)) = self.position_of(slice) {
            self.0[index].mapping.prefetch(start..start + slice.len());
        }
    }

    /// Asks the system to read the bytes that follow a slice of these, as far ahead as is useful.
    pub(super) fn prefetch_behind(&self, slice: &[u8]) {
        let Some((index, start)) = self.position_of(slice) else { return };
        let end = start + slice.len() + READ_AHEAD;
        let mapping = &self.0[index].mapping;
        mapping.prefetch(start..end);
        let beyond = end.saturating_sub(mapping.bytes().len());
        if let Some(next) = self.0.get(index + 1).filter(|_| beyond > 0) {
            next.mapping.prefetch(0..beyond);
        }
    }

    /// Returns the memory of a slice of these bytes to the system; it is mapped again when next read.
    pub(super) fn release(&self, slice: &[u8]) {
        if let Some((index, _)) = self.position_of(slice) {
            self.0[index].mapping.release(slice);
        }
    }

    /// The part that contains a slice, and the slice's offset in it.
    fn position_of(&self, slice: &[u8]) -> Option<(usize, usize)> {
        let places = self.0.iter().map(|part| part.mapping.bytes()).enumerate();
        let mut found = places.filter_map(|(index, bytes)| {
            let start = slice.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
            (start + slice.len() <= bytes.len()).then_some((index, start))
        });
        found.next()
    }

    /// Checks the headers of all parts and joins them.
    pub(super) fn read_header(&self) -> Result<Header, GgufError> {
        let mut whole = header::read(self.first())?;
        let split = Split::of(&whole, self.first())?;
        self.check_first(split.as_ref())?;
        let Some(split) = split.filter(|split| split.count > 1) else { return Ok(whole) };
        for index in 1..self.0.len() {
            let failed = |source| GgufError::Part { part: self.label(index), source: Box::new(source) };
            let tensors = self.read_later(index, &whole, &split).map_err(failed)?;
            if whole.tensors.len() + tensors.len() > MAX_TENSORS as usize {
                return Err(failed(GgufError::invalid("tensor count", format!("of all parts exceeds {MAX_TENSORS}"))));
            }
            whole.tensors.extend(tensors);
        }
        whole.tensors.sort_unstable_by(|first, second| first.name.cmp(&second.name));
        self.check_together(&whole, &split)?;
        Ok(whole)
    }

    /// Checks that the first part is numbered as such, and that the number of parts matches its metadata.
    fn check_first(&self, split: Option<&Split>) -> Result<(), GgufError> {
        let n_parts = self.0.len() as u64;
        match split {
            None | Some(Split { count: 0 | 1, .. }) if n_parts == 1 => Ok(()),
            None | Some(Split { count: 0 | 1, .. }) => Err(GgufError::invalid(
                COUNT,
                format!(
                    "is not in the metadata of {}, whose name says that there are {n_parts} parts: a file with a whole model needs another name",
                    self.label(0)
                ),
            )),
            Some(Split { number, count, .. }) if *number != 0 => Err(GgufError::invalid(
                NUMBER,
                format!(
                    "is {number}: the file is part {} of {count} of a model; give the first part, {}, instead",
                    number + 1,
                    self.expected_name(*count)
                ),
            )),
            Some(Split { count, .. }) if *count == n_parts => Ok(()),
            Some(Split { count, .. }) if n_parts == 1 => Err(GgufError::invalid(
                COUNT,
                format!(
                    "is {count}: the file is only the first part of a model; all parts have to be in one folder and named {} and so on",
                    self.expected_name(*count)
                ),
            )),
            Some(Split { count, .. }) => Err(GgufError::invalid(
                COUNT,
                format!(
                    "is {count} in {}, but there are {n_parts} parts: they belong to different models",
                    self.label(0)
                ),
            )),
        }
    }

    /// The tensors of a later part, placed in the whole model.
    fn read_later(&self, index: usize, whole: &Header, expected: &Split) -> Result<Vec<super::TensorInfo>, GgufError> {
        let (part, first) = (&self.0[index], self.first());
        let bytes = part.mapping.bytes();
        let mut header = header::read(bytes)?;
        let Some(split) = Split::of(&header, bytes)? else {
            return Err(GgufError::invalid(COUNT, "is not in its metadata: it is not part of a split model"));
        };
        let differs = |key: &str, found: String, expected: String| {
            let reason = format!("is {found} and should be {expected}: it is of another model, or was renamed");
            Err(GgufError::invalid(key, reason))
        };
        if split.count != expected.count {
            return differs(COUNT, split.count.to_string(), expected.count.to_string());
        }
        if split.number != index as u64 {
            return differs(NUMBER, split.number.to_string(), index.to_string());
        }
        // Parts usually repeat nothing of the first one's metadata. Repeated entries must be the same.
        for entry in &header.metadata {
            let (key, found) = (entry.key(bytes), entry.value(bytes));
            let is_own = matches!(key, NUMBER | COUNT | "general.alignment");
            let Some(known) = header::find(&whole.metadata, first, key).filter(|_| !is_own) else { continue };
            let known = known.value(first);
            if found.to_string() != known.to_string() {
                return differs(key, found.to_string(), known.to_string());
            }
        }
        for tensor in &mut header.tensors {
            tensor.offset = tensor.offset.saturating_add(part.start);
        }
        Ok(header.tensors)
    }

    /// Checks that no tensor is in two parts, and that none is missing.
    fn check_together(&self, whole: &Header, split: &Split) -> Result<(), GgufError> {
        if let Some(twice) = whole.tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let mut parts = [0, 1].map(|index| self.part_at(twice[index].offset));
            parts.sort_unstable();
            let [first, second] = parts.map(|part| self.label(part));
            let reason = format!("is both in {first} and in {second}: they belong to different models");
            return Err(GgufError::invalid(format!("tensor {:?}", twice[0].name), reason));
        }
        match split.n_tensors {
            Some(expected) if expected != whole.tensors.len() as u64 => {
                let reason = format!(
                    "is {expected}, but all {} parts together have {} tensors: they belong to different models",
                    split.count,
                    whole.tensors.len()
                );
                Err(GgufError::invalid(N_TENSORS, reason))
            }
            _ => Ok(()),
        }
    }

    fn part_at(&self, offset: usize) -> usize {
        self.0.partition_point(|part| part.start <= offset).saturating_sub(1)
    }

    /// The name of a part in messages.
    fn label(&self, index: usize) -> String {
        let label = format!("part {} of {}", index + 1, self.0.len());
        match &self.0[index].path {
            Some(path) => format!("{label} ({})", path.display()),
            None => label,
        }
    }

    /// The name that the first of `count` parts should have, as far as the given file's name tells.
    fn expected_name(&self, count: u64) -> String {
        let path = self.0[0].path.as_deref();
        let stem = path.and_then(PartName::of_path).map_or("NAME", |name| name.stem);
        format!("{stem}-00001-of-{count:05}.gguf")
    }
}

/// A file's metadata about being a part.
struct Split {
    /// Counted from 0.
    number: u64,
    count: u64,
    n_tensors: Option<u64>,
}

impl Split {
    fn of(header: &Header, file: &[u8]) -> Result<Option<Self>, GgufError> {
        let unsigned = |key: &str| match header::find(&header.metadata, file, key).map(|entry| entry.value(file)) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| {
                GgufError::invalid(key, format!("is {value} where an integer that is not negative is expected"))
            }),
        };
        let Some(count) = unsigned(COUNT)? else { return Ok(None) };
        if count > u64::from(PartName::MOST) {
            return Err(GgufError::invalid(COUNT, format!("is {count}: the limit is {}", PartName::MOST)));
        }
        let number = unsigned(NUMBER)?.unwrap_or_default();
        if number >= count.max(1) {
            return Err(GgufError::invalid(NUMBER, format!("is {number} of {count} parts, counted from 0")));
        }
        Ok(Some(Split { number, count, n_tensors: unsigned(N_TENSORS)? }))
    }
}
