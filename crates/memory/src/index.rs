//! The only module that uses usearch: finds the nearest vectors by cosine similarity.
//!
//! The index is a cache of storage. It is kept in memory and written to one file from time to time: a sha256 of
//! everything that follows, a header with the changes of vectors that the index includes, and usearch's own bytes. The
//! file is written next to the current one and renamed over it, so it is complete or absent. Nothing in it is used
//! before the checksum is verified.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use usearch::ffi::{IndexOptions, Matches, MetricKind, ScalarKind};

use crate::error::MemoryError;

/// The format of the index's file.
const FORMAT: u64 = 2;

/// Up to this number of vectors, all are compared, which takes a millisecond or two and misses none.
const ALWAYS_EXACT: usize = 5_000;

/// The least number of vectors that the index grows by.
const LEAST_GROWTH: usize = 1_024;

/// usearch's error type, which it does not export.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The index of vectors, and the last change in storage that it includes.
pub(crate) struct VectorIndex {
    file: PathBuf,
    model: String,
    /// The dimensions of the model's vectors; `None` until there is a vector.
    dimensions: Option<usize>,
    /// usearch's index, if there is a vector.
    native: Option<usearch::Index>,
    last_change: u64,
    saved_change: u64,
}

/// A search result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neighbour {
    /// The engram's sequence number.
    pub(crate) sequence: u64,
    /// Cosine similarity, as computed by the index.
    pub(crate) similarity: f32,
}

/// The header of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u64,
    usearch: String,
    model: String,
    dimensions: Option<usize>,
    vectors: usize,
    last_change: u64,
}

impl VectorIndex {
    /// An empty index, to be written to `file`.
    pub(crate) fn empty(file: PathBuf, model: &str, dimensions: Option<usize>) -> VectorIndex {
        VectorIndex { file, model: model.to_owned(), dimensions, native: None, last_change: 0, saved_change: 0 }
    }

    /// Reads the index in `file`.
    ///
    /// # Errors
    /// The reason why it is unusable: it is missing, damaged, or belongs to another model, other dimensions or another
    /// version.
    pub(crate) fn load(file: PathBuf, model: &str, dimensions: Option<usize>) -> Result<VectorIndex, String> {
        let bytes = fs::read(&file).map_err(|error| error.to_string())?;
        let (header, payload) = open_file(&bytes)?;
        if header.format != FORMAT || header.usearch != usearch::version() {
            return Err(format!("it was written by usearch {}", header.usearch));
        }
        if header.model != model {
            return Err(format!("it holds vectors of {:?}", header.model));
        }
        if let Some(held) = header.dimensions.filter(|held| Some(*held) != dimensions) {
            return Err(format!("it holds vectors of {held} dimensions"));
        }
        let native = create(header.dimensions.unwrap_or(1)).map_err(|error| error.to_string())?;
        native.load_from_buffer(payload).map_err(|error| error.to_string())?;
        if native.dimensions() != header.dimensions.unwrap_or(1) || native.size() != header.vectors {
            return Err("its contents do not match its header".to_owned());
        }
        let native = Some(native).filter(|native| native.size() > 0);
        Ok(VectorIndex {
            file,
            model: model.to_owned(),
            dimensions,
            native,
            last_change: header.last_change,
            saved_change: header.last_change,
        })
    }

    /// The embedding model of its vectors.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// The number of vectors in it.
    pub(crate) fn len(&self) -> usize {
        self.native.as_ref().map_or(0, usearch::Index::size)
    }

    /// The last change that it includes.
    pub(crate) fn last_change(&self) -> u64 {
        self.last_change
    }

    /// The number of changes that the file does not include.
    pub(crate) fn unsaved_changes(&self) -> u64 {
        self.last_change.saturating_sub(self.saved_change)
    }

