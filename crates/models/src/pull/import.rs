//! Pulling from a path: the file is copied into the store, so that the model stays if the original is removed.
//!
//! A path can be used without pulling it; this stores it under a name. It is always a copy and never a hard link: a
//! program that later wrote to the original would write to the store.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
};

use super::{PullError, TransferError, check_space};
use crate::{
    catalog::SINGLE_FILE,
    digest::copy_hashed,
    progress::{Event, Phase, ProgressSink},
    store::{ManifestFile, io_error},
};
use hone_files::create_private_file;

/// Copies a GGUF file to `folder`; if `hashes` are given, its SHA-256 must be one of them.
pub(crate) fn copy_file(
    path: &Path,
    folder: &Path,
    hashes: Option<&[String]>,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, PullError> {
    let read_failed = |error| io_error(path, error);
    let mut original = File::open(path).map_err(read_failed)?;
    let total = original.metadata().map_err(read_failed)?.len();
    let mut magic = [0; 4];
    let is_gguf = original.read_exact(&mut magic).is_ok() && &magic == b"GGUF";
    if !is_gguf {
        let _ = std::fs::remove_dir(folder);
        return Err(PullError::Malformed(format!("{} is not a GGUF file", path.display())));
    }
    original.rewind().map_err(read_failed)?;
    check_space(folder, total).map_err(|error| match error {
        TransferError::File { path, source } => io_error(&path, source).into(),
        other => PullError::NoSpace(other.to_string()),
    })?;
    let target = folder.join(SINGLE_FILE);
    let copied = copy(&mut original, &target, &mut |done| {
        let file = path.display().to_string();
        progress(&Event::Progress { phase: Phase::Copying, file, done, total: Some(total) });
    });
    let digest = copied.map_err(|error| io_error(&target, error))?;
    if let Some(expected) = hashes.filter(|hashes| !hashes.contains(&digest.sha256)) {
        let _ = std::fs::remove_dir_all(folder);
        return Err(PullError::Malformed(format!(
            "{} is not the file that the catalog has under that name (its SHA-256 is {}, expected {}): choose another name with --name",
            path.display(),
            digest.sha256,
            expected.join(" or ")
        )));
    }
    Ok(vec![ManifestFile::new(SINGLE_FILE, digest, false)])
}

fn copy(original: &mut File, target: &Path, report: &mut dyn FnMut(u64)) -> io::Result<crate::digest::Digest> {
    let mut copy = create_private_file(target)?;
    let digest = copy_hashed(original, &mut copy, report)?;
    copy.sync_all()?;
    Ok(digest)
}
