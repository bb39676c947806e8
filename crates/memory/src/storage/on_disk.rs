//! Records in a folder. This and [`super::damage`] are the only modules that use sled: ordered keys and values, batches
//! that are written completely or not at all, and a flush that makes them durable.
//!
//! sled's own flush asks the kernel to write the log's pages (`sync_file_range` on Linux), which neither makes the
//! length of a growing file durable nor empties the drive's cache. So a flush here ends with an fsync of the log
//! through a separate handle, and of the files in which sled stores values that are too large for the log.
//!
//! Why sled 0.34.7 and not 1.0.0-alpha.124: `tests/kill.rs` was run on both, with the same code except for this module.
//! Of 6 300 killed processes that wrote with 0.34.7, none lost or tore a write. Earlier, when sled created its database
//! in place, 2 of 1 800 left a folder that sled could not open again because its settings were cut short, hence
//! [`create`]. A truncated snapshot, which a full disk leaves behind, has the same effect, hence
//! [`remove_unfinished_snapshots`]. Of 900 killed processes with 1.0.0-alpha.124, none lost anything either. But where
//! 0.34.7 takes 1.0 to 1.4 ms for a durable write (0.3 ms in eight threads, which share flushes), 5 ms to open 500
//! engrams and 10 MB on disk, the alpha took 23 ms (35 ms in eight threads), 45 ms and 6 MB on the same busy machine;
//! and its author says that its format will change.
//!
//! A killed process is not a machine that loses power; the fsync covers that case.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::log::SEGMENT_BYTES;
use super::{Batch, KeyRange, Pair, Pairs, Storage, Write, corrupted, damage, of_io};
use crate::error::MemoryError;
use crate::files::make_private;
use crate::records::Head;
use hone_files::{create_private_folder, sync_folder};

/// Size of sled's page cache in bytes; a question needs only a few pages.
const CACHE_BYTES: u64 = 32 << 20;

/// The longest time that sled may take to close a database.
const LONGEST_CLOSING: Duration = Duration::from_secs(10);

/// sled's message about a database that is already open.
const LOCKED: &str = "could not acquire lock";

/// Ordered keys and values in a folder.
pub(crate) struct DiskStorage {
    folder: PathBuf,
    database: sled::Db,
    log: File,
    reserved_bytes: u64,
    synced_blobs: Mutex<BTreeSet<OsString>>,
    is_broken: AtomicBool,
}

impl DiskStorage {
    /// Opens the database in `folder`, or creates one.
    ///
    /// # Errors
    /// When it cannot be read or written, or another process has it open.
    pub(crate) fn open(folder: &Path, reserved_bytes: u64) -> Result<DiskStorage, MemoryError> {
        if folder.exists() {
            remove_unfinished_snapshots(folder).map_err(|error| of_io(folder, &error))?;
            damage::check(folder)?;
        } else {
            create(folder)?;
        }
        let database = open_database(folder)?;
        // sled has written a snapshot with permissions from the umask; until this call, only the folder protects it.
        make_private(folder);
        let log = File::open(folder.join("db")).map_err(|error| of_io(folder, &error))?;
        let (synced_blobs, is_broken) = (Mutex::default(), AtomicBool::new(false));
        Ok(DiskStorage { folder: folder.to_owned(), database, log, reserved_bytes, synced_blobs, is_broken })
    }

    /// Applies a batch. It is durable after the next [`Storage::flush`].
    ///
    /// # Errors
    /// When there is no room or sled fails; see [`Storage::is_broken`].
    fn apply(&self, batch: Batch) -> Result<(), MemoryError> {
        self.check_room(batch.n_bytes())?;
        let mut writes = sled::Batch::default();
        for (key, value) in batch.into_writes() {
            match value {
                Some(value) => writes.insert(key, value),
                None => writes.remove(key),
            }
        }
        self.contained(|| self.database.apply_batch(writes))
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

    /// Calls sled and turns its panics into errors: it panics on some disk failures and some damage.
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

impl Storage for DiskStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MemoryError> {
        let value = self.contained(|| self.database.get(key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn pairs(&self, range: KeyRange) -> Pairs<'_> {
        let pairs = self.database.range((range.low, range.high));
        Box::new(DiskPairs { storage: self, pairs: Some(pairs), is_reversed: range.is_reversed }.take(range.at_most))
    }

    /// Nothing else writes to the folder, and the caller has one write at a time.
    fn begin(&self) -> Result<Box<dyn Write + '_>, MemoryError> {
        Ok(Box::new(DiskWrite { storage: self }))
    }

    fn flush(&self) -> Result<(), MemoryError> {
        self.contained(|| self.database.flush())?;
        self.sync_files().map_err(|error| {
            self.is_broken.store(true, Ordering::Release);
            of_io(&self.folder, &error)
        })
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn mark_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    fn n_bytes(&self) -> Result<u64, MemoryError> {
        self.database.size_on_disk().map_err(|error| self.failed(error))
    }

    /// sled does not survive a full disk.
    fn check_room(&self, n_bytes: u64) -> Result<(), MemoryError> {
        let available = fs4::available_space(&self.folder).map_err(|error| of_io(&self.folder, &error))?;
        if available >= self.reserved_bytes.saturating_add(n_bytes) {
            return Ok(());
        }
        let reason = format!("{available} bytes are free, of which {} are reserved", self.reserved_bytes);
        Err(MemoryError::DiskFull { folder: self.folder.clone(), reason })
    }
}

struct DiskWrite<'a> {
    storage: &'a DiskStorage,
}

impl Write for DiskWrite<'_> {
    fn head(&self) -> Option<Head> {
        None
    }

    fn apply(self: Box<Self>, batch: Batch, _texts: &[(u64, Option<String>)]) -> Result<(), MemoryError> {
        self.storage.apply(batch)
    }
}

/// The pairs of a range.
struct DiskPairs<'a> {
    storage: &'a DiskStorage,
    /// `None` after a failure.
    pairs: Option<sled::Iter>,
    is_reversed: bool,
}

impl Iterator for DiskPairs<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        let pairs = self.pairs.as_mut()?;
        let is_reversed = self.is_reversed;
        let step = || if is_reversed { pairs.next_back() } else { pairs.next() }.transpose();
        let pair = self.storage.contained(step).transpose()?;
        if pair.is_err() {
            self.pairs = None;
        }
        Some(pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

/// Creates a database. sled writes its settings into a file in place, and refuses a folder in which they are cut short.
/// So the database is created in another folder, which is renamed once it is complete.
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

/// Removes snapshots that sled had not finished when its process ended or the disk was full. sled takes them for
/// finished ones and refuses to open the database. It needs none of them, because its log holds everything.
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

/// Opens sled's database. A database that this process has just closed may still be locked while threads of sled work
/// on it; no other process opens it, see [`crate::sharing`].
fn open_database(folder: &Path) -> Result<sled::Db, MemoryError> {
    let config = sled::Config::new()
        .path(folder)
        .cache_capacity(CACHE_BYTES)
        .segment_size(SEGMENT_BYTES)
        // Every write is flushed by its writer.
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

fn of_sled(folder: &Path, error: sled::Error) -> MemoryError {
    match error {
        sled::Error::Io(error) => of_io(folder, &error),
        sled::Error::Corruption { .. } => corrupted(folder, "a part of them is damaged"),
        sled::Error::Unsupported(reason) => corrupted(folder, &reason),
        other => MemoryError::Storage { folder: folder.to_owned(), reason: other.to_string() },
    }
}
