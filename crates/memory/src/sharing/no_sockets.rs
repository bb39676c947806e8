//! Sharing where there are no Unix sockets: there is none. Whoever comes second is told who came first.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::owner::OwnerNote;
use super::{NoAnswer, Unreachable};
use crate::error::MemoryError;
use crate::local::Local;
use crate::request::{Reply, Request};

/// Serves nobody.
pub(super) struct Server;

impl Server {
    pub(super) fn start(_folder: &Path, _local: &Arc<Local>) -> io::Result<Server> {
        Ok(Server)
    }

    pub(super) fn address(&self) -> Option<&Path> {
        None
    }
}

/// There is none.
pub(super) enum Client {}

impl Client {
    pub(super) fn connect(_owner: Option<OwnerNote>) -> Result<Client, Unreachable> {
        let reason = "processes can share memory only where there are Unix sockets".to_owned();
        Err(Unreachable { reason, is_final: true, sign: None })
    }

    pub(super) fn ask(&self, _request: &Request, _is_repeated: bool) -> Result<Result<Reply, MemoryError>, NoAnswer> {
        match *self {}
    }
}

/// There is none either.
pub(super) enum LifeSign {}

impl LifeSign {
    pub(super) fn has_come(&self) -> bool {
        match *self {}
    }
}
