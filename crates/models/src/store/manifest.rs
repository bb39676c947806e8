//! `manifest.json`: the store's record of a model in its folder.
//!
//! It is the last file written before the folder is renamed to its final name. So a folder without a readable manifest
//! was not made by this crate or has been damaged since; it is reported and left alone.

use std::{
    io::{self, Write},
    path::Path,
    time::SystemTime,
};

use hone_files::read_regular;
use hone_protocol::ModelFile;
use serde::{Deserialize, Serialize};

use crate::{
    blocks::Blocks,
    digest::{Digest, is_sha256},
    installed::InstalledFile,
    name::{is_model_name, is_safe_file_name},
};

/// The file's name.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The record of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Its name.
    pub(crate) name: String,
    /// Its source, as users see it.
    pub(crate) source: String,
    /// The time it was added, in seconds since 1970-01-01 UTC.
    pub(crate) added: u64,
    /// Its files.
    pub(crate) files: Vec<ManifestFile>,
}

/// The record of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManifestFile {
    /// Its name within the folder, with `/` between folders.
    pub(crate) name: String,
    /// Its SHA-256 in lower-case hexadecimal.
    pub(crate) sha256: String,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Whether it was downloaded without a hash to verify it against.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unchecked: bool,
    /// BLAKE3 hashes of its blocks; older versions of hone recorded none.
    #[serde(default, skip_serializing_if = "Blocks::is_empty")]
    pub(crate) blocks: Blocks,
}

/// The largest manifest that is read, in bytes: one with the hashes of a large model's blocks.
const LARGEST: u64 = 256 << 20;

impl Manifest {
    /// The manifest of a model that is added now.
    pub(crate) fn of_now(name: &str, source: String, files: Vec<ManifestFile>) -> Self {
        let added = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { name: name.to_owned(), source, added, files }
    }

    /// Reads the manifest in `folder`; the error is a reason that completes a sentence about the folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let text = read_regular(&folder.join(MANIFEST), LARGEST)
            .map_err(|error| format!("the manifest cannot be read ({error})"))?;
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| format!("the manifest is malformed ({error})"))?;
        let well_formed = |file: &ManifestFile| is_safe_file_name(&file.name) && is_sha256(&file.sha256);
        if !is_model_name(&manifest.name) || manifest.files.is_empty() || !manifest.files.iter().all(well_formed) {
            return Err("the manifest is malformed (a name or a hash is not valid)".to_owned());
        }
        Ok(manifest)
    }

    /// Writes the manifest to `folder` durably; an existing one stays until the new one is complete.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".manifest-").tempfile_in(folder)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(folder.join(MANIFEST))?;
        Ok(())
    }
}

impl ManifestFile {
    /// A downloaded file of that name.
    pub(crate) fn new(name: &str, digest: Digest, unchecked: bool) -> Self {
        Self { name: name.to_owned(), sha256: digest.sha256, size: digest.size, unchecked, blocks: digest.blocks }
    }

    /// The path of the file in `folder`, after checking that it exists with its full size.
    pub(crate) fn locate(&self, folder: &Path) -> Result<InstalledFile, String> {
        let path = folder.join(&self.name);
        let found = path.metadata().map_err(|error| format!("the file `{}` cannot be read ({error})", self.name))?;
        if !found.is_file() || found.len() != self.size {
            return Err(format!("the file `{}` has {} bytes of {}", self.name, found.len(), self.size));
        }
        let location = ModelFile::new(path, 0, self.size);
        let (name, sha256) = (self.name.clone(), Some(self.sha256.clone()));
        let (unchecked, blocks) = (self.unchecked, self.blocks.clone());
        Ok(InstalledFile { name, sha256, unchecked, blocks, location })
    }
}
