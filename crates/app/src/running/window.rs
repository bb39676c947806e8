//! The status that a process shows to everyone who connects.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;
use std::time::Duration;

use hone_engine::EngineHandle;

use super::RunningProcess;
use super::listener::{Listener, addresses, connect};

/// Longer than any step of an engine takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// The folder of the sockets.
const FOLDER: &str = "running";

/// Answers every connection with the engine's status, until it is dropped.
pub(super) struct Window {
    _listener: Listener,
}

impl Window {
    pub(super) fn open(data_folder: &Path, engine: EngineHandle, command: String) -> io::Result<Window> {
        // A client that disconnects is not a failure.
        let listener = Listener::open(data_folder, FOLDER, move |visitor| drop(show(&visitor, &engine, &command)))?;
        Ok(Window { _listener: listener })
    }
}

fn show(mut visitor: &UnixStream, engine: &EngineHandle, command: &str) -> io::Result<()> {
    visitor.set_write_timeout(Some(PATIENCE))?;
    let status = engine.status().map_err(io::Error::other)?;
    let running = RunningProcess { process: process::id(), command: command.to_owned(), status };
    visitor.write_all(&serde_json::to_vec(&running)?)
}

pub(super) fn look_into_all(data_folder: &Path) -> Vec<RunningProcess> {
    let look_into = |address: &Path| serde_json::from_reader(connect(address, PATIENCE)?).ok();
    addresses(data_folder, FOLDER).iter().filter_map(|address| look_into(address)).collect()
}
