//! Linking another program's model into the store.

use std::{fs, io, path::Path};

use hone_files::{create_private_folder, open_regular};

use super::{Found, Program};
use crate::{
    digest::{Digest, copy_hashed},
    name::{is_model_name, name_from_text, names_of_parts},
    progress::{Event, Phase, ProgressSink},
    pull::{PullError, Pulled, check_space_to_copy},
    store::{Manifest, ManifestFile, Store, StoreError, io_error},
};

impl Store {
    /// Makes another program's model available under `name`, or the name that it has there, without copying it where
    /// the system allows that. A model with a catalog name but different bytes gets another name.
    ///
    /// # Errors
    /// When the model cannot be used, the name is not valid or taken, or a file cannot be read, is damaged, or cannot be
    /// linked.
    pub fn adopt(&self, found: &Found, name: Option<&str>, progress: ProgressSink<'_>) -> Result<Pulled, PullError> {
        if let Some(obstacle) = &found.obstacle {
            return Err(PullError::Malformed(format!("{} cannot be used: {obstacle}", found.name)));
        }
        let source = format!("{} {}", found.program.name(), found.name);
        let digests = found.file.parts().map(|part| digest(&part.path, progress)).collect::<Result<Vec<_>, _>>()?;
        if let Some(expected) = found.sha256.as_ref().filter(|expected| **expected != digests[0].sha256) {
            let path = found.file.path.display();
            return Err(PullError::Malformed(format!(
                "{path} is damaged: its SHA-256 is {}, expected {expected}",
                digests[0].sha256
            )));
        }
        let name = self.free_name(found, name, &digests)?;
        if let Some(model) = self.find(&name)?.filter(|model| model.name == name) {
            if !model.files.iter().map(|file| file.sha256.as_deref()).eq(digests.iter().map(|one| Some(&*one.sha256))) {
                return Err(PullError::NameTaken { name, source_of_other: model.source });
            }
            return Ok(Pulled { model, was_there: true });
        }
        let _lock = self.lock(&name, &mut || Err(StoreError::Busy(name.clone())))?;
        let incoming = self.incoming_folder(&name);
        create_private_folder(&incoming).map_err(|error| io_error(&incoming, error))?;
        let names = names_of_parts(digests.len());
        let mut files = Vec::new();
        for ((part, file), digest) in found.file.parts().zip(&names).zip(digests) {
            let target = incoming.join(file);
            link(&part.path, &target)?;
            files.push(ManifestFile::new(file, digest, found.sha256.is_none()));
        }
        self.publish(&Manifest::of_now(&name, source, files))?;
        Ok(Pulled { model: self.show(&name)?, was_there: false })
    }

    /// The model's name: the given one, or its own with characters that hone does not allow replaced.
    fn free_name(&self, found: &Found, given: Option<&str>, digests: &[Digest]) -> Result<String, PullError> {
        if let Some(name) = given {
            let is_known = self.catalog().find(name).is_some() && !self.is_catalogs(name, digests);
            let problem = match is_model_name(name) {
                false => format!("`{name}` is not a name for a model: write FAMILY or FAMILY:TAG in lower case"),
                true if is_known => format!("`{name}` is a model of the catalog with other bytes: choose another name"),
                true => return Ok(name.to_owned()),
            };
            return Err(PullError::Malformed(problem));
        }
        let name = name_from_text(&found.name, found.program == Program::Ollama).ok_or_else(|| {
            PullError::Malformed(format!("no name can be derived from `{}`: choose one with --name", found.name))
        })?;
        match self.catalog().find(&name).is_some() && !self.is_catalogs(&name, digests) {
            true => Ok(format!("{name}-ollama")),
            false => Ok(name),
        }
    }

    /// Whether these are the bytes that the catalog has under a name.
    fn is_catalogs(&self, name: &str, digests: &[Digest]) -> bool {
        let Some(known) = self.catalog().find(name) else { return false };
        let hashes = known.files.iter().map(|file| file.sha256.as_deref());
        hashes.eq(digests.iter().map(|digest| Some(digest.sha256.as_str())))
            || digests.len() == 1 && known.sources.iter().any(|source| source.sha256() == Some(&digests[0].sha256))
    }
}

fn digest(path: &Path, progress: ProgressSink<'_>) -> Result<Digest, PullError> {
    let failed = |error| io_error(path, error);
    let mut file = open_regular(path).map_err(failed)?;
    let (total, shown) = (file.metadata().ok().map(|found| found.len()), path.display().to_string());
    let mut report = |done| progress(&Event::Progress { phase: Phase::Verifying, file: shown.clone(), done, total });
    Ok(copy_hashed(&mut file, &mut io::sink(), &mut report).map_err(failed)?)
}

/// Makes `target` the same file as `original`: by a hard link, a symbolic link, or a copy, whichever works first.
fn link(original: &Path, target: &Path) -> Result<(), PullError> {
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(target, error).into()),
        _ => {}
    }
    // A symbolic link in a cache leads to the file itself.
    let original = original.canonicalize().map_err(|error| io_error(original, error))?;
    let Err(error) = fs::hard_link(&original, target) else { return Ok(()) };
    tracing::info!(path = %original.display(), %error, "a hard link is not possible");
    if symbolic_link(&original, target).is_ok() {
        return Ok(());
    }
    let size = fs::metadata(&original).map_err(|error| io_error(&original, error))?.len();
    check_space_to_copy(target.parent().unwrap_or(target), size)?;
    fs::copy(&original, target).map_err(|error| io_error(target, error))?;
    Ok(())
}

#[cfg(unix)]
fn symbolic_link(original: &Path, target: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(original, target)
}

#[cfg(windows)]
fn symbolic_link(original: &Path, target: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(original, target)
}
