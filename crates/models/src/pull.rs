//! Pulling a model: from the catalog's sources, from any file on the hub, or from a file on this machine.
//!
//! Files are collected in the model's folder under `.incoming`. Each is verified against its hash if the catalog or the
//! server provides one, and marked otherwise. Then a manifest is added, and one rename publishes the folder. A lock per
//! model makes a second process wait for the first and then find the model in place. An interrupted pull is resumed by
//! the next one.
//!
//! ## Use of hf-hub
//! `hf-hub` provides the addresses of files on the hub and the location of the user's token. Its download code is not
//! used: it resumes without checking whether the file has changed meanwhile, never verifies a hash, writes into its own
//! cache layout instead of ours, loses `Retry-After`, has no timeouts, and panics on a malformed redirect. So hone has
//! its own ([`client`] and [`download`]), over the same `ureq`.

mod cancellation;
mod choice;
mod client;
mod download;
mod fetch;
mod hub;
mod import;
mod index;
mod pip_settings;
mod plan;
mod post;
mod target;
mod transfer_error;
mod trust;
mod wheel;

use std::{fs, io, path::Path, time::Duration};

use hone_files::{create_private_folder, sync_folder};
use thiserror::Error;

pub(crate) use self::import::check_space_to_copy;
pub use self::{
    cancellation::Cancellation,
    download::RetryPolicy,
    index::{Link, index_links},
    pip_settings::IndexOptions,
    post::{Messenger, Posted},
};
use self::{
    fetch::fetch_from_sources,
    plan::{Origin, Plan},
    transfer_error::TransferError,
};
use crate::{
    installed::InstalledModel,
    progress::{Event, ProgressSink},
    reference::Reference,
    store::{Manifest, ManifestFile, Store, StoreError, io_error},
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
    /// The name for a model that is not in the catalog; if `None`, it is derived from the file name.
    pub name: Option<String>,
    /// The size of the largest file that fits this machine; without it, every file fits.
    pub room: Option<u64>,
    /// The package indices for wheels.
    pub index: IndexOptions,
    /// The retry policy.
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
        /// The failure of each source, in the order in which they were tried.
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
            room: None,
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
    /// Pulls the model that `reference` names, unless it is installed:
    ///
    /// - a name of the catalog, with `-QUANTIZATION` for one other than the catalog's (`qwen3:4b-q8_0`). If it does not
    ///   fit into [`PullOptions::room`], the largest quantization that does is pulled, under its own name;
    /// - `OWNER/REPO` on the hub, with `:QUANTIZATION` unless it is the usual one or the largest that fits;
    /// - `hf:OWNER/REPO/FILE` or `hf:OWNER/REPO@REVISION/FILE`, a file on the hub, or its address;
    /// - any other address of a GGUF file;
    /// - the path of a GGUF file, which is copied.
    ///
    /// The first part of a model in several files stands for all of them.
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
        let plan = self.plan(reference, options, progress)?;
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
        self.publish(&Manifest::of_now(&plan.name, source, files))?;
        Ok(Pulled { model: self.show(&plan.name)?, was_there: false })
    }

    /// Checks that a reference names a model of the catalog or a file on the hub, and no file on this machine.
    ///
    /// # Errors
    /// When it does not.
    pub fn check_remote(&self, reference: &str) -> Result<(), PullError> {
        if self.catalog().about(&reference.to_lowercase()).is_some() {
            return Ok(());
        }
        match Reference::parse(reference).map_err(PullError::Malformed)? {
            Some(Reference::File(_) | Reference::Repository(_)) if Reference::is_explicit(reference) => Ok(()),
            _ => Err(PullError::Unknown(format!(
                "`{reference}` is neither a model of the catalog (`hone list --all`) nor of the form hf:OWNER/REPO:QUANTIZATION or hf:OWNER/REPO/FILE.gguf"
            ))),
        }
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

/// Fails if the disk of `folder` does not have room for `needed` more bytes.
pub(crate) fn check_space(folder: &Path, needed: u64) -> Result<(), TransferError> {
    let available = fs4::available_space(folder).map_err(|error| TransferError::file(folder, error))?;
    if available < needed.saturating_add(SPARE_SPACE) {
        return Err(TransferError::NoSpace { folder: folder.to_owned(), needed, available });
    }
    Ok(())
}

/// Removes files of a failed source, which lie next to those of the successful one.
fn keep_only(folder: &Path, prefix: &str, files: &[ManifestFile]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let inside = format!("{name}/");
        // A link counts as a file.
        if !entry.file_type()?.is_dir() {
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

fn list(failures: &[SourceFailure]) -> String {
    failures.iter().map(|failure| format!("\n  {}: {}", failure.source, failure.reason)).collect()
}

/// The wait before the next attempt: it doubles from the first one up to the longest.
fn doubling(first: Duration, longest: Duration, failures: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(longest)
}
