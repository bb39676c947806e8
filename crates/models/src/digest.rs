//! SHA-256 of streams: every byte that enters the store or a bundle goes through [`copy_hashed`] or [`Hashing`], so
//! files are never read a second time for hashing.

use std::io::{self, Read, Write};

use hone_protocol::hexadecimal;
use sha2::{Digest as _, Sha256};

use crate::blocks::{BlockHashing, Blocks};

/// The size of one read; large enough that progress reports and system calls cost little compared with the copying.
const CHUNK: usize = 256 * 1024;

/// The hash and the length of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    /// Lower-case hexadecimal SHA-256.
    pub(crate) sha256: String,
    /// The number of hashed bytes.
    pub(crate) size: u64,
    /// BLAKE3 hashes of the blocks.
    pub(crate) blocks: Blocks,
}

/// A running hash.
#[derive(Clone, Default)]
pub(crate) struct Hashing {
    hasher: Sha256,
    blocks: BlockHashing,
    size: u64,
}

impl Hashing {
    /// The number of bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The digest of the bytes so far.
    pub(crate) fn digest(&self) -> Digest {
        let sha256 = hexadecimal(self.hasher.clone().finalize());
        Digest { sha256, size: self.size, blocks: self.blocks.digests() }
    }

    /// Copies everything from `reader` to `writer` and hashes it; `on_bytes` is called with the running total.
    ///
    /// # Errors
    /// As the reader and the writer; bytes written before the error are hashed.
    pub(crate) fn copy(
        &mut self,
        reader: &mut dyn Read,
        writer: &mut dyn Write,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<(), CopyError> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(CopyError::Read(error)),
            };
            writer.write_all(&buffer[..count]).map_err(CopyError::Write)?;
            self.hasher.update(&buffer[..count]);
            self.blocks.update(&buffer[..count]);
            self.size += count as u64;
            on_bytes(self.size);
        }
    }
}

/// The side of a copy that failed: a broken connection is worth retrying, a full disk is not.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// Reading failed.
    Read(io::Error),
    /// Writing failed.
    Write(io::Error),
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Read(error) | CopyError::Write(error) => error,
        }
    }
}

/// Copies all of `reader` to `writer` and returns its digest.
///
/// # Errors
/// As the reader and the writer.
pub(crate) fn copy_hashed(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    on_bytes: &mut dyn FnMut(u64),
) -> io::Result<Digest> {
    let mut hashing = Hashing::default();
    hashing.copy(reader, writer, on_bytes)?;
    Ok(hashing.digest())
}

/// Whether a text is a SHA-256 in the form that this crate writes.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_the_published_test_vector() {
        let mut copy = Vec::new();
        let digest = copy_hashed(&mut b"abc".as_slice(), &mut copy, &mut |_| ()).unwrap();
        assert_eq!(digest.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((digest.size, copy.as_slice()), (3, b"abc".as_slice()));
        assert!(is_sha256(&digest.sha256));
        assert!(!is_sha256(&digest.sha256.to_uppercase()));
    }
}
