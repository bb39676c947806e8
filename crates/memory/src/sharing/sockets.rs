//! Sharing over a Unix socket: the owner's side and the guests'.

use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::owner::{OwnerNote, create_private_folder};
use super::wire::{FromOwner, ReceivedRequest, SentRequest, VERSION, receive, send};
use super::{Gone, Unreachable};
use crate::error::MemoryError;
use crate::local::Local;
use crate::request::{Reply, Request};

/// The longest path that every system takes for a socket (104 bytes with its end on macOS, 108 on Linux).
const LONGEST_PATH: usize = 100;

/// How long an owner may take for an answer, beside the time that it was asked to wait.
const LONGEST_ANSWER: Duration = Duration::from_secs(300);

/// Serves guests until it is dropped.
pub(super) struct Server {
    address: PathBuf,
    /// The listening socket once more.
    listening: UnixStream,
    shared: Arc<ServerShared>,
    accepting: Option<JoinHandle<()>>,
}

struct ServerShared {
    local: Arc<Local>,
    is_closing: AtomicBool,
    guests: Mutex<Vec<GuestThread>>,
}

struct GuestThread {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

impl Server {
    /// Listens in the name of the folder's owner, in place of any owner before.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(super) fn start(folder: &Path, local: &Arc<Local>) -> io::Result<Server> {
        let address = socket_path(folder, "sharing", "memory.sock")?;
        // Whoever made it is gone, or this process would not own the folder.
        if address.exists() {
            fs::remove_file(&address)?;
        }
        let listener = UnixListener::bind(&address)?;
        fs::set_permissions(&address, fs::Permissions::from_mode(0o600))?;
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let shared = Arc::new(ServerShared {
            local: Arc::clone(local),
            is_closing: AtomicBool::new(false),
            guests: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let accepting =
            thread::Builder::new().name("memory-sharing".to_owned()).spawn(move || accept(&listener, &serving))?;
        Ok(Server { address, listening, shared, accepting: Some(accepting) })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> Option<&Path> {
        Some(&self.address)
    }
}

impl Drop for Server {
    /// Answers what was asked, and nothing more.
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.local.stop_waiting();
        // Wakes the thread that accepts, so that it sees that it is to end. Linux does it when the socket is shut down, also
        // where its file is gone; elsewhere somebody has to come.
        let _ = self.listening.shutdown(Shutdown::Both);
        let _ = UnixStream::connect(&self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let _ = fs::remove_file(&self.address);
        let guests = std::mem::take(&mut *lock(&self.shared.guests));
        for guest in &guests {
            let _ = guest.stream.shutdown(Shutdown::Read);
        }
        for guest in guests {
            let _ = guest.thread.join();
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<ServerShared>) {
    for stream in listener.incoming() {
        if shared.is_closing.load(Ordering::SeqCst) {
            return;
        }
        let begun = stream.and_then(|stream| {
            let (serving, serve_stream) = (Arc::clone(shared), stream.try_clone()?);
            let thread = thread::Builder::new().name("memory-guest".to_owned()).spawn(move || {
                // A guest that goes away is no failure.
                let _ = serve(&serve_stream, &serving);
                let _ = serve_stream.shutdown(Shutdown::Both);
            })?;
            let mut guests = lock(&shared.guests);
            guests.retain(|guest| !guest.thread.is_finished());
            guests.push(GuestThread { stream, thread });
            Ok(())
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "another process cannot be given access to memory");
            // Where there are no file descriptors left, there may be some later.
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn serve(stream: &UnixStream, shared: &ServerShared) -> io::Result<()> {
    let ReceivedRequest::Hello(version) = receive(stream)? else { return Ok(()) };
    send(stream, &FromOwner::Hello(VERSION.to_owned()))?;
    if version != VERSION {
        return Ok(());
    }
    while !shared.is_closing.load(Ordering::SeqCst) {
        let ReceivedRequest::Ask(request, is_repeated) = receive(stream)? else { return Ok(()) };
        send(stream, &FromOwner::Answer(shared.local.answer(&request, is_repeated)))?;
    }
    Ok(())
}

/// Talks to an owner. Requests that are asked at the same time have a connection each.
pub(super) struct Client {
    address: PathBuf,
    idle: Mutex<Vec<UnixStream>>,
}

impl Client {
    /// Finds the owner.
    ///
    /// # Errors
    /// Why it cannot be talked to: it may just be beginning or ending, or be of another version.
    pub(super) fn connect(owner: Option<OwnerNote>) -> Result<Client, Unreachable> {
        let passing = |reason: String| Unreachable { reason, is_final: false };
        let address = owner.and_then(|owner| owner.socket).ok_or_else(|| passing("it has no socket".to_owned()))?;
        let client = Client { address, idle: Mutex::default() };
        let stream = client.connection().map_err(|error| passing(error.to_string()))?;
        match greet(&stream) {
            Ok(version) if version == VERSION => {
                lock(&client.idle).push(stream);
                Ok(client)
            }
            Ok(version) => {
                let reason = format!("it is another version of hone ({version}, not {VERSION})");
                Err(Unreachable { reason, is_final: true })
            }
            Err(error) => Err(passing(error.to_string())),
        }
    }

    /// Has a request answered.
    ///
    /// # Errors
    /// When the owner is gone.
    pub(super) fn ask(&self, request: &Request, is_repeated: bool) -> Result<Result<Reply, MemoryError>, Gone> {
        let not_sent = |_: io::Error| Gone { request_was_sent: false };
        let idle = lock(&self.idle).pop();
        let stream = match idle {
            Some(stream) => stream,
            None => {
                let stream = self.connection().map_err(not_sent)?;
                greet(&stream).map_err(not_sent)?;
                stream
            }
        };
        let answered = self.exchange(&stream, request, is_repeated).map_err(|_| Gone { request_was_sent: true })?;
        lock(&self.idle).push(stream);
        Ok(answered)
    }

    fn exchange(
        &self,
        stream: &UnixStream,
        request: &Request,
        is_repeated: bool,
    ) -> io::Result<Result<Reply, MemoryError>> {
        let waits = match request {
            Request::AwaitEvents { milliseconds, .. } => Duration::from_millis(*milliseconds),
            _ => Duration::ZERO,
        };
        stream.set_read_timeout(Some(LONGEST_ANSWER.saturating_add(waits)))?;
        send(stream, &SentRequest::Ask(request, is_repeated))?;
        match receive(stream)? {
            FromOwner::Answer(answer) => Ok(answer),
            FromOwner::Hello(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn connection(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.address)?;
        stream.set_read_timeout(Some(LONGEST_ANSWER))?;
        Ok(stream)
    }
}

/// Says who is there, and gives the owner's version.
fn greet(stream: &UnixStream) -> io::Result<String> {
    send(stream, &SentRequest::Hello(VERSION.to_owned()))?;
    match receive(stream)? {
        FromOwner::Hello(version) => Ok(version),
        FromOwner::Answer(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Where a process that serves others of the same person listens: in a folder `inside` of `folder` that nobody else may
/// enter, or where that path would be too long, in such a folder among the system's temporary files. The folder exists
/// afterwards.
///
/// # Errors
/// When it cannot be made, or somebody else has made it.
pub fn socket_path(folder: &Path, inside: &str, name: &str) -> io::Result<PathBuf> {
    let folder = folder.canonicalize()?;
    let inside = folder.join(inside);
    let private = if inside.join(name).as_os_str().len() <= LONGEST_PATH {
        inside
    } else {
        let sum = Sha256::digest(inside.as_os_str().as_encoded_bytes());
        let sum: String = sum.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        std::env::temp_dir().join(format!("hone-{sum}"))
    };
    create_private_folder(&private)?;
    // Among temporary files anybody may have been there first.
    let (found, own) = (fs::symlink_metadata(&private)?, fs::metadata(&folder)?);
    if !found.is_dir() || found.uid() != own.uid() {
        let reason = format!("{} belongs to somebody else", private.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    // A copy of a folder need not have its permissions.
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700))?;
    Ok(private.join(name))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
