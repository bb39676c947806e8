//! One folder, many processes.
//!
//! sled lets one process into its folder. The first that opens memory owns it, and serves the others over a socket: they
//! send the requests that it answers itself. Who owns is settled by a lock on a file, which the system releases with the
//! process. When the owner is gone, the next request of any other takes the lock and owns memory from then on, or finds
//! somebody who does. A request that was under way is asked again, marked as a repetition: every request can be repeated,
//! see [`Local::answer`].
//!
//! An owner that was stopped, or hangs, holds the lock and does nothing. Whoever asks it is told so after a few seconds; for
//! a while further requests fail at once, until there is a sign of life.

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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hone_files::create_private_folder;
use hone_protocol::{EnvelopeId, Timestamp};

use crate::due::DueList;
use crate::error::MemoryError;
use crate::files::{Purpose, make_private, remove_unfinished};
use crate::local::Local;
use crate::options::MemoryOptions;
use crate::request::{Reply, Request};
use crate::storage::of_io;
use owner::{Ownership, owner_of};
#[cfg(unix)]
pub use sockets::socket_path;
use sockets::{Client, LifeSign, Server};

/// How long to try to become the owner or find the one that there is. An owner that ends has to save its index, and the
/// next one may have to build it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two such tries.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an owner that showed no sign of life is not asked again, unless it shows one.
const REST: Duration = Duration::from_secs(30);

/// The memory in a folder, whoever owns it.
pub(crate) struct Shared {
    folder: PathBuf,
    options: MemoryOptions,
    seat: RwLock<Arc<Seat>>,
    silence: Mutex<Option<Silence>>,
    /// Events that were sent and not acknowledged: to be sent again, they are repetitions.
    unacknowledged: Mutex<BTreeSet<EnvelopeId>>,
    due: DueList,
    /// Why the first request was lost, if one was.
    loss: Mutex<Option<MemoryError>>,
}

/// An owner that says nothing.
struct Silence {
    error: MemoryError,
    until: Instant,
    sign: Option<LifeSign>,
}

impl Silence {
    fn new(folder: &Path, reason: &str, sign: Option<LifeSign>) -> Silence {
        Silence { error: held(folder, reason), until: Instant::now() + REST, sign }
    }

    /// Memory that cannot be opened at present.
    fn of_failure(error: MemoryError) -> Silence {
        Silence { error, until: Instant::now() + REST, sign: None }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.sign.as_ref().is_some_and(LifeSign::has_come)
    }
}

/// What this process is to the folder.
enum Seat {
    Owner(Owner),
    Guest(Client),
    /// Neither: memory cannot be opened at present.
    Outsider,
}

/// The order of the fields is that of their end: nobody is served any more, storage is closed, the next one may own it.
struct Owner {
    _server: Server,
    tending: Tending,
    local: Arc<Local>,
    _ownership: Ownership,
}

