//! The engine thread: owns the device and the loaded models, and works on all requests at once.
//!
//! Callers hold an [`EngineHandle`]. If its model is in memory, a request is turned into tokens on the caller's thread,
//! so that the engine's thread is not held up, or on a thread of its own if the model's chat template may take long.
//! Requests arrive over a channel, and their events return over another. In between, the thread runs a loop of steps,
//! each of which advances requests of one model by a token or a part of their prompts; the
//! [scheduler](crate::scheduler) picks which. Models are loaded concurrently, each on a thread of its own.

mod prepare;
mod request;
pub(crate) mod status;
mod submission;
mod worker;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use hone_kernels::pool::prefer_performance_cores;
use hone_protocol::configured::{seconds_or_none, size, text_or_none};
use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, LocateModel};
use serde::Deserialize;
use thiserror::Error;

use crate::backend::BackendError;
use crate::model::{ModelOptions, Speculation};
use crate::scheduler::{ModelId, SchedulerSettings};
use prepare::LocatedRequest;
use request::RunningRequest;
use status::EngineStatus;
use submission::{LoadedTexts, Submission, prepare};
use worker::{Loaded, Worker};

/// How the engine works. The fields that a user sets are read from keys of the configuration (`config/engine.toml`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct EngineOptions {
    /// How models are loaded.
    #[serde(flatten)]
    pub model: ModelOptions,
    /// Name of a small model that drafts tokens for others with the same vocabulary.
    #[serde(deserialize_with = "text_or_none")]
    pub draft: Option<String>,
    /// How models and requests share the device.
    #[serde(skip)]
    pub scheduler: SchedulerSettings,
    /// Bytes that the weights and KV caches of all models together may take; `None` means unlimited.
    #[serde(rename = "memory_limit", deserialize_with = "size")]
    pub memory: Option<u64>,
    /// Bytes of the processor's memory for layers that a GPU has no room for; `None` means unlimited.
    #[serde(skip)]
    pub processor_memory: Option<u64>,
    /// How long an unused model stays in memory; `None` means indefinitely.
    #[serde(deserialize_with = "seconds_or_none")]
    pub keep_alive: Option<Duration>,
    /// Names of models that are never unloaded once loaded.
    pub pinned: Vec<String>,
    /// Where the computed prefix of the latest conversation is saved when a model leaves memory, and looked up again;
    /// `None` saves nothing.
    #[serde(skip)]
    pub prefix_folder: Option<PathBuf>,
}

impl From<ModelOptions> for EngineOptions {
    fn from(model: ModelOptions) -> Self {
        EngineOptions { model, ..EngineOptions::default() }
    }
}

/// Why the engine could not start.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] BackendError),
    /// The thread could not be started.
    #[error("cannot start the engine thread")]
    Thread(#[from] std::io::Error),
}

/// Polling interval while the engine thread ends.
const CLOSING_PAUSE: Duration = Duration::from_millis(10);

/// A handle to the engine thread. Clones share one thread, which ends when the last of them is dropped.
#[derive(Clone)]
pub struct EngineHandle {
    locator: Arc<dyn LocateModel>,
    texts: LoadedTexts,
    speculation: Speculation,
    events: Sender<Event>,
    _thread: Arc<EngineThread>,
}

impl fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHandle").finish_non_exhaustive()
    }
}

/// An event for the engine thread.
enum Event {
    /// A caller requests an answer.
    Generate(Submission),
    /// A caller requests the engine's status.
    Status(Sender<EngineStatus>),
    /// A caller requests that the model of this name be unloaded.
    Unload(String, Sender<()>),
    /// No handle is left, so no more requests can come.
    Closed,
    /// Loading progress: bytes of a model's weights in memory, and the total.
    Loading(ModelId, u64, u64),
    /// A model has been loaded, or loading failed.
    Loaded(Box<Loaded>),
    /// A request has been prepared, or was invalid and its caller has been told.
    Prepared(Option<Box<RunningRequest>>),
}

