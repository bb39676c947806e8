//! Sharing over a Unix socket: the owner's side and the clients'.
//!
//! While an owner works on an answer it sends a heartbeat every second, so that a client can tell a slow owner from one
//! that was stopped or hangs.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use hone_files::frames::{frame, receive, send};
use hone_files::socket_path;

use super::owner::OwnerNote;
use super::wire::{OwnerMessage, ReceivedRequest, SentRequest, VERSION};
use super::{NoAnswer, Unreachable};
use crate::error::MemoryError;
use crate::local::Local;
use crate::lock::lock;
use crate::request::{Reply, Request};

/// Time between two heartbeats of an owner that works on an answer.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// How long a client waits for an answer or a heartbeat.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a client waits for the owner's version, which only needs a free thread there.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an owner waits for a client that does not read its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves clients until it is dropped.
pub(super) struct Server {
    address: PathBuf,
    /// A second handle of the listening socket.
    listening: UnixStream,
    shared: Arc<ServerShared>,
    threads: Vec<JoinHandle<()>>,
    /// Dropping it stops the heartbeats.
    heartbeat: Option<Sender<()>>,
}

struct ServerShared {
    local: Arc<Local>,
    is_closing: AtomicBool,
    clients: Mutex<Vec<ClientThread>>,
}

struct ClientThread {
    connection: Arc<Connection>,
    /// `None` once it is being joined.
    thread: Option<JoinHandle<()>>,
}

/// A connection to a client.
struct Connection {
    stream: UnixStream,
    /// Whether an answer is being worked on. The lock is held while the stream is written to.
    is_working: Mutex<bool>,
}

impl Connection {
    /// Sends a heartbeat if an answer is being worked on.
    fn send_heartbeat(&self) {
        // If the lock is held, something is being written, which shows the client that the owner is alive.
        if let Ok(mut is_working) = self.is_working.try_lock()
            && *is_working
            && send(&self.stream, &OwnerMessage::Working).is_err()
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
    /// Listens as the folder's owner, replacing the socket of an earlier owner.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub(super) fn start(folder: &Path, local: &Arc<Local>) -> io::Result<Server> {
        let address = socket_path(folder, "sharing", "memory.sock")?;
        // The process that created it has ended: otherwise this one would not hold the lock.
        if address.exists() {
            fs::remove_file(&address)?;
        }
        let listener = UnixListener::bind(&address)?;
        fs::set_permissions(&address, fs::Permissions::from_mode(0o600))?;
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let shared = Arc::new(ServerShared {
            local: Arc::clone(local),
            is_closing: AtomicBool::new(false),
            clients: Mutex::default(),
        });
        let (serving, beating) = (Arc::clone(&shared), Arc::clone(&shared));
        let (heartbeat, ended) = bounded(0);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let threads = vec![
            named("memory-heartbeat").spawn(move || send_heartbeats(&beating, &ended))?,
            named("memory-sharing").spawn(move || accept(&listener, &serving))?,
        ];
        Ok(Server { address, listening, shared, threads, heartbeat: Some(heartbeat) })
    }

    /// The address of its socket.
    pub(super) fn address(&self) -> Option<&Path> {
        Some(&self.address)
    }
}

