//! The one place that knows sled: keys and values in order, batches that are written whole or not at all, and a flush
//! after which they are durable.
//!
//! sled's own flush asks the kernel to write the log's pages out (`sync_file_range` on Linux), which neither makes a
//! growing file's length durable nor empties the drive's cache. So a flush here ends with an fsync of the log through a
//! handle of our own, and of the files that sled puts values beside the log in that are too large for it.
//!
//! Why sled 0.34.7 and not 1.0.0-alpha.124: `tests/kill.rs` was run on both, the same code but for this module. Of 6 300
//! processes that wrote to 0.34.7 and were killed none lost or halved anything. Before, when sled began its folder in place,
//! 2 of 1 800 left one that it would not open again: its settings were cut short, hence [`create`]. A snapshot that is cut
//! short, which a full disk leaves behind, has the same effect, hence [`remove_unfinished_snapshots`]. Of 900 processes that
//! were killed with 1.0.0-alpha.124 none lost anything either. But where 0.34.7 takes 1.0 to 1.4 ms for a durable write (0.3 ms
//! in eight threads, which share flushes), 5 ms to open 500 engrams and 10 MB on disk, the alpha took 23 ms (35 ms in eight
//! threads), 45 ms and 6 MB on the same busy machine; and its author says that its format is going to change.
//!
//! A killed process is not a machine that loses its power. For that there is the fsync, and no test.

mod damage;
pub(crate) mod log;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::RangeBounds;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::MemoryError;
use crate::files::make_private;
use hone_files::{create_private_folder, sync_folder};

/// Bytes of sled's cache of pages; what a question needs is a few of them.
const CACHE_BYTES: u64 = 32 << 20;

/// Bytes that sled's log grows by. Pages of more than a quarter of it are put into files of their own, which a page of
/// sixteen long answers would be with sled's default of 512 KiB.
pub(crate) const SEGMENT_BYTES: usize = 2 << 20;

/// How long sled may take to close a database.
const LONGEST_CLOSING: Duration = Duration::from_secs(10);

/// What sled says of a database that is open already.
const LOCKED: &str = "could not acquire lock";

/// Writes that happen together or not at all.
#[derive(Default)]
pub(crate) struct Batch {
    writes: sled::Batch,
    n_bytes: u64,
}

impl Batch {
    /// Puts `value` at `key`, in place of what is there.
    pub(crate) fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.n_bytes += (key.len() + value.len()) as u64;
        self.writes.insert(key, value);
    }

    /// Whether it does nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.n_bytes == 0
    }

    /// Removes what is at `key`.
    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.n_bytes += key.len() as u64;
        self.writes.remove(key);
    }
}

/// Ordered keys and values on disk.
pub(crate) struct Storage {
    folder: PathBuf,
    database: sled::Db,
    log: File,
    reserved_bytes: u64,
    synced_blobs: Mutex<BTreeSet<OsString>>,
    is_broken: AtomicBool,
}

impl Storage {
    /// Opens what is in `folder`, or creates it.
    ///
    /// # Errors
    /// When it cannot be read or written, or another process has it open.
    pub(crate) fn open(folder: &Path, reserved_bytes: u64) -> Result<Storage, MemoryError> {
        if folder.exists() {
            remove_unfinished_snapshots(folder).map_err(|error| of_io(folder, &error))?;
            damage::check(folder)?;
        } else {
            create(folder)?;
        }
        let database = open_database(folder)?;
        // sled has written a snapshot, with rights as the umask has them; nobody else can enter the folder meanwhile.
        make_private(folder);
        let log = File::open(folder.join("db")).map_err(|error| of_io(folder, &error))?;
        let (synced_blobs, is_broken) = (Mutex::default(), AtomicBool::new(false));
        Ok(Storage { folder: folder.to_owned(), database, log, reserved_bytes, synced_blobs, is_broken })
    }

