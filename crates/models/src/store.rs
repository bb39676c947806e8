//! The models on this machine, and the location of their bytes.
//!
//! A model is a folder under `models/` in the data folder with its files and a `manifest.json`. A folder appears in one
//! rename when it is complete and disappears in one rename when it is removed, so there is no intermediate state to
//! repair. Names that start with a dot are internal: `.incoming` (downloads in progress), `.locks`, and folders that
//! are being removed. If the process that removes one is killed, the next process that lists, pulls or removes models
//! deletes it.
//!
//! A name is looked up first among the models inside the running executable (so a bundle answers the same on every
//! machine), then in the store, and then in the file system, where the file at that path is used in place.

mod copying;
mod integrity;
mod manifest;

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use hone_files::{create_private_folder, open_private};
use hone_protocol::{LocateError, LocateModel, ModelFile, PartError, with_causes};
use tempfile::TempDir;
use thiserror::Error;

pub(crate) use self::manifest::{MANIFEST, Manifest, ManifestFile};
use crate::{
    blocks::Blocks,
    bundle::Bundle,
    catalog::{Catalog, CatalogError},
    installed::{InstalledFile, InstalledModel, Place},
    name::{
        folder_of_name, is_model_name, looks_like_path, name_from_file, name_of_folder, names_of_parts, suggestion,
    },
    quantization,
    reference::Reference,
};

/// The prefix of folders that are being removed; also the name of the file that is locked meanwhile.
const REMOVED: &str = ".removed-";

/// The models on this machine.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    catalog: Catalog,
    bundle: Option<Bundle>,
}

/// The contents of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The available models, bundled ones first, then by name.
    pub models: Vec<InstalledModel>,
    /// Folders in the store without a usable model; they are left as they are.
    pub broken: Vec<BrokenModel>,
    /// Names of models whose download can be resumed.
    pub unfinished: Vec<String>,
}

/// A folder in the store without a usable model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenModel {
    /// The folder.
    pub folder: PathBuf,
    /// The reason, and what to do.
    pub reason: String,
}

