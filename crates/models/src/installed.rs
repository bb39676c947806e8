//! Available models: a model's name, its source, and the location of each of its files.

use std::io::{self, Read, Seek};

use hone_files::open_regular;
use hone_protocol::{ModelFile, PartName};

use crate::blocks::Blocks;

/// A model that is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledModel {
    /// Its name; for a path, derived from the file name.
    pub name: String,
    /// Its source, as users see it.
    pub source: String,
    /// The time it was added, in seconds since 1970-01-01 UTC; `None` for a path.
    pub added: Option<u64>,
    /// Where it is stored.
    pub place: Place,
    /// Its files; one for a GGUF, unless it is split into parts.
    pub files: Vec<InstalledFile>,
}

/// Where a model is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The store in the user's data folder.
    Store,
    /// The running executable.
    Bundle,
    /// A file given by its path, used in place.
    Path,
}

/// One file of an available model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledFile {
    /// Its name within the model, with `/` between folders.
    pub name: String,
    /// Its SHA-256 in lower-case hexadecimal; not computed for a path.
    pub sha256: Option<String>,
    /// Whether it was downloaded without a hash to verify it against; `sha256` is then that of the downloaded bytes.
    pub unchecked: bool,
    /// BLAKE3 hashes of its blocks, if they were recorded.
    pub blocks: Blocks,
    /// The location of its bytes.
    pub location: ModelFile,
}

impl InstalledModel {
    /// The size of all its files together, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.location.length).sum()
    }

    /// The location of its GGUF: its only file, or all files if they are parts of one. `None` for another kind of
    /// model.
    #[must_use]
    pub fn gguf(&self) -> Option<ModelFile> {
        if let [file] = self.files.as_slice() {
            return Some(file.location.clone());
        }
        let names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        let mut parts = self.files.iter().map(|file| file.location.clone());
        let first = parts.next().filter(|_| are_parts(&names))?;
        Some(ModelFile { rest: parts.collect(), ..first })
    }
}

/// Whether these are the names of all parts of one model, in order.
pub(crate) fn are_parts(names: &[&str]) -> bool {
    let first = names.first().and_then(|name| PartName::parse(name));
    first.is_some_and(|first| {
        first.count as usize == names.len() && first.all().zip(names).all(|(part, name)| part.to_string() == *name)
    })
}

/// The bytes of a region of a file.
pub(crate) fn open_region(region: &ModelFile) -> io::Result<impl Read + use<>> {
    let mut file = open_regular(&region.path)?;
    file.seek(io::SeekFrom::Start(region.offset))?;
    Ok(file.take(region.length))
}
