//! The models of the store and the engine as clients of a server see them, and the one that the operator chose.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hone_engine::gguf::{Gguf, Value as GgufValue};
use hone_engine::{EngineOptions, ModelOptions, ModelPurpose, ModelState, ModelStatus, Reranker, model_purpose};
use hone_fleet::OfferedModel;
use hone_models::{CatalogModel, Event, InstalledModel, Phase, Place, PullError, PullOptions, Role, Store, StoreError};
use hone_protocol::{Embed, Generate, GenerateRequest, ModelFile, Prompt, ReasoningTags, Rerank, with_causes};
use serde_json::{Map, Value, json};

use super::facts::GgufFacts;
use super::{
    LoadedModel, ModelDescription, ModelDetails, ModelError, ModelInfo, ModelKind, ModelText, Models, PullStep,
};
use crate::app::App;
use crate::describe::remark;
use crate::elsewhere::{EMBED, FleetModels, GENERATE, embedder_of};
use crate::embedder::{SharedEmbedder, reranker};
use crate::running::{VisibleEngine, processes};

/// The number of models whose tokenizers and templates are kept for token and prompt requests.
const MOST_TEXTS: usize = 4;
/// The key of a model's chat template.
const TEMPLATE: &str = "tokenizer.chat_template";
/// Names that occur in the template of a model that reasons.
const MARKS_OF_THINKING: [&str; 2] = ["enable_thinking", "reasoning_effort"];

/// The models of the store.
pub struct ServedModels {
    default: String,
    store: Arc<Store>,
    embedder: Arc<SharedEmbedder>,
    engine: Arc<VisibleEngine>,
    /// How long an unused model stays in memory.
    keep_alive: Option<Duration>,
    /// Models that stay in memory.
    pinned: Vec<String>,
    /// Whether the models are on a graphics processor.
    is_on_device: bool,
    data_folder: PathBuf,
    /// The size of the largest file that fits this machine.
    room: Option<u64>,
    /// How models are loaded.
    options: ModelOptions,
    /// The most recently requested tokenizers and templates.
    texts: Mutex<VecDeque<(InstalledModel, Arc<ModelText>)>>,
    rerankers: Mutex<Rerankers>,
    /// The kinds of models that the catalog does not know, by their files.
    kinds: Mutex<HashMap<ModelFile, ModelKind>>,
    /// The models of workers.
    fleet: Option<Arc<FleetModels>>,
}

/// The rerankers: the last one stays in memory, others as long as they are used.
#[derive(Default)]
struct Rerankers {
    last: Option<Arc<dyn Rerank>>,
    used: Vec<(InstalledModel, Weak<dyn Rerank>)>,
}

impl Rerankers {
    fn get(
        &mut self,
        model: InstalledModel,
        open: impl FnOnce(&InstalledModel) -> Result<Reranker, ModelError>,
    ) -> Result<Arc<dyn Rerank>, ModelError> {
        self.used.retain(|(_, reranker)| reranker.strong_count() > 0);
        let known = self.used.iter().find(|(known, _)| *known == model).and_then(|(_, reranker)| reranker.upgrade());
        let reranker = match known {
            Some(reranker) => reranker,
            None => {
                let opened: Arc<dyn Rerank> = Arc::new(open(&model)?);
                self.used.push((model, Arc::downgrade(&opened)));
                opened
            }
        };
        self.last = Some(Arc::clone(&reranker));
        Ok(reranker)
    }
}

impl ServedModels {
    /// The models that `app` knows, which run on `engine` or on workers.
    ///
    /// # Errors
    /// When the bus that is configured cannot be used.
    pub fn new(app: &App, engine: Arc<VisibleEngine>) -> anyhow::Result<ServedModels> {
        let EngineOptions { keep_alive, pinned, model, .. } = app.config.engine.options.clone();
        let fleet = app.fleet_models()?;
        fleet.iter().for_each(|fleet| fleet.wait());
        Ok(ServedModels {
            default: app.config.engine.model.clone(),
            store: Arc::clone(&app.store),
            embedder: Arc::clone(app.shared_embedder()),
            engine,
            keep_alive,
            pinned,
            is_on_device: model.device.open().is_ok_and(|name| name != "cpu"),
            data_folder: app.data_folder().to_owned(),
            room: app.pull_options().room,
            options: model,
            texts: Mutex::default(),
            rerankers: Mutex::default(),
            kinds: Mutex::default(),
            fleet,
        })
    }

