//! The bytes of a model, mapped from its file. The one place of the engine that needs `unsafe`.

use std::fs::File;
use std::path::Path;

use hone_protocol::ModelFile;
use memmap2::{Mmap, MmapOptions};

use super::GgufError;

/// The bytes of one model.
#[derive(Debug)]
pub struct Mapping(Source);

#[derive(Debug)]
enum Source {
    File(Mmap),
    Memory(Vec<u8>),
}

impl Mapping {
    /// Maps all of a file.
    pub(super) fn whole_file(path: &Path) -> Result<Self, GgufError> {
        let (file, length) = open(path)?;
        map(&file, path, 0, length)
    }

    /// Maps a region of a file.
    pub(crate) fn region(region: &ModelFile) -> Result<Self, GgufError> {
        let (file, length) = open(&region.path)?;
        let end = region.offset.checked_add(region.length);
        if end.is_none_or(|end| end > length) {
            return Err(GgufError::invalid(
                region.path.display().to_string(),
                format!("has {length} bytes, and the model should lie at {} +{}", region.offset, region.length),
            ));
        }
        map(&file, &region.path, region.offset, region.length)
    }

    /// Holds bytes that lie in memory.
    pub(super) fn in_memory(bytes: Vec<u8>) -> Self {
        Mapping(Source::Memory(bytes))
    }

    /// All of the bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Source::File(map) => map,
            Source::Memory(bytes) => bytes,
        }
    }
}

fn open(path: &Path) -> Result<(File, u64), GgufError> {
    let io_error = |source| GgufError::Io { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(io_error)?;
    let metadata = file.metadata().map_err(io_error)?;
    if !metadata.is_file() {
        return Err(GgufError::invalid(path.display().to_string(), "is not a regular file"));
    }
    Ok((file, metadata.len()))
}

#[allow(unsafe_code, reason = "a memory mapping cannot be made without")]
fn map(file: &File, path: &Path, offset: u64, length: u64) -> Result<Mapping, GgufError> {
    if length == 0 {
        return Ok(Mapping::in_memory(Vec::new()));
    }
    let io_error = |source| GgufError::Io { path: path.to_path_buf(), source };
    let n_bytes = usize::try_from(length).map_err(|error| io_error(std::io::Error::other(error)))?;
    // SAFETY: the mapping is private and read-only, and nothing in this process writes into a model's file: those of
    // the store are published by renaming a complete file over the name. What cannot be ruled out is that somebody
    // changes or cuts a file that was named by its path while it is in use; the process may then compute nonsense or be
    // ended by the system, as with any program that maps files.
    let mapping = unsafe { MmapOptions::new().offset(offset).len(n_bytes).map(file) }.map_err(io_error)?;
    Ok(Mapping(Source::File(mapping)))
}
