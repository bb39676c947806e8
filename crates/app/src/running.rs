//! Running hone processes: each publishes its engine's status on its own Unix socket, and a server lends its engine on
//! another.
//!
//! The sockets are in folders that only this user may enter, named after their processes. A process that does not
//! respond is considered gone. Without Unix sockets, nothing is published or lent.

pub mod borrowing;
pub(crate) mod embed_request;
pub mod embedding;
#[cfg(unix)]
mod lending;
#[cfg(not(unix))]
#[path = "running/no_sockets.rs"]
mod lending;
#[cfg(unix)]
mod listener;
#[cfg(unix)]
mod window;
#[cfg(not(unix))]
#[path = "running/no_window.rs"]
mod window;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hone_engine::{EngineError, EngineHandle, EngineOptions, EngineStatus};
use hone_models::Store;
use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation};
use serde::{Deserialize, Serialize};

use self::lending::Lending;
use crate::embedder::SharedEmbedder;

/// The published status of a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunningProcess {
    /// Its process id.
    pub process: u32,
    /// The command that it was started with, such as `chat`.
    pub command: String,
    /// The state of its engine.
    #[serde(flatten)]
    pub status: EngineStatus,
}

/// The engine and the embedder that a process lends.
#[cfg_attr(not(unix), expect(dead_code, reason = "nothing is lent without Unix sockets"))]
struct Lent {
    engine: EngineHandle,
    /// The engine's settings.
    settings: String,
    embedder: Arc<SharedEmbedder>,
}

/// An engine whose status is published while it exists.
pub struct VisibleEngine {
    // Declared first, so that publishing ends before the engine does.
    _window: Option<window::Window>,
    engine: EngineHandle,
}

impl VisibleEngine {
    /// Starts an engine and publishes its status, along with the process's command. If that fails, the engine still works.
    ///
    /// # Errors
    /// When the device or the backend is unavailable.
    pub fn start(
        options: EngineOptions,
        store: &Arc<Store>,
        data_folder: &Path,
        command: &str,
    ) -> Result<VisibleEngine, EngineError> {
        let engine = EngineHandle::start(options, store.clone())?;
        let window = window::Window::open(data_folder, engine.clone(), command.to_owned());
        let window = window.inspect_err(|error| tracing::debug!(%error, "`hone ps` cannot see this process"));
        Ok(VisibleEngine { _window: window.ok(), engine })
    }

    /// Lends the engine to other processes whose engines would have the same settings, and the embedding model
    /// likewise, until the returned value is dropped.
    pub fn lend(&self, data_folder: &Path, settings: String, embedder: Arc<SharedEmbedder>) -> Option<Lending> {
        let lending = Lending::open(data_folder, Lent { engine: self.engine.clone(), settings, embedder });
        lending.inspect_err(|error| tracing::debug!(%error, "other processes cannot use this engine")).ok()
    }

    /// The engine's state.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn status(&self) -> Result<EngineStatus, GenerateError> {
        self.engine.status()
    }

    /// Ends the engine once it is idle, and waits until its saves are complete, but not longer than `patience`.
    pub fn close(&self, patience: Duration) {
        self.engine.close(patience);
    }

    /// Unloads a model as soon as it is not in use.
    ///
    /// # Errors
    /// When the engine has stopped.
    pub fn unload(&self, model: &str) -> Result<(), GenerateError> {
        self.engine.unload(model)
    }
}

impl Generate for VisibleEngine {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        self.engine.generate(request)
    }
}

/// All processes that use this data folder, by process id.
pub fn processes(data_folder: &Path) -> Vec<RunningProcess> {
    let mut found = window::look_into_all(data_folder);
    found.sort_by_key(|running| running.process);
    found
}