    /// The model of this name that only workers have.
    fn elsewhere(&self, name: &str) -> Option<OfferedModel> {
        if self.store.has(name) {
            return None;
        }
        let fleet = self.fleet.as_ref()?;
        fleet.find(GENERATE, name).or_else(|| fleet.find(EMBED, name))
    }

    /// The installed model of this name. Only the default model may be a path, because the operator chose it.
    fn installed(&self, name: &str) -> Result<InstalledModel, ModelError> {
        if let Some(model) = self.store.find(name).map_err(store_error)? {
            return Ok(model);
        }
        if name != self.default {
            return Err(ModelError::Missing(format!("the model {name:?} is not installed")));
        }
        let model = self.store.show(name).map_err(store_error)?;
        Ok(InstalledModel { name: name.to_owned(), ..model })
    }

    /// The installed model that the catalog lists as a reranker, if there is exactly one.
    fn only_reranker(&self) -> Result<InstalledModel, ModelError> {
        let listing = self.store.list().map_err(store_error)?;
        let mut rerankers = listing
            .models
            .into_iter()
            .filter(|model| self.known(&model.name).is_some_and(|known| known.role == Role::Reranker));
        match (rerankers.next(), rerankers.next()) {
            (Some(model), None) => Ok(model),
            (None, _) => Err(ModelError::Missing(
                "no model that scores texts is installed: `hone pull gte-reranker:modernbert`".to_owned(),
            )),
            (Some(one), Some(other)) => Err(ModelError::Invalid(format!(
                "several models score texts, among them {:?} and {:?}: say which with \"model\"",
                one.name, other.name
            ))),
        }
    }

    /// The kind of an installed model that the catalog does not know. A name that a client sends leads to no other file.
    fn kind_by_file(&self, name: &str) -> ModelKind {
        let installed = self.store.find(name).ok().flatten();
        let Some(file) = installed.and_then(|model| model.gguf()) else { return ModelKind::Generator };
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        *kinds.entry(file).or_insert_with_key(|file| match model_purpose(file) {
            Some(ModelPurpose::Vectors) => ModelKind::Embedder,
            Some(ModelPurpose::Scores | ModelPurpose::Rewards) => ModelKind::Reranker,
            Some(ModelPurpose::Text) | None => ModelKind::Generator,
        })
    }

    fn known(&self, name: &str) -> Option<&CatalogModel> {
        self.store.catalog().about(name)
    }

    fn info(&self, model: &InstalledModel) -> ModelInfo {
        info(model, self.known(&model.name), self.options.context_length)
    }

    fn loaded_model(&self, status: &ModelStatus) -> LoadedModel {
        let bytes = status.weight_bytes + status.kv_cache_bytes;
        let info = self.installed(&status.name).map(|model| self.info(&model));
        let info = info.unwrap_or_else(|_| ModelInfo {
            name: status.name.clone(),
            bytes: status.weight_bytes,
            installed: 0,
            digest: None,
            details: ModelDetails::default(),
            context: None,
            is_elsewhere: false,
        });
        let idle = status.idle_seconds.unwrap_or_default();
        let stays = self.pinned.contains(&status.name);
        let keep_alive = self.keep_alive.filter(|_| !stays);
        LoadedModel {
            info,
            bytes,
            device_bytes: if self.is_on_device { bytes } else { 0 },
            expires_in: keep_alive.map(|time| (time.as_secs_f64() - idle).max(0.0) as u64),
        }
    }

