//! Backups of memory, for when storage can no longer be read.
//!
//! A backup holds every engram and every event as compressed lines of JSON; vectors are left out, since they can be
//! recomputed. The last line holds the number of lines and the sha256 of everything before it. A new backup is read
//! back and verified before an older one is removed. Forgotten answers are also removed from the backups.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hone_files::{create_private_folder, sync_folder};
use hone_protocol::{QueryId, Timestamp, hexadecimal};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::files::{Purpose, remove_unfinished, unfinished_file};

/// The folder of the backups, inside memory's folder.
const FOLDER: &str = "backups";

/// The suffix of a backup's name.
const ENDING: &str = ".jsonl.gz";

/// The format version of backups.
const FORMAT: u32 = 1;

/// Time between two backups, in milliseconds.
const A_DAY: u64 = 24 * 60 * 60 * 1_000;

/// The contents of a backup.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Backup {
    /// Engrams with all their fields, oldest first.
    pub(crate) engrams: Vec<Map<String, Value>>,
    /// Events and their numbers, in order.
    pub(crate) events: Vec<(u64, Value)>,
}

/// A line of a backup.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum BackupLine {
    Begin { format: u32, at: Timestamp },
    Engram(Map<String, Value>),
    Event { number: u64, envelope: Value },
    End { engrams: u64, events: u64, sha256: String },
}

/// The backups in memory's folder, latest first.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn files(memory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(memory.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths: Vec<PathBuf> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    let mut files: Vec<PathBuf> = paths.into_iter().filter(|path| moment_of(path).is_some()).collect();
    files.sort();
    files.reverse();
    Ok(files)
}

/// Whether the latest backup is a day old, or there is none. A clock that was set back delays the next one only
/// briefly.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn is_due(memory: &Path, now: Timestamp) -> io::Result<bool> {
    let latest = files(memory)?.first().and_then(|file| moment_of(file));
    Ok(latest.is_none_or(|latest| latest.abs_diff(now.0) >= A_DAY))
}

/// A backup that is being written.
pub(crate) struct BackupWriter {
    lines: Lines<GzEncoder<BufWriter<tempfile::NamedTempFile>>>,
    file: PathBuf,
}

/// The number of lines and their hash.
struct Lines<W> {
    writer: W,
    sum: Sha256,
    engrams: u64,
    events: u64,
}

impl BackupWriter {
    /// Starts a backup with the current time.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn begin(memory: &Path, now: Timestamp) -> io::Result<BackupWriter> {
        let folder = memory.join(FOLDER);
        create_private_folder(&folder)?;
        remove_unfinished(&folder, Purpose::Backup);
        BackupWriter::begin_at(folder.join(format!("{:013}{ENDING}", now.0)), now)
    }

    fn begin_at(file: PathBuf, now: Timestamp) -> io::Result<BackupWriter> {
        let fresh = BufWriter::new(unfinished_file(&file, Purpose::Backup)?);
        let writer = GzEncoder::new(fresh, Compression::default());
        let mut lines = Lines { writer, sum: Sha256::new(), engrams: 0, events: 0 };
        lines.write(&BackupLine::Begin { format: FORMAT, at: now })?;
        Ok(BackupWriter { lines, file })
    }

    /// Adds an engram.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn engram(&mut self, engram: Map<String, Value>) -> io::Result<()> {
        self.lines.engrams += 1;
        self.lines.write(&BackupLine::Engram(engram))
    }

    /// Adds an event.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn event(&mut self, number: u64, envelope: Value) -> io::Result<()> {
        self.lines.events += 1;
        self.lines.write(&BackupLine::Event { number, envelope })
    }

    /// Finishes the backup, reads it back, and renames it to its final name.
    ///
    /// # Errors
    /// When it cannot be written, or differs from what was written.
    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        let (engrams, events) = (self.lines.engrams, self.lines.events);
        let sha256 = digits(&self.lines.sum);
        self.lines.write(&BackupLine::End { engrams, events, sha256 })?;
        let written = self.lines.writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        written.as_file().sync_all()?;
        read(written.path()).map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
        written.persist(&self.file)?;
        sync_folder(self.file.parent().unwrap_or(&self.file))?;
        Ok(self.file)
    }
}

impl<W: Write> Lines<W> {
    fn write(&mut self, line: &BackupLine) -> io::Result<()> {
        let line = serde_json::to_string(line)? + "\n";
        self.sum.update(&line);
        self.writer.write_all(line.as_bytes())
    }
}

/// Removes all but the latest `keep` backups.
///
/// # Errors
/// When one cannot be removed.
pub(crate) fn remove_old(memory: &Path, keep: usize) -> io::Result<()> {
    files(memory)?.iter().skip(keep).try_for_each(fs::remove_file)
}

/// Reads and verifies a backup.
///
/// # Errors
/// The reason why it is not valid.
pub(crate) fn read(file: &Path) -> Result<Backup, String> {
    let file = File::open(file).map_err(|error| error.to_string())?;
    read_lines(BufReader::new(GzDecoder::new(file)))
}

