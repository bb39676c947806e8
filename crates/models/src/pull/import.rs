//! Pulling from a path: the file is copied into the store, so that the model stays if the original is removed.
//!
//! A path can be used without pulling it; this stores it under a name. It is always a copy and never a hard link: a
//! program that later wrote to the original would write to the store.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::{PullError, TransferError, check_space};
use crate::{
    digest::copy_hashed,
    name::names_of_parts,
    progress::{Event, Phase, ProgressSink},
    store::{ManifestFile, io_error},
};
use hone_files::{create_private_file, open_regular};
use hone_protocol::ModelFile;

/// Copies a GGUF file, with all its parts, to `folder`; if `hashes` are given, its SHA-256 must be one of them.
pub(crate) fn copy_files(
    model: &ModelFile,
    folder: &Path,
    hashes: Option<&[String]>,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, PullError> {
    for part in model.parts() {
        if !is_gguf(&part.path).map_err(|error| io_error(&part.path, error))? {
            let _ = std::fs::remove_dir(folder);
            return Err(PullError::Malformed(format!("{} is not a GGUF file", part.path.display())));
        }
    }
    check_space_to_copy(folder, model.size())?;
    let names = names_of_parts(model.parts().count());
    model.parts().zip(names).map(|(part, name)| copy_file(part, &folder.join(&name), &name, hashes, progress)).collect()
}

/// Fails if the disk of `folder` does not have room for a copy of this size.
pub(crate) fn check_space_to_copy(folder: &Path, size: u64) -> Result<(), PullError> {
    check_space(folder, size).map_err(|error| match error {
        TransferError::File { path, source } => io_error(&path, source).into(),
        other => PullError::NoSpace(other.to_string()),
    })
}

fn is_gguf(path: &Path) -> io::Result<bool> {
    let mut magic = [0; 4];
    let mut file = open_regular(path)?;
    Ok(file.read_exact(&mut magic).is_ok() && &magic == b"GGUF")
}

fn copy_file(
    original: &ModelFile,
    target: &Path,
    name: &str,
    hashes: Option<&[String]>,
    progress: ProgressSink<'_>,
) -> Result<ManifestFile, PullError> {
    let path = &original.path;
    let mut bytes = open_regular(path).map_err(|error| io_error(path, error))?;
    let copied = copy(&mut bytes, target, &mut |done| {
        let (file, total) = (path.display().to_string(), Some(original.length));
        progress(&Event::Progress { phase: Phase::Copying, file, done, total });
    });
    let digest = copied.map_err(|error| io_error(target, error))?;
    if let Some(expected) = hashes.filter(|hashes| !hashes.contains(&digest.sha256)) {
        let _ = target.parent().map(std::fs::remove_dir_all);
        return Err(PullError::Malformed(format!(
            "{} is not the file that the catalog has under that name (its SHA-256 is {}, expected {}): choose another name with --name",
            path.display(),
            digest.sha256,
            expected.join(" or ")
        )));
    }
    Ok(ManifestFile::new(name, digest, false))
}

fn copy(original: &mut File, target: &Path, report: &mut dyn FnMut(u64)) -> io::Result<crate::digest::Digest> {
    let mut copy = create_private_file(target)?;
    let digest = copy_hashed(original, &mut copy, report)?;
    copy.sync_all()?;
    Ok(digest)
}
