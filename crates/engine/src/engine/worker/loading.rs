//! Models that are being loaded, each by a thread of its own, while the others go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use hone_protocol::{GenerateError, GenerationEvent, ModelFile, with_causes};

use super::Worker;
use super::resident::ResidentModel;
use super::saved_prefixes::SavedPrefixes;
use crate::decoder::DecoderSpec;
use crate::engine::QueuedRequest;
use crate::gguf::Gguf;
use crate::kv_cache::BLOCK_TOKENS;
use crate::model::{LoadOptions, Model, ModelError, ModelOptions, Speculation};
use crate::scheduler::cost::CostModel;
use crate::scheduler::residency::ModelMemory;
use crate::scheduler::{ModelId, ModelTraits};
use crate::speculation::draft_model::DraftModel;

/// A model on its way, and who waits for it.
pub(super) struct LoadingModel {
    pub(super) id: ModelId,
    /// As it was first asked for.
    pub(super) name: String,
    file: ModelFile,
    waiting: Vec<QueuedRequest>,
    thread: Option<JoinHandle<()>>,
}

/// What a loading thread brings.
pub(super) struct Loaded {
    id: ModelId,
    model: Result<(Model, Option<DraftModel>), String>,
}

impl Worker {
    /// Lets a request wait for its model, which is loaded where that has not begun yet.
    pub(super) fn load_for(&mut self, file: ModelFile, queued: QueuedRequest) {
        if let Some(loading) = self.loading.iter_mut().find(|loading| loading.file == file) {
            loading.waiting.push(queued);
            return;
        }
        if let Err(reason) = self.begin_loading(file, &queued.request.model) {
            let model = queued.request.model.clone();
            return queued.events.send(GenerationEvent::Failed(GenerateError::Model { model, reason }));
        }
        if let Some(loading) = self.loading.last_mut() {
            loading.waiting.push(queued);
        }
    }

    /// Makes room for a model and has it loaded; the reason where there is none.
    fn begin_loading(&mut self, file: ModelFile, name: &str) -> Result<(), String> {
        let spec = read_spec(&file, self.options.model.context_length).map_err(|error| with_causes(&error))?;
        let id = ModelId(self.n_models);
        self.note_busy();
        let draft = self.draft_for(&file);
        let (memory, cache_positions) = self.memory_for(&file, &spec, draft.as_ref());
        let unloaded = self.residency.admit(id, memory, self.now()).map_err(|error| error.to_string())?;
        self.n_models += 1;
        for idle in unloaded {
            self.unload(idle);
        }
        // Beside other models' steps a single thread loads, so that they keep theirs.
        let n_loading = if self.scheduler.is_idle() { self.options.model.n_threads } else { Some(1) };
        let beside = LoadOptions { threads: self.threads.clone(), n_loading, cache_positions };
        let draft = draft.map(|(draft, _)| draft);
        let thread = self.spawn_loading(id, file.clone(), draft, beside).map_err(|error| {
            self.residency.remove(id);
            error.to_string()
        })?;
        tracing::debug!(model = name, "loading");
        let (name, thread) = (name.to_owned(), Some(thread));
        self.loading.push(LoadingModel { id, name, file, waiting: Vec::new(), thread });
        Ok(())
    }

    /// What a model will take, and positions of its KV cache: as many sequences of full length as are asked for, or fewer
    /// where that is what memory has room for, but one.
    fn memory_for(
        &self,
        file: &ModelFile,
        spec: &DecoderSpec,
        draft: Option<&(ModelFile, DecoderSpec)>,
    ) -> (ModelMemory, usize) {
        let options = &self.options.model;
        let specs = std::iter::once(spec).chain(draft.map(|(_, spec)| spec));
        let per_position: u64 = specs.map(|spec| spec.kv_bytes_per_position(options.kv_cache)).sum();
        let one = options.context_of(spec) as u64 * per_position;
        let weights = file.length + draft.map_or(0, |(file, _)| file.length);
        let room = self.residency.attainable().saturating_sub(weights);
        let n_sequences = (options.n_sequences.max(1) as u64).min(room.checked_div(one).unwrap_or(1)).max(1);
        let memory = ModelMemory { weights, kv_cache: n_sequences * one };
        (memory, options.context_of(spec).saturating_mul(n_sequences as usize))
    }

