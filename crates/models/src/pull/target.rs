//! The files to fetch, and their destination.

use std::{io, path::Path};

use hone_files::open_regular;

use super::transfer_error::TransferError;
use crate::{
    catalog::CatalogFile,
    digest::copy_hashed,
    progress::{Event, Phase, ProgressSink},
    store::ManifestFile,
};

/// The destination of a model's files, and the requirements for each.
pub(crate) struct Target<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) files: &'a [CatalogFile],
    pub(crate) paths: &'a [String],
    /// Replaces the hash of the only file if the source publishes different bytes.
    pub(crate) sha256: Option<&'a str>,
}

impl Target<'_> {
    /// Each file with its path at the source and its required hash.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&CatalogFile, &str, Option<&str>)> {
        self.files
            .iter()
            .zip(self.paths)
            .map(|(file, path)| (file, path.as_str(), self.sha256.or(file.sha256.as_deref())))
    }
}

/// A file that an earlier run completed before it was interrupted, if its hash is known and matches.
pub(crate) fn already_fetched(
    folder: &Path,
    file: &CatalogFile,
    expected: Option<&str>,
    progress: ProgressSink<'_>,
) -> Result<Option<ManifestFile>, TransferError> {
    let path = folder.join(&file.name);
    let (Some(expected), true) = (expected, path.is_file()) else { return Ok(None) };
    let failed = |error| TransferError::file(&path, error);
    let mut report = |done| {
        progress(&Event::Progress { phase: Phase::Verifying, file: file.name.clone(), done, total: Some(file.size) });
    };
    let mut bytes = open_regular(&path).map_err(failed)?;
    let digest = copy_hashed(&mut bytes, &mut io::sink(), &mut report).map_err(failed)?;
    if digest.sha256 != expected {
        return Ok(None);
    }
    Ok(Some(ManifestFile::new(&file.name, digest, false)))
}
