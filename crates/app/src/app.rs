//! The parts that every front end works with: the effective configuration, the models, and the engine if needed.

mod elsewhere;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hone_agents::{BackgroundCritic, Load, MemoryParts, RespondentB, TeamParts};
use hone_engine::{
    EngineOptions, FileUse, LoadOptions, LoadProgress, Model, ModelOptions, Prefixes, Reranker, check_file,
};
use hone_judging::{FenceKey, Jury, Marks, Rubric};
use hone_memory::{MemoryOptions, MemoryStore};
use hone_models::{Bundle, CatalogModel, InstalledModel, PullOptions, Pulled, Role, Store, data_folder};
use hone_protocol::{Embed, Generate, Grade, LocateModel, ModelFile};
use hone_work::{TaskPhase, TaskStore};
use serde_json::{Value, json};
use sysinfo::System;

use crate::config::{Config, PHASES, Places, Source};
use crate::conversations::{ConversationStore, OwnedConversations};
use crate::elsewhere::{GENERATE, KnownFleet, embedder_of};
use crate::embedder::{SharedEmbedder, reranker};
use crate::judge;
use crate::judge::calibration::Calibrated;
use crate::judge::marks::JudgeSetup;
use crate::judge::prefer_installed_judge;
use crate::machine::seen::note_speeds;
use crate::memory_options::memory_options;
use crate::presets::Presets;
use crate::progress::Progress;
use crate::room::largest_file;
use crate::running::borrowing::{BorrowedEngine, Lender};
use crate::running::embedding::BorrowedEmbedder;
use crate::running::{RunningProcess, VisibleEngine, processes};
use crate::stack::{ServedMemory, Stack, recaller};
use crate::usage;
use crate::workers::templates;

/// The number of full-length contexts that fit in the KV cache, and so of requests that are best computed at a time.
/// Memory is allocated only on first use.
pub const PARALLEL_SEQUENCES: usize = 4;

/// Options for starting the agents.
pub struct StackOptions {
    /// Whether answers are graded.
    pub grades: bool,
    /// The second respondent's model (if it differs from the first one's) and temperature.
    pub respondent_b: Option<(Option<String>, f32)>,
    /// The folder of the memory, if it is not the user's.
    pub memory: Option<PathBuf>,
    /// Whether answers that this process does not grade are recorded as due for grading.
    pub grades_due: bool,
    /// Whether answers that are due from earlier are graded in idle time.
    pub works_off_backlog: bool,
    /// Finds the critic that reviews remembered texts in idle time, if one is wanted.
    pub critic: Option<FindCritic>,
    /// Whether the computed prefix of the conversation is saved for when it is resumed.
    pub keeps_prefix: bool,
    /// The load limits of the respondents.
    pub load: Load,
}

/// Finds the critic of a configuration, to run on an engine; `None` if no critic may block.
pub type FindCritic = fn(&App, &Arc<dyn Generate>) -> Option<BackgroundCritic>;

/// The models, settings and folders that a front end works with.
pub struct App {
    /// The effective configuration.
    pub config: Config,
    /// Shows progress to the user.
    pub progress: Arc<dyn Progress>,
    /// The installed models and the catalog.
    pub store: Arc<Store>,
    /// The command that the process carries out, such as `chat`.
    pub(crate) command: String,
    /// The places of the user's configuration.
    places: Places,
    data_folder: PathBuf,
    embedder: Arc<SharedEmbedder>,
    fleet: Arc<KnownFleet>,
}

impl App {
    /// The user's presets.
    ///
    /// # Errors
    /// When no configuration folder is known.
    pub fn presets(&self) -> anyhow::Result<Presets> {
        Presets::of(self.places.folder())
    }

