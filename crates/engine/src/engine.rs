//! The engine thread: owns the device and the loaded models, and works on all requests at once.
//!
//! Callers hold an [`EngineHandle`]. A request goes in over a channel and its events come back over another; what the
//! thread does between is a loop of steps, each of which advances every running request of a model by one token or one
//! chunk of its prompt. Requests that do not fit into the KV cache wait for their turn.

mod request;
mod worker;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation, GenerationSender, LocateModel};
use thiserror::Error;

use crate::backend::BackendError;
use crate::backend::candle::open_device;
use crate::model::ModelOptions;
use worker::Worker;

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
    requests: Sender<QueuedRequest>,
    // Declared after the sender: the thread ends when the senders are gone, and is then joined.
    _thread: Arc<JoinOnDrop>,
}

/// A request on its way to the thread.
struct QueuedRequest {
    request: GenerateRequest,
    events: GenerationSender,
}

impl EngineHandle {
    /// Starts the engine. Models are found through `locator` and loaded when they are first asked for.
    ///
    /// # Errors
    /// When the device cannot be used.
    pub fn start(options: ModelOptions, locator: Arc<dyn LocateModel>) -> Result<Self, EngineError> {
        open_device(options.device)?;
        let (sender, receiver) = crossbeam_channel::unbounded();
        let worker = Worker::new(options, locator, receiver);
        let thread = std::thread::Builder::new().name("hone-engine".into()).spawn(move || worker.run())?;
        Ok(EngineHandle { requests: sender, _thread: Arc::new(JoinOnDrop(Mutex::new(Some(thread)))) })
    }
}

impl Generate for EngineHandle {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let (events, generation) = Generation::channel();
        self.requests.send(QueuedRequest { request, events }).map_err(|_| GenerateError::Stopped)?;
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
