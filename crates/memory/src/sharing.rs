//! One folder shared by many processes.
//!
//! sled lets only one process open its folder. The first process to open memory becomes its owner and serves the others
//! over a socket; they are its clients and send it their requests. Ownership is a lock on a file, which the system
//! releases when the process ends. Once the owner is gone, the next client with a request takes the lock and becomes
//! the owner, or connects to the process that did. A request that was in flight is sent again, marked as a repetition:
//! every request can be repeated, see [`Local::answer`].
//!
//! An owner that was stopped or hangs still holds the lock, but sends no heartbeat. A client notices after a few
//! seconds. Its requests then fail at once for a while, or until it receives a heartbeat again.

mod owner;
#[cfg(unix)]
mod sockets;
#[cfg(not(unix))]
#[path = "sharing/no_sockets.rs"]
mod sockets;
#[cfg(unix)]
mod wire;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hone_files::create_private_folder;
use hone_protocol::{EnvelopeId, Timestamp};

use crate::due::DueList;
use crate::error::MemoryError;
use crate::files::{Purpose, make_private, remove_unfinished};
use crate::local::Local;
use crate::lock::lock;
use crate::options::MemoryOptions;
use crate::request::{Reply, Request};
use crate::storage::{folder_name, of_io};
use owner::{OwnerLock, owner_of};
use sockets::{Client, HeartbeatProbe, Server};

/// The subfolder of memory's folder with a folder for each database.
const DATABASE_FOLDER: &str = "postgres";

/// How long to try to become the owner or to connect to it. An owner that shuts down has to save its index, and the
/// next one may have to rebuild it.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(20);

/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// How long requests fail at once after the owner stopped responding, unless it sends a heartbeat earlier.
const OUTAGE_LENGTH: Duration = Duration::from_secs(30);

/// The shortest time for which requests fail at once after a database has failed.
const SHORTEST_OUTAGE: Duration = Duration::from_secs(1);

/// The memory in a folder, no matter which process owns it.
pub(crate) struct Shared {
    folder: PathBuf,
    options: MemoryOptions,
    access: RwLock<Arc<Access>>,
    outage: Mutex<Option<Outage>>,
    /// Events that were sent but not acknowledged; sending one again is a repetition.
    unacknowledged: Mutex<BTreeSet<EnvelopeId>>,
    due: DueList,
    /// Whether the last write was kept for later.
    keeps: AtomicBool,
    /// The reason for the first lost request, if any.
    loss: Mutex<Option<MemoryError>>,
}

/// A period in which requests fail without being tried, because the last attempt failed.
struct Outage {
    error: MemoryError,
    until: Instant,
    /// Ends the outage early, once the owner sends a heartbeat.
    probe: Option<HeartbeatProbe>,
}

impl Outage {
    /// The owner does not respond.
    fn of_owner(folder: &Path, reason: &str, probe: Option<HeartbeatProbe>) -> Outage {
        Outage { error: held(folder, reason), until: Instant::now() + OUTAGE_LENGTH, probe }
    }

    /// Memory cannot be opened or used at present; the failed attempt began at `begun`. A database that refuses at once
    /// is retried soon, one that hangs is not.
    fn of(error: MemoryError, begun: Instant) -> Outage {
        let length = match error {
            MemoryError::Database { .. } => (2 * begun.elapsed()).clamp(SHORTEST_OUTAGE, OUTAGE_LENGTH),
            _ => OUTAGE_LENGTH,
        };
        Outage { error, until: Instant::now() + length, probe: None }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.probe.as_ref().is_some_and(HeartbeatProbe::owner_was_heard)
    }
}

/// This process's access to memory.
enum Access {
    Owner(Owner),
    Client(Client),
    /// In a database, like other processes.
    Database(Arc<Local>),
    /// Not at all: memory cannot be opened at present.
    Unavailable,
}

/// The fields are dropped in this order: the server stops, storage is closed, and then the lock is released.
struct Owner {
    _server: Server,
    backup: BackupThread,
    local: Arc<Local>,
    _owner_lock: OwnerLock,
}

