//! Copies of a model under other names.
//!
//! A copy is a model like any other, with a folder and a manifest of its own, whose files are further links to the same
//! bytes. So it takes no space, and either can be removed without the other. The store never writes in place, which
//! would change both.

use std::fs;

use hone_files::create_private_folder;

use super::{Manifest, ManifestFile, Store, StoreError, io_error};
use crate::{
    installed::{InstalledFile, InstalledModel, Place},
    name::is_model_name,
};

impl Store {
    /// Makes a pulled model available under a second name. An existing model of that name is replaced.
    ///
    /// # Errors
    /// When the source is not a pulled model, the name is not valid or belongs to another model of the catalog, another
    /// process is pulling a model of that name, or the file system does not support links.
    pub fn copy(&self, source: &str, name: &str) -> Result<(), StoreError> {
        let missing = || StoreError::NotInstalled(format!("no model `{source}` is installed: see `hone list`"));
        let model = self.find(source)?.ok_or_else(missing)?;
        self.check_copy(&model, name)?;
        if source == name {
            return Ok(());
        }
        let _lock = self.lock(name, &mut || Err(StoreError::Busy(name.to_owned())))?;
        self.sweep();
        for file in &model.files {
            self.link(file, name)?;
        }
        let files = model.files.into_iter().map(ManifestFile::from).collect();
        self.publish(&Manifest::of_now(name, model.source, files))
    }

    fn check_copy(&self, model: &InstalledModel, name: &str) -> Result<(), StoreError> {
        let refused = |reason: String| Err(StoreError::NotCopied(reason));
        if !is_model_name(name) {
            return refused(format!(
                "`{name}` is not a name for a model: it must be FAMILY or FAMILY:TAG in lower-case letters, digits and `._-`"
            ));
        }
        if name != model.name && (self.bundled(name).is_some() || self.catalog().find(name).is_some()) {
            return refused(format!("`{name}` is the name of another model: choose one that is not in the catalog"));
        }
        match model.place {
            Place::Store => Ok(()),
            _ => refused(format!("model `{}` is inside this executable and has no file of its own", model.name)),
        }
    }

    /// Links a file of a model to its place in the copy that is being made.
    fn link(&self, file: &InstalledFile, name: &str) -> Result<(), StoreError> {
        let link = self.incoming_folder(name).join(&file.name);
        let failed = |error| io_error(&link, error);
        create_private_folder(link.parent().unwrap_or(&link)).map_err(failed)?;
        if link.exists() {
            // An unfinished pull or copy left it.
            fs::remove_file(&link).map_err(failed)?;
        }
        fs::hard_link(&file.location.path, &link).map_err(failed)
    }
}

impl From<InstalledFile> for ManifestFile {
    fn from(file: InstalledFile) -> ManifestFile {
        let InstalledFile { name, sha256, unchecked, blocks, location } = file;
        ManifestFile { name, sha256: sha256.unwrap_or_default(), size: location.length, unchecked, blocks }
    }
}