    /// Finds the user's data folder and the models in it and in this executable; creates nothing. Other processes see
    /// the name of the command.
    ///
    /// # Errors
    /// When the data folder cannot be determined, or the models inside this executable are damaged.
    pub fn new(mut config: Config, progress: Arc<dyn Progress>, command: &str) -> anyhow::Result<App> {
        let data_folder = data_folder()?;
        let executable = std::env::current_exe().context("cannot find this program's own file")?;
        let bundle = Bundle::open(&executable)?;
        let store = Store::open(&data_folder)?;
        if let Some(bundle) = &bundle {
            prefer_bundled_model(&mut config, bundle, &store)?;
        }
        let store = Arc::new(store.with_bundle(bundle));
        prefer_installed_judge(&mut config, &store, &data_folder)?;
        let embedder = Arc::new(embedder(&config, &store));
        let (command, places, fleet) = (command.to_owned(), Places::of_this_process(), Arc::default());
        Ok(App { config, progress, store, command, places, data_folder, embedder, fleet })
    }

    /// An app whose data are in this folder, and whose configuration is in its folder `config`. It does not use the
    /// models in this executable.
    ///
    /// # Errors
    /// When the models in it cannot be listed.
    pub fn in_folder(config: Config, data_folder: PathBuf, progress: Arc<dyn Progress>) -> anyhow::Result<App> {
        let store = Arc::new(Store::open(&data_folder)?);
        let embedder = Arc::new(embedder(&config, &store));
        let (command, places) = (String::new(), Places::new(Some(data_folder.join("config")), Vec::new()));
        Ok(App { config, progress, store, command, places, data_folder, embedder, fleet: Arc::default() })
    }

    /// The running hone processes that use this data folder.
    pub fn processes(&self) -> Vec<RunningProcess> {
        processes(&self.data_folder)
    }

    /// The saved conversations of each owner; if saving is off, they last as long as the process.
    pub fn conversations(&self) -> OwnedConversations {
        let store = self.config.chat.save.then(|| self.conversation_store());
        OwnedConversations::new(store, self.config.chat.system.clone())
    }

    /// The store of conversations: in memory's database if there is one, or else in files.
    pub fn conversation_store(&self) -> ConversationStore {
        match self.config.memory.database() {
            Some(_) => {
                // Writes that fail now are kept for later, and the failure is reported with memory's.
                let (store, _) = MemoryStore::keeping(&self.memory_folder(), self.memory_options());
                ConversationStore::in_database(&store)
            }
            None => self.conversation_files(),
        }
    }

    /// The conversations in files, regardless of where memory is kept.
    pub fn conversation_files(&self) -> ConversationStore {
        ConversationStore::new(self.conversations_folder())
    }

    /// The folder of the conversation files; it need not exist yet.
    pub fn conversations_folder(&self) -> PathBuf {
        self.data_folder.join("conversations")
    }

    /// The folder for hone's data; it need not exist yet.
    pub fn data_folder(&self) -> &Path {
        &self.data_folder
    }

    /// The model with this name; downloads it first if it is in the catalog but not installed.
    ///
    /// # Errors
    /// When it is unknown, or cannot be downloaded.
    pub fn installed(&self, name: &str) -> anyhow::Result<InstalledModel> {
        match self.store.show(name) {
            Err(hone_models::StoreError::NotInstalled(_)) if self.is_fetched(name) => {
                Ok(self.pull(name, &self.pull_options())?.model)
            }
            found => Ok(found?),
        }
    }

    /// The options for pulling models, from the environment, with a quantization that fits this machine.
    #[must_use]
    pub fn pull_options(&self) -> PullOptions {
        let room = largest_file(self.config.engine.options.memory);
        PullOptions { room, ..PullOptions::from_environment() }
    }

    /// Whether a missing model is downloaded on use: only one that the user named deliberately, from the hub or the
    /// catalog.
    fn is_fetched(&self, name: &str) -> bool {
        let is_on_hub = name.get(..3).is_some_and(|beginning| beginning.eq_ignore_ascii_case("hf:"));
        is_on_hub || self.store.catalog().about(&name.to_lowercase()).is_some()
    }

    /// Downloads a model and shows the progress.
    ///
    /// # Errors
    /// When it is unknown, or cannot be downloaded.
    pub fn pull(&self, reference: &str, options: &PullOptions) -> anyhow::Result<Pulled> {
        Ok(self.store.pull(reference, options, &mut *self.progress.transfers())?)
    }