/// The thread that makes backups; dropped, it ends with what it is doing.
#[derive(Default)]
struct Tending {
    is_ending: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Tending {
    /// Begins, unless the thread is busy.
    fn begin(&self, local: &Arc<Local>, now: Timestamp) {
        let mut thread = lock(&self.thread);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (local, is_ending) = (Arc::clone(local), Arc::clone(&self.is_ending));
        let named = thread::Builder::new().name("memory-backup".to_owned());
        let begun = named.spawn(move || {
            if let Err(error) = local.back_up_if_due(now, &is_ending) {
                tracing::warn!(%error, "memory is not backed up");
            }
        });
        *thread = begun.inspect_err(|error| tracing::warn!(%error, "memory is not backed up")).ok();
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        let thread = lock(&self.thread).take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Why a guest has no answer: the owner is gone, or silent.
pub(crate) struct NoAnswer {
    reason: String,
    /// Where a sign of life would come, if the owner is silent.
    sign: Option<LifeSign>,
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
        let seat = take_seat(folder, &options).map_err(MemoryError::from)?;
        Ok(Shared::with_seat(folder, options, seat))
    }

    /// Opens the memory in `folder`, or where that is impossible stays outside: what is to be remembered is kept until memory
    /// can be opened, which is tried again now and then. Gives the reason too.
    pub(crate) fn open_or_stay_outside(folder: &Path, options: MemoryOptions) -> (Shared, Option<MemoryError>) {
        let created = create_private_folder(folder).map_err(|error| of_io(folder, &error));
        match created.and_then(|()| take_seat(folder, &options).map_err(MemoryError::from)) {
            Ok(seat) => (Shared::with_seat(folder, options, seat), None),
            Err(error) => {
                let shared = Shared::with_seat(folder, options, Seat::Outsider);
                let error = shared.fall_silent(Silence::of_failure(error));
                (shared, Some(error))
            }
        }
    }

    fn with_seat(folder: &Path, options: MemoryOptions, seat: Seat) -> Shared {
        Shared {
            folder: folder.to_owned(),
            options,
            seat: RwLock::new(Arc::new(seat)),
            silence: Mutex::default(),
            unacknowledged: Mutex::default(),
            due: DueList::new(folder),
            loss: Mutex::default(),
        }
    }

    /// Has a request answered, or where memory cannot be reached, keeps it until it can.
    ///
    /// # Errors
    /// See [`MemoryError`]; [`MemoryError::NotKept`] where it could not be kept.
    pub(crate) fn ask_or_keep(&self, request: &Request) -> Result<Reply, MemoryError> {
        let cause = match self.ask(request) {
            Err(error) if error.may_pass() => error,
            answered => return answered,
        };
        match self.due.keep(request) {
            Ok(()) => {
                tracing::warn!(%cause, "memory cannot be reached: something is kept and remembered later");
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

    /// Backs memory up on a thread of its own, where that is due and this process owns memory.
    pub(crate) fn back_up_if_due(&self, now: Timestamp) {
        let seat = Arc::clone(&self.seat.read().unwrap_or_else(PoisonError::into_inner));
        if let Seat::Owner(owner) = &*seat {
            owner.tending.begin(&owner.local, now);
        }
    }

    /// What could not be written when it came.
    pub(crate) fn due(&self) -> &DueList {
        &self.due
    }

    /// Why something was lost, if anything was.
    pub(crate) fn loss(&self) -> Option<MemoryError> {
        lock(&self.loss).clone()
    }

    /// Has a request answered, here or by the owner.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub(crate) fn ask(&self, request: &Request) -> Result<Reply, MemoryError> {
        let deadline = Instant::now() + PATIENCE;
        let mut is_repeated = self.is_unacknowledged(request);
        loop {
            self.check_silence()?;
            let seat = Arc::clone(&self.seat.read().unwrap_or_else(PoisonError::into_inner));
            let no_answer = match &*seat {
                Seat::Owner(owner) => return owner.local.answer(request, is_repeated),
                Seat::Guest(client) => match client.ask(request, is_repeated) {
                    Ok(answer) => {
                        self.acknowledge(request);
                        return answer;
                    }
                    Err(no_answer) => no_answer,
                },
                Seat::Outsider => NoAnswer { reason: String::new(), sign: None, request_was_sent: false },
            };
            is_repeated |= no_answer.request_was_sent;
            let another = match no_answer.sign {
                Some(sign) => Err(self.fall_silent(Silence::new(&self.folder, &no_answer.reason, Some(sign)))),
                None if Instant::now() >= deadline => Err(held(&self.folder, "it ends every connection")),
                None => self.take_another_seat(&seat),
            };
            if let Err(error) = another {
                self.note_unacknowledged(request, is_repeated);
                return Err(error);
            }
        }
    }

    /// Fails where the owner was silent a short while ago.
    fn check_silence(&self) -> Result<(), MemoryError> {
        let mut silence = lock(&self.silence);
        match silence.take_if(|silence| silence.is_over()) {
            Some(_) => Ok(()),
            None => silence.as_ref().map_or(Ok(()), |silence| Err(silence.error.clone())),
        }
    }

    /// Has further requests fail for a while, and gives the error that this one fails with.
    fn fall_silent(&self, silence: Silence) -> MemoryError {
        let error = silence.error.clone();
        *lock(&self.silence) = Some(silence);
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

    /// Leaves a seat that is worth nothing, unless another thread did already.
    fn take_another_seat(&self, old: &Arc<Seat>) -> Result<(), MemoryError> {
        let mut seat = self.seat.write().unwrap_or_else(PoisonError::into_inner);
        // That thread may have waited in vain.
        self.check_silence()?;
        if Arc::ptr_eq(&seat, old) {
            let is_outside = matches!(**old, Seat::Outsider);
            let taken = take_seat(&self.folder, &self.options).map_err(|no_seat| match no_seat {
                NoSeat::Failed(error) if is_outside => self.fall_silent(Silence::of_failure(error)),
                NoSeat::Failed(error) => error,
                NoSeat::Silent(silence) => self.fall_silent(silence),
            });
            *seat = Arc::new(taken?);
        }
        Ok(())
    }
}

/// Why there is no seat.
enum NoSeat {
    /// This process could own the folder, if it could open memory.
    Failed(MemoryError),
    /// There is an owner that cannot be talked to.
    Silent(Silence),
}

impl From<MemoryError> for NoSeat {
    fn from(error: MemoryError) -> Self {
        NoSeat::Failed(error)
    }
}

impl From<NoSeat> for MemoryError {
    fn from(no_seat: NoSeat) -> Self {
        match no_seat {
            NoSeat::Failed(error) | NoSeat::Silent(Silence { error, .. }) => error,
        }
    }
}

/// Becomes the owner, or a guest of the one that there is.
fn take_seat(folder: &Path, options: &MemoryOptions) -> Result<Seat, NoSeat> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(ownership) = Ownership::take(folder).map_err(|error| of_io(folder, &error))? {
            return Ok(Seat::Owner(own(folder, options, ownership)?));
        }
        let reason = match Client::connect(owner_of(folder)) {
            Ok(client) => return Ok(Seat::Guest(client)),
            Err(reason) => reason,
        };
        if reason.is_final || Instant::now() >= deadline {
            return Err(NoSeat::Silent(Silence::new(folder, &reason.reason, reason.sign)));
        }
        thread::sleep(PAUSE);
    }
}

/// Opens memory, and answers for it. Guests are let in before it is open: however long that takes, they are told that
/// somebody works on it. What they may not see, or could disturb, is dealt with before.
fn own(folder: &Path, options: &MemoryOptions, ownership: Ownership) -> Result<Owner, MemoryError> {
    make_private(folder);
    [Purpose::Owner, Purpose::Index].into_iter().for_each(|purpose| remove_unfinished(folder, purpose));
    let local = Arc::new(Local::closed(folder, options.clone()));
    let server = Server::start(folder, &local).map_err(|error| of_io(folder, &error))?;
    ownership.announce(server.address()).map_err(|error| of_io(folder, &error))?;
    local.open()?;
    Ok(Owner { _server: server, tending: Tending::default(), local, _ownership: ownership })
}

/// Does something to the folder while no process has memory open.
///
/// # Errors
/// [`MemoryError::Held`] where one has.
pub(crate) fn while_alone<R>(folder: &Path, work: impl FnOnce() -> Result<R, MemoryError>) -> Result<R, MemoryError> {
    create_private_folder(folder).map_err(|error| of_io(folder, &error))?;
    let ownership = Ownership::take(folder).map_err(|error| of_io(folder, &error))?;
    let _ownership = ownership.ok_or_else(|| held(folder, "it has memory open, and a repair needs it closed"))?;
    make_private(folder);
    work()
}

/// Reads a message as the owner does, and says whether it makes sense.
#[cfg(all(unix, feature = "fuzzing"))]
pub(crate) fn read_request(bytes: impl std::io::Read) -> bool {
    wire::receive::<wire::ReceivedRequest>(bytes).is_ok()
}

/// Without sockets there are no messages.
#[cfg(all(not(unix), feature = "fuzzing"))]
pub(crate) fn read_request(_bytes: impl std::io::Read) -> bool {
    false
}

/// Why the owner cannot be talked to.
pub(crate) struct Unreachable {
    reason: String,
    /// Whether to try again is pointless.
    is_final: bool,
    /// Where a sign of life would come, if it is silent.
    sign: Option<LifeSign>,
}

fn held(folder: &Path, reason: &str) -> MemoryError {
    let process = owner_of(folder).map_or_else(|| "of an unknown number".to_owned(), |owner| owner.process.to_string());
    MemoryError::Held { folder: folder.to_owned(), process, reason: reason.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
