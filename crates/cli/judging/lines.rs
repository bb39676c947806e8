//! Files with a JSON object on each line: tasks that are read, verdicts that are added.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::failure::usage;

/// The fields of one line.
pub(crate) struct Fields<'a>(pub(super) &'a Map<String, Value>);

impl Fields<'_> {
    /// A text.
    ///
    /// # Errors
    /// Where there is none.
    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        self.optional_text(name)?.ok_or_else(|| format!("has no {name:?}"))
    }

    /// A text, or none where the field is missing or null.
    ///
    /// # Errors
    /// Where the field is anything else.
    pub(super) fn optional_text(&self, name: &str) -> Result<Option<String>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(format!("has {other} as {name:?}, expected a text")),
        }
    }
}

/// One line of a file.
pub(super) struct Line {
    /// From 1.
    pub(super) number: usize,
    pub(super) object: Map<String, Value>,
}

/// All lines of a file; blank ones are left out.
///
/// # Errors
/// For the first line that is no JSON object.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).split(b'\n')) {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let object = serde_json::from_slice(&line)
            .map_err(|error| usage(format!("line {number} of {} is no JSON object: {error}", path.display())))?;
        lines.push(Line { number, object });
    }
    Ok(lines)
}

/// A file that lines are added to, by one process at a time.
pub(super) struct Appended {
    path: PathBuf,
    file: File,
}

impl Appended {
    /// Opens or creates a file. A last line without an end was half-written when an earlier run was cut off, and is taken
    /// away.
    ///
    /// # Errors
    /// When it cannot be read or written, or another process writes to it.
    pub(super) fn open(path: &Path) -> anyhow::Result<Appended> {
        let failure = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).with_context(failure)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another process writes to {}: wait for it", path.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(failure),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(failure)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        file.set_len(end as u64).with_context(failure)?;
        file.seek(SeekFrom::End(0)).with_context(failure)?;
        Ok(Appended { path: path.to_owned(), file })
    }

    /// Adds a line, in one write.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn add(&mut self, object: &Map<String, Value>) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(object)?;
        line.push(b'\n');
        self.file.write_all(&line).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Waits until all that was added is on the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What is in a file after it was opened and a line was added.
    #[track_caller]
    fn check(before: &[u8], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, before).unwrap();
        let mut appended = Appended::open(&path).unwrap();
        assert!(Appended::open(&path).is_err_and(|error| error.to_string().contains("another process")));
        appended.add(&Map::from_iter([("id".to_owned(), Value::from(7))])).unwrap();
        appended.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_half_written_last_line_is_cut() {
        check(b"", "{\"id\":7}\n");
        check(b"{\"id\":6}\n", "{\"id\":6}\n{\"id\":7}\n");
        check(b"{\"id\":6}\n{\"id\":", "{\"id\":6}\n{\"id\":7}\n");
        check(b"{\"id\"", "{\"id\":7}\n");
        check(b"{\"id\":6}\n\xe4\xb8", "{\"id\":6}\n{\"id\":7}\n");
    }

    #[test]
    fn a_line_that_is_no_object_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.jsonl");
        for (text, expected) in [
            (&b"{}\n\n[1]\n"[..], "line 3 of ~/in.jsonl is no JSON object: "),
            (b"{}\n{\n{}", "line 2 of ~/in.jsonl is no JSON object: "),
            (b"\xff", "line 1 of ~/in.jsonl is no JSON object: "),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).err().unwrap().to_string().replace(folder.path().to_str().unwrap(), "~");
            assert!(error.starts_with(expected), "{error}");
        }
        std::fs::write(&path, "\n {\"a\": 1} \r\n\n{\"b\": 2}").unwrap();
        let numbers: Vec<usize> = read(&path).unwrap().iter().map(|line| line.number).collect();
        assert_eq!(numbers, [2, 4]);
    }
}