    /// The file of the model with this name; downloads it first if it is in the catalog but not installed.
    ///
    /// # Errors
    /// When it is unknown, cannot be downloaded, or is not a single file.
    pub fn model_file(&self, name: &str) -> anyhow::Result<ModelFile> {
        self.installed(name)?;
        Ok(self.store.locate(name)?)
    }

    /// The engine according to the configuration: a running server's or this process's own, plus the workers' models
    /// where a bus is configured.
    ///
    /// # Errors
    /// When the device or the backend is unavailable.
    pub fn generator(&self) -> anyhow::Result<Arc<dyn Generate>> {
        Ok(self.routed(self.generator_here()?))
    }

    /// The engine without the models of workers.
    ///
    /// # Errors
    /// See [`App::generator`].
    pub fn generator_here(&self) -> anyhow::Result<Arc<dyn Generate>> {
        self.generator_with(self.engine_options()?)
    }

    fn generator_with(&self, options: EngineOptions) -> anyhow::Result<Arc<dyn Generate>> {
        let lender = match self.config.engine.shared {
            true => Lender::find(&self.data_folder, &self.engine_settings(), &*self.progress),
            false => None,
        };
        let Some(lender) = lender else { return Ok(self.start_engine(options)?) };
        let (store, data_folder) = (Arc::clone(&self.store), self.data_folder.clone());
        let command = self.command.clone();
        let start = move || -> anyhow::Result<Arc<dyn Generate>> {
            Ok(Arc::new(VisibleEngine::start(options.clone(), &store, &data_folder, &command)?))
        };
        Ok(Arc::new(BorrowedEngine::new(lender, Box::new(start), Arc::clone(&self.progress))))
    }

    fn start_engine(&self, options: EngineOptions) -> anyhow::Result<Arc<VisibleEngine>> {
        for model in options.draft.iter().chain(&options.pinned) {
            self.model_file(model)?;
        }
        Ok(Arc::new(VisibleEngine::start(options, &self.store, &self.data_folder, &self.command)?))
    }

    /// The engine's settings, for comparison between processes.
    pub fn engine_settings(&self) -> String {
        format!("{:?}", self.config.engine.options)
    }

    /// The engine's options according to the configuration.
    ///
    /// # Errors
    /// When the device or the backend does not exist.
    pub fn engine_options(&self) -> anyhow::Result<EngineOptions> {
        let configured = &self.config.engine.options;
        let model = self.model_options()?;
        let card_memory = model.card_memory();
        let processor_memory = card_memory.and_then(|_| free_memory());
        let memory = configured.memory.or(card_memory).or_else(free_memory);
        Ok(EngineOptions { memory, processor_memory, model, ..configured.clone() })
    }

    /// This app with a different configuration.
    pub fn with_config(&self, config: Config) -> App {
        let (store, data_folder) = (Arc::clone(&self.store), self.data_folder.clone());
        let embedder = Arc::new(embedder(&config, &store));
        let (progress, fleet) = (Arc::clone(&self.progress), Arc::clone(&self.fleet));
        let (command, places) = (self.command.clone(), self.places.clone());
        App { config, progress, store, command, places, data_folder, embedder, fleet }
    }

    /// Starts the agents according to the configuration. If memory cannot be opened (another version's, a full disk,
    /// damaged files), this is reported, and new memories are kept until it can be.
    ///
    /// # Errors
    /// When the engine or the judge is unavailable.
    pub fn stack(&self, options: StackOptions) -> anyhow::Result<Stack> {
        let generator = self.generator_with(self.options_of(&options)?)?;
        self.stack_on(self.routed(generator), options)
    }

    fn options_of(&self, options: &StackOptions) -> anyhow::Result<EngineOptions> {
        let prefix_folder = options.keeps_prefix.then(|| self.prefix_folder());
        Ok(EngineOptions { prefix_folder, ..self.engine_options()? })
    }

    /// Like [`App::stack`], on an engine of this process, which others may share.
    ///
    /// # Errors
    /// See [`App::stack`].
    pub fn stack_with_engine(&self, options: StackOptions) -> anyhow::Result<(Stack, Arc<VisibleEngine>)> {
        let engine = self.start_engine(self.options_of(&options)?)?;
        Ok((self.stack_on(self.routed(engine.clone()), options)?, engine))
    }