/// Reads and verifies the lines of a backup.
///
/// # Errors
/// The reason why they are not valid.
pub(crate) fn read_lines(lines: impl BufRead) -> Result<Backup, String> {
    let (mut backup, mut sum, mut before) = (Backup::default(), Sha256::new(), String::new());
    let mut end = None;
    for (number, line) in lines.lines().enumerate() {
        let line = line.map_err(|error| error.to_string())? + "\n";
        if end.is_some() {
            return Err("there is data after its end".to_owned());
        }
        sum.update(std::mem::take(&mut before));
        match serde_json::from_str(&line).map_err(|error| error.to_string())? {
            BackupLine::Begin { format: FORMAT, .. } if number == 0 => {}
            BackupLine::Begin { format, .. } => {
                return Err(format!("it has format {format}, this hone reads format {FORMAT}"));
            }
            BackupLine::Engram(engram) => backup.engrams.push(engram),
            BackupLine::Event { number, envelope } => backup.events.push((number, envelope)),
            BackupLine::End { engrams, events, sha256 } => end = Some((engrams, events, sha256)),
        }
        before = line;
    }
    let found = (backup.engrams.len() as u64, backup.events.len() as u64, digits(&sum));
    if end == Some(found) { Ok(backup) } else { Err("its last line does not match its contents".to_owned()) }
}

/// Removes answers from the backups: the engrams, and the texts in the events that `blank` finds to be about them. A
/// backup that cannot be read is removed, since its contents are unknown.
///
/// # Errors
/// When a backup can neither be rewritten nor removed.
pub(crate) fn forget(memory: &Path, ids: &[QueryId], blank: impl Fn(&mut Value) -> bool) -> io::Result<()> {
    let ids: Vec<String> = ids.iter().map(QueryId::to_string).collect();
    let is_forgotten = |engram: &Map<String, Value>| {
        engram.get("query_id").and_then(Value::as_str).is_some_and(|id| ids.iter().any(|forgotten| forgotten == id))
    };
    for file in files(memory)? {
        let Ok(mut backup) = read(&file) else {
            fs::remove_file(&file)?;
            continue;
        };
        let n_before = backup.engrams.len();
        backup.engrams.retain(|engram| !is_forgotten(engram));
        let mut is_changed = backup.engrams.len() != n_before;
        backup.events.iter_mut().for_each(|(_, event)| is_changed |= blank(event));
        if is_changed {
            write_again(&file, backup).or_else(|_| fs::remove_file(&file))?;
        }
    }
    Ok(())
}

fn write_again(file: &Path, backup: Backup) -> io::Result<()> {
    let at = Timestamp(moment_of(file).unwrap_or_default());
    let mut writer = BackupWriter::begin_at(file.to_owned(), at)?;
    backup.engrams.into_iter().try_for_each(|engram| writer.engram(engram))?;
    backup.events.into_iter().try_for_each(|(number, event)| writer.event(number, event))?;
    writer.finish().map(drop)
}

/// The time of a backup in milliseconds; `None` if the file is not a backup.
fn moment_of(file: &Path) -> Option<u64> {
    file.file_name()?.to_str()?.strip_suffix(ENDING)?.parse().ok()
}

fn digits(sum: &Sha256) -> String {
    hexadecimal(sum.clone().finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engram(id: u128) -> Map<String, Value> {
        let id = QueryId::from_bits(id).to_string();
        [("query_id".to_owned(), id.into()), ("answer".to_owned(), "Yes.".into())].into_iter().collect()
    }

    fn written(memory: &Path, at: u64) -> PathBuf {
        let mut writer = BackupWriter::begin(memory, Timestamp(at)).unwrap();
        writer.engram(engram(1)).unwrap();
        writer.engram(engram(2)).unwrap();
        writer.event(7, serde_json::json!({"answer": "Yes."})).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_copy_is_read_as_it_was_written_and_damage_is_noticed() {
        let memory = tempfile::tempdir().unwrap();
        let file = written(memory.path(), 5);
        let backup = read(&file).unwrap();
        assert_eq!((backup.engrams, backup.events.len()), (vec![engram(1), engram(2)], 1));
        let whole = fs::read(&file).unwrap();
        let mut n_noticed = 0;
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 4;
            fs::write(&file, damaged).unwrap();
            n_noticed += usize::from(read(&file).is_err_and(|reason| !reason.is_empty()));
            fs::write(&file, &whole[..position]).unwrap();
            assert!(read(&file).is_err(), "{position}");
        }
        // A few bytes of a compressed file's header do not affect its contents.
        assert!(n_noticed >= whole.len() - 10, "{n_noticed} of {}", whole.len());
    }

    #[test]
    fn a_copy_is_due_once_a_day_and_the_latest_are_kept() {
        let memory = tempfile::tempdir().unwrap();
        let is_due = |at: u64| is_due(memory.path(), Timestamp(at)).unwrap();
        assert!(is_due(0));
        (1..=9).for_each(|day| drop(written(memory.path(), day * A_DAY)));
        remove_old(memory.path(), 7).unwrap();
        let files = files(memory.path()).unwrap();
        assert_eq!((files.len(), moment_of(&files[0]), moment_of(&files[6])), (7, Some(9 * A_DAY), Some(3 * A_DAY)));
        assert!(!is_due(9 * A_DAY + 1) && is_due(10 * A_DAY) && is_due(0));
        remove_old(memory.path(), 0).unwrap();
        assert!(is_due(9 * A_DAY));
    }

    #[test]
    fn what_is_forgotten_leaves_the_copies() {
        let memory = tempfile::tempdir().unwrap();
        let (good, bad) = (written(memory.path(), 5), written(memory.path(), 6));
        fs::write(&bad, "damaged").unwrap();
        let blank = |event: &mut Value| {
            event["answer"] = "".into();
            true
        };
        forget(memory.path(), &[QueryId::from_bits(1)], blank).unwrap();
        let backup = read(&good).unwrap();
        assert_eq!((backup.engrams, backup.events[0].1["answer"].as_str()), (vec![engram(2)], Some("")));
        assert!(!bad.exists());
    }
}
