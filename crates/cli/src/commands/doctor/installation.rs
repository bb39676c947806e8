//! The installation: the store, the models in it, the configuration files.

use std::path::Path;

use hone_app::config::Places;
use hone_engine::{FileUse, TemplateError, check_file};
use hone_models::{Bundle, InstalledModel, Store, data_folder};
use hone_protocol::{LocateModel, ModelFile, with_causes};
use serde::Serialize;

/// The state of the installation.
#[derive(Debug, Default, Serialize)]
pub(super) struct Installation {
    pub(super) store_folder: String,
    /// Why the store cannot be used, if it cannot.
    pub(super) store_problem: Option<String>,
    pub(super) free_bytes: Option<u64>,
    pub(super) models: Vec<String>,
    pub(super) broken_models: Vec<String>,
    /// Problems of models whose bytes differ from those installed; empty if they were not read.
    pub(super) damaged_models: Vec<String>,
    pub(super) unfinished_models: Vec<String>,
    /// The size of the configured model, if it is installed.
    pub(super) model_size: Option<u64>,
    /// Why the configured model cannot be run, if it is installed but broken.
    pub(super) model_problem: Option<String>,
    /// The size of the configured model according to the catalog.
    pub(super) known_model_size: Option<u64>,
    pub(super) configuration_files: Vec<String>,
}

impl Installation {
    /// Collects the facts; `model` is the configured one, and `deep` reads all models. Anything that cannot be
    /// determined is reported as a problem of the store.
    pub(super) fn look(places: &Places, model: &str, deep: bool) -> Installation {
        let files = places.files().unwrap_or_default();
        let mut installation = Installation {
            configuration_files: files.iter().map(|path| path.display().to_string()).collect(),
            ..Installation::default()
        };
        if let Err(error) = installation.look_at_store(model, deep) {
            installation.store_problem = Some(format!("{error:#}"));
        }
        installation
    }

    fn look_at_store(&mut self, model: &str, deep: bool) -> anyhow::Result<()> {
        let home = std::path::absolute(data_folder()?)?;
        self.store_folder = home.display().to_string();
        let bundle = Bundle::open(&std::env::current_exe()?)?;
        let store = Store::open(&home)?.with_bundle(bundle);
        self.known_model_size = store.catalog().find(model).map(|known| known.size());
        self.model_size = store.show(model).ok().map(|installed| installed.size());
        self.model_problem = store.locate(model).ok().and_then(|file| problem(&file));
        let listing = store.list()?;
        let check = |model: &InstalledModel| store.check(&model.name).err().map(|error| with_causes(&error));
        self.damaged_models = listing.models.iter().filter(|_| deep).filter_map(check).collect();
        self.models = listing.models.into_iter().map(|model| model.name).collect();
        self.broken_models = listing.broken.into_iter().map(|broken| broken.reason).collect();
        self.unfinished_models = listing.unfinished;
        self.look_at_disk(&home)
    }

    fn look_at_disk(&mut self, home: &Path) -> anyhow::Result<()> {
        let Some(existing) = home.ancestors().find(|folder| folder.is_dir()) else {
            anyhow::bail!("there is no folder above {}", home.display());
        };
        self.free_bytes = fs4::available_space(existing).ok();
        // Trying is the only test that detects permissions, read-only mounts and quotas alike.
        tempfile::tempfile_in(existing)
            .map_err(|error| anyhow::anyhow!("nothing can be written to {}: {error}", existing.display()))?;
        Ok(())
    }
}

/// Why a model cannot be run, or cannot chat despite its chat template.
fn problem(file: &ModelFile) -> Option<String> {
    match check_file(file, &hone_app::workers::templates::host().ok()?) {
        Ok(FileUse::Continues(TemplateError::Missing)) => None,
        Ok(FileUse::Continues(error)) => Some(with_causes(&error)),
        Ok(FileUse::Chats | FileUse::Embeds | FileUse::Scores) => None,
        Err(error) => Some(with_causes(&error)),
    }
}