/// Why an operation on the store failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is no model of that name; the text says how to get it.
    #[error("{0}")]
    NotInstalled(String),
    /// The model's folder exists but is unusable; the text names the file.
    #[error("{0}")]
    Broken(String),
    /// The model is part of the executable.
    #[error("model `{0}` is inside this executable and cannot be removed from it")]
    Bundled(String),
    /// The model is damaged; the text names the file and what to do.
    #[error("{0}")]
    Damaged(String),
    /// Another process is pulling the model.
    #[error("model `{0}` is being pulled by another process: wait for it or stop it first")]
    Busy(String),
    /// The model cannot be copied, or not under that name; the text says why.
    #[error("{0}")]
    NotCopied(String),
    /// A path leads to a later part of a model, or not all parts are there.
    #[error(transparent)]
    Parts(#[from] PartError),
    /// The compiled-in catalog is not valid.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A file could not be read or written.
    #[error("{path} cannot be read or written")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Store {
    /// The store in the data folder `home` (see [`crate::data_folder`]), with the built-in catalog.
    ///
    /// This changes nothing on disk: the folder is created when the first model is pulled.
    ///
    /// # Errors
    /// When the built-in catalog is not valid.
    pub fn open(home: &Path) -> Result<Self, StoreError> {
        Ok(Self { folder: home.join("models"), catalog: Catalog::built_in()?, bundle: None })
    }

    /// Gives the models of `bundle` precedence over the stored ones.
    #[must_use]
    pub fn with_bundle(self, bundle: Option<Bundle>) -> Self {
        Self { bundle, ..self }
    }

    /// Replaces the catalog.
    #[must_use]
    pub fn with_catalog(self, catalog: Catalog) -> Self {
        Self { catalog, ..self }
    }

    /// The catalog.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The folder that holds the models; it need not exist yet.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lists everything in the store. Broken folders are part of the list, not errors.
    ///
    /// # Errors
    /// When the store's folder cannot be read.
    pub fn list(&self) -> Result<Listing, StoreError> {
        self.sweep();
        let mut listing = Listing::default();
        listing.models.extend(self.bundle.iter().flat_map(|bundle| bundle.models.iter().cloned()));
        for folder in folders(&self.folder)? {
            let Some(name) = name_of_folder(&folder) else { continue };
            if self.bundled(&name).is_some() {
                continue;
            }
            match self.stored(&name) {
                Ok(Some(model)) => listing.models.push(model),
                Ok(None) => {}
                Err(error) => {
                    let broken = BrokenModel { folder: self.folder.join(&folder), reason: with_causes(&error) };
                    tracing::warn!(folder = %broken.folder.display(), reason = broken.reason, "skipping a broken model");
                    listing.broken.push(broken);
                }
            }
        }
        let begun = folders(&self.incoming())?.into_iter().filter_map(|folder| name_of_folder(&folder));
        listing.unfinished = begun.filter(|name| self.is_unfinished(name)).collect();
        Ok(listing)
    }

    /// Whether a model of this name is bundled or pulled, judging by its folder alone. A path is not a name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let name = &self.installed_name(name);
        self.bundled(name).is_some() || is_model_name(name) && self.model_folder(name).join(MANIFEST).is_file()
    }

    /// The bundled or pulled model of this name, whatever file there may be at a path of that name.
    ///
    /// # Errors
    /// When its folder is broken (the message names the file).
    pub fn find(&self, name: &str) -> Result<Option<InstalledModel>, StoreError> {
        let name = &self.installed_name(name);
        match self.bundled(name) {
            Some(model) => Ok(Some(model.clone())),
            None => self.stored(name),
        }
    }

    /// The model for `name`: a bundled one, a pulled one, or the file at that path.
    ///
    /// # Errors
    /// When it does not exist (the message says how to get it), or its folder is broken (the message names the file).
    pub fn show(&self, name: &str) -> Result<InstalledModel, StoreError> {
        if let Some(model) = self.find(name)? {
            return Ok(model);
        }
        let path = Path::new(name);
        if path.is_file() {
            return model_at_path(path);
        }
        Err(StoreError::NotInstalled(self.how_to_get(name)))
    }

    /// Removes a pulled model, or the rest of a broken or unfinished one, and returns the number of bytes freed.
    ///
    /// # Errors
    /// When there is no such model, it is bundled, or another process is pulling it.
    pub fn remove(&self, name: &str) -> Result<u64, StoreError> {
        // A model to remove must be named; its source is not enough.
        let name = name.to_lowercase();
        let name = name.as_str();
        if self.bundled(name).is_some() {
            return Err(StoreError::Bundled(name.to_owned()));
        }
        let places = [self.model_folder(name), self.incoming_folder(name)];
        if !is_model_name(name) || !places.iter().any(|place| place.exists()) {
            let other = Some(self.installed_name(name))
                .filter(|other| is_model_name(other) && *other != name && self.model_folder(other).exists());
            let hint = other.map_or("see `hone list`".to_owned(), |other| format!("did you mean `{other}`?"));
            return Err(StoreError::NotInstalled(format!("no model `{name}` is installed: {hint}")));
        }
        let _lock = self.lock(name, &mut || Err(StoreError::Busy(name.to_owned())))?;
        self.sweep();
        let removal = self.begin_removal()?;
        for (place, target) in places.iter().zip(["model", "incoming"]) {
            if place.exists() {
                fs::rename(place, removal.path().join(target)).map_err(|error| io_error(place, error))?;
            }
        }
        let failed = |error| io_error(&self.folder, error);
        let freed = bytes_only_in(removal.path()).map_err(failed)?;
        removal.folder.close().map_err(failed)?;
        Ok(freed)
    }

    /// A new folder for files that are being removed; dropping it deletes them.
    pub(crate) fn begin_removal(&self) -> Result<Removal, StoreError> {
        let failed = |error| io_error(&self.folder, error);
        let file = self.lock_file(REMOVED)?;
        file.lock_shared().map_err(failed)?;
        let folder = tempfile::Builder::new().prefix(REMOVED).tempdir_in(&self.folder).map_err(failed)?;
        Ok(Removal { folder, _lock: ModelLock(file) })
    }

    /// Deletes the leftovers of killed removals. If that fails, or another process is removing something, the next
    /// process does it.
    pub(crate) fn sweep(&self) {
        let left = folders(&self.folder).unwrap_or_default();
        let left: Vec<String> = left.into_iter().filter(|name| name.starts_with(REMOVED)).collect();
        let lock = if left.is_empty() { None } else { self.lock_file(REMOVED).ok() };
        let Some(_lock) = lock.filter(|lock| lock.try_lock().is_ok()).map(ModelLock) else { return };
        for name in left {
            match fs::remove_dir_all(self.folder.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(name, %error, "a removed model still takes space");
                }
                _ => {}
            }
        }
    }

    /// The pulled model with this name, if its folder exists.
    pub(crate) fn stored(&self, name: &str) -> Result<Option<InstalledModel>, StoreError> {
        let folder = self.model_folder(name);
        if !is_model_name(name) || !folder.is_dir() {
            return Ok(None);
        }
        let broken = |reason: String| {
            let path = folder.join(MANIFEST);
            StoreError::Broken(format!("{}: {reason}: run `hone rm {name}` and `hone pull {name}`", path.display()))
        };
        let manifest = Manifest::read(&folder).map_err(broken)?;
        if manifest.name != name {
            return Err(broken(format!("it is the manifest of `{}`", manifest.name)));
        }
        let files = manifest.files.iter().map(|file| file.locate(&folder)).collect::<Result<_, _>>().map_err(broken)?;
        let (source, added) = (manifest.source, Some(manifest.added));
        Ok(Some(InstalledModel { name: name.to_owned(), source, added, place: Place::Store, files }))
    }

    /// The bundled model with this name.
    pub(crate) fn bundled(&self, name: &str) -> Option<&InstalledModel> {
        self.bundle.as_ref().and_then(|bundle| bundle.find(name))
    }

    /// The folder of a model, whether it exists or not.
    pub(crate) fn model_folder(&self, name: &str) -> PathBuf {
        self.folder.join(folder_of_name(name))
    }

    /// The folder in which a model's files are collected until it is complete.
    pub(crate) fn incoming_folder(&self, name: &str) -> PathBuf {
        self.incoming().join(folder_of_name(name))
    }

    /// Takes the lock that allows only this process to change the model; calls `on_busy` first if another process holds
    /// it.
    pub(crate) fn lock(
        &self,
        name: &str,
        on_busy: &mut dyn FnMut() -> Result<(), StoreError>,
    ) -> Result<ModelLock, StoreError> {
        let file = self.lock_file(&folder_of_name(name))?;
        let failed = |error| io_error(&self.folder, error);
        match file.try_lock() {
            Ok(()) => return Ok(ModelLock(file)),
            Err(TryLockError::WouldBlock) => on_busy()?,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.lock().map_err(failed)?;
        Ok(ModelLock(file))
    }

    /// The lock file with this name.
    fn lock_file(&self, name: &str) -> Result<File, StoreError> {
        let folder = self.folder.join(".locks");
        create_private_folder(&folder).map_err(|error| io_error(&folder, error))?;
        let path = folder.join(name);
        let options = &mut File::options();
        open_private(&path, options.read(true).create(true).append(true)).map_err(|error| io_error(&path, error))
    }

    /// The error for a name that is neither known nor installed, with the name that the user probably meant.
    pub(crate) fn unknown(&self, name: &str) -> String {
        let other = kind_of(Path::new(name)).map(|kind| format!("`{name}` is {kind} and not a GGUF file"));
        if looks_like_path(name) {
            return other.unwrap_or_else(|| format!("there is no file `{name}`"));
        }
        let installed = self.list().unwrap_or_default().models;
        let known = self.catalog.models.iter().map(|model| model.name.as_str());
        match suggestion(name, known.chain(installed.iter().map(|model| model.name.as_str()))) {
            Some(near) => format!("there is no model `{name}`: did you mean `{near}`?"),
            None => other.unwrap_or_else(|| format!("there is no model `{name}`: `hone list --all` shows the catalog")),
        }
    }

    fn how_to_get(&self, name: &str) -> String {
        if is_model_name(name) && self.is_unfinished(name) {
            return format!("model `{name}` is only partly downloaded: run `hone pull {name}` to resume");
        }
        let is_known = self.catalog.about(&name.to_lowercase()).is_some();
        let is_reference = !Path::new(name).exists() && matches!(Reference::parse(name), Ok(Some(_)));
        match is_reference {
            _ if is_known => format!("model `{name}` is not installed: run `hone pull {name}`"),
            true if Reference::is_explicit(name) => format!("model `{name}` is not installed: run `hone pull {name}`"),
            true => format!(
                "there is no file `{name}`, and no model from a repository of that name: `hone pull {name}` looks for it on the hub"
            ),
            false => self.unknown(name),
        }
    }

    /// The installed model that `name` means: a name in any case, a catalog name of which another quantization is
    /// installed (`qwen3:4b` for `qwen3:4b-q8_0`), a family's name without a tag or with `latest` if one model of the
    /// family is installed, or the reference by which it was pulled. Otherwise the name in lower case, or the text
    /// unchanged.
    #[must_use]
    pub fn installed_name(&self, name: &str) -> String {
        let lower = name.to_lowercase();
        if is_model_name(&lower) {
            let is_here = |name: &str| self.bundled(name).is_some() || self.model_folder(name).exists();
            let other = if is_here(&lower) { None } else { self.other_quantization(&lower) };
            let spelled_out = || self.catalog.in_own_quantization(&lower).filter(|name| is_here(name));
            let other = other.or_else(|| spelled_out().map(str::to_owned));
            let is_known = is_here(&lower) || self.catalog.find(&lower).is_some();
            let of_family = || if is_known { None } else { self.only_one_of_family(&lower) };
            return other.or_else(of_family).unwrap_or(lower);
        }
        let came_from = |reference: Reference| {
            let names = folders(&self.folder).ok()?.into_iter().filter_map(|folder| name_of_folder(&folder));
            let models = names.filter_map(|name| self.stored(&name).ok()?);
            models.into_iter().find(|model| reference.is_origin_of(&model.source)).map(|model| model.name)
        };
        let reference = if Path::new(name).exists() { None } else { Reference::parse(name).ok().flatten() };
        reference.and_then(came_from).unwrap_or_else(|| name.to_owned())
    }

    /// The only installed model of a family that is named without a tag, or with the tag that stands for its usual one.
    fn only_one_of_family(&self, name: &str) -> Option<String> {
        let family = name.strip_suffix(":latest").unwrap_or(name);
        let bundled = self.bundle.iter().flat_map(|bundle| bundle.models.iter().map(|model| model.name.clone()));
        let stored = folders(&self.folder).ok()?.into_iter().filter_map(|folder| name_of_folder(&folder));
        let is_of_family = |other: &String| other.split(':').next() == Some(family);
        let found: BTreeSet<String> = bundled.chain(stored).filter(is_of_family).collect();
        let mut found = found.into_iter();
        found.next().filter(|_| found.next().is_none())
    }

    /// The first installed quantization of a model of the catalog.
    fn other_quantization(&self, name: &str) -> Option<String> {
        self.catalog.find(name)?;
        let names = folders(&self.folder).ok()?.into_iter().filter_map(|folder| name_of_folder(&folder));
        names.into_iter().find(|other| quantization::of_model(other).is_some_and(|(base, _)| base == name))
    }

    /// Whether the model has downloaded bytes that are not published yet.
    fn is_unfinished(&self, name: &str) -> bool {
        size_of_folder(&self.incoming_folder(name)).is_ok_and(|size| size > 0)
    }

    fn incoming(&self) -> PathBuf {
        self.folder.join(".incoming")
    }
}

