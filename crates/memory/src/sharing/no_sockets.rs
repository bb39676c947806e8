//! Systems without Unix sockets: memory is not shared there. A second process gets an error that names the first.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::owner::OwnerNote;
use super::{NoAnswer, Unreachable};
use crate::error::MemoryError;
use crate::local::Local;
use crate::request::{Reply, Request};

/// Accepts no clients.
pub(super) struct Server(Arc<Local>);

impl Server {
    pub(super) fn start(_folder: &Path, local: &Arc<Local>) -> io::Result<Server> {
        Ok(Server(Arc::clone(local)))
    }

    pub(super) fn address(&self) -> Option<&Path> {
        None
    }
}

impl Drop for Server {
    /// Releases callers that wait for events.
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}

/// A client, which cannot exist here.
pub(super) enum Client {}

impl Client {
    pub(super) fn connect(_owner: Option<OwnerNote>) -> Result<Client, Unreachable> {
        let reason = "processes can share memory only where there are Unix sockets".to_owned();
        Err(Unreachable { reason, is_final: true, probe: None })
    }

    pub(super) fn ask(&self, _request: &Request, _is_repeated: bool) -> Result<Result<Reply, MemoryError>, NoAnswer> {
        match *self {}
    }
}

/// A probe of a client, which cannot exist here either.
pub(super) enum HeartbeatProbe {}

impl HeartbeatProbe {
    pub(super) fn owner_was_heard(&self) -> bool {
        match *self {}
    }
}