    fn stack_on(&self, generator: Arc<dyn Generate>, options: StackOptions) -> anyhow::Result<Stack> {
        let judge = options.grades.then(|| self.jury(generator.clone())).transpose()?;
        let graders = if options.grades { self.graders()? } else { None };
        let respondent_b = options.respondent_b.map(|(model, temperature)| RespondentB { model, temperature });
        let memory = self.memory(options.memory.as_deref(), options.grades_due);
        let StackOptions { works_off_backlog, load, .. } = options;
        let critic = options.critic.and_then(|find| find(self, &generator));
        let parts = TeamParts { generator, respondent_b, judge, graders, memory, works_off_backlog, critic, load };
        let stack = Stack::start(parts)?;
        let options = &self.config.engine.options.model;
        let speeds = note_speeds(stack.bus(), &self.data_folder, &self.store, options);
        Ok(stack.with_speeds(speeds))
    }

    /// The judge that the configuration describes, or the jury.
    ///
    /// # Errors
    /// When the rubric does not exist, the settings contradict each other, or a judge was named on the command line and
    /// is not installed.
    pub fn jury(&self, generator: Arc<dyn Generate>) -> anyhow::Result<Jury> {
        judge::jury(&self.config, &self.store, &self.data_folder, generator)
    }

    /// The key of the fences around texts that a model must treat as data.
    ///
    /// # Errors
    /// When the system cannot provide randomness.
    pub fn fence_key(&self) -> anyhow::Result<FenceKey> {
        judge::fence_key(&self.data_folder)
    }