    /// Its size in memory in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.native.as_ref().map_or(0, |native| native.memory_usage() as u64)
    }

    /// The size of its file in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    /// Replaces or removes an engram's vector, and records the number of this change.
    ///
    /// # Errors
    /// When usearch runs out of memory.
    pub(crate) fn set(&mut self, sequence: u64, vector: Option<&[f32]>, change: u64) -> Result<(), MemoryError> {
        self.put(sequence, vector).map_err(|error| self.failed(&error))?;
        self.last_change = self.last_change.max(change);
        Ok(())
    }

    /// Records that it includes every change up to this one.
    pub(crate) fn caught_up(&mut self, change: u64) {
        self.last_change = change;
    }

    /// Whether it holds exactly this vector for the engram with this sequence number.
    pub(crate) fn holds(&self, sequence: u64, vector: &[f32]) -> bool {
        let mut held = vec![0.0; vector.len()];
        let matches = |native: &usearch::Index| {
            native.dimensions() == vector.len() && native.get(sequence, &mut held).is_ok_and(|found| found == 1)
        };
        self.native.as_ref().is_some_and(matches) && held == vector
    }

    /// The `n` nearest vectors, nearest first; empty if those in the index have other dimensions.
    ///
    /// # Errors
    /// When usearch fails.
    pub(crate) fn nearest(&self, vector: &[f32], n: usize) -> Result<Vec<Neighbour>, MemoryError> {
        let comparable = |native: &&usearch::Index| native.size() > 0 && native.dimensions() == vector.len();
        let Some(native) = self.native.as_ref().filter(comparable) else { return Ok(Vec::new()) };
        let n = n.min(native.size());
        let is_exact = native.size() <= ALWAYS_EXACT || n > native.size() / 8;
        let found = if is_exact { native.exact_search(vector, n) } else { native.search(vector, n) };
        Ok(neighbours(found.map_err(|error| self.failed(&error))?))
    }

    /// The bytes to write to its file.
    ///
    /// # Errors
    /// When usearch cannot write them.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, MemoryError> {
        let header = Header {
            format: FORMAT,
            usearch: usearch::version().to_owned(),
            model: self.model.clone(),
            dimensions: self.dimensions,
            vectors: self.len(),
            last_change: self.last_change,
        };
        let empty;
        let native = match &self.native {
            Some(native) => native,
            None => {
                empty = create(header.dimensions.unwrap_or(1)).map_err(|error| self.failed(&error))?;
                &empty
            }
        };
        let mut payload = vec![0; native.serialized_length()];
        native.save_to_buffer(&mut payload).map_err(|error| self.failed(&error))?;
        Ok(seal_file(&header, &payload))
    }

    /// The path of its file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Records that the file includes the changes up to this one.
    pub(crate) fn saved(&mut self, change: u64) {
        self.saved_change = change;
    }

    fn put(&mut self, sequence: u64, vector: Option<&[f32]>) -> Result<(), Failure> {
        if let Some(native) = &self.native {
            native.remove(sequence)?;
        }
        let Some(vector) = vector else { return Ok(()) };
        if self.native.is_none() {
            self.dimensions = Some(vector.len());
            self.native = Some(create(vector.len())?);
        }
        if let Some(native) = &self.native {
            if native.size() + 1 > native.capacity() {
                native.reserve((native.capacity() * 2).max(LEAST_GROWTH))?;
            }
            native.add(sequence, vector)?;
        }
        Ok(())
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> MemoryError {
        let folder = self.file.parent().unwrap_or(&self.file).to_owned();
        MemoryError::Storage { folder, reason: format!("the index of vectors failed: {error}") }
    }
}

fn create(dimensions: usize) -> Result<usearch::Index, Failure> {
    let options = IndexOptions {
        dimensions,
        metric: MetricKind::IP,
        quantization: ScalarKind::F32,
        connectivity: 16,
        expansion_add: 128,
        expansion_search: 128,
        multi: false,
    };
    let index = usearch::Index::new(&options)?;
    index.reserve(LEAST_GROWTH)?;
    Ok(index)
}

fn neighbours(found: Matches) -> Vec<Neighbour> {
    let pairs = found.keys.into_iter().zip(found.distances);
    pairs.map(|(sequence, distance)| Neighbour { sequence, similarity: 1.0 - distance }).collect()
}

/// The sum (32 bytes), the header's length (4), the header as JSON, the payload.
fn seal_file(header: &Header, payload: &[u8]) -> Vec<u8> {
    let header = serde_json::to_vec(header).unwrap_or_default();
    let mut bytes = vec![0; 32];
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(header);
    bytes.extend(payload);
    let sum = Sha256::digest(&bytes[32..]);
    bytes[..32].copy_from_slice(&sum);
    bytes
}

fn open_file(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let (sum, rest) = bytes.split_first_chunk::<32>().ok_or("it is too short")?;
    if Sha256::digest(rest).as_slice() != sum {
        return Err("its sha256 is wrong".to_owned());
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or("it is too short")?;
    let (header, payload) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("it is too short")?;
    Ok((serde_json::from_slice(header).map_err(|error| error.to_string())?, payload))
}
