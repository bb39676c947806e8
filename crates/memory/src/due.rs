//! The due list: requests that memory could not take on arrival, kept as files until it can.
//!
//! A process that cannot reach memory, because its owner hangs, its disk is full or its files are damaged, writes the
//! request to a file in `due/`, completely and durably, before the call returns. The next owner applies the files in
//! order when it opens memory, before it answers any request. A file is removed once its effect is durable. If a
//! process is killed in between, the request is applied a second time, like any repetition.
//!
//! The order does not depend on a clock: a file name begins with a number that is higher than that of all existing
//! files.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hone_files::{create_private_folder, open_private, sync_folder};
use hone_protocol::{QueryId, hexadecimal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::{Purpose, write_new_file};
use crate::request::Request;

/// The folder of the list, inside memory's folder.
const FOLDER: &str = "due";

/// The folder of requests that memory refuses, inside the list's folder.
const REFUSED: &str = "refused";

/// The format of the files.
const FORMAT: u32 = 1;

/// The age at which a partly written file counts as left over from a killed process.
const LONGEST_WRITING: Duration = Duration::from_secs(24 * 60 * 60);

/// The due list in memory's folder.
pub(crate) struct DueList {
    folder: PathBuf,
    /// The number of the last request that this process has kept.
    last: Mutex<u64>,
}

/// The content of a file, after its checksum.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<R> {
    format: u32,
    request: R,
}

impl DueList {
    /// The list in memory's `folder`.
    pub(crate) fn new(folder: &Path) -> DueList {
        DueList { folder: folder.join(FOLDER), last: Mutex::default() }
    }

    /// The folder of the list.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Checks that requests could be kept.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub(crate) fn check(&self) -> io::Result<()> {
        create_private_folder(&self.folder)?;
        tempfile::tempfile_in(&self.folder).map(drop)
    }

    /// Keeps a request; it is durable when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn keep(&self, request: &Request) -> io::Result<()> {
        create_private_folder(&self.folder)?;
        let bytes = to_bytes(request)?;
        let about = request.about().map_or_else(|| "event".to_owned(), |id| id.to_string());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let there = self.files()?.iter().filter_map(|file| number_of(file)).max();
            *last = there.unwrap_or(0).max(*last) + 1;
            let name = format!("{:016}.{}.{about}.json", *last, process::id());
            match write_new_file(&self.folder.join(name), Purpose::Due, &bytes) {
                // An earlier process had the same process id.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                written => return written,
            }
        }
    }

    /// The files of the list, in the order of application.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let paths: Vec<PathBuf> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        let mut files: Vec<PathBuf> = paths.into_iter().filter(|path| number_of(path).is_some()).collect();
        files.sort();
        Ok(files)
    }

    /// Waits until no other process applies the list, and excludes other processes until this is dropped.
    ///
    /// # Errors
    /// When the file for it cannot be locked.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let file = open_private(&self.folder.join(".lock"), File::options().create(true).write(true))?;
        file.lock()?;
        Ok(file)
    }

    /// Removes a file whose request has been applied.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub(crate) fn remove(&self, file: &Path) -> io::Result<()> {
        match fs::remove_file(file) {
            // Another process, which uses the same database, has also applied it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Sets a file aside that memory will never accept; it is kept for inspection.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub(crate) fn set_aside(&self, file: &Path) -> io::Result<()> {
        let aside = self.folder.join(REFUSED);
        create_private_folder(&aside)?;
        fs::rename(file, aside.join(file.file_name().unwrap_or_default()))
    }

    /// Makes removals and moves durable, and deletes files that killed processes left behind.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn finish(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let is_file = entry.file_type()?.is_file();
            let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
            if is_file && number_of(&entry.path()).is_none() && age().is_some_and(|age| age > LONGEST_WRITING) {
                fs::remove_file(entry.path())?;
            }
        }
        sync_folder(&self.folder)
    }
}

/// Reads a file of the list.
///
/// # Errors
/// The reason why it is not valid.
pub(crate) fn read(file: &Path) -> io::Result<Result<Request, String>> {
    Ok(from_bytes(&fs::read(file)?))
}

/// Parses the output of [`to_bytes`].
///
/// # Errors
/// The reason why it is not valid.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Request, String> {
    let (sum, rest) = bytes.split_at_checked(65).ok_or("it is cut short")?;
    if sum != sum_line(rest).as_bytes() {
        return Err("its checksum is wrong".to_owned());
    }
    let entry: Entry<Request> = serde_json::from_slice(rest).map_err(|error| error.to_string())?;
    if entry.format != FORMAT {
        return Err(format!("it has format {}, this hone reads format {FORMAT}", entry.format));
    }
    Ok(entry.request)
}

/// Serializes an entry as JSON, after a line with its checksum.
fn to_bytes(request: &Request) -> io::Result<Vec<u8>> {
    Ok(with_sum(&serde_json::to_vec(&Entry { format: FORMAT, request })?))
}

/// Prepends the checksum to some bytes.
pub(crate) fn with_sum(bytes: &[u8]) -> Vec<u8> {
    [sum_line(bytes).as_bytes(), bytes].concat()
}

fn sum_line(bytes: &[u8]) -> String {
    hexadecimal(Sha256::digest(bytes)) + "\n"
}

/// The number at the start of a file name; `None` if the file is not part of the list.
fn number_of(file: &Path) -> Option<u64> {
    let name = file.file_name()?.to_str()?;
    name.strip_suffix(".json")?.split_once('.')?.0.parse().ok()
}

impl Request {
    /// The id of the request's answer, if any.
    fn about(&self) -> Option<QueryId> {
        match self {
            Request::Remember { engram, .. } => Some(engram.query_id),
            Request::UpdateScore { id, .. } | Request::AnnotateFeedback { id, .. } => Some(*id),
            Request::AnnotatePairwise { comparison } => Some(comparison.original_query_id),
            Request::AppendEvent { envelope } => envelope.query_id,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engram::tests::{example, graded};

    fn remember(number: u128) -> Request {
        Request::Remember { engram: Box::new(example(number)), vector: None, facts: None, lease: None }
    }

    #[test]
    fn what_is_kept_comes_back_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (DueList::new(folder.path()), DueList::new(folder.path()));
        assert_eq!(one.files().unwrap(), [""; 0].map(PathBuf::from));
        one.keep(&remember(1)).unwrap();
        other.keep(&Request::UpdateScore { id: QueryId::from_bits(1), grade: graded(3) }).unwrap();
        one.keep(&remember(2)).unwrap();
        let requests = |list: &DueList| -> Vec<String> {
            let files = list.files().unwrap();
            files.iter().map(|file| format!("{:?}", read(file).unwrap().unwrap())).collect()
        };
        let found = requests(&one);
        assert_eq!(found.len(), 3);
        assert!(found[0].contains("is 1?") && found[1].contains("UpdateScore") && found[2].contains("is 2?"));
        one.remove(&one.files().unwrap()[0]).unwrap();
        one.set_aside(&one.files().unwrap()[0]).unwrap();
        one.finish().unwrap();
        assert_eq!(requests(&other), [found[2].clone()]);
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = to_bytes(&remember(1)).unwrap();
        assert!(from_bytes(&bytes).is_ok());
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            assert!(from_bytes(&damaged).is_err(), "{position}");
            assert!(from_bytes(&bytes[..position]).is_err(), "{position}");
        }
    }
}