impl Drop for Server {
    /// Answers the requests in flight and accepts no others.
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.local.stop_waiting();
        // Wakes the accepting thread, so that it sees that it has to end. On Linux shutting the socket down is enough,
        // even if its file is gone; elsewhere it takes a connection.
        let _ = self.listening.shutdown(Shutdown::Both);
        let _ = UnixStream::connect(&self.address);
        let accepting = self.threads.pop();
        let _ = accepting.map(JoinHandle::join);
        let _ = fs::remove_file(&self.address);
        let threads: Vec<JoinHandle<()>> = {
            // Clients that wait for an answer still receive heartbeats.
            let mut clients = lock(&self.shared.clients);
            clients.iter().for_each(|client| drop(client.connection.stream.shutdown(Shutdown::Read)));
            clients.iter_mut().filter_map(|client| client.thread.take()).collect()
        };
        threads.into_iter().for_each(|thread| drop(thread.join()));
        drop(self.heartbeat.take());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn accept(listener: &UnixListener, shared: &Arc<ServerShared>) {
    for stream in listener.incoming() {
        if shared.is_closing.load(Ordering::SeqCst) {
            return;
        }
        let begun = stream.and_then(|stream| {
            stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
            let connection = Arc::new(Connection { stream, is_working: Mutex::default() });
            let (serving, served) = (Arc::clone(shared), Closing(Arc::clone(&connection)));
            let thread = thread::Builder::new().name("memory-client".to_owned()).spawn(move || {
                // A client that disconnects is not an error.
                let _ = serve(&served.0, &serving);
            })?;
            let mut clients = lock(&shared.clients);
            clients.retain(|client| client.thread.as_ref().is_some_and(|thread| !thread.is_finished()));
            clients.push(ClientThread { connection, thread: Some(thread) });
            Ok(())
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "another process cannot be given access to memory");
            // If the process has run out of file descriptors, some may be free again shortly.
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Closes a connection when it is dropped, also by a panic, so that no client waits for an answer that never comes.
struct Closing(Arc<Connection>);

impl Drop for Closing {
    fn drop(&mut self) {
        *lock(&self.0.is_working) = false;
        self.0.close();
    }
}

/// Sends heartbeats to every client that waits for an answer, until `ended` is disconnected.
fn send_heartbeats(shared: &ServerShared, ended: &Receiver<()>) {
    while ended.recv_timeout(HEARTBEAT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        lock(&shared.clients).iter().for_each(|client| client.connection.send_heartbeat());
    }
}

fn serve(connection: &Connection, shared: &ServerShared) -> io::Result<()> {
    let mut stream = &connection.stream;
    let ReceivedRequest::Hello(version) = receive(stream)? else { return Ok(()) };
    send(stream, &OwnerMessage::Hello(VERSION.to_owned()))?;
    if version != VERSION {
        return Ok(());
    }
    while !shared.is_closing.load(Ordering::SeqCst) {
        let ReceivedRequest::Ask(request, is_repeated) = receive(stream)? else { return Ok(()) };
        *lock(&connection.is_working) = true;
        let answer = frame(&OwnerMessage::Answer(shared.local.answer(&request, is_repeated)))?;
        let mut is_working = lock(&connection.is_working);
        *is_working = false;
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// A client of the owner. Concurrent requests use a connection each.
pub(super) struct Client {
    address: PathBuf,
    idle: Mutex<Vec<UnixStream>>,
}

impl Client {
    /// Connects to the owner.
    ///
    /// # Errors
    /// When it is unreachable: it may be starting up or shutting down, or be another version of hone.
    pub(super) fn connect(owner: Option<OwnerNote>) -> Result<Client, Unreachable> {
        let passing = |reason: String| Unreachable { reason, is_final: false, probe: None };
        let address =
            owner.and_then(|owner| owner.socket).ok_or_else(|| passing("it has not opened its socket".to_owned()))?;
        let client = Client { address, idle: Mutex::default() };
        let stream = client.connection().map_err(|error| passing(error.to_string()))?;
        match handshake(&stream) {
            Ok(version) if version == VERSION => {
                lock(&client.idle).push(stream);
                Ok(client)
            }
            Ok(version) => {
                let reason = format!("it is another version of hone ({version}, not {VERSION})");
                Err(Unreachable { reason, is_final: true, probe: None })
            }
            Err(error) if is_timeout(&error) => Err(Unreachable {
                reason: UNRESPONSIVE.to_owned(),
                is_final: true,
                probe: Some(HeartbeatProbe(stream)),
            }),
            Err(error) => Err(passing(error.to_string())),
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the owner is gone or does not respond.
    pub(super) fn ask(&self, request: &Request, is_repeated: bool) -> Result<Result<Reply, MemoryError>, NoAnswer> {
        let idle = lock(&self.idle).pop();
        let stream = match idle {
            Some(stream) => stream,
            None => {
                let stream = self.connection().map_err(|error| self.no_answer(None, &error, false))?;
                match handshake(&stream) {
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
        let unresponsive = stream.filter(|_| is_timeout(error));
        if unresponsive.is_some() {
            // The idle connections lead to the same process.
            lock(&self.idle).clear();
        }
        let reason = if unresponsive.is_some() { UNRESPONSIVE.to_owned() } else { error.to_string() };
        NoAnswer { reason, probe: unresponsive.map(HeartbeatProbe), request_was_sent }
    }

    fn connection(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.address)?;
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
        stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(stream)
    }
}

fn exchange(stream: &UnixStream, request: &Request, is_repeated: bool) -> io::Result<Result<Reply, MemoryError>> {
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    send(stream, &SentRequest::Ask(request, is_repeated))?;
    loop {
        match receive(stream)? {
            OwnerMessage::Answer(answer) => return Ok(answer),
            OwnerMessage::Working => {}
            OwnerMessage::Hello(_) => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// The connection on which an unresponsive owner's resumption or end is noticed.
pub(super) struct HeartbeatProbe(UnixStream);

impl HeartbeatProbe {
    /// Whether the owner has sent anything, or closed the connection.
    pub(super) fn owner_was_heard(&self) -> bool {
        let peek = || {
            self.0.set_nonblocking(true)?;
            (&self.0).read(&mut [0])
        };
        // The bytes are part of an answer that is no longer needed, or the end of the stream.
        !peek().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// The reason in the error about an unresponsive owner.
const UNRESPONSIVE: &str = "it does not respond; it may have been stopped";

/// Whether a read or a write timed out.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Exchanges versions, and returns the owner's.
fn handshake(stream: &UnixStream) -> io::Result<String> {
    send(stream, &SentRequest::Hello(VERSION.to_owned()))?;
    match receive(stream)? {
        OwnerMessage::Hello(version) => Ok(version),
        OwnerMessage::Working | OwnerMessage::Answer(_) => Err(ErrorKind::InvalidData.into()),
    }
}
