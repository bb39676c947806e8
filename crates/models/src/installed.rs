//! What is known of a model that is here: its name, where it came from, and where each of its files lies.

use std::fs::File;
use std::io::{self, Read, Seek};

use hone_protocol::ModelFile;

use crate::blocks::Blocks;

/// A model that can be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledModel {
    /// Its name; for a path, one made from the file's name.
    pub name: String,
    /// Where it came from, as a person reads it.
    pub source: String,
    /// When it was added, in seconds since 1970-01-01 UTC; unknown for a path.
    pub added: Option<u64>,
    /// What holds it.
    pub place: Place,
    /// Its files; one for a GGUF.
    pub files: Vec<InstalledFile>,
}

/// What holds a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The store in the user's data folder.
    Store,
    /// The running executable.
    Bundle,
    /// A file that somebody named, used where it lies.
    Path,
}

/// One file of a model that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledFile {
    /// Its name within the model, with `/` between folders.
    pub name: String,
    /// Its SHA-256 in lower-case hexadecimal; not computed for a path.
    pub sha256: Option<String>,
    /// Whether it was fetched although nobody gave a hash to check it against; `sha256` is what arrived then.
    pub unchecked: bool,
    /// BLAKE3 of its blocks, where they were recorded.
    pub blocks: Blocks,
    /// Its bytes.
    pub location: ModelFile,
}

impl InstalledModel {
    /// The size of all its files together, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.location.length).sum()
    }
}

/// The bytes of a region of a file.
pub(crate) fn open_region(region: &ModelFile) -> io::Result<impl Read + use<>> {
    let mut file = File::open(&region.path)?;
    file.seek(io::SeekFrom::Start(region.offset))?;
    Ok(file.take(region.length))
}