/// The thread that makes backups. Dropping it stops a backup in progress.
#[derive(Default)]
struct BackupThread {
    should_stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BackupThread {
    /// Starts a backup, unless one is running.
    fn start(&self, local: &Arc<Local>, now: Timestamp) {
        let mut thread = lock(&self.thread);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (local, should_stop) = (Arc::clone(local), Arc::clone(&self.should_stop));
        let named = thread::Builder::new().name("memory-backup".to_owned());
        let begun = named.spawn(move || {
            if let Err(error) = local.back_up_if_due(now, &should_stop) {
                tracing::warn!(%error, "memory is not backed up");
            }
        });
        *thread = begun.inspect_err(|error| tracing::warn!(%error, "memory is not backed up")).ok();
    }
}

impl Drop for BackupThread {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Release);
        let thread = lock(&self.thread).take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// The reason why a client got no answer: the owner is gone or does not respond.
pub(crate) struct NoAnswer {
    reason: String,
    /// Set if the owner does not respond.
    probe: Option<HeartbeatProbe>,
    /// Whether the request may have reached the owner.
    request_was_sent: bool,
}

impl Shared {
    /// Opens the memory in `folder`, or creates one there.
    ///
    /// # Errors
    /// When it cannot be read or written, or its owner does not answer.
    pub(crate) fn open(folder: &Path, options: MemoryOptions) -> Result<Shared, MemoryError> {
        create_private_folder(folder).map_err(|error| of_io(folder, &error))?;
        let access = obtain_access(folder, &options).map_err(MemoryError::from)?;
        Ok(Shared::with_access(folder, options, access))
    }

    /// Opens the memory in `folder`. If that fails, writing requests are kept until memory can be opened, which is
    /// retried from time to time; the reason is returned as well.
    pub(crate) fn open_or_defer(folder: &Path, options: MemoryOptions) -> (Shared, Option<MemoryError>) {
        let begun = Instant::now();
        let created = create_private_folder(folder).map_err(|error| of_io(folder, &error));
        match created.and_then(|()| obtain_access(folder, &options).map_err(MemoryError::from)) {
            Ok(access) => (Shared::with_access(folder, options, access), None),
            Err(error) => {
                let shared = Shared::with_access(folder, options, Access::Unavailable);
                // The caller tells the reason.
                shared.keeps.store(true, Ordering::Release);
                let error = shared.begin_outage(Outage::of(error, begun));
                (shared, Some(error))
            }
        }
    }

    fn with_access(folder: &Path, options: MemoryOptions, access: Access) -> Shared {
        let due_folder = options.url.as_deref().map_or_else(|| folder.to_owned(), |url| folder_of(folder, url));
        Shared {
            folder: folder.to_owned(),
            options,
            access: RwLock::new(Arc::new(access)),
            outage: Mutex::default(),
            unacknowledged: Mutex::default(),
            due: DueList::new(&due_folder),
            keeps: AtomicBool::new(false),
            loss: Mutex::default(),
        }
    }

    /// Answers a request, or keeps it for later if memory cannot be reached.
    ///
    /// # Errors
    /// See [`MemoryError`]; [`MemoryError::NotKept`] if it could not be kept.
    pub(crate) fn ask_or_keep(&self, request: &Request) -> Result<Reply, MemoryError> {
        let cause = match self.ask(request) {
            Err(error) if error.may_pass() => error,
            answered => {
                self.keeps.store(false, Ordering::Release);
                return answered;
            }
        };
        match self.due.keep(request) {
            Ok(()) => {
                // Logged as a warning once per interruption.
                match self.keeps.swap(true, Ordering::AcqRel) {
                    false => tracing::warn!(%cause, "memory cannot be reached: what is written is kept for later"),
                    true => tracing::debug!(%cause, "memory cannot be reached: a request is kept for later"),
                }
                Ok(Reply::Kept)
            }
            Err(error) => {
                let folder = self.due.folder().to_owned();
                let lost = MemoryError::NotKept { cause: Box::new(cause), folder, reason: error.to_string() };
                lock(&self.loss).get_or_insert_with(|| lost.clone());
                Err(lost)
            }
        }
    }