    /// What is at `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MemoryError> {
        let value = self.contained(|| self.database.get(key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Keys and values of a range, in order; from its end where it is reversed. The first failure is the last item.
    pub(crate) fn range(&self, range: impl RangeBounds<Vec<u8>>) -> Pairs<'_> {
        Pairs { storage: self, pairs: Some(self.database.range(range)) }
    }

    /// Does all that a batch says. It is durable after the next [`Storage::flush`].
    ///
    /// # Errors
    /// When there is no room for it, or sled fails; see [`Storage::is_broken`].
    pub(crate) fn apply(&self, batch: Batch) -> Result<(), MemoryError> {
        self.check_room(batch.n_bytes)?;
        self.contained(|| self.database.apply_batch(batch.writes))
    }

    /// Makes durable all that was applied before.
    ///
    /// # Errors
    /// When it could not be written. What was applied since the last flush is then lost, or not.
    pub(crate) fn flush(&self) -> Result<(), MemoryError> {
        self.contained(|| self.database.flush())?;
        self.sync_files().map_err(|error| {
            self.is_broken.store(true, Ordering::Release);
            of_io(&self.folder, &error)
        })
    }

    /// Whether sled has failed: what it holds in memory and what is on disk may differ, and it has to be opened again.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Notes that sled has failed in a way that it does not say itself.
    pub(crate) fn mark_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Bytes that its files take.
    pub(crate) fn bytes_on_disk(&self) -> Result<u64, MemoryError> {
        self.database.size_on_disk().map_err(|error| self.failed(error))
    }

    /// Refuses a write of `n_bytes` that would leave less than is reserved: sled does not survive a disk that is full.
    ///
    /// # Errors
    /// When there is not enough room.
    pub(crate) fn check_room(&self, n_bytes: u64) -> Result<(), MemoryError> {
        let available = fs4::available_space(&self.folder).map_err(|error| of_io(&self.folder, &error))?;
        if available >= self.reserved_bytes.saturating_add(n_bytes) {
            return Ok(());
        }
        let reason = format!("{available} bytes are free, and {} are kept free", self.reserved_bytes);
        Err(MemoryError::DiskFull { folder: self.folder.clone(), reason })
    }

    fn sync_files(&self) -> io::Result<()> {
        self.log.sync_all()?;
        let folder = self.folder.join("blobs");
        let mut synced = self.synced_blobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = BTreeSet::new();
        for entry in fs::read_dir(&folder)? {
            present.insert(entry?.file_name());
        }
        synced.retain(|name| present.contains(name));
        let fresh: Vec<OsString> = present.into_iter().filter(|name| !synced.contains(name)).collect();
        for name in &fresh {
            // sled removes such a file as soon as nothing refers to it.
            match File::open(folder.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => opened?.sync_all()?,
            }
            make_private(&folder.join(name));
        }
        if !fresh.is_empty() {
            sync_folder(&folder)?;
            synced.extend(fresh);
        }
        Ok(())
    }

    /// Lets sled work. It answers some failures of the disk, and some damage, with a panic, and the caller must hear of it.
    fn contained<T>(&self, work: impl FnOnce() -> sled::Result<T>) -> Result<T, MemoryError> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => done.map_err(|error| self.failed(error)),
            Err(_) => Err(self.failed(sled::Error::ReportableBug("sled panicked".to_owned()))),
        }
    }

    fn failed(&self, error: sled::Error) -> MemoryError {
        self.is_broken.store(true, Ordering::Release);
        of_sled(&self.folder, error)
    }
}

/// The pairs of a range.
pub(crate) struct Pairs<'a> {
    storage: &'a Storage,
    /// `None` after a failure.
    pairs: Option<sled::Iter>,
}

type Pair = Result<(Vec<u8>, Vec<u8>), MemoryError>;

impl Pairs<'_> {
    fn step(
        &mut self,
        step: impl FnOnce(&mut sled::Iter) -> Option<sled::Result<(sled::IVec, sled::IVec)>>,
    ) -> Option<Pair> {
        let pairs = self.pairs.as_mut()?;
        let pair = self.storage.contained(|| step(pairs).transpose()).transpose()?;
        if pair.is_err() {
            self.pairs = None;
        }
        Some(pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

impl Iterator for Pairs<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        self.step(Iterator::next)
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Pair> {
        self.step(DoubleEndedIterator::next_back)
    }
}

/// Begins a database. sled writes its settings into a file in place, and refuses a folder in which it finds them cut
/// short; so it begins in another folder, which is given its name when all is in it.
fn create(folder: &Path) -> Result<(), MemoryError> {
    let unfinished = folder.with_extension("unfinished");
    let begin = || {
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        create_private_folder(&unfinished)
    };
    begin().map_err(|error| of_io(folder, &error))?;
    let database = open_database(&unfinished)?;
    database.flush().map_err(|error| of_sled(folder, error))?;
    drop(database);
    let finish = || {
        for entry in fs::read_dir(&unfinished)? {
            File::open(entry?.path())?.sync_all()?;
        }
        sync_folder(&unfinished)?;
        fs::rename(&unfinished, folder)?;
        sync_folder(folder.parent().unwrap_or(folder))
    };
    finish().map_err(|error| of_io(folder, &error))
}

/// Removes snapshots that sled had not finished when its process ended or the disk was full. sled takes them for finished
/// ones and refuses to open; it needs none, since all that they say is in its log.
fn remove_unfinished_snapshots(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Opens sled's database. A database that was closed a moment ago in this process may still be locked, for as long as
/// threads of sled's work on it; nobody else opens it, see [`crate::sharing`].
fn open_database(folder: &Path) -> Result<sled::Db, MemoryError> {
    let config = sled::Config::new()
        .path(folder)
        .cache_capacity(CACHE_BYTES)
        .segment_size(SEGMENT_BYTES)
        // Every write is flushed by whoever makes it.
        .flush_every_ms(None);
    let deadline = Instant::now() + LONGEST_CLOSING;
    loop {
        match catch_unwind(AssertUnwindSafe(|| config.open())) {
            Ok(Err(sled::Error::Io(error))) if error.to_string().contains(LOCKED) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(opened) => return opened.map_err(|error| of_sled(folder, error)),
            Err(_) => return Err(corrupted(folder, "sled panicked when it read them")),
        }
    }
}

/// What to say of a failed read or write in `folder`.
pub(crate) fn of_io(folder: &Path, error: &io::Error) -> MemoryError {
    let (folder, reason) = (folder.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            MemoryError::DiskFull { folder, reason }
        }
        _ => MemoryError::Storage { folder, reason },
    }
}

fn of_sled(folder: &Path, error: sled::Error) -> MemoryError {
    match error {
        sled::Error::Io(error) => of_io(folder, &error),
        sled::Error::Corruption { .. } => corrupted(folder, "a part of them is not what was written"),
        sled::Error::Unsupported(reason) => corrupted(folder, &reason),
        other => MemoryError::Storage { folder: folder.to_owned(), reason: other.to_string() },
    }
}

/// What to say of files in `folder`, inside memory's, that cannot be understood.
fn corrupted(folder: &Path, reason: &str) -> MemoryError {
    let folder = folder.parent().unwrap_or(folder).to_owned();
    MemoryError::Corrupted { folder, reason: reason.to_owned() }
}