    /// The model that may guess for the one in `file`; it does not guess for itself.
    fn draft_for(&self, file: &ModelFile) -> Option<(ModelFile, DecoderSpec)> {
        let name = self.options.draft.as_ref().filter(|_| self.options.model.speculation == Speculation::Auto)?;
        let draft = match self.locator.locate(name) {
            Ok(draft) => Some(draft).filter(|draft| draft != file)?,
            Err(error) => {
                tracing::warn!("no draft model guesses: {error}");
                return None;
            }
        };
        let spec = read_spec(&draft, self.options.model.context_length);
        spec.inspect_err(|error| warn_of_draft(name, &with_causes(error))).ok().map(|spec| (draft, spec))
    }

    fn spawn_loading(
        &self,
        id: ModelId,
        file: ModelFile,
        draft: Option<ModelFile>,
        beside: LoadOptions,
    ) -> std::io::Result<JoinHandle<()>> {
        let (options, results) = (self.options.model.clone(), self.loaded_sender.clone());
        std::thread::Builder::new().name("hone-load".into()).spawn(move || {
            let loaded = catch_unwind(AssertUnwindSafe(|| {
                let model = Model::load_beside(&file, &options, &beside)?;
                let draft = draft.and_then(|draft| load_draft(&draft, &file, &model, &options, &beside));
                Ok::<_, ModelError>((model, draft))
            }));
            let model = match loaded {
                Ok(model) => model.map_err(|error| with_causes(&error)),
                Err(_) => Err("loading failed unexpectedly: this is a bug in hone".to_owned()),
            };
            // Without an engine nobody waits for the model.
            let _ = results.send(Loaded { id, model });
        })
    }

    /// A model has been loaded, or could not be: those who wait for it are told or taken in.
    pub(super) fn take_loaded(&mut self, loaded: Loaded) {
        let Some(index) = self.loading.iter().position(|loading| loading.id == loaded.id) else { return };
        let mut loading = self.loading.swap_remove(index);
        if let Some(thread) = loading.thread.take() {
            // It has caught its panics and has sent its result.
            let _ = thread.join();
        }
        match loaded.model {
            Ok((model, draft)) => self.add_model(loading, model, draft),
            Err(reason) => {
                self.residency.remove(loading.id);
                for queued in loading.waiting {
                    let error = GenerateError::Model { model: queued.request.model, reason: reason.clone() };
                    queued.events.send(GenerationEvent::Failed(error));
                }
            }
        }
    }

    fn add_model(&mut self, loading: LoadingModel, model: Model, draft: Option<DraftModel>) {
        let LoadingModel { id, name, file, waiting, .. } = loading;
        tracing::debug!(model = name, "loaded");
        let traits = ModelTraits {
            kv_blocks: model.cache_positions() / BLOCK_TOKENS,
            slices: model.n_slices(),
            cost: CostModel::for_weights(file.length),
        };
        self.scheduler.add_model(id, traits);
        let saved = self.options.prefix_folder.as_ref().map(|folder| SavedPrefixes::open(folder, &file, &model));
        let saved = saved.transpose().unwrap_or_else(|error| {
            tracing::debug!(%error, "what was saved of earlier conversations cannot be found");
            None
        });
        let mut resident = ResidentModel::new(id, name, file, model);
        (resident.draft, resident.saved) = (draft, saved);
        self.models.push(resident);
        let index = self.models.len() - 1;
        for queued in waiting.into_iter().filter(|queued| !queued.events.is_cancelled()) {
            self.admit(index, queued);
        }
    }
}

/// Loads the model that guesses for `model`. What is wrong with it is a warning: the other answers without it.
fn load_draft(
    file: &ModelFile,
    model_file: &ModelFile,
    model: &Model,
    options: &ModelOptions,
    beside: &LoadOptions,
) -> Option<DraftModel> {
    let relative_cost = file.length as f32 / model_file.length.max(1) as f32;
    let draft = Model::load_beside(file, options, beside).map_err(|error| with_causes(&error));
    let draft = draft
        .and_then(|draft| DraftModel::new(draft, relative_cost, model.tokenizer()).map_err(|error| error.to_string()));
    draft.inspect_err(|reason| warn_of_draft(&file.path.display().to_string(), reason)).ok()
}

fn warn_of_draft(name: &str, reason: &str) {
    tracing::warn!("the draft model {name} does not guess: {reason}");
}

fn read_spec(file: &ModelFile, context_length: Option<usize>) -> Result<DecoderSpec, ModelError> {
    Ok(DecoderSpec::from_gguf(&Gguf::open_region(file)?, context_length)?)
}