    /// Backs memory up on a background thread, if a backup is due and this process is the owner.
    pub(crate) fn back_up_if_due(&self, now: Timestamp) {
        let access = Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner));
        if let Access::Owner(owner) = &*access {
            owner.backup.start(&owner.local, now);
        }
    }

    /// The list of kept requests.
    pub(crate) fn due(&self) -> &DueList {
        &self.due
    }

    /// The reason for the first lost request, if any.
    pub(crate) fn loss(&self) -> Option<MemoryError> {
        lock(&self.loss).clone()
    }

    /// Answers a request, in this process or through the owner.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub(crate) fn ask(&self, request: &Request) -> Result<Reply, MemoryError> {
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        let mut is_repeated = self.is_unacknowledged(request);
        loop {
            self.check_outage()?;
            let access = Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner));
            let no_answer = match &*access {
                Access::Owner(owner) => return owner.local.answer(request, is_repeated),
                Access::Database(local) => return self.ask_database(local, request),
                Access::Client(client) => match client.ask(request, is_repeated) {
                    Ok(answer) => {
                        self.acknowledge(request);
                        return answer;
                    }
                    Err(no_answer) => no_answer,
                },
                Access::Unavailable => NoAnswer { reason: String::new(), probe: None, request_was_sent: false },
            };
            is_repeated |= no_answer.request_was_sent;
            let another = match no_answer.probe {
                Some(probe) => Err(self.begin_outage(Outage::of_owner(&self.folder, &no_answer.reason, Some(probe)))),
                None if Instant::now() >= deadline => Err(held(&self.folder, "it closes every connection")),
                None => self.renew_access(&access),
            };
            if let Err(error) = another {
                self.note_unacknowledged(request, is_repeated);
                return Err(error);
            }
        }
    }

    /// A database may have taken a request whose answer got lost, so every request counts as a repetition.
    fn ask_database(&self, local: &Local, request: &Request) -> Result<Reply, MemoryError> {
        let begun = Instant::now();
        local.answer(request, true).map_err(|error| match error {
            MemoryError::Database { .. } => self.begin_outage(Outage::of(error, begun)),
            other => other,
        })
    }

    /// Fails during an outage.
    fn check_outage(&self) -> Result<(), MemoryError> {
        let mut outage = lock(&self.outage);
        match outage.take_if(|outage| outage.is_over()) {
            Some(_) => Ok(()),
            None => outage.as_ref().map_or(Ok(()), |outage| Err(outage.error.clone())),
        }
    }

    /// Makes further requests fail for a while, and returns the error for the current one.
    fn begin_outage(&self, outage: Outage) -> MemoryError {
        let error = outage.error.clone();
        *lock(&self.outage) = Some(outage);
        error
    }

    fn note_unacknowledged(&self, request: &Request, was_sent: bool) {
        if let (Request::AppendEvent { envelope }, true) = (request, was_sent) {
            lock(&self.unacknowledged).insert(envelope.id);
        }
    }

    fn is_unacknowledged(&self, request: &Request) -> bool {
        matches!(request, Request::AppendEvent { envelope } if lock(&self.unacknowledged).contains(&envelope.id))
    }

    fn acknowledge(&self, request: &Request) {
        if let Request::AppendEvent { envelope } = request {
            lock(&self.unacknowledged).remove(&envelope.id);
        }
    }

    /// Replaces an access that no longer works, unless another thread has replaced it already.
    fn renew_access(&self, old: &Arc<Access>) -> Result<(), MemoryError> {
        let mut access = self.access.write().unwrap_or_else(PoisonError::into_inner);
        // The attempt of that thread may have failed.
        self.check_outage()?;
        if Arc::ptr_eq(&access, old) {
            let (was_unavailable, begun) = (matches!(**old, Access::Unavailable), Instant::now());
            let obtained = obtain_access(&self.folder, &self.options).map_err(|no_access| match no_access {
                NoAccess::Failed(error) if was_unavailable => self.begin_outage(Outage::of(error, begun)),
                NoAccess::Failed(error) => error,
                NoAccess::Unresponsive(outage) => self.begin_outage(outage),
            });
            *access = Arc::new(obtained?);
        }
        Ok(())
    }
}

/// The reason why this process can neither own memory nor be a client.
enum NoAccess {
    /// This process holds the lock, but memory cannot be opened.
    Failed(MemoryError),
    /// Another process holds the lock, but cannot be reached.
    Unresponsive(Outage),
}

impl From<MemoryError> for NoAccess {
    fn from(error: MemoryError) -> Self {
        NoAccess::Failed(error)
    }
}

impl From<NoAccess> for MemoryError {
    fn from(no_access: NoAccess) -> Self {
        match no_access {
            NoAccess::Failed(error) | NoAccess::Unresponsive(Outage { error, .. }) => error,
        }
    }
}

