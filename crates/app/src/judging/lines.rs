//! Files with a JSON object on each line: tasks that are read, verdicts or answers that are added.
//!
//! The file of verdicts may belong to something else until all of it has been examined: opening and reading it change
//! nothing.

use std::fmt::{self, Display, Formatter};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hone_files::without_mark;
use serde::Deserializer;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::usage;

/// The path that stands for stdin and stdout.
pub const PIPE: &str = "-";

/// Whether a path stands for stdin or stdout.
pub fn is_pipe(path: &Path) -> bool {
    path == Path::new(PIPE)
}

/// The task in the columns of a line. Columns that are null are ignored.
///
/// # Errors
/// The missing or invalid column, phrased to follow the line's number.
pub(super) fn parsed_task<T: DeserializeOwned>(object: &Map<String, Value>) -> Result<T, String> {
    let columns = object.iter().filter(|(_, value)| !value.is_null());
    let columns = columns.map(|(name, value)| (name.as_str(), Column { name, value }));
    T::deserialize(MapDeserializer::new(columns)).map_err(|WrongLine(what)| what)
}

/// A column that is read as text.
struct Column<'a> {
    name: &'a str,
    value: &'a Value,
}

impl<'de> IntoDeserializer<'de, WrongLine> for Column<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Column<'_> {
    type Error = WrongLine;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongLine> {
        match self.value {
            Value::String(text) => visitor.visit_str(text),
            other => Err(WrongLine(format!("has {other} as {:?}, expected a text", self.name))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongLine> {
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongLine> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

/// The problem with a line.
#[derive(Debug)]
struct WrongLine(String);

impl Display for WrongLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongLine {}

impl serde::de::Error for WrongLine {
    fn custom<T: Display>(what: T) -> Self {
        WrongLine(what.to_string())
    }

    fn missing_field(name: &'static str) -> Self {
        WrongLine(format!("has no {name:?}"))
    }
}

/// One line of a file.
pub struct JsonLine {
    /// The number, from 1.
    pub number: usize,
    /// Its contents.
    pub object: Map<String, Value>,
}

/// The name of an input in messages.
pub fn name(input: &Path) -> String {
    if is_pipe(input) { "stdin".to_owned() } else { input.display().to_string() }
}

/// All lines of a file or of stdin; blank ones are left out.
///
/// # Errors
/// For the first line that is not a JSON object.
pub fn read(path: &Path) -> anyhow::Result<Vec<JsonLine>> {
    let failure = || format!("cannot read {}", name(path));
    let reader: Box<dyn BufRead> = match is_pipe(path) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path).with_context(failure)?)),
    };
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(reader.split(b'\n')) {
        let line = line.with_context(failure)?;
        if !line.trim_ascii().is_empty() {
            lines.push(parsed(number, &line).map_err(|error| no_object(path, number, &error))?);
        }
    }
    Ok(lines)
}

fn parsed(number: usize, line: &[u8]) -> serde_json::Result<JsonLine> {
    let line = if number == 1 { without_mark(line) } else { line };
    Ok(JsonLine { number, object: serde_json::from_slice(line)? })
}

fn no_object(path: &Path, number: usize, error: &serde_json::Error) -> anyhow::Error {
    usage(format!("line {number} of {} is not a JSON object: {error}", name(path)))
}

/// Checks that a run does not write to the file that it reads.
pub(super) fn refuse_same_file(input: &Path, output: &Path) -> anyhow::Result<()> {
    let place = |path: &Path| std::fs::canonicalize(path).ok();
    match place(input).is_some_and(|input| place(output) == Some(input)) {
        true => Err(usage(format!("--input and --output are both {}: give another output", input.display()))),
        false => Ok(()),
    }
}

/// The contents of the file of verdicts when a run begins.
#[derive(Default)]
pub(super) struct Written {
    /// Its lines; blank ones are left out.
    pub(super) lines: Vec<JsonLine>,
    /// An incomplete last line that is not a JSON object, as left by a run that was interrupted while writing.
    pub(super) tail: Vec<u8>,
    /// The number of that line, from 1.
    pub(super) tail_number: usize,
}

/// The file of verdicts, which one process at a time writes to. Lines are only ever appended; those that replace
/// earlier lines are moved to their places at the end, in a new file that is renamed over the old one.
pub(super) struct VerdictFile {
    path: PathBuf,
    file: File,
}

impl VerdictFile {
    /// Opens or creates the file, without changing its contents.
    ///
    /// # Errors
    /// When it is not a regular file, cannot be read or written, or another process is writing to it.
    pub(super) fn open(path: &Path) -> anyhow::Result<VerdictFile> {
        let failure = || format!("cannot write {}", path.display());
        // A device or a pipe may be endless, and holds nothing that a run could resume from.
        let is_other = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        if is_other {
            let advice = "the results are kept in a file, from which the next run resumes, or printed (-)";
            return Err(usage(format!("--output is {}, which is not a regular file: {advice}", path.display())));
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).with_context(failure)?;
        // For a link, its target is replaced, not the link.
        let path = std::fs::canonicalize(path).with_context(failure)?;
        lock(&file, &path)?;
        if !is_at(&file, &path).with_context(failure)? {
            bail!("another process has just replaced {}: run it again", path.display());
        }
        Ok(VerdictFile { path, file })
    }

