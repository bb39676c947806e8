//! Models that are being loaded, each by a thread of its own, while the others go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use hone_protocol::{Lane, ModelFile};

use super::awaited::AwaitedModel;
use super::resident::ResidentModel;
use super::saved_prefixes::SavedPrefixes;
use super::source::ModelSource;
use super::verified::Verified;
use super::{Help, Worker};
use crate::engine::submission::Submission;
use crate::kv_cache::BLOCK_TOKENS;
use crate::model::{LoadOptions, Model};
use crate::scheduler::cost::CostModel;
use crate::scheduler::{ModelId, ModelTraits};
use crate::speculation::draft_model::DraftModel;

/// A model on its way.
pub(super) struct LoadingModel {
    pub(super) id: ModelId,
    pub(super) awaited: AwaitedModel,
    thread: Option<JoinHandle<()>>,
}

/// What a loading thread brings.
pub(super) struct Loaded {
    id: ModelId,
    model: Result<(Model, Option<DraftModel>), String>,
}

impl Worker {
    /// Has a model loaded that memory has been admitted for. Where that cannot begin, those who wait are told.
    pub(super) fn begin_loading(&mut self, id: ModelId, awaited: AwaitedModel, lane: Lane, cache_positions: usize) {
        // Beside steps that are as urgent a single thread loads, and gives way to them.
        let urgencies = self.models.iter().filter_map(|model| self.scheduler.urgency(model.id));
        let is_beside = urgencies.min().is_some_and(|urgency| urgency <= lane);
        let n_loading = if is_beside { Some(1) } else { self.options.model.n_threads };
        let load = LoadOptions { threads: self.threads.clone(), n_loading, cache_positions };
        let ModelSource { file, draft, name, .. } = &awaited.source;
        match self.spawn_loading(id, file.clone(), draft.clone(), load, is_beside) {
            Ok(thread) => {
                tracing::debug!(model = name, "loading");
                self.n_helping += 1;
                self.loading.push(LoadingModel { id, awaited, thread: Some(thread) });
            }
            Err(error) => {
                self.residency.remove(id);
                self.refuse_all(awaited.waiting, &error.to_string());
            }
        }
    }

    fn spawn_loading(
        &mut self,
        id: ModelId,
        file: ModelFile,
        draft: Option<ModelFile>,
        load: LoadOptions,
        gives_way: bool,
    ) -> std::io::Result<JoinHandle<()>> {
        let (options, results, locator) = (self.options.model.clone(), self.help_sender.clone(), self.locator.clone());
        let leaving = std::mem::take(&mut self.leaving);
        std::thread::Builder::new().name("hone-load".into()).spawn(move || {
            if gives_way {
                give_way();
            }
            // Their memory is counted on.
            leaving.into_iter().for_each(wait_for);
            let loaded = catch_unwind(AssertUnwindSafe(|| {
                let verified = Verified { locator: &*locator, options: &options, load: &load };
                let model = verified.load(&file)?;
                let draft = draft.and_then(|draft| load_draft(&draft, &file, &model, &verified));
                Ok((model, draft))
            }));
            let model = match loaded {
                Ok(model) => model,
                Err(_) => Err("loading failed unexpectedly: this is a bug in hone".to_owned()),
            };
            // Without an engine nobody waits for the model.
            let _ = results.send(Help::Loaded(Box::new(Loaded { id, model })));
        })
    }

    /// A model has been loaded, or could not be: those who wait for it are told or taken in.
    pub(super) fn take_loaded(&mut self, loaded: Loaded) {
        let Some(index) = self.loading.iter().position(|loading| loading.id == loaded.id) else { return };
        let mut loading = self.loading.swap_remove(index);
        loading.thread.take().into_iter().for_each(wait_for);
        match loaded.model {
            Ok((model, draft)) => self.add_model(loading, model, draft),
            Err(reason) => {
                self.residency.remove(loading.id);
                self.refuse_all(loading.awaited.waiting, &reason);
            }
        }
    }

    fn add_model(&mut self, loading: LoadingModel, model: Model, draft: Option<DraftModel>) {
        let LoadingModel { id, awaited: AwaitedModel { source, waiting }, .. } = loading;
        tracing::debug!(model = source.name, "loaded");
        let traits = ModelTraits {
            kv_blocks: model.cache_positions() / BLOCK_TOKENS,
            slices: model.n_slices(),
            cost: CostModel::for_weights(source.file.length),
        };
        self.scheduler.add_model(id, traits);
        if draft.is_none() && source.draft.is_some() {
            self.residency.set_memory(id, source.demand.without_draft(model.cache_positions()));
        }
        self.texts.insert(source.file.clone(), model.text().clone());
        let saved = self.options.prefix_folder.as_ref().map(|folder| SavedPrefixes::open(folder, &source.file, &model));
        let saved = saved.transpose().unwrap_or_else(|error| {
            tracing::debug!(%error, "what was saved of earlier conversations cannot be found");
            None
        });
        let mut resident = ResidentModel::new(id, source, model);
        (resident.draft, resident.saved) = (draft, saved);
        self.models.push(resident);
        let index = self.models.len() - 1;
        let is_unprepared = |submission: &mut Submission| matches!(submission, Submission::Unprepared(_));
        let (mut prepared, mut unprepared) = (waiting, Vec::new());
        unprepared.extend(prepared.extract_if(.., is_unprepared));
        prepared.into_iter().for_each(|submission| self.accept(submission));
        self.prepare(index, unprepared);
    }
}

/// Waits until a thread is done. A panic has been printed by it.
pub(super) fn wait_for(thread: JoinHandle<()>) {
    let _ = thread.join();
}

/// From now on this thread, and those that it starts, run where nothing more urgent wants the core.
#[cfg(target_os = "linux")]
fn give_way() {
    /// A tenth of the weight of a thread that does not give way.
    const NICENESS: i32 = 10;
    // On Linux this is the calling thread's alone.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "loading does not give way to running requests");
    }
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}

/// Loads the model that guesses for `model`. What is wrong with it is a warning: the other answers without it.
fn load_draft(file: &ModelFile, model_file: &ModelFile, model: &Model, verified: &Verified<'_>) -> Option<DraftModel> {
    let relative_cost = file.length as f32 / model_file.length.max(1) as f32;
    let draft = verified
        .load(file)
        .and_then(|draft| DraftModel::new(draft, relative_cost, model.tokenizer()).map_err(|error| error.to_string()));
    draft.inspect_err(|reason| warn_of_draft(&file.path.display().to_string(), reason)).ok()
}

pub(super) fn warn_of_draft(name: &str, reason: &str) {
    tracing::warn!("the draft model {name} does not guess: {reason}");
}
