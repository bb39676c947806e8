//! Saves the computed prefix of a conversation to a file, so that resuming the conversation another day does not
//! require computing all of it again.
//!
//! A file belongs to one model, one KV cache format and one precision. It holds, in this order: eight bytes that name
//! the format and its version; the fingerprint of model, format and precision, 32 bytes; the number of tokens, 4 bytes;
//! the tokens, 4 bytes each; the content of their blocks; the SHA-256 of all that, 32 bytes. Numbers are little-endian.
//! Files are written under another name and renamed; one that cannot be used is treated as missing.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hone_files::{create_private_file, create_private_folder};
use hone_protocol::{ModelFile, hexadecimal};
use sha2::{Digest, Sha256};

use crate::backend::BackendError;
use crate::kv_cache::{BLOCK_TOKENS, CacheFull};
use crate::model::Model;

const FORMAT: &[u8; 8] = b"honekv01";
/// A context of fewer tokens is not worth a file.
pub(super) const FEWEST_TOKENS: usize = 8 * BLOCK_TOKENS;
/// Maximum total bytes of all files; the least recently used are removed first. A file takes at most half of it: a
/// coding agent's first 20 000 tokens are 3 GB with a model of 8 billion parameters.
const MOST_BYTES: u64 = 8 << 30;
/// Inverse of the fraction of a disk's free space that a file may take.
const PART_OF_FREE: u64 = 4;
/// Inverse of the fraction of a file that must be useful for the file to be read.
const LEAST_PART: usize = 8;
/// Number of places in a model's file that are sampled for its fingerprint, and the bytes of each sample.
const SAMPLES: u64 = 16;
const SAMPLE_BYTES: u64 = 4096;

type Fingerprint = [u8; 32];

/// The saved prefixes of one model.
#[derive(Debug)]
pub(super) struct SavedPrefixes {
    folder: PathBuf,
    fingerprint: Fingerprint,
    saved: Vec<Saved>,
}

#[derive(Debug)]
struct Saved {
    path: PathBuf,
    tokens: Vec<u32>,
}

impl SavedPrefixes {
    /// Finds the files in the folder that belong to a model.
    ///
    /// # Errors
    /// When the model's file cannot be read.
    pub(super) fn open(folder: &Path, file: &ModelFile, model: &Model) -> io::Result<Self> {
        let fingerprint = fingerprint(file, model)?;
        remove_unfinished(folder);
        let saved = saved_in(folder, fingerprint).collect();
        Ok(SavedPrefixes { folder: folder.to_owned(), fingerprint, saved })
    }

    /// Loads the saved prefix of these tokens into the model's cache, if it is clearly longer than the cached one.
    pub(super) fn fetch(&mut self, tokens: &[u32], model: &mut Model) {
        let n_common = |saved: &Saved| std::iter::zip(&saved.tokens, tokens).take_while(|(a, b)| a == b).count();
        let best = self.saved.iter().enumerate().map(|(index, saved)| (n_common(saved), index)).max();
        // Verification reads the whole file, so that a short beginning of a long one is computed sooner.
        let is_worth_it = |(n_common, index): &(usize, usize)| {
            *n_common >= model.cached_tokens(tokens) + FEWEST_TOKENS
                && *n_common * LEAST_PART >= self.saved[*index].tokens.len()
        };
        let Some((n_common, index)) = best.filter(is_worth_it) else { return };
        // A file is read once: afterwards its content is in the cache, or the file is useless.
        let saved = self.saved.swap_remove(index);
        let n_tokens = n_common / BLOCK_TOKENS * BLOCK_TOKENS;
        match self.load(&saved, n_tokens, model) {
            Ok(()) => tracing::debug!(n_tokens, path = %saved.path.display(), "what was computed before is at hand"),
            Err(error) => {
                tracing::debug!(%error, path = %saved.path.display(), "a saved prefix cannot be used");
                let _ = fs::remove_file(&saved.path);
            }
        }
    }

    fn load(&self, saved: &Saved, n_tokens: usize, model: &mut Model) -> io::Result<()> {
        check_sum(&saved.path)?;
        let mut file = BufReader::new(File::open(&saved.path)?);
        read_tokens(&mut file, &self.fingerprint)?;
        // Records when it was last used.
        let _ = file.get_ref().set_modified(SystemTime::now());
        model
            .keep_content(&saved.tokens[..n_tokens], |content| file.read_exact(content).map_err(Failed))
            .map_err(|e| e.0)
    }

