//! Downloads one file: resumed, retried and verified before it gets its final name.
//!
//! The bytes are written to `FILE.partial`, and the content's identity to `FILE.partial.json`. A later run hashes the
//! existing bytes, requests the rest, and compares: if the server's file is a different one, it starts over. The hash
//! is computed as bytes arrive, so verifying a finished download costs nothing.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use hone_files::{create_private_folder, open_private, sync_folder, write_private};
use hone_protocol::with_causes;
use serde::{Deserialize, Serialize};

use super::{
    cancellation::{CancellableReader, Cancellation},
    check_space,
    client::{Answer, Client},
    doubling,
    transfer_error::TransferError,
};
use crate::{
    address::without_secrets,
    digest::{CopyError, Digest, Hashing},
    progress::{Event, Phase, ProgressSink},
};

/// The policy for retries after a broken connection or a busy server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of consecutive failures without progress after which to give up; 0 disables retries.
    pub attempts: u32,
    /// The wait after the first failure; it doubles after each further one.
    pub first_wait: Duration,
    /// The longest wait, also for servers that request one (`Retry-After`): a longer one is an error.
    pub longest_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 6, first_wait: Duration::from_millis(500), longest_wait: Duration::from_secs(60) }
    }
}

impl RetryPolicy {
    /// Runs `attempt` until it succeeds or another attempt is pointless.
    pub(super) fn run<T>(
        &self,
        progress: ProgressSink<'_>,
        mut attempt: impl FnMut() -> Result<T, TransferError>,
    ) -> Result<T, TransferError> {
        let mut failures = 0;
        loop {
            let error = match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            failures += 1;
            let Some(after) = self.wait(&error, failures, false) else { return Err(error) };
            progress(&Event::Retrying { reason: with_causes(&error), after });
            thread::sleep(after);
        }
    }

    /// The wait after an error; `None` if another attempt is pointless.
    fn wait(&self, error: &TransferError, failures: u32, was_connected: bool) -> Option<Duration> {
        if failures >= self.attempts {
            return None;
        }
        let backoff = doubling(self.first_wait, self.longest_wait, failures.max(1));
        match error {
            TransferError::Broken { .. } => Some(backoff),
            // A server that never answered is unlikely to; one that did may come back.
            TransferError::Unreachable { .. } if was_connected => Some(backoff),
            TransferError::Status { status: 429 | 500..=599, retry_after, .. } => {
                Some(retry_after.unwrap_or(backoff)).filter(|wait| *wait <= self.longest_wait)
            }
            _ => None,
        }
    }
}

/// A file to download.
pub(crate) struct Transfer<'a> {
    pub(crate) client: &'a Client,
    pub(crate) url: String,
    /// The path of the finished file.
    pub(crate) target: PathBuf,
    /// Its required SHA-256, if the catalog has it.
    pub(crate) expected: Option<&'a str>,
    /// Its maximum size in bytes, if known.
    pub(crate) most: Option<u64>,
    /// Ends the download early.
    pub(crate) cancellation: &'a Cancellation,
}

/// A downloaded file.
pub(crate) struct Fetched {
    pub(crate) digest: Digest,
    /// Whether there was no hash to verify it against.
    pub(crate) unchecked: bool,
}

impl Transfer<'_> {
    /// Downloads the file; on return, it is durable at its target, and verified if its hash is known.
    pub(crate) fn run(&self, retry: &RetryPolicy, progress: ProgressSink<'_>) -> Result<Fetched, TransferError> {
        let mut partial = Partial::open(&self.target, progress)?;
        loop {
            let resumed = partial.length() > 0;
            let published = self.fetch(&mut partial, retry, progress).inspect_err(|_| partial.discard_if_empty())?;
            let digest = partial.hashing.digest();
            // The catalog's hash takes precedence; a file without one is verified against the hub's.
            let Some(expected) = self.expected.map(str::to_owned).or(published) else {
                return Ok(Fetched { digest: partial.finish()?, unchecked: true });
            };
            if digest.sha256 == expected {
                return Ok(Fetched { digest: partial.finish()?, unchecked: false });
            }
            partial.restart(None)?;
            if !resumed {
                partial.discard();
                let (from, actual) = (without_secrets(&self.url), digest.sha256);
                return Err(TransferError::WrongHash { from, expected, actual });
            }
            tracing::warn!(url = without_secrets(&self.url), "the resumed download has a wrong hash: starting over");
        }
    }

    /// Downloads the missing bytes, over as many connections as needed; returns the hash that the hub publishes.
    fn fetch(
        &self,
        partial: &mut Partial,
        retry: &RetryPolicy,
        progress: ProgressSink<'_>,
    ) -> Result<Option<String>, TransferError> {
        let mut failures = 0;
        let mut was_connected = false;
        loop {
            let before = partial.length();
            let error = match self.attempt(partial, &mut was_connected, progress) {
                Ok(published) => return Ok(published),
                Err(error) => error,
            };
            self.cancellation.check()?;
            if let (TransferError::RangeRefused, true) = (&error, before > 0) {
                partial.restart(None)?;
                continue;
            }
            failures = if partial.length() > before { 0 } else { failures + 1 };
            let Some(after) = retry.wait(&error, failures, was_connected) else { return Err(error) };
            progress(&Event::Retrying { reason: with_causes(&error), after });
            self.cancellation.sleep(after);
            self.cancellation.check()?;
        }
    }

    fn attempt(
        &self,
        partial: &mut Partial,
        was_connected: &mut bool,
        progress: ProgressSink<'_>,
    ) -> Result<Option<String>, TransferError> {
        if partial.is_complete() {
            return Ok(partial.published_hash());
        }
        let mut answer = self.client.get(&self.url, partial.length(), self.expected)?;
        *was_connected = true;
        if partial.length() > 0 && !partial.continues(&answer) {
            tracing::info!(
                url = without_secrets(&self.url),
                "the file has changed since its download began: starting over"
            );
            partial.restart(None)?;
            if answer.start > 0 {
                answer = self.client.get(&self.url, 0, self.expected)?;
            }
        }
        if partial.length() == 0 {
            partial.restart(Some(&answer))?;
        }
        if let Some(total) = answer.total {
            self.check_size(total)?;
            check_space(partial.folder(), total.saturating_sub(partial.length()))?;
        }
        let published = answer.sha256.clone();
        let room = self.most.map_or(u64::MAX, |most| most.saturating_sub(partial.length()));
        partial.append(answer, room, self, progress)?;
        self.check_size(partial.length())?;
        Ok(published)
    }

    fn check_size(&self, size: u64) -> Result<(), TransferError> {
        let Some(most) = self.most.filter(|most| size > *most) else { return Ok(()) };
        let reason = format!("it is longer than the allowed {most} bytes");
        Err(TransferError::Protocol { url: without_secrets(&self.url), reason })
    }
}

