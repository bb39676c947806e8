//! The bytes of a bundle's payload.
//!
//! ```text
//! program | padding | header | padding | file | padding | file | … | index (JSON) | trailer
//! ```
//!
//! Header and files start at multiples of 64 KiB: that is a multiple of every page size in use (4, 16 and 64 KiB) and
//! the granularity at which Windows maps files. The trailer ends the file and carries a SHA-256 over itself and the
//! index. The header is for files that lost their trailer: it holds its own offset and a hash, so that a truncated
//! bundle is recognized instead of running as a plain program without models. All numbers are little-endian.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    blocks::Blocks,
    digest::is_sha256,
    name::{is_model_name, is_safe_file_name},
};

/// The alignment of header and files.
pub(super) const ALIGNMENT: u64 = 64 * 1024;

const VERSION: u32 = 1;
const HEADER_MAGIC: [u8; 16] = *b"hone bundle head";
const TRAILER_MAGIC: [u8; 16] = *b"hone bundle tail";
const HASH: usize = 32;
const HEADER_LENGTH: usize = 16 + 8 + HASH;
const TRAILER_LENGTH: usize = 16 + 4 + 8 + 8 + 8 + HASH;
const LONGEST_INDEX: u64 = 1024 * 1024;

/// The trailer of a bundle.
#[derive(Debug)]
pub(super) struct Trailer {
    /// The start of the payload, after the program and its padding.
    pub(super) payload_start: u64,
    index_offset: u64,
    index_length: u64,
    checksum: [u8; HASH],
}

/// The index of the payload.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    pub(super) models: Vec<IndexModel>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IndexModel {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) files: Vec<IndexFile>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IndexFile {
    pub(super) name: String,
    pub(super) sha256: String,
    pub(super) offset: u64,
    pub(super) length: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unchecked: bool,
    /// BLAKE3 hashes of its blocks.
    #[serde(default, skip_serializing_if = "Blocks::is_empty")]
    pub(super) blocks: Blocks,
}

/// Why the payload cannot be read.
#[derive(Debug)]
pub(super) enum FormatError {
    /// It is incomplete or inconsistent; the text says how.
    Damaged(String),
    /// The file could not be read.
    Io(io::Error),
}

impl From<io::Error> for FormatError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads and verifies trailer and index; `None` for a plain program.
pub(super) fn read(file: &mut File) -> Result<Option<(Trailer, Index)>, FormatError> {
    let length = file.metadata()?.len();
    let Some(trailer) = read_trailer(file, length)? else {
        return match find_header(file, length)? {
            Some(offset) => {
                Err(damaged(format!("the file ends at byte {length}, within the models that start at {offset}")))
            }
            None => Ok(None),
        };
    };
    trailer.check(length)?;
    file.seek(SeekFrom::Start(trailer.index_offset))?;
    let mut text = vec![0; usize::try_from(trailer.index_length).map_err(|_| damaged("the index is too long"))?];
    file.read_exact(&mut text)?;
    if Trailer::new(trailer.payload_start, trailer.index_offset, &text).checksum != trailer.checksum {
        return Err(damaged("the checksum of the index does not match"));
    }
    let index: Index =
        serde_json::from_slice(&text).map_err(|error| damaged(format!("the index cannot be read: {error}")))?;
    index.check(&trailer)?;
    Ok(Some((trailer, index)))
}

/// The header that marks the start of a payload: its own offset and a hash of it, which identifies it.
pub(super) fn header(payload_start: u64) -> Vec<u8> {
    let mut bytes = HEADER_MAGIC.to_vec();
    bytes.extend(payload_start.to_le_bytes());
    let hash = Sha256::digest(&bytes);
    bytes.extend(hash);
    bytes
}

impl Trailer {
    pub(super) fn new(payload_start: u64, index_offset: u64, index: &[u8]) -> Self {
        let mut trailer = Self { payload_start, index_offset, index_length: index.len() as u64, checksum: [0; HASH] };
        let mut hasher = Sha256::new_with_prefix(trailer.fields());
        hasher.update(index);
        trailer.checksum = hasher.finalize().into();
        trailer
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.fields();
        bytes.extend(self.checksum);
        bytes.extend(TRAILER_MAGIC);
        bytes
    }

    fn fields(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend(self.payload_start.to_le_bytes());
        bytes.extend(self.index_offset.to_le_bytes());
        bytes.extend(self.index_length.to_le_bytes());
        bytes
    }