/// Becomes the owner, or a client of the current one.
fn obtain_access(folder: &Path, options: &MemoryOptions) -> Result<Access, NoAccess> {
    if let Some(url) = &options.url {
        let folder = folder_of(folder, url);
        create_private_folder(&folder).map_err(|error| of_io(&folder, &error))?;
        let local = Local::closed(&folder, options.clone());
        local.open()?;
        return Ok(Access::Database(Arc::new(local)));
    }
    let deadline = Instant::now() + ACQUIRE_TIMEOUT;
    loop {
        if let Some(owner_lock) = OwnerLock::try_acquire(folder).map_err(|error| of_io(folder, &error))? {
            return Ok(Access::Owner(own(folder, options, owner_lock)?));
        }
        let unreachable = match Client::connect(owner_of(folder)) {
            Ok(client) => return Ok(Access::Client(client)),
            Err(unreachable) => unreachable,
        };
        if unreachable.is_final || Instant::now() >= deadline {
            return Err(NoAccess::Unresponsive(Outage::of_owner(folder, &unreachable.reason, unreachable.probe)));
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Opens memory as its owner. Clients are accepted before memory is open, so that they receive heartbeats however long
/// opening takes. Permissions and leftover files are handled first, before any client can see or disturb them.
fn own(folder: &Path, options: &MemoryOptions, owner_lock: OwnerLock) -> Result<Owner, MemoryError> {
    make_private(folder);
    [Purpose::Owner, Purpose::Index].into_iter().for_each(|purpose| remove_unfinished(folder, purpose));
    let local = Arc::new(Local::closed(folder, options.clone()));
    let server = Server::start(folder, &local).map_err(|error| of_io(folder, &error))?;
    owner_lock.announce(server.address()).map_err(|error| of_io(folder, &error))?;
    local.open()?;
    Ok(Owner { _server: server, backup: BackupThread::default(), local, _owner_lock: owner_lock })
}

/// The folder for requests that this database could not take. No other database receives them: there they might belong
/// to another user.
fn folder_of(folder: &Path, url: &str) -> PathBuf {
    folder.join(DATABASE_FOLDER).join(folder_name(url))
}

/// Does `work` on the folder while no process has memory open.
///
/// # Errors
/// [`MemoryError::Held`] if a process has it open.
pub(crate) fn while_alone<R>(folder: &Path, work: impl FnOnce() -> Result<R, MemoryError>) -> Result<R, MemoryError> {
    create_private_folder(folder).map_err(|error| of_io(folder, &error))?;
    let owner_lock = OwnerLock::try_acquire(folder).map_err(|error| of_io(folder, &error))?;
    let _owner_lock = owner_lock.ok_or_else(|| held(folder, "a repair needs exclusive access"))?;
    make_private(folder);
    work()
}

/// Parses a message as the owner does, and returns whether it is valid.
#[cfg(all(unix, feature = "fuzzing"))]
pub(crate) fn read_request(bytes: impl std::io::Read) -> bool {
    hone_files::frames::receive::<wire::ReceivedRequest>(bytes).is_ok()
}

/// Without sockets there are no messages.
#[cfg(all(not(unix), feature = "fuzzing"))]
pub(crate) fn read_request(_bytes: impl std::io::Read) -> bool {
    false
}

/// The reason why a process could not connect to the owner.
pub(crate) struct Unreachable {
    reason: String,
    /// Whether retrying is pointless.
    is_final: bool,
    /// Set if the owner does not respond.
    probe: Option<HeartbeatProbe>,
}

fn held(folder: &Path, reason: &str) -> MemoryError {
    let process = owner_of(folder).map_or_else(|| "(unknown id)".to_owned(), |owner| owner.process.to_string());
    MemoryError::Held { folder: folder.to_owned(), process, reason: reason.to_owned() }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::net::UnixListener;

    use hone_files::frames::{receive, send};

    use super::wire::{OwnerMessage, ReceivedRequest};
    use super::*;

    /// The error that a client gets if the owner answers its handshake with `greeting`.
    fn refusal_of(greeting: &OwnerMessage) -> MemoryError {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let owner_lock = OwnerLock::try_acquire(folder.path()).unwrap().unwrap();
        owner_lock.announce(Some(&socket)).unwrap();
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
        let error = refusal_of(&OwnerMessage::Hello("9.9.9/1".to_owned())).to_string();
        assert!(error.contains("9.9.9/1") && error.contains(&std::process::id().to_string()), "{error}");
    }

    #[test]
    fn a_folder_has_one_owner() {
        let folder = tempfile::tempdir().unwrap();
        let first = OwnerLock::try_acquire(folder.path()).unwrap();
        assert!(first.is_some());
        assert!(OwnerLock::try_acquire(folder.path()).unwrap().is_none());
        drop(first);
        assert!(OwnerLock::try_acquire(folder.path()).unwrap().is_some());
    }
}
