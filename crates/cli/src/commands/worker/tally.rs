//! The work that a worker has done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hone_app::fleet::WorkerState;

/// The period over which the latest work is counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The work that has been done.
#[derive(Default)]
pub(super) struct Tally {
    busy: AtomicUsize,
    finished: AtomicU64,
    failed: AtomicU64,
    tokens: AtomicU64,
    latest: Mutex<Latest>,
    /// The judge that gave the last grade; the likelihood judge may stand in for the configured one.
    judge: Mutex<Option<String>>,
}

/// The work of the last minute.
#[derive(Default)]
struct Latest {
    /// When each piece was finished, and how many tokens it had.
    pieces: VecDeque<(Instant, u64)>,
    n_tokens: u64,
}

impl Tally {
    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a piece is no longer worked on.
    pub(super) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn note_finished(&self, n_tokens: u64) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_add(n_tokens, Ordering::Relaxed);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.pieces.push_back((Instant::now(), n_tokens));
        latest.n_tokens += n_tokens;
    }

    pub(super) fn note_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_judge(&self, name: String) {
        *self.judge() = Some(name);
    }

    /// The judge that gave the last grade.
    pub(super) fn judge(&self) -> MutexGuard<'_, Option<String>> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a worker now.
    pub(super) fn state(&self, first: &WorkerState) -> WorkerState {
        let (n_pieces, n_tokens) = self.last_minute();
        WorkerState {
            busy: self.busy.load(Ordering::Relaxed),
            finished: self.finished(),
            failed: self.failed(),
            per_minute: n_pieces as f64,
            tokens: self.tokens.load(Ordering::Relaxed),
            tokens_per_minute: n_tokens as f64,
            ..first.clone()
        }
    }

    /// The pieces of the last minute, and their tokens.
    fn last_minute(&self) -> (usize, u64) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, n_tokens)) = latest.pieces.pop_front_if(|(finished, _)| finished.elapsed() > MINUTE) {
            latest.n_tokens -= n_tokens;
        }
        (latest.pieces.len(), latest.n_tokens)
    }
}