    /// The user of a model; `None` if it is not in use.
    fn user_of(&self, name: &str) -> Option<String> {
        // Each user may know the model by another name.
        let asked = self.store.installed_name(name);
        let is_it = |other: &str| self.store.installed_name(other) == asked;
        if is_it(&self.default) {
            return Some("this server, as its default model".to_owned());
        }
        if is_it(self.embedder.name()) {
            return Some("this server, for embeddings and memory".to_owned());
        }
        let has_it = |models: &[ModelStatus]| models.iter().any(|model| is_it(&model.name));
        if self.engine.status().is_ok_and(|status| has_it(&status.models)) {
            return Some("this server, which has it in memory".to_owned());
        }
        let processes = processes(&self.data_folder);
        let other = processes.iter().find(|process| has_it(&process.status.models))?;
        Some(format!("`hone {}` (process {})", other.command, other.process))
    }

    /// Checks that a model is not in use before it is changed.
    fn check_unused(&self, name: &str, change: &str) -> Result<(), ModelError> {
        match self.user_of(name) {
            Some(user) => Err(ModelError::InUse(format!("the model {name:?} is used by {user}: it was not {change}"))),
            None => Ok(()),
        }
    }

    /// The catalog's hash for a file of a model, found by the last part of its name.
    fn digest(&self, reference: &str, file: &str) -> Option<String> {
        let known = self.known(reference)?;
        let mut files = known.files.iter().filter(|known| known.name.rsplit('/').next() == Some(file));
        let found = files.next()?;
        if files.next().is_some() { None } else { found.sha256.clone() }
    }

    fn step(&self, reference: &str, event: &Event) -> PullStep {
        match event {
            Event::Progress { phase: Phase::Downloading, file, done, total } => {
                PullStep::Bytes { file: file.clone(), digest: self.digest(reference, file), done: *done, total: *total }
            }
            Event::Progress { phase: Phase::Verifying, .. } => PullStep::Remark("verifying sha256 digest".to_owned()),
            other => PullStep::Remark(remark(other)),
        }
    }
}

impl Models for ServedModels {
    fn default_name(&self) -> String {
        self.default.clone()
    }

    fn kind(&self, name: &str) -> Option<ModelKind> {
        let kind = match self.known(name).map(|model| model.role) {
            _ if name == self.embedder.name() => ModelKind::Embedder,
            Some(Role::Embedder) => ModelKind::Embedder,
            Some(Role::Reranker) => ModelKind::Reranker,
            Some(Role::Generator | Role::Judge) => ModelKind::Generator,
            None => self.kind_by_file(name),
        };
        let is_there = self.store.has(name)
            || name == self.default && Path::new(name).is_file()
            || name == self.embedder.name() && self.embedder.open().is_ok();
        is_there.then_some(kind).or_else(|| {
            let of_worker = self.elsewhere(name)?;
            Some(if of_worker.role == EMBED { ModelKind::Embedder } else { ModelKind::Generator })
        })
    }

    fn find(&self, name: &str) -> Result<ModelInfo, ModelError> {
        if let Some(of_worker) = self.elsewhere(name) {
            return Ok(of_worker.into());
        }
        Ok(self.info(&self.installed(name)?))
    }

    fn list(&self) -> Result<Vec<ModelInfo>, ModelError> {
        let mut models = self.store.list().map_err(store_error)?.models;
        let default = self.store.installed_name(&self.default);
        if models.iter().all(|model| model.name != default) {
            models.extend(self.installed(&self.default).ok());
        }
        let mut infos: Vec<ModelInfo> = models.iter().map(|model| self.info(model)).collect();
        let of_workers = self.fleet.as_ref().map(|fleet| fleet.of_role(GENERATE)).unwrap_or_default();
        let only_there = of_workers.into_iter().filter(|model| !self.store.has(&model.name));
        infos.extend(only_there.map(ModelInfo::from));
        Ok(infos)
    }

