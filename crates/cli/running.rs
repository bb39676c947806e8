//! Running hone processes: each publishes its engine's status on its own Unix socket.
//!
//! The sockets are in one folder that only this user may enter, named after their processes. A process that does not
//! respond is considered gone. Without Unix sockets, nothing is published.

use std::path::Path;

use hone_engine::engine::EngineHandle;
use hone_engine::engine::status::EngineStatus;
use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation};
use serde::{Deserialize, Serialize};

/// The published status of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunningProcess {
    /// Its process id.
    pub(crate) process: u32,
    /// The command that it was started with, such as `chat`.
    pub(crate) command: String,
    /// What its engine is doing.
    #[serde(flatten)]
    pub(crate) status: EngineStatus,
}

/// An engine whose status is published while it exists.
pub(crate) struct VisibleEngine {
    // Declared first, so that publishing ends before the engine does.
    _window: Option<window::Window>,
    engine: EngineHandle,
}

impl VisibleEngine {
    /// Starts publishing. If that fails, the engine still works.
    pub(crate) fn new(engine: EngineHandle, data_folder: &Path) -> VisibleEngine {
        let window = window::Window::open(data_folder, engine.clone());
        let window = window.inspect_err(|error| tracing::debug!(%error, "`hone ps` cannot see this process"));
        VisibleEngine { _window: window.ok(), engine }
    }
}

impl Generate for VisibleEngine {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        self.engine.generate(request)
    }
}

/// All processes that use this data folder, by process id.
pub(crate) fn processes(data_folder: &Path) -> Vec<RunningProcess> {
    let mut found = window::look_into_all(data_folder);
    found.sort_by_key(|running| running.process);
    found
}

#[cfg(unix)]
mod window {
    use std::fs::{self, Permissions};
    use std::io::{self, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::{Path, PathBuf};
    use std::process;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use hone_engine::engine::EngineHandle;
    use hone_files::create_private_folder;
    use hone_memory::socket_path;

    use super::RunningProcess;

    /// Longer than any step of an engine takes.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Answers every connection with the engine's status, until it is dropped.
    pub(super) struct Window {
        address: PathBuf,
        is_closing: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    }

    impl Window {
        pub(super) fn open(data_folder: &Path, engine: EngineHandle) -> io::Result<Window> {
            create_private_folder(data_folder)?;
            let address = address(data_folder, process::id())?;
            // An earlier process with the same id is gone.
            let _ = fs::remove_file(&address);
            let listener = UnixListener::bind(&address)?;
            fs::set_permissions(&address, Permissions::from_mode(0o600))?;
            let is_closing = Arc::new(AtomicBool::new(false));
            let closing = Arc::clone(&is_closing);
            let answer = move || {
                for visitor in listener.incoming() {
                    if closing.load(Ordering::SeqCst) {
                        return;
                    }
                    match visitor {
                        // A client that disconnects is not a failure.
                        Ok(visitor) => drop(show(&visitor, &engine)),
                        // If the process is out of file descriptors, some may be freed later.
                        Err(_) => thread::sleep(Duration::from_millis(50)),
                    }
                }
            };
            let thread = thread::Builder::new().name("hone-window".to_owned()).spawn(answer)?;
            Ok(Window { address, is_closing, thread: Some(thread) })
        }
    }

    impl Drop for Window {
        fn drop(&mut self) {
            self.is_closing.store(true, Ordering::SeqCst);
            let reached = UnixStream::connect(&self.address);
            let _ = fs::remove_file(&self.address);
            // If its socket was removed, the thread cannot be woken, and ends with the process.
            if let (Ok(_), Some(thread)) = (reached, self.thread.take()) {
                let _ = thread.join();
            }
        }
    }

    fn address(data_folder: &Path, process: u32) -> io::Result<PathBuf> {
        socket_path(data_folder, "running", &format!("{process}.sock"))
    }

    fn show(mut visitor: &UnixStream, engine: &EngineHandle) -> io::Result<()> {
        visitor.set_write_timeout(Some(PATIENCE))?;
        let status = engine.status().map_err(io::Error::other)?;
        let command = std::env::args().nth(1).unwrap_or_default();
        let running = RunningProcess { process: process::id(), command, status };
        visitor.write_all(&serde_json::to_vec(&running)?)
    }

    pub(super) fn look_into_all(data_folder: &Path) -> Vec<RunningProcess> {
        let folder = address(data_folder, 0).ok().and_then(|address| address.parent().map(Path::to_owned));
        let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
        entries.into_iter().flatten().flatten().filter_map(|entry| look_into(&entry.path())).collect()
    }

    fn look_into(address: &Path) -> Option<RunningProcess> {
        let stream = match UnixStream::connect(address) {
            Ok(stream) => stream,
            Err(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    // Its process was killed.
                    let _ = fs::remove_file(address);
                }
                return None;
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        serde_json::from_reader(stream).ok()
    }
}

#[cfg(not(unix))]
mod window {
    use std::io;
    use std::path::Path;

    use hone_engine::engine::EngineHandle;

    use super::RunningProcess;

    pub(super) struct Window;

    impl Window {
        pub(super) fn open(_: &Path, _: EngineHandle) -> io::Result<Window> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    pub(super) fn look_into_all(_: &Path) -> Vec<RunningProcess> {
        Vec::new()
    }
}