    /// Checks the numbers against each other and the length of the file before they are used.
    fn check(&self, length: u64) -> Result<(), FormatError> {
        let end =
            self.index_offset.checked_add(self.index_length).and_then(|end| end.checked_add(TRAILER_LENGTH as u64));
        if end != Some(length) {
            return Err(damaged(format!("the index does not end before the trailer of a file of {length} bytes")));
        }
        if self.index_length > LONGEST_INDEX {
            return Err(damaged(format!("its index of {} bytes is too long", self.index_length)));
        }
        if !self.payload_start.is_multiple_of(ALIGNMENT) || self.payload_start >= self.index_offset {
            return Err(damaged(format!("the payload cannot start at byte {}", self.payload_start)));
        }
        Ok(())
    }
}

impl Index {
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Checks that the files are in order, aligned and without overlap between the payload's start and the index.
    fn check(&self, trailer: &Trailer) -> Result<(), FormatError> {
        let mut free = trailer.payload_start + HEADER_LENGTH as u64;
        for model in &self.models {
            if !is_model_name(&model.name) || model.files.is_empty() {
                return Err(damaged(format!("`{}` is not the name of a model with files", model.name)));
            }
            for file in &model.files {
                if !is_safe_file_name(&file.name) || !is_sha256(&file.sha256) {
                    return Err(damaged(format!(
                        "model `{}`: the entry of file `{}` is malformed",
                        model.name, file.name
                    )));
                }
                let end = file.offset.checked_add(file.length).filter(|end| *end <= trailer.index_offset);
                match end {
                    Some(end) if file.offset >= free && file.offset.is_multiple_of(ALIGNMENT) => free = end,
                    _ => {
                        return Err(damaged(format!(
                            "model `{}`: file `{}` is outside the payload",
                            model.name, file.name
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

fn read_trailer(file: &mut File, length: u64) -> Result<Option<Trailer>, FormatError> {
    let Some(start) = length.checked_sub(TRAILER_LENGTH as u64) else { return Ok(None) };
    let mut bytes = [0; TRAILER_LENGTH];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    let (fields, rest) = bytes.split_at(4 + 3 * 8);
    let (checksum, magic) = rest.split_at(HASH);
    if magic != TRAILER_MAGIC {
        return Ok(None);
    }
    let version = u32::from_le_bytes([fields[0], fields[1], fields[2], fields[3]]);
    if version != VERSION {
        return Err(damaged(format!("it has version {version}, this hone reads version {VERSION}")));
    }
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| fields[4 + 8 * at + i]));
    let checksum = std::array::from_fn(|i| checksum[i]);
    Ok(Some(Trailer { payload_start: number(0), index_offset: number(1), index_length: number(2), checksum }))
}

/// Looks for a header at every possible position. If the program states its own length, nothing before that is read:
/// searching it for a header would read all of it from the disk.
fn find_header(file: &mut File, length: u64) -> Result<Option<u64>, FormatError> {
    let mut bytes = [0; HEADER_LENGTH];
    let mut offset = elf_length(file, length)?.next_multiple_of(ALIGNMENT);
    while offset + HEADER_LENGTH as u64 <= length {
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut bytes)?;
        if bytes.starts_with(&HEADER_MAGIC) && bytes == *header(offset) {
            return Ok(Some(offset));
        }
        offset += ALIGNMENT;
    }
    Ok(None)
}

/// The end of a 64-bit ELF program according to its own header: the end of the section table, which linkers and `strip`
/// write last (System V ABI, "ELF Header"). 0 for other files.
fn elf_length(file: &mut File, length: u64) -> Result<u64, FormatError> {
    let mut header = [0; 64];
    if length < header.len() as u64 {
        return Ok(0);
    }
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut header)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(0);
    }
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let table = u64::from_le_bytes(std::array::from_fn(|i| header[0x28 + i]));
    let end = table.saturating_add(half(0x3A) * half(0x3C));
    Ok(if end <= length { end } else { 0 })
}

fn damaged(reason: impl Into<String>) -> FormatError {
    FormatError::Damaged(reason.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const PAYLOAD: u64 = ALIGNMENT;
    const SPACE: u64 = 4 * ALIGNMENT;

    /// Reads a payload with that index, every checksum right, and room for files between 64 and 256 KiB.
    fn read_index(text: &[u8]) -> Result<Option<(Trailer, Index)>, FormatError> {
        read_parts(text, &Trailer::new(PAYLOAD, SPACE, text).to_bytes())
    }

    fn read_parts(index: &[u8], trailer: &[u8]) -> Result<Option<(Trailer, Index)>, FormatError> {
        let mut file = tempfile::tempfile().unwrap();
        file.seek(SeekFrom::Start(PAYLOAD)).unwrap();
        file.write_all(&header(PAYLOAD)).unwrap();
        file.seek(SeekFrom::Start(SPACE)).unwrap();
        file.write_all(index).unwrap();
        file.write_all(trailer).unwrap();
        read(&mut file)
    }

    fn entry(name: &str, offset: u64, length: u64) -> IndexFile {
        IndexFile {
            name: name.to_owned(),
            sha256: "0".repeat(64),
            offset,
            length,
            unchecked: false,
            blocks: Blocks::default(),
        }
    }

    fn check(model: &str, files: Vec<IndexFile>, expected: Result<(), &str>) {
        let model = IndexModel { name: model.to_owned(), source: String::new(), files };
        let text = Index { models: vec![model] }.to_bytes().unwrap();
        match (read_index(&text), expected) {
            (Ok(Some(_)), Ok(())) => {}
            (Err(FormatError::Damaged(reason)), Err(part)) => {
                assert!(reason.contains(part), "`{part}` is not in: {reason}");
            }
            (result, expected) => panic!("{result:?} and not {expected:?}"),
        }
    }

    #[test]
    fn files_lie_in_order_between_header_and_index() {
        let (first, second) = (2 * ALIGNMENT, 3 * ALIGNMENT);
        check("a:1", vec![entry("x", first, 10), entry("y", second, ALIGNMENT)], Ok(()));
        check("a:1", vec![entry("x", first, 0)], Ok(()));
        let outside = Err("is outside the payload");
        check("a:1", vec![entry("x", first, ALIGNMENT + 1), entry("y", second, 1)], outside);
        check("a:1", vec![entry("x", second, 1), entry("y", first, 1)], outside);
        check("a:1", vec![entry("x", first + 1, 10)], outside);
        check("a:1", vec![entry("x", 0, 10)], outside);
        check("a:1", vec![entry("x", PAYLOAD, 10)], outside);
        check("a:1", vec![entry("x", second, ALIGNMENT + 1)], outside);
        check("a:1", vec![entry("x", u64::MAX - ALIGNMENT + 1, 10)], outside);
        check("a:1", vec![entry("x", first, u64::MAX)], outside);
        check("a:1", vec![entry("../x", first, 10)], Err("malformed"));
        check("a:1", Vec::new(), Err("not the name of a model with files"));
        check("../a", vec![entry("x", first, 10)], Err("not the name"));
    }

    #[test]
    fn a_program_ends_where_its_header_says() {
        let mut program = File::open(std::env::current_exe().unwrap()).unwrap();
        let length = program.metadata().unwrap().len();
        let expected = if cfg!(all(target_os = "linux", target_pointer_width = "64")) { length } else { 0 };
        assert_eq!(elf_length(&mut program, length).unwrap(), expected);
        let mut other = tempfile::tempfile().unwrap();
        other.write_all(&[0; 100]).unwrap();
        assert_eq!(elf_length(&mut other, 100).unwrap(), 0);
    }

    #[test]
    fn numbers_are_checked_before_they_are_used() {
        let text = br#"{"models":[]}"#;
        assert!(read_index(text).unwrap().is_some());
        let check_text = |text: &[u8], part: &str| {
            let Err(FormatError::Damaged(reason)) = read_index(text) else { panic!("{part}") };
            assert!(reason.contains(part), "`{part}` is not in: {reason}");
        };
        check_text(b"nonsense", "cannot be read");
        check_text(br#"{"models":[],"more":1}"#, "cannot be read");
        check_text(&vec![b' '; usize::try_from(LONGEST_INDEX).unwrap() + 1], "is too long");
        let check_trailer = |change: &dyn Fn(&mut Trailer), part: &str| {
            let mut trailer = Trailer::new(PAYLOAD, SPACE, text);
            change(&mut trailer);
            let Err(FormatError::Damaged(reason)) = read_parts(text, &trailer.to_bytes()) else { panic!("{part}") };
            assert!(reason.contains(part), "`{part}` is not in: {reason}");
        };
        check_trailer(&|trailer| trailer.index_offset = u64::MAX, "does not end before the trailer");
        check_trailer(&|trailer| trailer.index_length = u64::MAX, "does not end before the trailer");
        check_trailer(&|trailer| trailer.payload_start = 1, "cannot start at byte 1");
        check_trailer(&|trailer| trailer.payload_start = u64::MAX - ALIGNMENT + 1, "cannot start");
        check_trailer(&|trailer| trailer.payload_start = 2 * ALIGNMENT, "checksum");
        let mut newer = Trailer::new(PAYLOAD, SPACE, text).to_bytes();
        newer[0] = 2;
        let Err(FormatError::Damaged(reason)) = read_parts(text, &newer) else { panic!("version") };
        assert!(reason.contains("version 2"), "{reason}");
    }
}
