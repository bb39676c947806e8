//! A worker's answers and vectors for clients that wait.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, select};
use hone_fleet::{Caller, Fleet, Job, OfferedModel, Route, Work};
use hone_protocol::{EmbedError, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent};

use crate::app::App;
use crate::elsewhere::{EMBED, GENERATE};
use crate::embedder::SharedEmbedder;
use crate::models::offered;
use crate::running::embed_request::{EmbedRequest, Embedded};

/// Interval for checking whether the answer being generated is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// The models that a worker offers.
pub struct WorkerModels {
    generator: Arc<dyn Generate>,
    embedder: Arc<SharedEmbedder>,
    /// The model that answers.
    model: String,
    offered: Vec<OfferedModel>,
}

/// The end of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkEnd {
    /// It is done, with this number of tokens.
    Done(u64),
    /// It was given back, or is no longer wanted.
    Left,
    /// It could not be done here; another worker may be able to.
    Failed,
}

/// The incoming work for these models.
pub struct FleetWork {
    /// Questions.
    pub questions: Option<Work<GenerateRequest>>,
    /// Texts.
    pub texts: Option<Work<EmbedRequest>>,
}

impl WorkerModels {
    /// The configured models for these roles, on an engine of this process. Missing models are downloaded first.
    ///
    /// # Errors
    /// When a model cannot be found or downloaded, or cannot do its work.
    pub fn new(app: &App, generator: Arc<dyn Generate>, roles: &[&str]) -> anyhow::Result<WorkerModels> {
        let (model, embedder) = (&app.config.engine.model, app.shared_embedder());
        let mut models = Vec::new();
        if roles.contains(&GENERATE) {
            app.provide_here(model)?;
            models.push(offered(app, GENERATE, model)?);
        }
        if roles.contains(&EMBED) {
            if embedder.open().is_err() {
                app.installed(embedder.name())?;
                embedder.open()?;
            }
            models.push(offered(app, EMBED, embedder.name())?);
        }
        let named = |model: OfferedModel| OfferedModel { name: app.store.installed_name(&model.name), ..model };
        let offered = models.into_iter().map(named).collect();
        Ok(WorkerModels { generator, embedder: Arc::clone(embedder), model: model.clone(), offered })
    }

    /// Their descriptions for other machines.
    pub fn offered(&self) -> &[OfferedModel] {
        &self.offered
    }

    /// Starts taking work for them, up to `slots` pieces of each kind at a time.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn begin(&self, fleet: &Fleet, slots: usize) -> anyhow::Result<FleetWork> {
        let model = |role: &str| self.offered.iter().find(|model| model.role == role);
        let questions = model(GENERATE).map(|model| Work::begin(fleet, Route::to_model(GENERATE, &model.name), slots));
        let texts = model(EMBED).map(|model| Work::begin(fleet, Route::to_model(EMBED, &model.name), slots));
        Ok(FleetWork { questions: questions.transpose()?, texts: texts.transpose()? })
    }

    /// Answers a question, until something comes from `stop`, or the answer is no longer wanted.
    pub fn answer(&self, mut job: Job<GenerateRequest>, stop: &Receiver<()>) -> WorkEnd {
        let Some(caller) = job.caller.take() else {
            job.end();
            return WorkEnd::Left;
        };
        let request = GenerateRequest { model: self.model.clone(), ..job.content.clone() };
        let generation = Generation::start(&*self.generator, request);
        let mut n_tokens = 0;
        loop {
            let events = select! {
                recv(stop) -> _ => return WorkEnd::Left,
                recv(generation.events()) -> event => {
                    let first = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
                    std::iter::once(first).chain(generation.events().try_iter()).collect::<Vec<_>>()
                }
                default(LOOK) => Vec::new(),
            };
            n_tokens += events.iter().filter(|event| matches!(event, GenerationEvent::Token { .. })).count() as u64;
            let is_over = match events.last() {
                Some(GenerationEvent::Failed(error)) if n_tokens == 0 && is_of_worker(error) => {
                    tracing::warn!("a question is not answered: {error}");
                    job.fail(error.to_string());
                    return WorkEnd::Failed;
                }
                Some(GenerationEvent::Finished { .. } | GenerationEvent::Failed(_)) => true,
                _ => false,
            };
            if is_over | !send(&caller, &events) {
                job.end();
                return WorkEnd::Done(n_tokens);
            }
            if caller.is_gone() {
                job.end();
                return WorkEnd::Left;
            }
        }
    }

    /// Computes the vectors of texts.
    pub fn embed(&self, mut job: Job<EmbedRequest>) -> WorkEnd {
        let Some(caller) = job.caller.take() else {
            job.end();
            return WorkEnd::Left;
        };
        let embedded = job.content.answered_by(&self.embedder);
        if let Embedded::Failed(error) = &embedded {
            tracing::warn!("texts are not embedded: {error}");
            job.fail(error.reason.clone());
            return WorkEnd::Failed;
        }
        let as_message = |embedded: &Embedded| serde_json::to_vec(embedded).unwrap_or_default();
        if let Err(unsent) = caller.send(as_message(&embedded)) {
            let failed = EmbedError { model: self.embedder.name().to_owned(), reason: unsent.to_string() };
            let _ = caller.send(as_message(&Embedded::Failed(failed)));
        }
        job.end();
        WorkEnd::Done(0)
    }
}

/// Whether an error is specific to this machine, so that another one may succeed.
fn is_of_worker(error: &GenerateError) -> bool {
    match error {
        GenerateError::Model { .. }
        | GenerateError::Busy { .. }
        | GenerateError::Failed(_)
        | GenerateError::Stopped => true,
        GenerateError::Request(_)
        | GenerateError::NoTools { .. }
        | GenerateError::ContextOverflow { .. }
        | GenerateError::TimedOut { .. }
        | GenerateError::TooSlow { .. } => false,
    }
}

/// Sends events in as few messages as possible; returns whether more may follow, which is `false` after an event that
/// is too long by itself.
fn send(caller: &Caller, events: &[GenerationEvent]) -> bool {
    let as_message = |events: &[GenerationEvent]| serde_json::to_vec(events).unwrap_or_default();
    if events.is_empty() {
        return true;
    }
    let Err(unsent) = caller.send(as_message(events)) else { return true };
    if let (first, second @ [_, ..]) = events.split_at(events.len().div_ceil(2)) {
        return send(caller, first) && send(caller, second);
    }
    let reason = format!("a part of the answer cannot be sent: {unsent}");
    let _ = caller.send(as_message(&[GenerationEvent::Failed(GenerateError::Failed(reason))]));
    false
}
