//! One folder, many processes.
//!
//! sled lets one process into its folder. The first that opens memory owns it, and serves the others over a socket: they
//! send the requests that it answers itself. Who owns is settled by a lock on a file, which the system releases with the
//! process. When the owner is gone, the next request of any other takes the lock and owns memory from then on, or finds
//! somebody who does. A request that was under way is asked again, marked as a repetition: every request can be repeated,
//! see [`Local::answer`].

mod owner;
#[cfg(unix)]
mod sockets;
#[cfg(not(unix))]
#[path = "sharing/no_sockets.rs"]
mod sockets;
#[cfg(unix)]
mod wire;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::MemoryError;
use crate::local::Local;
use crate::options::MemoryOptions;
use crate::request::{Reply, Request};
use crate::storage::of_io;
use owner::{Ownership, create_private_folder, owner_of};
#[cfg(unix)]
pub use sockets::socket_path;
use sockets::{Client, Server};

/// How long to try to become the owner or find the one that there is. An owner that ends has to save its index, and the
/// next one may have to build it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two such tries.
const PAUSE: Duration = Duration::from_millis(10);

/// The memory in a folder, whoever owns it.
pub(crate) struct Shared {
    folder: PathBuf,
    options: MemoryOptions,
    seat: RwLock<Arc<Seat>>,
}

/// What this process is to the folder.
enum Seat {
    Owner(Owner),
    Guest(Client),
}

/// The order of the fields is that of their end: nobody is served any more, storage is closed, the next one may own it.
struct Owner {
    _server: Server,
    local: Arc<Local>,
    _ownership: Ownership,
}

/// Why a guest has no answer: the owner is gone.
pub(crate) struct Gone {
    /// Whether the request may have reached it.
    request_was_sent: bool,
}

impl Shared {
    /// Opens the memory in `folder`, or begins one there.
    ///
    /// # Errors
    /// When it cannot be read or written, or its owner does not answer.
    pub(crate) fn open(folder: &Path, options: MemoryOptions) -> Result<Shared, MemoryError> {
        create_private_folder(folder).map_err(|error| of_io(folder, &error))?;
        let seat = RwLock::new(Arc::new(take_seat(folder, &options)?));
        Ok(Shared { folder: folder.to_owned(), options, seat })
    }

    /// Has a request answered, here or by the owner.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub(crate) fn ask(&self, request: &Request) -> Result<Reply, MemoryError> {
        let deadline = Instant::now() + PATIENCE;
        let mut is_repeated = false;
        loop {
            let seat = Arc::clone(&self.seat.read().unwrap_or_else(PoisonError::into_inner));
            let gone = match &*seat {
                Seat::Owner(owner) => return owner.local.answer(request, is_repeated),
                Seat::Guest(client) => match client.ask(request, is_repeated) {
                    Ok(answer) => return answer,
                    Err(gone) => gone,
                },
            };
            if Instant::now() >= deadline {
                return Err(held(&self.folder, "it ends every connection"));
            }
            is_repeated |= gone.request_was_sent;
            self.take_another_seat(&seat)?;
        }
    }

    /// Leaves a seat that is worth nothing, unless another thread did already.
    fn take_another_seat(&self, old: &Arc<Seat>) -> Result<(), MemoryError> {
        let mut seat = self.seat.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&seat, old) {
            *seat = Arc::new(take_seat(&self.folder, &self.options)?);
        }
        Ok(())
    }
}

/// Becomes the owner, or a guest of the one that there is.
fn take_seat(folder: &Path, options: &MemoryOptions) -> Result<Seat, MemoryError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(ownership) = Ownership::take(folder).map_err(|error| of_io(folder, &error))? {
            let local = Arc::new(Local::open(folder, options.clone())?);
            let server = Server::start(folder, &local).map_err(|error| of_io(folder, &error))?;
            ownership.announce(server.address()).map_err(|error| of_io(folder, &error))?;
            return Ok(Seat::Owner(Owner { _server: server, local, _ownership: ownership }));
        }
        let reason = match Client::connect(owner_of(folder)) {
            Ok(client) => return Ok(Seat::Guest(client)),
            Err(reason) => reason,
        };
        if reason.is_final || Instant::now() >= deadline {
            return Err(held(folder, &reason.reason));
        }
        thread::sleep(PAUSE);
    }
}

/// Why the owner cannot be talked to.
pub(crate) struct Unreachable {
    reason: String,
    /// Whether to try again is pointless.
    is_final: bool,
}

fn held(folder: &Path, reason: &str) -> MemoryError {
    let process = owner_of(folder).map_or_else(|| "of an unknown number".to_owned(), |owner| owner.process.to_string());
    MemoryError::Held { folder: folder.to_owned(), process, reason: reason.to_owned() }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::net::UnixListener;

    use super::wire::{FromOwner, ReceivedRequest, receive, send};
    use super::*;

    /// What is said where the owner answers a greeting so.
    fn refusal_of(greeting: &FromOwner) -> MemoryError {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let ownership = Ownership::take(folder.path()).unwrap().unwrap();
        ownership.announce(Some(&socket)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                assert!(matches!(receive(&stream).unwrap(), ReceivedRequest::Hello(_)));
                send(&stream, greeting).unwrap();
            });
            Shared::open(folder.path(), MemoryOptions::default()).map(drop).unwrap_err()
        })
    }

    #[test]
    fn an_owner_of_another_version_is_named() {
        let error = refusal_of(&FromOwner::Hello("9.9.9/1".to_owned())).to_string();
        assert!(error.contains("9.9.9/1") && error.contains(&std::process::id().to_string()), "{error}");
    }

    #[test]
    fn a_folder_has_one_owner() {
        let folder = tempfile::tempdir().unwrap();
        let first = Ownership::take(folder.path()).unwrap();
        assert!(first.is_some());
        assert!(Ownership::take(folder.path()).unwrap().is_none());
        drop(first);
        assert!(Ownership::take(folder.path()).unwrap().is_some());
    }
}
