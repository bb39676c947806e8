//! Sharing over a Unix socket: the owner's side and the guests'.
//!
//! While an owner works on an answer it says so every second, so that a guest can tell an owner that takes long from one
//! that does nothing any more, because it was stopped or hangs.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use sha2::{Digest, Sha256};

use super::owner::OwnerNote;
use super::wire::{FromOwner, ReceivedRequest, SentRequest, VERSION, frame, receive, send};
use super::{NoAnswer, Unreachable};
use crate::error::MemoryError;
use crate::local::Local;
use crate::request::{Reply, Request};
use hone_files::create_private_folder;

/// The longest path that every system takes for a socket (104 bytes with its end on macOS, 108 on Linux).
const LONGEST_PATH: usize = 100;

/// How often an owner says that it works.
const PULSE: Duration = Duration::from_secs(1);

/// How long an owner that was asked for something may say nothing at all.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);

/// How long an owner may take to say who it is, for which it needs nothing but a thread.
const LONGEST_GREETING: Duration = Duration::from_secs(2);

/// How long an owner waits for a guest that does not take its answer.
const LONGEST_DELIVERY: Duration = Duration::from_secs(10);

/// Serves guests until it is dropped.
pub(super) struct Server {
    address: PathBuf,
    /// The listening socket once more.
    listening: UnixStream,
    shared: Arc<ServerShared>,
    threads: Vec<JoinHandle<()>>,
    /// Dropped, it ends the pulse.
    pulse: Option<Sender<()>>,
}

struct ServerShared {
    local: Arc<Local>,
    is_closing: AtomicBool,
    guests: Mutex<Vec<GuestThread>>,
}

struct GuestThread {
    connection: Arc<Connection>,
    /// Until somebody waits for its end.
    thread: Option<JoinHandle<()>>,
}

/// A connection to a guest.
struct Connection {
    stream: UnixStream,
    /// Whether an answer is being worked on. Whoever writes to the stream holds the lock.
    is_working: Mutex<bool>,
}

impl Connection {
    /// Says that an answer is being worked on, where that is so.
    fn pulse(&self) {
        // Somebody who holds the lock writes, which is a sign of life as well.
        if let Ok(mut is_working) = self.is_working.try_lock()
            && *is_working
            && send(&self.stream, &FromOwner::Working).is_err()
        {
            *is_working = false;
            self.close();
        }
    }

    fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
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
        let (serving, pulsing) = (Arc::clone(&shared), Arc::clone(&shared));
        let (pulse, ended) = bounded(0);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let threads = vec![
            named("memory-pulse").spawn(move || keep_pulse(&pulsing, &ended))?,
            named("memory-sharing").spawn(move || accept(&listener, &serving))?,
        ];
        Ok(Server { address, listening, shared, threads, pulse: Some(pulse) })
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
        let accepting = self.threads.pop();
        let _ = accepting.map(JoinHandle::join);
        let _ = fs::remove_file(&self.address);
        let threads: Vec<JoinHandle<()>> = {
            // What is being answered still has a pulse.
            let mut guests = lock(&self.shared.guests);
            guests.iter().for_each(|guest| drop(guest.connection.stream.shutdown(Shutdown::Read)));
            guests.iter_mut().filter_map(|guest| guest.thread.take()).collect()
        };
        threads.into_iter().for_each(|thread| drop(thread.join()));
        drop(self.pulse.take());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn accept(listener: &UnixListener, shared: &Arc<ServerShared>) {
    for stream in listener.incoming() {
        if shared.is_closing.load(Ordering::SeqCst) {
            return;
        }
        let begun = stream.and_then(|stream| {
            stream.set_write_timeout(Some(LONGEST_DELIVERY))?;
            let connection = Arc::new(Connection { stream, is_working: Mutex::default() });
            let (serving, served) = (Arc::clone(shared), Closing(Arc::clone(&connection)));
            let thread = thread::Builder::new().name("memory-guest".to_owned()).spawn(move || {
                // A guest that goes away is no failure.
                let _ = serve(&served.0, &serving);
            })?;
            let mut guests = lock(&shared.guests);
            guests.retain(|guest| guest.thread.as_ref().is_some_and(|thread| !thread.is_finished()));
            guests.push(GuestThread { connection, thread: Some(thread) });
            Ok(())
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "another process cannot be given access to memory");
            // Where there are no file descriptors left, there may be some later.
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Closes a connection in the end, also where that is a panic: nobody must wait for an answer that does not come.
struct Closing(Arc<Connection>);

impl Drop for Closing {
    fn drop(&mut self) {
        *lock(&self.0.is_working) = false;
        self.0.close();
    }
}

/// Tells every guest that waits for an answer that it is being worked on, until `ended`.
fn keep_pulse(shared: &ServerShared, ended: &Receiver<()>) {
    while ended.recv_timeout(PULSE) == Err(RecvTimeoutError::Timeout) {
        lock(&shared.guests).iter().for_each(|guest| guest.connection.pulse());
    }
}

fn serve(connection: &Connection, shared: &ServerShared) -> io::Result<()> {
    let mut stream = &connection.stream;
    let ReceivedRequest::Hello(version) = receive(stream)? else { return Ok(()) };
    send(stream, &FromOwner::Hello(VERSION.to_owned()))?;
    if version != VERSION {
        return Ok(());
    }
    while !shared.is_closing.load(Ordering::SeqCst) {
        let ReceivedRequest::Ask(request, is_repeated) = receive(stream)? else { return Ok(()) };
        *lock(&connection.is_working) = true;
        let answer = frame(&FromOwner::Answer(shared.local.answer(&request, is_repeated)))?;
        let mut is_working = lock(&connection.is_working);
        *is_working = false;
        stream.write_all(&answer)?;
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
        let passing = |reason: String| Unreachable { reason, is_final: false, sign: None };
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
                Err(Unreachable { reason, is_final: true, sign: None })
            }
            Err(error) if is_silence(&error) => {
                Err(Unreachable { reason: SILENT.to_owned(), is_final: true, sign: Some(LifeSign(stream)) })
            }
            Err(error) => Err(passing(error.to_string())),
        }
    }

    /// Has a request answered.
    ///
    /// # Errors
    /// When the owner is gone, or shows no sign of life.
    pub(super) fn ask(&self, request: &Request, is_repeated: bool) -> Result<Result<Reply, MemoryError>, NoAnswer> {
        let idle = lock(&self.idle).pop();
        let stream = match idle {
            Some(stream) => stream,
            None => {
                let stream = self.connection().map_err(|error| self.no_answer(None, &error, false))?;
                match greet(&stream) {
                    Ok(_) => stream,
                    Err(error) => return Err(self.no_answer(Some(stream), &error, false)),
                }
            }
        };
        match exchange(&stream, request, is_repeated) {
            Ok(answer) => {
                lock(&self.idle).push(stream);
                Ok(answer)
            }
            Err(error) => Err(self.no_answer(Some(stream), &error, true)),
        }
    }

    fn no_answer(&self, stream: Option<UnixStream>, error: &io::Error, request_was_sent: bool) -> NoAnswer {
        let silent = stream.filter(|_| is_silence(error));
        if silent.is_some() {
            // The others lead to the same process.
            lock(&self.idle).clear();
        }
        let reason = if silent.is_some() { SILENT.to_owned() } else { error.to_string() };
        NoAnswer { reason, sign: silent.map(LifeSign), request_was_sent }
    }

    fn connection(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.address)?;
        stream.set_read_timeout(Some(LONGEST_GREETING))?;
        stream.set_write_timeout(Some(LONGEST_SILENCE))?;
        Ok(stream)
    }
}

fn exchange(stream: &UnixStream, request: &Request, is_repeated: bool) -> io::Result<Result<Reply, MemoryError>> {
    stream.set_read_timeout(Some(LONGEST_SILENCE))?;
    send(stream, &SentRequest::Ask(request, is_repeated))?;
    loop {
        match receive(stream)? {
            FromOwner::Answer(answer) => return Ok(answer),
            FromOwner::Working => {}
            FromOwner::Hello(_) => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Where an owner that was silent will be heard first, when it goes on or ends.
pub(super) struct LifeSign(UnixStream);

impl LifeSign {
    /// Whether there was any.
    pub(super) fn has_come(&self) -> bool {
        let peek = || {
            self.0.set_nonblocking(true)?;
            (&self.0).read(&mut [0])
        };
        // What is read is part of an answer that nobody waits for any more, or the end.
        !peek().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// What to say of an owner that is silent.
const SILENT: &str = "it shows no sign of life, as a process does that was stopped";

/// Whether a read or a write has failed since it took too long.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Says who is there, and gives the owner's version.
fn greet(stream: &UnixStream) -> io::Result<String> {
    send(stream, &SentRequest::Hello(VERSION.to_owned()))?;
    match receive(stream)? {
        FromOwner::Hello(version) => Ok(version),
        FromOwner::Working | FromOwner::Answer(_) => Err(ErrorKind::InvalidData.into()),
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
