//! What commands work with: the effective configuration, the streams, the models, and the engine if needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hone_agents::{MemoryParts, RespondentB, TeamParts, ThinkingSettings};
use hone_engine::embedder::Embedder;
use hone_engine::engine::{EngineHandle, EngineOptions};
use hone_engine::model::{Model, ModelOptions, check_file};
use hone_memory::{MemoryOptions, MemoryStore, Ranking};
use hone_models::{Bundle, CatalogModel, InstalledModel, PullOptions, Pulled, Role, Store, data_folder};
use hone_protocol::{Embed, Generate, LocateModel, ModelFile};
use hone_quality::{Judge, Rubric};

use sysinfo::System;

use crate::chat::shell::ModelShelf;
use crate::config::{Config, Source};
use crate::failure::usage;
use crate::judge;
use crate::running::VisibleEngine;
use crate::stack::Stack;
use crate::templates;
use crate::terminal::Output;
use crate::terminal::progress::Transfers;

/// Full-length contexts that the KV cache has room for; memory is taken only when it is first used.
const PARALLEL_SEQUENCES: usize = 4;

/// How the agents are started.
pub(crate) struct StackOptions {
    /// Whether answers are graded.
    pub(crate) grades: bool,
    /// The second respondent's model, if it differs from the first one's, and temperature.
    pub(crate) respondent_b: Option<(Option<String>, f32)>,
    /// The folder of the memory, if it is not the user's.
    pub(crate) memory: Option<PathBuf>,
    /// Whether the computed prefix of the conversation is saved for when it is resumed.
    pub(crate) keeps_prefix: bool,
}

/// What a command is given.
pub(crate) struct App {
    /// The effective configuration.
    pub(crate) config: Config,
    /// The process's output streams.
    pub(crate) output: Output,
    /// The installed models and the catalog.
    pub(crate) store: Arc<Store>,
    data_folder: PathBuf,
}

impl App {
    /// Finds the user's data folder and the models in it and in this executable; creates nothing.
    ///
    /// # Errors
    /// When the data folder cannot be determined, or the models inside this executable are damaged.
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

    /// The folder for hone's data; it need not exist yet.
    pub(crate) fn data_folder(&self) -> &Path {
        &self.data_folder
    }

    /// The model with this name; downloads it first if it is in the catalog but not installed.
    ///
    /// # Errors
    /// When it is not known, or cannot be downloaded.
    pub(crate) fn installed(&self, name: &str) -> anyhow::Result<InstalledModel> {
        match self.store.show(name) {
            Err(hone_models::StoreError::NotInstalled(_)) if self.store.catalog().find(name).is_some() => {
                Ok(self.pull(name, &PullOptions::from_environment())?.model)
            }
            found => Ok(found?),
        }
    }

    /// Downloads a model and shows the progress.
    ///
    /// # Errors
    /// When it is not known, or cannot be downloaded.
    pub(crate) fn pull(&self, reference: &str, options: &PullOptions) -> anyhow::Result<Pulled> {
        let mut transfers = Transfers::new(self.output);
        Ok(self.store.pull(reference, options, &mut |event| transfers.show(event))?)
    }

    /// The file of the model with this name; downloads it first if it is in the catalog but not installed.
    ///
    /// # Errors
    /// When it is not known, cannot be downloaded, or is not a single file.
    pub(crate) fn model_file(&self, name: &str) -> anyhow::Result<ModelFile> {
        self.installed(name)?;
        Ok(self.store.locate(name)?)
    }

    /// Starts the engine according to the configuration.
    ///
    /// # Errors
    /// When the device or the backend is unavailable.
    pub(crate) fn generator(&self) -> anyhow::Result<Arc<dyn Generate>> {
        self.start_engine(self.engine_options()?)
    }

    fn start_engine(&self, options: EngineOptions) -> anyhow::Result<Arc<dyn Generate>> {
        for model in options.draft.iter().chain(&options.pinned) {
            self.model_file(model)?;
        }
        let engine = EngineHandle::start(options, self.store.clone())?;
        Ok(Arc::new(VisibleEngine::new(engine, &self.data_folder)))
    }

    /// The engine's options according to the configuration.
    ///
    /// # Errors
    /// When the device or the backend does not exist.
    pub(crate) fn engine_options(&self) -> anyhow::Result<EngineOptions> {
        let engine = &self.config.engine;
        let draft = Some(&engine.draft).filter(|name| !name.is_empty()).cloned();
        let memory = engine.memory_limit.or_else(free_memory);
        let (keep_alive, pinned) = (engine.keep_alive, engine.pinned.clone());
        Ok(EngineOptions { draft, memory, keep_alive, pinned, ..self.model_options()?.into() })
    }

    /// The same with a different configuration.
    pub(crate) fn with_config(&self, config: Config) -> App {
        App { config, output: self.output, store: self.store.clone(), data_folder: self.data_folder.clone() }
    }