    fn describe(&self, name: &str) -> Result<ModelDescription, ModelError> {
        if let Some(of_worker) = self.elsewhere(name) {
            return Ok(of_worker.into());
        }
        let model = self.installed(name)?;
        let gguf = open(&model);
        let known = self.known(name);
        let text = |key: &str| gguf.as_ref().and_then(|gguf| gguf.string(key).ok().flatten()).unwrap_or_default();
        let template = text(TEMPLATE).to_owned();
        let licence = known.map_or_else(|| text("general.license").to_owned(), |known| known.licence.clone());
        let capabilities = match self.kind(name) {
            Some(ModelKind::Embedder) => vec!["embedding"],
            _ => gguf.as_ref().map(capabilities).unwrap_or_default(),
        };
        let metadata = gguf.as_ref().map(metadata).unwrap_or_default();
        Ok(ModelDescription { info: self.info(&model), template, licence, metadata, capabilities })
    }

    fn text(&self, name: &str) -> Result<Arc<ModelText>, ModelError> {
        if self.elsewhere(name).is_some() {
            let reason =
                "is on other machines, and its tokens cannot be seen from here: `hone pull` brings it to this one";
            return Err(ModelError::Invalid(format!("the model {name:?} {reason}")));
        }
        let model = self.installed(name)?;
        let texts = || self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = texts().iter().find(|(known, _)| *known == model) {
            return Ok(Arc::clone(text));
        }
        let gguf = open(&model).ok_or_else(|| ModelError::Failed(format!("the model {name:?} is no GGUF file")))?;
        let text = ModelText::of(&gguf, &self.options.templates)?;
        let mut texts = texts();
        texts.retain(|(known, _)| known.name != model.name);
        texts.push_back((model, Arc::clone(&text)));
        if texts.len() > MOST_TEXTS {
            texts.pop_front();
        }
        Ok(text)
    }

    fn loaded(&self) -> Result<Vec<LoadedModel>, ModelError> {
        let status = self.engine.status().map_err(|error| ModelError::Failed(error.to_string()))?;
        let in_memory = status.models.iter().filter(|model| model.state == ModelState::Ready);
        Ok(in_memory.map(|model| self.loaded_model(model)).collect())
    }

    fn load(&self, name: &str) -> Result<(), ModelError> {
        if self.elsewhere(name).is_some() {
            return Ok(());
        }
        let prompt = Prompt::Text { text: " ".to_owned(), parse_special: false, add_special: true };
        let request = GenerateRequest { max_tokens: Some(1), ..GenerateRequest::new(name, prompt) };
        let loaded = self.engine.generate(request).and_then(hone_protocol::Generation::complete);
        loaded.map(drop).map_err(|error| ModelError::Failed(error.to_string()))
    }

    fn unload(&self, name: &str) -> Result<(), ModelError> {
        if self.pinned.iter().any(|pinned| pinned == name) {
            return Err(ModelError::InUse(format!("the model {name:?} is pinned (engine.pinned): it stays in memory")));
        }
        self.engine.unload(name).map_err(|error| ModelError::Failed(error.to_string()))
    }

    fn check_reference(&self, reference: &str) -> Result<(), ModelError> {
        self.store.check_remote(reference).map_err(pull_error)
    }

    fn pull(
        &self,
        reference: &str,
        is_cancelled: Arc<AtomicBool>,
        report: &mut dyn FnMut(PullStep),
    ) -> Result<(), ModelError> {
        self.check_reference(reference)?;
        let options =
            PullOptions { cancellation: is_cancelled.into(), room: self.room, ..PullOptions::from_environment() };
        let mut progress = |event: &Event| report(self.step(reference, event));
        self.store.pull(reference, &options, &mut progress).map(drop).map_err(pull_error)
    }

