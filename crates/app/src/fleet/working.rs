//! The work of a worker for those who wait: answers and vectors.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, select};
use hone_fleet::{Caller, Fleet, Job, OfferedModel, Route, Work};
use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation, GenerationEvent};

use crate::app::App;
use crate::elsewhere::{EMBED, GENERATE, full_name};
use crate::embedder::SharedEmbedder;
use crate::models::offered;
use crate::running::embed_request::EmbedRequest;

/// How often a worker looks whether somebody still waits for the answer that it generates.
const LOOK: Duration = Duration::from_millis(100);

/// The models that a worker has for those who ask for them.
pub struct WorkerModels {
    generator: Arc<dyn Generate>,
    embedder: Arc<SharedEmbedder>,
    /// The model that answers.
    model: String,
    offered: Vec<OfferedModel>,
}

/// The end of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is done, with so many tokens.
    Done(u64),
    /// It was given back, or nobody waits for it.
    Left,
}

/// The work that comes for these models.
pub struct FleetWork {
    /// Questions.
    pub questions: Option<Work<GenerateRequest>>,
    /// Texts.
    pub texts: Option<Work<EmbedRequest>>,
}

impl WorkerModels {
    /// The configured models for these roles, on an engine of this process. Models that are missing are downloaded first.
    ///
    /// # Errors
    /// When a model cannot be had, or does not do what is asked of it.
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
        let offered = models
            .into_iter()
            .map(|model| OfferedModel { name: full_name(&app.store, &model.name), ..model })
            .collect();
        Ok(WorkerModels { generator, embedder: Arc::clone(embedder), model: model.clone(), offered })
    }

    /// What others should know of them.
    pub fn offered(&self) -> &[OfferedModel] {
        &self.offered
    }

    /// Begins to take work for them, `slots` pieces of each kind at a time.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn begin(&self, fleet: &Fleet, slots: usize) -> anyhow::Result<FleetWork> {
        let model = |role: &str| self.offered.iter().find(|model| model.role == role);
        let questions = model(GENERATE).map(|model| Work::begin(fleet, Route::to_model(GENERATE, &model.name), slots));
        let texts = model(EMBED).map(|model| Work::begin(fleet, Route::to_model(EMBED, &model.name), slots));
        Ok(FleetWork { questions: questions.transpose()?, texts: texts.transpose()? })
    }

    /// Answers a question, until something comes from `stop`, or nobody waits any more.
    pub fn answer(&self, mut job: Job<GenerateRequest>, stop: &Receiver<()>) -> Settled {
        let Some(caller) = job.caller.take() else {
            job.end();
            return Settled::Left;
        };
        let request = GenerateRequest { model: self.model.clone(), ..job.content.clone() };
        let generation = Generation::start(&*self.generator, request);
        let mut n_tokens = 0;
        loop {
            let events = select! {
                recv(stop) -> _ => return Settled::Left,
                recv(generation.events()) -> event => {
                    let first = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
                    std::iter::once(first).chain(generation.events().try_iter()).collect::<Vec<_>>()
                }
                default(LOOK) => Vec::new(),
            };
            n_tokens += events.iter().filter(|event| matches!(event, GenerationEvent::Token { .. })).count() as u64;
            let is_over = events.iter().any(is_last);
            if is_over | !send(&caller, &events) {
                job.end();
                return Settled::Done(n_tokens);
            }
            if caller.is_gone() {
                job.end();
                return Settled::Left;
            }
        }
    }

    /// Gives the vectors of texts.
    pub fn embed(&self, mut job: Job<EmbedRequest>) -> Settled {
        if let Some(caller) = job.caller.take() {
            let embedded = job.content.answered_by(&self.embedder);
            if let Err(unsent) = caller.send(serde_json::to_vec(&embedded).unwrap_or_default()) {
                tracing::warn!("vectors are not sent: {unsent}");
            }
        }
        job.end();
        Settled::Done(0)
    }
}

fn is_last(event: &GenerationEvent) -> bool {
    matches!(event, GenerationEvent::Finished { .. } | GenerationEvent::Failed(_))
}

/// Sends some events as one piece, or if they are too long for a message, one that says so; returns whether more may follow.
fn send(caller: &Caller, events: &[GenerationEvent]) -> bool {
    let as_message = |events: &[GenerationEvent]| serde_json::to_vec(events).unwrap_or_default();
    let sent = if events.is_empty() { Ok(()) } else { caller.send(as_message(events)) };
    if let Err(unsent) = sent {
        let reason = format!("a part of the answer cannot be sent: {unsent}");
        let last = GenerationEvent::Failed(GenerateError::Failed(reason));
        let _ = caller.send(as_message(&[last]));
        return false;
    }
    true
}
