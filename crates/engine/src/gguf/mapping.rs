//! The bytes of a model, mapped from its file. The only place in the engine that needs `unsafe`.

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

use hone_protocol::ModelFile;
use memmap2::{Mmap, MmapOptions};

use super::GgufError;

/// The system maps pages around one that is touched, in blocks of up to this many bytes.
const READ_AROUND: usize = 64 << 10;

/// The bytes of one model.
#[derive(Debug)]
pub struct Mapping(MappedBytes);

#[derive(Debug)]
enum MappedBytes {
    File(Mmap),
    Memory(Vec<u8>),
}

impl Mapping {
    /// Maps a region of a file.
    pub(crate) fn region(region: &ModelFile) -> Result<Self, GgufError> {
        let (file, length) = open(&region.path)?;
        let end = region.offset.checked_add(region.length);
        if end.is_none_or(|end| end > length) {
            return Err(GgufError::invalid(
                region.path.display().to_string(),
                format!("has {length} bytes, but the model should be at {} +{}", region.offset, region.length),
            ));
        }
        map(&file, &region.path, region.offset, region.length)
    }

    /// Holds bytes that are already in memory.
    pub(super) fn in_memory(bytes: Vec<u8>) -> Self {
        Mapping(MappedBytes::Memory(bytes))
    }

    /// All of the bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            MappedBytes::File(map) => map,
            MappedBytes::Memory(bytes) => bytes,
        }
    }

    /// Asks the system to read these bytes from the disk, if they are not in memory, before they are needed.
    pub(super) fn prefetch(&self, range: Range<usize>) {
        let range = range.start.min(self.bytes().len())..range.end.min(self.bytes().len());
        #[cfg(unix)]
        if let MappedBytes::File(map) = &self.0
            && let Err(error) = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len())
        {
            tracing::debug!(%error, "the system does not read ahead");
        }
        #[cfg(not(unix))]
        drop(range);
    }

    /// Returns the memory of a part of [`Mapping::bytes`] to the system. Reading it again yields the same bytes, from
    /// the file. Does nothing if the bytes are not mapped.
    pub(super) fn release(&self, part: &[u8]) {
        if let MappedBytes::File(map) = &self.0 {
            let start = part.as_ptr().addr().checked_sub(map.as_ptr().addr()).unwrap_or(map.len());
            let end = (start + part.len()).min(map.len());
            // Reading a byte maps some pages around it, so the released range starts before the part; pages after it
            // are released along with the next part.
            release(map, start / READ_AROUND * READ_AROUND..end / READ_AROUND * READ_AROUND);
        }
    }
}

fn open(path: &Path) -> Result<(File, u64), GgufError> {
    let io_error = |source| GgufError::Io { path: path.to_path_buf(), source };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(GgufError::invalid(path.display().to_string(), "is not a regular file"));
    }
    let file = hone_files::open_regular(path).map_err(io_error)?;
    let length = file.metadata().map_err(io_error)?.len();
    Ok((file, length))
}

#[allow(unsafe_code, reason = "a memory mapping cannot be made without")]
fn map(file: &File, path: &Path, offset: u64, length: u64) -> Result<Mapping, GgufError> {
    if length == 0 {
        return Ok(Mapping::in_memory(Vec::new()));
    }
    let io_error = |source| GgufError::Io { path: path.to_path_buf(), source };
    let n_bytes = usize::try_from(length).map_err(|error| io_error(std::io::Error::other(error)))?;
    // SAFETY: the mapping is private and read-only, and nothing in this process writes into a model's file: files of
    // the store are published by renaming a complete file over the name. Another process can still change or truncate a
    // file that was named by its path while it is in use; this process may then compute nonsense or be killed by the
    // system, as with any program that maps files.
    let mapping = unsafe { MmapOptions::new().offset(offset).len(n_bytes).map(file) }.map_err(io_error)?;
    Ok(Mapping(MappedBytes::File(mapping)))
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "advice that could change bytes is unsafe in general")]
fn release(map: &Mmap, range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    // SAFETY: the pages belong to a read-only mapping of a file, so dropping them loses nothing: the next access reads
    // them again. The range lies within the mapping.
    let released = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    if let Err(error) = released {
        tracing::debug!(%error, "the system does not take memory back before the whole file is unmapped");
    }
}

#[cfg(not(unix))]
fn release(_map: &Mmap, _range: Range<usize>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_bytes_can_be_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..5 * READ_AROUND + 77).map(|index| (index % 251) as u8).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let region = ModelFile::new(file.path(), 77, (5 * READ_AROUND) as u64);
        let mapping = Mapping::region(&region).unwrap();
        assert!(mapping.bytes() == &bytes[77..]);
        for part in [0..mapping.bytes().len(), 1..1, 70_000..200_000, 3 * READ_AROUND..5 * READ_AROUND] {
            mapping.release(&mapping.bytes()[part.clone()]);
            assert!(mapping.bytes() == &bytes[77..], "{part:?}");
        }
        mapping.release(&bytes);
        assert!(mapping.bytes() == &bytes[77..]);
    }
}