    fn copy(&self, source: &str, name: &str) -> Result<(), ModelError> {
        let refused = |reason: &str| Err(ModelError::Invalid(format!("the model {source:?} {reason}")));
        if self.installed(source)?.place == Place::Path {
            return refused("is a file outside of the store: `hone pull FILE --name NAME` gives it a name");
        }
        if self.kind(source) == Some(ModelKind::Embedder) {
            return refused("turns texts into vectors for this server, which asks it by this name only");
        }
        if source != name && self.store.has(name) {
            self.check_unused(name, "replaced")?;
        }
        self.store.copy(source, name).map_err(store_error)
    }

    fn remove(&self, name: &str) -> Result<(), ModelError> {
        let model = self.installed(name)?;
        self.check_unused(name, "removed")?;
        match model.place {
            Place::Path => Err(ModelError::InUse(format!("the model {name:?} is not in the store"))),
            Place::Store | Place::Bundle => self.store.remove(&model.name).map(drop).map_err(store_error),
        }
    }

    fn embedder(&self) -> Result<Arc<dyn Embed>, ModelError> {
        self.embedder.open().or_else(|error| {
            let elsewhere = self.fleet.as_ref().and_then(|fleet| embedder_of(fleet, &self.embedder));
            elsewhere.ok_or_else(|| ModelError::Missing(format!("{error:#}")))
        })
    }

    fn reranker(&self, name: &str) -> Result<Arc<dyn Rerank>, ModelError> {
        let model = if name.is_empty() { self.only_reranker()? } else { self.installed(name)? };
        self.rerankers.lock().unwrap_or_else(PoisonError::into_inner).get(model, |model| {
            let opened = reranker(&model.name, model, &self.store);
            opened.map_err(|error| ModelError::Invalid(format!("{error:#}")))
        })
    }
}

fn store_error(error: StoreError) -> ModelError {
    let reason = with_causes(&error);
    match error {
        StoreError::NotInstalled(_) => ModelError::Missing(reason),
        StoreError::Busy(_) | StoreError::Bundled(_) => ModelError::InUse(reason),
        StoreError::NotCopied(_) => ModelError::Invalid(reason),
        _ => ModelError::Failed(reason),
    }
}

fn pull_error(error: PullError) -> ModelError {
    let reason = with_causes(&error);
    match error {
        PullError::Unknown(_) => ModelError::Missing(reason),
        PullError::Malformed(_) => ModelError::Invalid(reason),
        PullError::NameTaken { .. } => ModelError::InUse(reason),
        PullError::Store(error) => store_error(error),
        _ => ModelError::Failed(reason),
    }
}

/// The file of a model that is one GGUF file.
pub(super) fn open(model: &InstalledModel) -> Option<Gguf> {
    match model.files.as_slice() {
        [file] => Gguf::open_region(&file.location).ok(),
        _ => None,
    }
}

fn details(gguf: Option<&Gguf>, known: Option<&CatalogModel>) -> ModelDetails {
    let facts = gguf.and_then(|gguf| GgufFacts::of(gguf).ok());
    let known_text = |text: fn(&CatalogModel) -> &String| known.map(text).filter(|text| !text.is_empty()).cloned();
    let (family, weights) = facts.map(|facts| (facts.architecture, facts.n_parameters)).unwrap_or_default();
    ModelDetails {
        format: if gguf.is_some() { "gguf" } else { "safetensors" }.to_owned(),
        family: family.or_else(|| known_text(|known| &known.family)).unwrap_or_default(),
        parameters: known_text(|known| &known.parameters).unwrap_or_else(|| rounded(weights)),
        quantization: known_text(|known| &known.quantization)
            .or_else(|| gguf.and_then(commonest_type))
            .unwrap_or_default(),
    }
}

/// The most common type among the weights.
fn commonest_type(gguf: &Gguf) -> Option<String> {
    let mut types: Vec<(&str, usize)> = Vec::new();
    for tensor in gguf.tensors() {
        let name = tensor.tensor_type.name();
        match types.iter_mut().find(|(known, _)| *known == name) {
            Some((_, weights)) => *weights += tensor.n_elements(),
            None => types.push((name, tensor.n_elements())),
        }
    }
    types.into_iter().max_by_key(|(_, weights)| *weights).map(|(name, _)| name.to_owned())
}