impl EngineHandle {
    /// Starts the engine. Models are found through `locator` and loaded when they are first requested.
    ///
    /// # Errors
    /// When the device cannot be used.
    pub fn start(options: impl Into<EngineOptions>, locator: Arc<dyn LocateModel>) -> Result<Self, EngineError> {
        let options = options.into();
        options.model.device.open()?;
        let (sender, receiver) = crossbeam_channel::unbounded();
        let (texts, speculation) = (LoadedTexts::default(), options.model.speculation);
        let worker = Worker::new(options, locator.clone(), texts.clone(), sender.clone(), receiver);
        let run = move || {
            prefer_performance_cores();
            worker.run();
        };
        let thread = std::thread::Builder::new().name("hone-engine".into()).spawn(run)?;
        let thread = Arc::new(EngineThread { events: sender.clone(), thread: Some(thread) });
        Ok(EngineHandle { locator, texts, speculation, events: sender, _thread: thread })
    }

    /// The engine's current status.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn status(&self) -> Result<EngineStatus, GenerateError> {
        let (answer, status) = crossbeam_channel::bounded(1);
        self.events.send(Event::Status(answer)).map_err(|_| GenerateError::Stopped)?;
        status.recv().map_err(|_| GenerateError::Stopped)
    }

    /// Unloads a model as soon as it is no longer in use. A pinned model stays in memory.
    ///
    /// # Errors
    /// When the engine has stopped.
    pub fn unload(&self, model: &str) -> Result<(), GenerateError> {
        let (answer, done) = crossbeam_channel::bounded(1);
        self.events.send(Event::Unload(model.to_owned(), answer)).map_err(|_| GenerateError::Stopped)?;
        done.recv().map_err(|_| GenerateError::Stopped)
    }
}

impl EngineHandle {
    /// Ends the thread as soon as it has nothing to do, even if other handles exist, and waits for it to finish saving,
    /// but at most for `patience`.
    pub fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            let (answer, status) = crossbeam_channel::bounded(1);
            let has_ended =
                self.events.send(Event::Closed).is_err() || self.events.send(Event::Status(answer)).is_err();
            // A status request left unanswered is dropped with the thread.
            if has_ended || status.recv_deadline(until).is_err() {
                return;
            }
            std::thread::sleep(CLOSING_PAUSE);
        }
    }
}

impl Generate for EngineHandle {
    /// Takes a moment if the model is in memory: the prompt is tokenized on this thread, unless its chat template is
    /// unknown and may take long.
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let arrived = Instant::now();
        let (events, generation) = Generation::channel();
        let file = match self.locator.locate(&request.model) {
            Ok(file) => file,
            Err(error) => {
                let error = GenerateError::Model { model: request.model, reason: error.to_string() };
                events.send(GenerationEvent::Failed(error));
                return Ok(generation);
            }
        };
        // A caller must be able to cancel a request while its template runs.
        let text = self.texts.get(&file).filter(|text| !text.may_take_long(&request.prompt));
        let located = LocatedRequest { request, file, events, arrived };
        let submission = match text {
            None => Submission::Unprepared(Box::new(located)),
            Some(text) => match prepare(located, &text, self.speculation) {
                Some(prepared) => Submission::Prepared(Box::new(prepared)),
                None => return Ok(generation),
            },
        };
        self.events.send(Event::Generate(submission)).map_err(|_| GenerateError::Stopped)?;
        Ok(generation)
    }
}

/// The thread, shared by all handles: when the last of them is dropped, it is told to end and joined.
struct EngineThread {
    events: Sender<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        // A thread that has already ended need not be told.
        let _ = self.events.send(Event::Closed);
        if let Some(thread) = self.thread.take() {
            // The thread catches panics of its own work; one that escapes has already been printed.
            let _ = thread.join();
        }
    }
}
