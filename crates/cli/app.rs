//! What a command works with: the configuration in force, the streams, the models, and the engine where it needs one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hone_engine::engine::EngineHandle;
use hone_engine::model::{Model, ModelOptions};
use hone_models::{Bundle, CatalogModel, InstalledModel, PullOptions, Pulled, Role, Store, data_folder};
use hone_protocol::{Generate, LocateModel, ModelFile};

use crate::chat::shell::ModelShelf;
use crate::config::{Config, Source};
use crate::failure::usage;
use crate::output::Output;
use crate::progress::Transfers;

/// Contexts of full length that the KV cache has room for; the room is taken when it is first used.
const PARALLEL_SEQUENCES: usize = 4;

/// What a command is given.
pub(crate) struct App {
    /// What is in force.
    pub(crate) config: Config,
    /// What stdout and stderr lead to.
    pub(crate) output: Output,
    /// The models that are here, and those that are known.
    pub(crate) store: Arc<Store>,
    data_folder: PathBuf,
}

impl App {
    /// Finds the user's data folder and the models in it and in this executable; creates nothing.
    ///
    /// # Errors
    /// When there is no data folder to be found, or the models inside this executable are damaged.
    pub(crate) fn new(mut config: Config, output: Output) -> anyhow::Result<App> {
        let data_folder = data_folder()?;
        let executable = std::env::current_exe().context("cannot find this program's own file")?;
        let bundle = Bundle::open(&executable)?;
        let store = Store::open(&data_folder)?;
        if let Some(bundle) = &bundle {
            prefer_bundled_model(&mut config, bundle, &store)?;
        }
        Ok(App { config, output, store: Arc::new(store.with_bundle(bundle)), data_folder })
    }

    /// The folder of what hone keeps; it need not exist yet.
    pub(crate) fn data_folder(&self) -> &Path {
        &self.data_folder
    }

    /// The model behind `name`, fetched first where it is one of the catalog and not here yet.
    ///
    /// # Errors
    /// When it is not known, or cannot be fetched.
    pub(crate) fn installed(&self, name: &str) -> anyhow::Result<InstalledModel> {
        match self.store.show(name) {
            Err(hone_models::StoreError::NotInstalled(_)) if self.store.catalog().find(name).is_some() => {
                Ok(self.pull(name, &PullOptions::from_environment())?.model)
            }
            found => Ok(found?),
        }
    }

    /// Fetches a model and shows how it goes on.
    ///
    /// # Errors
    /// When it is not known, or cannot be fetched.
    pub(crate) fn pull(&self, reference: &str, options: &PullOptions) -> anyhow::Result<Pulled> {
        let mut transfers = Transfers::new(self.output);
        Ok(self.store.pull(reference, options, &mut |event| transfers.show(event))?)
    }

    /// The file of the model behind `name`, fetched first where it is one of the catalog and not here yet.
    ///
    /// # Errors
    /// When it is not known, cannot be fetched, or is no single file.
    pub(crate) fn model_file(&self, name: &str) -> anyhow::Result<ModelFile> {
        self.installed(name)?;
        Ok(self.store.locate(name)?)
    }

    /// Starts the engine as the configuration says.
    ///
    /// # Errors
    /// When the device or the backend cannot be had.
    pub(crate) fn generator(&self) -> anyhow::Result<Arc<dyn Generate>> {
        Ok(Arc::new(EngineHandle::start(self.model_options()?, self.store.clone())?))
    }

    /// Loads the configured model into this thread, for commands that measure it.
    ///
    /// # Errors
    /// When it cannot be fetched or loaded.
    pub(crate) fn load_model(&self, context_length: Option<usize>) -> anyhow::Result<Model> {
        let name = &self.config.engine.model;
        let file = self.model_file(name)?;
        let options = ModelOptions { context_length, n_sequences: 1, ..self.model_options()? };
        Model::load(&file, &options).with_context(|| format!("cannot load model {name:?}"))
    }

    /// How models are loaded, as the configuration says.
    ///
    /// # Errors
    /// When the device or the backend is none that there is.
    pub(crate) fn model_options(&self) -> anyhow::Result<ModelOptions> {
        let engine = &self.config.engine;
        let parsed = |error: String| usage(error);
        Ok(ModelOptions {
            device: engine.device.parse().map_err(parsed)?,
            backend: engine.backend.parse().map_err(parsed)?,
            context_length: engine.context,
            n_sequences: PARALLEL_SEQUENCES,
            n_threads: engine.threads,
            speculation: engine.speculation.parse().map_err(parsed)?,
            kv_cache: engine.kv_cache.parse().map_err(parsed)?,
        })
    }
}

impl ModelShelf for App {
    fn provide(&self, name: &str) -> anyhow::Result<()> {
        self.installed(name).map(drop)
    }

    fn names(&self) -> Vec<String> {
        let listing = self.store.list().unwrap_or_default();
        let installed = listing.models.into_iter().map(|model| model.name);
        let known = self.store.catalog().models.iter().filter(|model| can_chat(model)).map(|model| model.name.clone());
        let mut names: Vec<String> = installed.chain(known).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// A bundle answers with a model of its own, unless somebody chose another one.
fn prefer_bundled_model(config: &mut Config, bundle: &Bundle, store: &Store) -> anyhow::Result<()> {
    let chosen = config.source_of("engine.model") != Some(&Source::Default);
    if chosen || bundle.find(&config.engine.model).is_some() {
        return Ok(());
    }
    let answers = |model: &&InstalledModel| store.catalog().find(&model.name).is_none_or(can_chat);
    match bundle.models.iter().find(answers) {
        Some(model) => config.set_text("engine.model", &model.name, Source::Bundle),
        None => Ok(()),
    }
}

fn can_chat(model: &CatalogModel) -> bool {
    model.role == Role::Generator
}