/// A number of weights in readable form; empty for none.
fn rounded(weights: usize) -> String {
    let (weights, million) = (weights as f64, 1e6);
    match weights {
        0.0 => String::new(),
        _ if weights >= 1e3 * million => format!("{:.1}B", weights / (1e3 * million)),
        _ if weights >= million => format!("{:.1}M", weights / million),
        _ => format!("{:.1}K", weights / 1e3),
    }
}

/// A model as its file and the catalog describe it. `limit` is the configured maximum number of tokens.
pub(super) fn info(model: &InstalledModel, known: Option<&CatalogModel>, limit: Option<usize>) -> ModelInfo {
    let gguf = open(model);
    ModelInfo {
        name: model.name.clone(),
        bytes: model.size(),
        installed: model.added.unwrap_or_default(),
        digest: model.files.first().and_then(|file| file.sha256.clone()),
        details: details(gguf.as_ref(), known),
        context: context(gguf.as_ref(), limit),
        is_elsewhere: false,
    }
}

/// The number of tokens that a model was trained for, or fewer if the configuration says so.
fn context(gguf: Option<&Gguf>, limit: Option<usize>) -> Option<usize> {
    let trained = GgufFacts::of(gguf?).ok()?.context_length?;
    let trained = usize::try_from(trained).ok()?;
    Some(trained.min(limit.unwrap_or(trained)))
}

/// The abilities of a model, as far as its templates show.
pub(super) fn capabilities(gguf: &Gguf) -> Vec<&'static str> {
    let text = |key: &str| gguf.string(key).ok().flatten().unwrap_or_default();
    capabilities_of(text(TEMPLATE), !text("tokenizer.chat_template.tool_use").is_empty())
}

fn capabilities_of(template: &str, has_template_for_tools: bool) -> Vec<&'static str> {
    let mut capabilities = vec!["completion"];
    if has_template_for_tools || template.contains("tools") {
        capabilities.push("tools");
    }
    let has_tags = ReasoningTags::mentioned_in(template).is_some();
    if has_tags || MARKS_OF_THINKING.iter().any(|mark| template.contains(mark)) {
        capabilities.push("thinking");
    }
    capabilities
}

/// The metadata of a file, without the texts of its templates and the contents of arrays.
fn metadata(gguf: &Gguf) -> Map<String, Value> {
    let is_short = |key: &str| !key.starts_with("tokenizer.chat_template");
    let mut fields: Map<String, Value> =
        gguf.metadata().filter(|(key, _)| is_short(key)).map(|(key, value)| (key.to_owned(), json_of(value))).collect();
    let weights: usize = gguf.tensors().map(|tensor| tensor.n_elements()).sum();
    fields.insert("general.parameter_count".to_owned(), json!(weights));
    fields
}

fn json_of(value: GgufValue<'_>) -> Value {
    match value {
        GgufValue::Unsigned(number) => json!(number),
        GgufValue::Signed(number) => json!(number),
        GgufValue::Float(number) => json!(number),
        GgufValue::Bool(truth) => json!(truth),
        GgufValue::String(text) => json!(text),
        GgufValue::Array(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_weights_are_rounded() {
        let check = |weights: usize, expected: &str| assert_eq!(rounded(weights), expected);
        check(0, "");
        check(1_234, "1.2K");
        check(134_515_008, "134.5M");
        check(7_241_732_096, "7.2B");
    }

    #[test]
    fn a_template_says_what_its_model_can_do() {
        let check = |template: &str, expected: &[&str]| assert_eq!(capabilities_of(template, false), expected);
        check("{{ messages }}", &["completion"]);
        check("{% if tools %}{% endif %}", &["completion", "tools"]);
        check("{% if enable_thinking %}<think>", &["completion", "thinking"]);
        assert_eq!(capabilities_of("", true), ["completion", "tools"]);
    }
}
