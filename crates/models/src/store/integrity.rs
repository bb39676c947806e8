//! Verifies that installed models are undamaged.

use std::{io, path::Path};

use hone_protocol::ModelFile;

use super::{Manifest, Store, StoreError, io_error};
use crate::{
    digest::copy_hashed,
    installed::{InstalledFile, InstalledModel, Place, open_region},
    name::name_of_folder,
};

impl Store {
    /// Verifies every byte of an installed or bundled model. If an older hone recorded no block hashes, the SHA-256 is
    /// verified and they are recorded for the next time.
    ///
    /// # Errors
    /// When it does not exist, or one of its files is damaged (the message names the file and what to do) or cannot be
    /// read.
    pub fn check(&self, name: &str) -> Result<(), StoreError> {
        let model = self.show(name)?;
        model.files.iter().try_for_each(|file| self.check_installed(&model, file))
    }

    /// Like [`Store::check`], for a single file and its parts; a file that is not part of a model has no hashes to
    /// verify.
    pub(super) fn check_file(&self, file: &ModelFile) -> Result<(), StoreError> {
        let Some(model) = self.model_of(file)? else { return Ok(()) };
        let is_part = |known: &&InstalledFile| file.parts().any(|part| part.is_same_part(&known.location));
        model.files.iter().filter(is_part).try_for_each(|known| self.check_installed(&model, known))
    }

    /// The model that a file belongs to.
    fn model_of(&self, file: &ModelFile) -> Result<Option<InstalledModel>, StoreError> {
        let bundled = self.bundle.iter().flat_map(|bundle| &bundle.models);
        let mut bundled = bundled.filter(|model| model.files.iter().any(|known| known.location.is_same_part(file)));
        if let Some(model) = bundled.next() {
            return Ok(Some(model.clone()));
        }
        match self.name_of_path(&file.path) {
            Some(name) => self.stored(&name),
            None => Ok(None),
        }
    }

    fn name_of_path(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.folder).ok()?;
        name_of_folder(below.components().next()?.as_os_str().to_str()?)
    }

    fn check_installed(&self, model: &InstalledModel, file: &InstalledFile) -> Result<(), StoreError> {
        let failed = |error| io_error(&file.location.path, error);
        if !file.blocks.is_empty() {
            return match file.blocks.first_damage(&file.location).map_err(failed)? {
                Some((start, end)) => Err(damaged(model, file, &format!("bytes {start} to {end}"))),
                None => Ok(()),
            };
        }
        let Some(expected) = &file.sha256 else { return Ok(()) };
        let mut bytes = open_region(&file.location).map_err(failed)?;
        let digest = copy_hashed(&mut bytes, &mut io::sink(), &mut |_| ()).map_err(failed)?;
        if digest.sha256 != *expected {
            return Err(damaged(model, file, "its bytes"));
        }
        if model.place == Place::Store
            && let Err(reason) = self.record(model, file, digest.blocks)
        {
            tracing::debug!(reason, "the digests of a model cannot be recorded");
        }
        Ok(())
    }

    /// Adds block hashes to the manifest of a model that an older hone installed.
    fn record(
        &self,
        model: &InstalledModel,
        file: &InstalledFile,
        blocks: crate::blocks::Blocks,
    ) -> Result<(), String> {
        let folder = self.model_folder(&model.name);
        let mut manifest = Manifest::read(&folder)?;
        let entry = manifest
            .files
            .iter_mut()
            .find(|entry| entry.name == file.name && Some(&entry.sha256) == file.sha256.as_ref());
        entry.ok_or("it was replaced")?.blocks = blocks;
        manifest.write(&folder).map_err(|error| error.to_string())
    }
}

fn damaged(model: &InstalledModel, file: &InstalledFile, what: &str) -> StoreError {
    let name = &model.name;
    let next = match model.place {
        Place::Bundle => "download this program again, or recreate it with `hone bundle`".to_owned(),
        Place::Store | Place::Path => format!("run `hone pull {name}` to download it again"),
    };
    let path = file.location.path.display();
    StoreError::Damaged(format!("model `{name}` is damaged: {what} of {path} differ from what was installed: {next}"))
}
