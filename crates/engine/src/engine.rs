//! The engine thread: owns the device and the loaded models, and works on all requests at once.
//!
//! Callers hold an [`EngineHandle`]. A request goes in over a channel and its events come back over another; what the
//! thread does between is a loop of steps, each of which advances requests of one model by a token or a part of their
//! prompts. Which, the [scheduler](crate::scheduler) says. Models are loaded beside that, each on a thread of its own.

mod request;
pub mod status;
mod worker;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation, GenerationSender, LocateModel};
use thiserror::Error;

use crate::backend::BackendError;
use crate::backend::candle::open_device;
use crate::model::ModelOptions;
use crate::scheduler::SchedulerSettings;
use status::EngineStatus;
use worker::Worker;

/// How the engine works.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineOptions {
    /// How models are loaded.
    pub model: ModelOptions,
    /// Name of a small model that guesses for others of the same vocabulary.
    pub draft: Option<String>,
    /// How they share the device.
    pub scheduler: SchedulerSettings,
    /// Bytes that the weights and KV caches of all models together may take; nothing bounds them without it.
    pub memory: Option<u64>,
    /// How long a model stays in memory that nobody uses; for ever without it.
    pub keep_alive: Option<Duration>,
    /// Where what was computed of the latest conversation is saved when a model leaves memory, and found again; without it
    /// nothing is saved.
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
    /// The thread could not be made.
    #[error("cannot start the engine thread")]
    Thread(#[from] std::io::Error),
}

/// A way to the engine thread. Clones lead to the same thread, which ends when the last of them is dropped.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    messages: Sender<Message>,
    // Declared after the sender: the thread ends when the senders are gone, and is then joined.
    _thread: Arc<JoinOnDrop>,
}

/// What the thread is told.
enum Message {
    Generate(Box<QueuedRequest>),
    Status(Sender<EngineStatus>),
}

/// A request on its way to the thread.
struct QueuedRequest {
    request: GenerateRequest,
    events: GenerationSender,
    arrived: Instant,
}

impl EngineHandle {
    /// Starts the engine. Models are found through `locator` and loaded when they are first asked for.
    ///
    /// # Errors
    /// When the device cannot be used.
    pub fn start(options: impl Into<EngineOptions>, locator: Arc<dyn LocateModel>) -> Result<Self, EngineError> {
        let options = options.into();
        open_device(options.model.device)?;
        let (sender, receiver) = crossbeam_channel::unbounded();
        let worker = Worker::new(options, locator, receiver);
        let thread = std::thread::Builder::new().name("hone-engine".into()).spawn(move || worker.run())?;
        Ok(EngineHandle { messages: sender, _thread: Arc::new(JoinOnDrop(Mutex::new(Some(thread)))) })
    }

    /// What the engine is doing.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn status(&self) -> Result<EngineStatus, GenerateError> {
        let (answer, status) = crossbeam_channel::bounded(1);
        self.messages.send(Message::Status(answer)).map_err(|_| GenerateError::Stopped)?;
        status.recv().map_err(|_| GenerateError::Stopped)
    }
}

impl Generate for EngineHandle {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let (events, generation) = Generation::channel();
        let queued = QueuedRequest { request, events, arrived: Instant::now() };
        self.messages.send(Message::Generate(Box::new(queued))).map_err(|_| GenerateError::Stopped)?;
        Ok(generation)
    }
}

#[derive(Debug)]
struct JoinOnDrop(Mutex<Option<JoinHandle<()>>>);

impl Drop for JoinOnDrop {
    fn drop(&mut self) {
        let thread = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread catches panics of its own work; one that escapes has been printed already.
            let _ = thread.join();
        }
    }
}