impl LocateModel for Store {
    fn locate(&self, name: &str) -> Result<ModelFile, LocateError> {
        let model = self.show(name).map_err(|error| LocateError(with_causes(&error)))?;
        model.gguf().ok_or_else(|| {
            LocateError(format!("model `{name}` is {} files, not one GGUF, and cannot be run", model.files.len()))
        })
    }

    fn verify(&self, file: &ModelFile) -> Result<(), LocateError> {
        self.check_file(file).map_err(|error| LocateError(with_causes(&error)))
    }
}

/// A folder of files that are being removed. While it is held, other processes do not sweep it.
pub(crate) struct Removal {
    folder: TempDir,
    _lock: ModelLock,
}

impl Removal {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Held by the one process that may change a model.
pub(crate) struct ModelLock(File);

impl Drop for ModelLock {
    fn drop(&mut self) {
        // Closing the file would not be enough: a child process that is just starting may still have it open.
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "a lock could not be released");
        }
    }
}

pub(crate) fn io_error(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), source }
}

fn model_at_path(path: &Path) -> Result<InstalledModel, StoreError> {
    let model = located_at_path(path)?;
    let name = name_from_file(path).unwrap_or_else(|| "model".to_owned());
    let source = model.path.display().to_string();
    let names = names_of_parts(model.parts().count());
    let file = |(name, part): (String, &ModelFile)| {
        let (blocks, location) = (Blocks::default(), ModelFile::new(&part.path, part.offset, part.length));
        InstalledFile { name, sha256: None, unchecked: false, blocks, location }
    };
    let files = names.into_iter().zip(model.parts()).map(file).collect();
    Ok(InstalledModel { name, source, added: None, place: Place::Path, files })
}