    /// Starts the agents according to the configuration. If memory cannot be opened (another version's, a full disk,
    /// damaged files), this is reported, and what is to be remembered is kept until it can be.
    ///
    /// # Errors
    /// When the engine or the judge is unavailable.
    pub(crate) fn stack(&self, options: StackOptions) -> anyhow::Result<Stack> {
        let prefix_folder = options.keeps_prefix.then(|| self.prefix_folder());
        let generator = self.start_engine(EngineOptions { prefix_folder, ..self.engine_options()? })?;
        let judge = options.grades.then(|| self.judge(generator.clone())).transpose()?;
        let respondent_b = options.respondent_b.map(|(model, temperature)| RespondentB { model, temperature });
        let folder = options.memory.unwrap_or_else(|| self.memory_folder());
        let memory = self.config.memory.remember.then(|| self.memory(&folder));
        Stack::start(TeamParts { generator, thinking: ThinkingSettings::default(), respondent_b, judge, memory })
    }

    /// The judge that the configuration describes.
    ///
    /// # Errors
    /// When its rubric does not exist, its settings contradict each other, or it was named on the command line and is
    /// not installed.
    pub(crate) fn judge(&self, generator: Arc<dyn Generate>) -> anyhow::Result<Judge> {
        judge::judge(&self.config, &self.store, &self.data_folder, generator)
    }

    /// The rubric that the configuration names.
    ///
    /// # Errors
    /// When it does not exist.
    pub(crate) fn rubric(&self) -> anyhow::Result<Rubric> {
        judge::rubric(&self.config)
    }

    fn memory(&self, folder: &Path) -> MemoryParts {
        let (store, error) = MemoryStore::keeping(folder, self.memory_options());
        if let Some(error) = error {
            self.output.note(&match store.check_keeping() {
                Ok(()) => format!("{error}; new answers are kept, and remembered as soon as possible"),
                Err(reason) => format!("nothing is remembered: {error}; nor can it be kept for later: {reason}"),
            });
        }
        let embedder = self.embedder().inspect_err(|error| {
            self.output.note(&format!("answers are remembered, but nothing is recalled: {error:#}"));
        });
        MemoryParts { store, embedder: embedder.ok(), settings: self.config.memory.settings.clone() }
    }

    /// The folder of the user's memory; it need not exist yet.
    pub(crate) fn memory_folder(&self) -> PathBuf {
        self.data_folder.join("memory")
    }

    /// The folder of saved prefixes; it need not exist yet.
    pub(crate) fn prefix_folder(&self) -> PathBuf {
        self.data_folder.join("kv")
    }

    /// Memory's options according to the configuration.
    pub(crate) fn memory_options(&self) -> MemoryOptions {
        let memory = &self.config.memory;
        MemoryOptions {
            embedding_model: memory.embedder.clone(),
            ranking: Ranking { score_weight: memory.score_weight },
            backups: memory.backups,
            ..MemoryOptions::default()
        }
    }

    /// The model that turns texts into vectors.
    ///
    /// # Errors
    /// When it is not installed.
    pub(crate) fn embedder(&self) -> anyhow::Result<Arc<dyn Embed>> {
        let name = &self.config.memory.embedder;
        let folder = Path::new(name);
        if folder.is_dir() {
            return Ok(Arc::new(Embedder::in_folder(name, folder)?));
        }
        let files = self.store.locate_files(name)?;
        let embedder = Embedder::open(name, files.into_iter().map(|file| (file.name, file.location)))?;
        let store = self.store.clone();
        Ok(Arc::new(embedder.verified_by(move |file| store.verify(file).map_err(|error| error.to_string()))))
    }

    /// Loads the configured model on this thread, for commands that measure it.
    ///
    /// # Errors
    /// When it cannot be downloaded or loaded.
    pub(crate) fn load_model(&self, context_length: Option<usize>) -> anyhow::Result<Model> {
        let name = &self.config.engine.model;
        let file = self.model_file(name)?;
        let options = ModelOptions { context_length, n_sequences: 1, ..self.model_options()? };
        self.store.verify(&file)?;
        Model::load(&file, &options).with_context(|| format!("cannot load model {name:?}"))
    }

    /// The options for loading models according to the configuration.
    ///
    /// # Errors
    /// When the device or the backend does not exist.
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
            activation_bits: engine.activation_bits.try_into().map_err(parsed)?,
            templates: templates::host()?,
        })
    }
}

impl ModelShelf for App {
    fn provide(&self, name: &str) -> anyhow::Result<()> {
        let file = self.model_file(name)?;
        let chat = check_file(&file, &templates::host()?).with_context(|| format!("model {name:?} cannot be run"))?;
        chat.with_context(|| format!("model {name:?} cannot chat"))
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

/// The default memory limit for models: what is free, minus a reserve for everything else.
fn free_memory() -> Option<u64> {
    const LEAST_RESERVE: u64 = 512 << 20;
    let mut system = System::new().ok()?;
    system.refresh_memory();
    // A container may have less memory than the machine.
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    let free = system.available_memory().min(of_group);
    Some(free - free.min(LEAST_RESERVE.max(free / 10)))
}

/// A bundle answers with its own model, unless another one was chosen.
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