    /// The rubric that the configuration names.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn rubric(&self) -> anyhow::Result<Rubric> {
        judge::rubric(&self.config)
    }

    /// The marks from the examination of the model `name`; `None` if it has not taken it.
    ///
    /// # Errors
    /// When the configured profile does not exist.
    pub fn marks(&self, name: &str, rubric: &Rubric) -> anyhow::Result<Option<Marks>> {
        judge::marks_of(&self.config, &self.store, &self.data_folder, rubric, name)
    }

    /// How often people agree with the configured judge; `None` if this is hidden or unknown.
    ///
    /// # Errors
    /// When the rubric or the profile that the configuration names does not exist.
    pub fn calibrated(&self) -> anyhow::Result<Option<Calibrated>> {
        if !self.config.judge.calibrated {
            return Ok(None);
        }
        let (model, rubric) = (&self.config.judge.model, self.rubric()?);
        let profile = judge::profile(&self.config, self.store.catalog(), model)?;
        let settings = &judge::settings(&self.config, profile);
        Ok(Calibrated::find(&self.data_folder, &self.store, &JudgeSetup { model, settings, profile, rubric: &rubric }))
    }

    /// The probability that a person agrees with a grade, if this is shown and known.
    ///
    /// # Errors
    /// See [`App::calibrated`].
    pub fn agreement(&self, grade: &Grade) -> anyhow::Result<Option<f64>> {
        Ok(self.calibrated()?.and_then(|calibrated| calibrated.agreement(grade)))
    }

    /// The user's memory for searches, if it is in use.
    pub fn served_memory(&self) -> Option<ServedMemory> {
        let parts = self.memory(None, false).filter(|memory| memory.remembers)?;
        Some(ServedMemory { recaller: recaller(&parts), store: parts.store })
    }

    /// `None` if memory is not in use. Where nothing is remembered, no memory is created.
    fn memory(&self, other_folder: Option<&Path>, grades_due: bool) -> Option<MemoryParts> {
        let config = &self.config.memory;
        let is_used = config.remember || (config.recalls() && (other_folder.is_some() || self.has_memory()));
        if !is_used {
            return None;
        }
        let (store, error) = match other_folder {
            Some(folder) => MemoryStore::keeping(folder, MemoryOptions { url: None, ..self.memory_options() }),
            None => MemoryStore::keeping(&self.memory_folder(), self.memory_options()),
        };
        if let Some(error) = error {
            self.progress.note(&match config.remember.then(|| store.check_keeping()) {
                None => format!("nothing is recalled: {error}"),
                Some(Ok(())) => format!("{error}; new answers are kept, and remembered as soon as possible"),
                Some(Err(reason)) => format!("nothing is remembered: {error}; nor can it be kept for later: {reason}"),
            });
        }
        let embedder = self.embedder().inspect_err(|error| {
            if config.recalls() {
                let remembered = if config.remember { "answers are remembered, but " } else { "" };
                self.progress.note(&format!("{remembered}nothing is recalled: {error:#}"));
            }
        });
        let (embedder, settings) = (embedder.ok(), config.settings.clone());
        Some(MemoryParts { store, embedder, settings, remembers: config.remember, grades_due })
    }

    /// Everything that a model's output depends on besides the model and the request.
    ///
    /// # Errors
    /// When the device or the backend does not exist.
    pub fn computed_by(&self) -> anyhow::Result<Value> {
        let options = self.model_options()?;
        let device = options.device.open()?;
        Ok(json!([env!("CARGO_PKG_VERSION"), device, options.arithmetic()]))
    }

    /// The user's memory for reading, or a copy of it if its disk is full or not writable.
    ///
    /// # Errors
    /// When it can be neither opened nor copied.
    pub fn memory_to_read(&self) -> anyhow::Result<MemoryStore> {
        let (store, reason) = MemoryStore::open_to_read(&self.memory_folder(), self.memory_options())?;
        if let Some(reason) = reason {
            self.progress.note(&format!("a copy of memory is read: {reason}"));
        }
        Ok(store)
    }

    /// The user's memory.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn memory_to_write(&self) -> anyhow::Result<MemoryStore> {
        Ok(MemoryStore::open(&self.memory_folder(), self.memory_options())?)
    }

    /// Whether a memory may exist.
    pub fn has_memory(&self) -> bool {
        self.config.memory.database().is_some() || self.memory_folder().exists()
    }

    /// The folder of the user's memory; it need not exist yet. Writes that a database cannot take are kept there.
    pub fn memory_folder(&self) -> PathBuf {
        self.data_folder.join("memory")
    }

    /// The store of tasks, which may be empty.
    pub fn tasks(&self) -> TaskStore {
        TaskStore::new(self.data_folder.join("tasks"))
    }

    /// The phases of tasks, as configured.
    ///
    /// # Errors
    /// When their file cannot be read, or is not valid.
    pub fn phases(&self) -> anyhow::Result<Vec<TaskPhase>> {
        let table = self.places.tables(PHASES)?;
        TaskPhase::all(table).map_err(|wrong| usage(format!("{PHASES}.toml: {wrong}")))
    }

    /// The folder of saved prefixes; it need not exist yet.
    pub fn prefix_folder(&self) -> PathBuf {
        self.data_folder.join("kv")
    }

    /// Memory's options according to the configuration.
    pub fn memory_options(&self) -> MemoryOptions {
        memory_options(&self.config.memory)
    }

    /// The embedding model: a running server's, this process's own, or a worker's.
    ///
    /// # Errors
    /// When it is not installed, and no worker has it.
    pub fn embedder(&self) -> anyhow::Result<Arc<dyn Embed>> {
        let own = match self.embedder.open() {
            Ok(own) => own,
            Err(error) => {
                let Some(models) = self.fleet_models()? else { return Err(error) };
                models.wait();
                return embedder_of(&models, &self.embedder).ok_or(error);
            }
        };
        if !self.config.engine.shared {
            return Ok(own);
        }
        Ok(Arc::new(BorrowedEmbedder::new(Arc::clone(&self.embedder), &self.data_folder)))
    }

    /// The reranker of this name or in this file. It is loaded on first use.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn reranker(&self, name: &str) -> anyhow::Result<Reranker> {
        reranker(name, &self.installed(name)?, &self.store)
    }

    /// The configured embedder, whether it is installed yet or not.
    pub fn shared_embedder(&self) -> &Arc<SharedEmbedder> {
        &self.embedder
    }

    /// Loads the configured model on this thread, for commands that measure it.
    ///
    /// # Errors
    /// When it cannot be downloaded or loaded.
    pub fn load_model(&self, context_length: Option<usize>) -> anyhow::Result<Model> {
        let name = &self.config.engine.model;
        let file = self.model_file(name)?;
        let options = ModelOptions { context_length, n_sequences: 1, ..self.model_options()? };
        self.store.verify(&file)?;
        let load = LoadOptions::from(options).with_progress(LoadProgress::told_to(self.progress.loading()));
        Model::load(&file, load).with_context(|| format!("cannot load model {name:?}"))
    }

    /// The options for loading models according to the configuration.
    ///
    /// # Errors
    /// When the device or the backend does not exist.
    pub fn model_options(&self) -> anyhow::Result<ModelOptions> {
        let configured = self.config.engine.options.model.clone();
        Ok(ModelOptions { n_sequences: PARALLEL_SEQUENCES, templates: templates::host()?, ..configured })
    }
}

