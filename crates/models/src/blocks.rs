//! Hashes of a file's blocks, by which damage is found whenever a model is loaded.
//!
//! SHA-256 verifies a download against its publisher's hash, but is too slow to compute at every start. So the BLAKE3
//! hash of every 4 MiB is recorded when a model is installed or bundled, and verified when it is loaded: several blocks
//! at a time, on separate threads, while the weights are being packed. A block that differs shows where the disk
//! failed.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use hone_files::open_regular;
use hone_protocol::ModelFile;
use serde::{Deserialize, Serialize};

/// The size of all blocks but the last, in bytes.
pub(crate) const BLOCK: u64 = 4 * 1024 * 1024;

/// The size of one read.
const CHUNK: usize = 256 * 1024;

/// More threads do not read faster.
const MOST_THREADS: usize = 4;

/// The BLAKE3 hash of every block of a file; empty if none were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Blocks(Vec<[u8; 32]>);

impl Blocks {
    /// Whether no hashes were recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether they can belong to a file of this length.
    pub(crate) fn fit(&self, length: u64) -> bool {
        self.0.len() as u64 == length.div_ceil(BLOCK)
    }

    /// Verifies the bytes of a file; returns the bounds of the first block that differs.
    ///
    /// # Errors
    /// When the file cannot be read to its end.
    pub(crate) fn first_damage(&self, region: &ModelFile) -> io::Result<Option<(u64, u64)>> {
        if !self.fit(region.length) {
            return Ok(Some((0, region.length)));
        }
        let n_threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(self.0.len());
        let comparison =
            Comparison { blocks: self, region, next: AtomicUsize::new(0), is_over: AtomicBool::new(false) };
        let outcomes: Vec<io::Result<Option<usize>>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(|| comparison.run())).collect();
            let failed = |_| Err(io::Error::other("checking failed unexpectedly: this is a bug in hone"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).collect()
        });
        let damaged: Vec<Option<usize>> = outcomes.into_iter().collect::<io::Result<_>>()?;
        let damaged = damaged.into_iter().flatten().min();
        Ok(damaged.map(|block| (block as u64 * BLOCK, (block as u64 * BLOCK + BLOCK).min(region.length))))
    }
}

impl TryFrom<Vec<String>> for Blocks {
    type Error = blake3::HexError;

    fn try_from(texts: Vec<String>) -> Result<Self, Self::Error> {
        texts.iter().map(|text| Ok(*blake3::Hash::from_hex(text)?.as_bytes())).collect::<Result<_, _>>().map(Self)
    }
}

impl From<Blocks> for Vec<String> {
    fn from(blocks: Blocks) -> Self {
        blocks.0.into_iter().map(|digest| blake3::Hash::from_bytes(digest).to_hex().to_string()).collect()
    }
}

/// Threads that verify one file.
struct Comparison<'a> {
    blocks: &'a Blocks,
    region: &'a ModelFile,
    next: AtomicUsize,
    is_over: AtomicBool,
}

impl Comparison<'_> {
    /// Verifies blocks that no other thread has taken, until one differs or none is left.
    fn run(&self) -> io::Result<Option<usize>> {
        let mut file = open_regular(&self.region.path)?;
        let mut buffer = vec![0; CHUNK];
        while !self.is_over.load(Ordering::Relaxed) {
            let block = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(expected) = self.blocks.0.get(block) else { break };
            if self.digest(&mut file, block as u64, &mut buffer)? != *expected {
                self.is_over.store(true, Ordering::Relaxed);
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    fn digest(&self, file: &mut File, block: u64, buffer: &mut [u8]) -> io::Result<[u8; 32]> {
        let start = block * BLOCK;
        file.seek(SeekFrom::Start(self.region.offset + start))?;
        let mut hasher = blake3::Hasher::new();
        let mut left = usize::try_from((self.region.length - start).min(BLOCK)).unwrap_or(usize::MAX);
        while left > 0 {
            let chunk = left.min(buffer.len());
            file.read_exact(&mut buffer[..chunk])?;
            hasher.update(&buffer[..chunk]);
            left -= chunk;
        }
        Ok(*hasher.finalize().as_bytes())
    }
}

/// Computes the hashes of blocks from a stream of bytes.
#[derive(Clone, Default)]
pub(crate) struct BlockHashing {
    done: Vec<[u8; 32]>,
    hasher: blake3::Hasher,
}

impl BlockHashing {
    /// Adds the next bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = BLOCK - self.hasher.count();
            let (now, rest) = bytes.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
            self.hasher.update(now);
            if self.hasher.count() == BLOCK {
                self.done.push(*self.hasher.finalize().as_bytes());
                self.hasher.reset();
            }
            bytes = rest;
        }
    }

    /// The hashes of the bytes so far.
    pub(crate) fn digests(&self) -> Blocks {
        let last = (self.hasher.count() > 0).then(|| *self.hasher.finalize().as_bytes());
        Blocks(self.done.iter().copied().chain(last).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The hashes of `bytes`, added in pieces.
    fn digests(bytes: &[u8], piece: usize) -> Blocks {
        let mut hashing = BlockHashing::default();
        bytes.chunks(piece).for_each(|piece| hashing.update(piece));
        hashing.digests()
    }

    #[test]
    fn every_changed_byte_is_found() {
        const OFFSET: u64 = 77;
        let block = usize::try_from(BLOCK).unwrap();
        for length in [1, block - 1, block, block + 1, 3 * block + 5] {
            let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let blocks = digests(&bytes, 100_003);
            assert_eq!(blocks, digests(&bytes, length));
            let check = |changed: Option<usize>, expected: Option<(u64, u64)>| {
                let mut file = tempfile::NamedTempFile::new().unwrap();
                let mut written = bytes.clone();
                changed.into_iter().for_each(|at| written[at] ^= 1);
                file.write_all(&vec![0; usize::try_from(OFFSET).unwrap()]).unwrap();
                file.write_all(&written).unwrap();
                let region = ModelFile::new(file.path(), OFFSET, length as u64);
                assert_eq!(blocks.first_damage(&region).unwrap(), expected, "{length} {changed:?}");
            };
            check(None, None);
            for at in [0, length / 2, length - 1] {
                let start = at / block * block;
                check(Some(at), Some((start as u64, (start + block).min(length) as u64)));
            }
        }
        let short = ModelFile::new(tempfile::NamedTempFile::new().unwrap().path(), 0, 9);
        assert_eq!(digests(&[0; 5 << 20], 9).first_damage(&short).unwrap(), Some((0, 9)));
        assert!(digests(b"x", 1).first_damage(&short).is_err());
    }

    #[test]
    fn digests_are_written_as_text() {
        let blocks = digests(b"abc", 3);
        let text = serde_json::to_string(&blocks).unwrap();
        // The published test vector of BLAKE3 for "abc".
        assert_eq!(text, "[\"6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85\"]");
        assert_eq!(serde_json::from_str::<Blocks>(&text).unwrap(), blocks);
        assert!(serde_json::from_str::<Blocks>("[\"64\"]").is_err());
        assert!(digests(b"", 1).is_empty() && Blocks::default().fit(0));
    }
}