    /// Saves the cached part of these tokens, replacing the file of a shorter prefix.
    ///
    /// # Errors
    /// When it cannot be written; the previous file is then unchanged.
    pub(super) fn save(&mut self, tokens: &[u32], model: &mut Model) -> io::Result<()> {
        create_private_folder(&self.folder)?;
        let most_bytes = (MOST_BYTES / 2).min(fs4::available_space(&self.folder)? / PART_OF_FREE);
        let most_blocks = most_bytes.checked_div(model.block_bytes() as u64).unwrap_or(0);
        let n_blocks = (model.cached_tokens(tokens) / BLOCK_TOKENS).min(most_blocks as usize);
        let tokens = &tokens[..n_blocks * BLOCK_TOKENS];
        if tokens.len() < FEWEST_TOKENS || self.holds(tokens) {
            return Ok(());
        }
        let sum = Sha256::digest(tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
        let name = hexadecimal(&self.fingerprint[..4]) + &hexadecimal(&sum[..8]);
        let path = self.folder.join(format!("{name}.kv"));
        let unfinished = path.with_extension("part");
        let written = self.write(&unfinished, tokens, model).and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written?;
        self.forget_beginnings_of(tokens, &path);
        self.saved.push(Saved { path, tokens: tokens.to_vec() });
        make_room(&self.folder)
    }

    /// Whether a file already holds all of these tokens. Files that were fetched are no longer in the list.
    fn holds(&self, tokens: &[u32]) -> bool {
        self.files().any(|saved| saved.tokens.starts_with(tokens))
    }

    fn forget_beginnings_of(&mut self, tokens: &[u32], except: &Path) {
        let beginnings = self.files().filter(|saved| saved.path != except && tokens.starts_with(&saved.tokens));
        for beginning in beginnings {
            let _ = fs::remove_file(beginning.path);
        }
        self.saved.retain(|saved| !tokens.starts_with(&saved.tokens));
    }

    /// The files of this model that exist now.
    fn files(&self) -> impl Iterator<Item = Saved> {
        saved_in(&self.folder, self.fingerprint)
    }

    fn write(&self, path: &Path, tokens: &[u32], model: &mut Model) -> io::Result<()> {
        let mut file = Summed { file: BufWriter::new(create_private_file(path)?), sum: Sha256::new() };
        file.write_all(FORMAT)?;
        file.write_all(&self.fingerprint)?;
        file.write_all(&(tokens.len() as u32).to_le_bytes())?;
        for token in tokens {
            file.write_all(&token.to_le_bytes())?;
        }
        model.read_kept(tokens, |content| file.write_all(content))?;
        let Summed { mut file, sum } = file;
        file.write_all(&sum.finalize())?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

/// A writer that hashes everything written.
struct Summed<W> {
    file: W,
    sum: Sha256,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n_written = self.file.write(bytes)?;
        self.sum.update(&bytes[..n_written]);
        Ok(n_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Why content could not be restored.
struct Failed(io::Error);

impl From<CacheFull> for Failed {
    fn from(full: CacheFull) -> Self {
        Failed(io::Error::other(full))
    }
}

impl From<BackendError> for Failed {
    fn from(error: BackendError) -> Self {
        Failed(error.into())
    }
}

/// Identifies a model, the format of its cache and its precision, without reading all of its weights.
fn fingerprint(file: &ModelFile, model: &Model) -> io::Result<Fingerprint> {
    let mut sum = Sha256::new();
    sum.update(file.size().to_le_bytes());
    sum.update((model.block_bytes() as u64).to_le_bytes());
    sum.update((model.context_length() as u64).to_le_bytes());
    sum.update([model.activation_bits() as u8]);
    // Each backend has its own layout of keys and values, and a divided model has two.
    sum.update(model.backend_name());
    sum.update(model.device_name());
    for part in file.parts() {
        let mut weights = File::open(&part.path)?;
        for sample in 0..SAMPLES {
            let at = (part.length / SAMPLES * sample).min(part.length.saturating_sub(SAMPLE_BYTES));
            weights.seek(SeekFrom::Start(part.offset + at))?;
            let mut bytes = Vec::new();
            Read::by_ref(&mut weights).take(SAMPLE_BYTES).read_to_end(&mut bytes)?;
            sum.update(bytes);
        }
    }
    Ok(sum.finalize().into())
}

/// Reads a file up to the content of its blocks.
fn read_tokens(file: &mut impl Read, expected: &Fingerprint) -> io::Result<Vec<u32>> {
    let mut start = [0; FORMAT.len() + 32 + 4];
    file.read_exact(&mut start)?;
    let (format, rest) = start.split_at(FORMAT.len());
    let (fingerprint, n_tokens) = rest.split_at(32);
    if format != FORMAT || fingerprint != expected {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is of another model or version"));
    }
    let n_tokens = n_tokens.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    // Reads only as many bytes as exist, so that a wrong length allocates nothing.
    let mut bytes = Vec::new();
    file.take(4 * n_tokens).read_to_end(&mut bytes)?;
    let (tokens, _) = bytes.as_chunks::<4>();
    match tokens.len() as u64 == n_tokens {
        true => Ok(tokens.iter().map(|token| u32::from_le_bytes(*token)).collect()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Checks that a file is intact.
fn check_sum(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len().saturating_sub(32);
    let mut summed = Summed { file: io::sink(), sum: Sha256::new() };
    io::copy(&mut BufReader::new(Read::by_ref(&mut file)).take(length), &mut summed)?;
    file.seek(SeekFrom::Start(length))?;
    let mut expected = [0; 32];
    file.read_exact(&mut expected)?;
    match summed.sum.finalize().as_slice() == expected {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong")),
    }
}

/// The files of a folder with the time of their last use and their lengths, the oldest first.
fn kv_files(folder: &Path) -> Vec<(SystemTime, PathBuf, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "kv"))
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, entry.path(), metadata.len()))
        })
        .collect();
    files.sort();
    files
}

/// The files of a folder that belong to this fingerprint.
fn saved_in(folder: &Path, fingerprint: Fingerprint) -> impl Iterator<Item = Saved> + use<> {
    kv_files(folder).into_iter().filter_map(move |(_, path, _)| {
        let tokens = read_tokens(&mut File::open(&path).ok()?, &fingerprint).ok()?;
        Some(Saved { path, tokens })
    })
}

/// Removes files left behind by processes that were killed while writing. Files still being written are newer.
fn remove_unfinished(folder: &Path) {
    const LONGEST_WRITING: Duration = Duration::from_secs(3600);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "part")) {
        let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        if modified.and_then(|modified| modified.elapsed().ok()).is_some_and(|age| age > LONGEST_WRITING) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn make_room(folder: &Path) -> io::Result<()> {
    let files = kv_files(folder);
    let mut n_bytes: u64 = files.iter().map(|(_, _, length)| length).sum();
    for (_, path, length) in files {
        if n_bytes <= MOST_BYTES {
            break;
        }
        match fs::remove_file(path) {
            // Another process may have removed it already.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        n_bytes -= length;
    }
    Ok(())
}