impl App {
    /// Makes sure that a model can chat; downloads it first if it is in the catalog, not installed, and on no worker.
    ///
    /// # Errors
    /// When it is unknown, cannot be downloaded, or cannot chat.
    pub fn provide(&self, name: &str) -> anyhow::Result<()> {
        if self.is_elsewhere(name) { Ok(()) } else { self.provide_here(name) }
    }

    /// Like [`App::provide`], on this machine only.
    ///
    /// # Errors
    /// See [`App::provide`].
    pub(crate) fn provide_here(&self, name: &str) -> anyhow::Result<()> {
        let file = self.model_file(name)?;
        match check_file(&file, &templates::host()?).with_context(|| format!("model {name:?} cannot be run"))? {
            FileUse::Chats => Ok(()),
            FileUse::Continues(reason) => Err(reason).with_context(|| format!("model {name:?} cannot chat")),
            FileUse::Embeds => bail!("model {name:?} cannot chat: it turns texts into vectors (`hone embed`)"),
            FileUse::Scores => bail!("model {name:?} cannot chat: it scores texts (`hone rerank`)"),
        }
    }

    /// The names of installed models, workers' models and the catalog's chat models, in alphabetical order.
    pub fn model_names(&self) -> Vec<String> {
        let listing = self.store.list().unwrap_or_default();
        let installed = listing.models.into_iter().map(|model| model.name);
        let known = self.store.catalog().models.iter().filter(|model| can_chat(model)).map(|model| model.name.clone());
        let elsewhere = self.fleet_models().ok().flatten().map(|models| models.of_role(GENERATE)).unwrap_or_default();
        let elsewhere = elsewhere.into_iter().map(|model| model.name);
        let mut names: Vec<String> = installed.chain(known).chain(elsewhere).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The configured embedding model.
fn embedder(config: &Config, store: &Arc<Store>) -> SharedEmbedder {
    let memory = &config.memory;
    let prefixes = Prefixes { query: memory.query_prefix.clone(), passage: memory.passage_prefix.clone() };
    SharedEmbedder::new(&memory.embedder, prefixes, Arc::clone(store))
}

/// The default memory limit for models: free memory, minus a reserve for everything else.
fn free_memory() -> Option<u64> {
    const LEAST_RESERVE: u64 = 512 << 20;
    let mut system = System::new().ok()?;
    system.refresh_memory();
    // A container may have less memory than the machine.
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    let free = system.available_memory().min(of_group);
    Some(free - free.min(LEAST_RESERVE.max(free / 10)))
}

/// Makes a bundle answer with its own model, unless another one was chosen.
fn prefer_bundled_model(config: &mut Config, bundle: &Bundle, store: &Store) -> anyhow::Result<()> {
    let chosen = config.source_of("engine.model") != Some(&Source::Default);
    if chosen || bundle.find(&config.engine.model).is_some() {
        return Ok(());
    }
    let answers = |model: &&InstalledModel| store.catalog().about(&model.name).is_none_or(can_chat);
    match bundle.models.iter().find(answers) {
        Some(model) => config.set_text("engine.model", &model.name, Source::Bundle),
        None => Ok(()),
    }
}

fn can_chat(model: &CatalogModel) -> bool {
    model.role == Role::Generator
}