/// The model at a path, with its other parts, by their absolute paths. A part that is a symbolic link keeps its name,
/// by which it is recognised; any other file gets the name of its link's target.
pub(crate) fn located_at_path(path: &Path) -> Result<ModelFile, StoreError> {
    let located = ModelFile::at_path(path)?;
    let is_whole = located.rest.is_empty();
    let absolute = |part: &ModelFile| {
        let path = if is_whole { part.path.canonicalize() } else { std::path::absolute(&part.path) };
        let path = path.map_err(|error| io_error(&part.path, error))?;
        Ok(ModelFile::new(path, part.offset, part.length))
    };
    let first = absolute(&located)?;
    let rest = located.rest.iter().map(absolute).collect::<Result<_, StoreError>>()?;
    Ok(ModelFile { rest, ..first })
}

/// The kind of a path that exists and is not a regular file.
fn kind_of(path: &Path) -> Option<&'static str> {
    let kind = path.metadata().ok()?.file_type();
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }
    Some(if kind.is_dir() { "a directory" } else { "a device" })
}

/// The names of the folders in `folder`, sorted; empty if it does not exist.
fn folders(folder: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(folder, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| io_error(folder, error))?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        names.extend(entry.file_name().into_string().ok().filter(|_| is_folder));
    }
    names.sort();
    Ok(names)
}

/// The bytes of a folder's files.
fn size_of_folder(folder: &Path) -> io::Result<u64> {
    sum_of_files(folder, &fs::Metadata::len)
}

/// The bytes that are freed when a folder is removed; bytes shared with copies of a model stay.
fn bytes_only_in(folder: &Path) -> io::Result<u64> {
    sum_of_files(folder, &|file| if is_linked_elsewhere(file) { 0 } else { file.len() })
}

fn sum_of_files(folder: &Path, bytes: &dyn Fn(&fs::Metadata) -> u64) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { sum_of_files(&entry.path(), bytes)? } else { bytes(&metadata) };
    }
    Ok(sum)
}

#[cfg(unix)]
fn is_linked_elsewhere(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(metadata) > 1
}

/// Rust does not report the number of links there.
#[cfg(not(unix))]
fn is_linked_elsewhere(_: &fs::Metadata) -> bool {
    false
}