/// A partly downloaded file.
struct Partial {
    target: PathBuf,
    path: PathBuf,
    file: File,
    hashing: Hashing,
    origin: Option<PartialOrigin>,
}

/// The identity of a partial file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartialOrigin {
    identity: Option<String>,
    sha256: Option<String>,
    total: Option<u64>,
}

impl Partial {
    fn open(target: &Path, progress: ProgressSink<'_>) -> Result<Self, TransferError> {
        let path = with_suffix(target, ".partial");
        let failed = |error| TransferError::file(&path, error);
        if let Some(folder) = path.parent() {
            create_private_folder(folder).map_err(failed)?;
        }
        let options = &mut File::options();
        let mut file = open_private(&path, options.read(true).append(true).create(true)).map_err(failed)?;
        let total = file.metadata().map_err(failed)?.len();
        let mut hashing = Hashing::default();
        let mut report = |done| {
            progress(&Event::Progress { phase: Phase::Verifying, file: file_name(target), done, total: Some(total) })
        };
        hashing.copy(&mut file, &mut io::sink(), &mut report).map_err(|error| failed(error.into()))?;
        let origin = fs::read(origin_path(&path)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Ok(Self { target: target.to_owned(), path, file, hashing, origin })
    }

    fn length(&self) -> u64 {
        self.hashing.size()
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn is_complete(&self) -> bool {
        let total = self.origin.as_ref().and_then(|origin| origin.total);
        total == Some(self.length()) && self.length() > 0
    }

    fn published_hash(&self) -> Option<String> {
        self.origin.as_ref().and_then(|origin| origin.sha256.clone())
    }

    /// Whether an answer continues this part: the same content, from the next byte.
    fn continues(&self, answer: &Answer) -> bool {
        let known = self.origin.as_ref().and_then(|origin| origin.identity.as_ref());
        answer.start == self.length() && known.is_some() && known == answer.identity.as_ref()
    }

    /// Empties the part and records the identity of the new content.
    fn restart(&mut self, answer: Option<&Answer>) -> Result<(), TransferError> {
        self.file.set_len(0).map_err(|error| TransferError::file(&self.path, error))?;
        self.hashing = Hashing::default();
        self.origin = answer.map(|answer| PartialOrigin {
            identity: answer.identity.clone(),
            sha256: answer.sha256.clone(),
            total: answer.total,
        });
        let path = origin_path(&self.path);
        let text = serde_json::to_vec(&self.origin).map_err(|error| TransferError::file(&path, error.into()))?;
        write_private(&path, &text).map_err(|error| TransferError::file(&path, error))
    }

    /// Writes the body of an answer: all of it, or one byte more than is allowed.
    fn append(
        &mut self,
        answer: Answer,
        room: u64,
        transfer: &Transfer<'_>,
        progress: ProgressSink<'_>,
    ) -> Result<(), TransferError> {
        let total = answer.total;
        let file = file_name(&self.target);
        let mut report =
            |done| progress(&Event::Progress { phase: Phase::Downloading, file: file.clone(), done, total });
        let reader = answer.body.into_reader().take(room.saturating_add(1));
        let mut reader = CancellableReader { reader, cancellation: transfer.cancellation };
        let broken = |reason: String| TransferError::Broken { url: without_secrets(&transfer.url), reason };
        self.hashing.copy(&mut reader, &mut self.file, &mut report).map_err(|error| match error {
            CopyError::Read(error) => broken(error.to_string()),
            CopyError::Write(error) => TransferError::file(&self.path, error),
        })?;
        match total {
            Some(total) if self.length() < total => Err(broken(format!("after {} of {total} bytes", self.length()))),
            _ => Ok(()),
        }
    }

    /// Renames the complete file to its final name.
    fn finish(self) -> Result<Digest, TransferError> {
        let failed = |error| TransferError::file(&self.target, error);
        self.file.sync_all().map_err(failed)?;
        fs::rename(&self.path, &self.target).map_err(failed)?;
        let _ = fs::remove_file(origin_path(&self.path));
        sync_folder(self.folder()).map_err(failed)?;
        Ok(self.hashing.digest())
    }

    fn discard_if_empty(&self) {
        if self.length() == 0 {
            self.discard();
        }
    }

    fn discard(&self) {
        for path in [&self.path, &origin_path(&self.path)] {
            let _ = fs::remove_file(path);
        }
    }
}

/// The number of bytes of the file at `target` that an earlier run has downloaded.
pub(super) fn partial_length(target: &Path) -> u64 {
    with_suffix(target, ".partial").metadata().map_or(0, |partial| partial.len())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn origin_path(partial: &Path) -> PathBuf {
    with_suffix(partial, ".json")
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