    /// Reads its contents.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not a JSON object.
    pub(super) fn read(&self) -> anyhow::Result<Written> {
        let mut reader = BufReader::new(&self.file);
        let mut written = Written::default();
        for number in 1.. {
            let mut line = Vec::new();
            reader.read_until(b'\n', &mut line).with_context(|| format!("cannot read {}", self.path.display()))?;
            if line.is_empty() {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match parsed(number, &line) {
                Ok(line) => written.lines.push(line),
                Err(_) if !line.ends_with(b"\n") => (written.tail, written.tail_number) = (line, number),
                Err(error) => return Err(no_object(&self.path, number, &error)),
            }
        }
        Ok(written)
    }

    /// Prepares it for more lines: removes an incomplete last line, and ends one that only lacks a line break.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn resume(&mut self, written: &Written) -> anyhow::Result<()> {
        self.try_resume(written.tail.len()).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn try_resume(&mut self, tail: usize) -> io::Result<()> {
        let end = self.file.metadata()?.len() - tail as u64;
        if tail > 0 {
            self.file.set_len(end)?;
        }
        let mut last = [b'\n'];
        if end > 0 {
            self.file.seek(SeekFrom::Start(end - 1))?;
            self.file.read_exact(&mut last)?;
        }
        self.file.seek(SeekFrom::End(0))?;
        if last == *b"\n" { Ok(()) } else { self.file.write_all(b"\n") }
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

    /// Moves the lines after the first `n_lines` to the places of earlier ones, starting with `places[0]`. If the
    /// process is killed in the meantime, the file is unchanged.
    ///
    /// # Errors
    /// When the new file cannot be written next to the old one.
    pub(super) fn put_in_place(&mut self, n_lines: usize, places: &[usize]) -> anyhow::Result<()> {
        let failure = || format!("cannot replace {} with a new file", self.path.display());
        // Where locks are mandatory, only the handle that holds the lock may read.
        let mut text = Vec::new();
        self.file.rewind().and_then(|()| self.file.read_to_end(&mut text)).with_context(failure)?;
        let mut lines: Vec<&[u8]> =
            text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
        let later = lines.split_off(n_lines.min(lines.len()));
        for (place, line) in places.iter().zip(later) {
            lines[*place] = line;
        }
        self.file = self.replaced_by(&lines).with_context(failure)?;
        Ok(())
    }

    fn replaced_by(&self, lines: &[&[u8]]) -> anyhow::Result<File> {
        let folder = self.path.parent().context("it has no folder")?;
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        lock(new.as_file(), &self.path)?;
        for line in lines {
            new.write_all(line)?;
            new.write_all(b"\n")?;
        }
        new.as_file().set_permissions(self.file.metadata()?.permissions())?;
        new.as_file().sync_all()?;
        let (file, path) = new.into_parts();
        // Unlike `persist`, this also replaces a file that is open on Windows.
        std::fs::rename(&path, &self.path)?;
        Ok(file)
    }

    /// Waits until all added lines are on disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn lock(file: &File, path: &Path) -> anyhow::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => bail!("another process is writing to {}: wait for it", path.display()),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Whether an open file is still the one at `path`: the process that had locked it may have replaced it.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (open, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of a file after it was opened and a line was added.
    #[track_caller]
    fn check(before: &[u8], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, before).unwrap();
        let mut file = VerdictFile::open(&path).unwrap();
        assert!(VerdictFile::open(&path).is_err_and(|error| error.to_string().contains("another process")));
        let written = file.read().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before, "looking changes nothing");
        file.resume(&written).unwrap();
        file.add(&Map::from_iter([("id".to_owned(), Value::from(7))])).unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_half_written_last_line_is_cut_and_a_whole_one_is_kept() {
        check(b"", "{\"id\":7}\n");
        check(b"{\"id\":6}\n", "{\"id\":6}\n{\"id\":7}\n");
        check(b"{\"id\":6}", "{\"id\":6}\n{\"id\":7}\n");
        check(b"{\"id\":6}\n{\"id\":", "{\"id\":6}\n{\"id\":7}\n");
        check(b"{\"id\"", "{\"id\":7}\n");
        check(b"{\"id\":6}\n\xe4\xb8", "{\"id\":6}\n{\"id\":7}\n");
    }

    #[test]
    fn later_lines_take_the_places_of_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, "{\"a\":0}\n\n{\"a\":1}\n{\"a\":2}\n{\"b\":0}\n{\"b\":2.50}\n").unwrap();
        let mut file = VerdictFile::open(&path).unwrap();
        file.put_in_place(3, &[0, 2]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"b\":0}\n{\"a\":1}\n{\"b\":2.50}\n");
        assert!(VerdictFile::open(&path).is_err_and(|error| error.to_string().contains("another process")));
        file.add(&Map::new()).unwrap();
        file.finish().unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("\n{\"b\":2.50}\n{}\n"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_behind_a_link_keeps_its_place_and_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out.jsonl"), folder.path().join("link"));
        std::fs::write(&path, "{\"a\":0}\n{\"a\":1}\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        VerdictFile::open(&link).unwrap().put_in_place(1, &[0]).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_unread() {
        let folder = tempfile::tempdir().unwrap();
        let error = VerdictFile::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("which is not a regular file"), "{error}");
        #[cfg(unix)]
        {
            let error = VerdictFile::open(Path::new("/dev/null")).err().unwrap().to_string();
            assert!(error.starts_with("--output is /dev/null, which is not a regular file: "), "{error}");
        }
    }

    #[test]
    fn a_line_that_is_no_object_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.jsonl");
        for (text, expected) in [
            (&b"{}\n\n[1]\n"[..], "line 3 of ~/in.jsonl is not a JSON object: "),
            (b"{}\n{\n{}", "line 2 of ~/in.jsonl is not a JSON object: "),
            (b"\xff", "line 1 of ~/in.jsonl is not a JSON object: "),
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
