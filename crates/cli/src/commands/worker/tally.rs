//! The work that a worker has done.

use std::collections::{BTreeMap, VecDeque};
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
    /// The jobs of the last minute.
    latest: Mutex<VecDeque<Finished>>,
    /// The judge that gave the last grade; the likelihood judge may stand in for the configured one.
    judge: Mutex<Option<String>>,
}

/// A finished job.
struct Finished {
    role: &'static str,
    at: Instant,
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

    /// Notes that a job is no longer in progress.
    pub(super) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn note_finished(&self, role: &'static str, n_tokens: u64) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_add(n_tokens, Ordering::Relaxed);
        self.last_minute().push_back(Finished { role, at: Instant::now(), n_tokens });
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
        let latest = self.last_minute();
        let mut by_role: BTreeMap<String, f64> = BTreeMap::new();
        for job in latest.iter() {
            *by_role.entry(job.role.to_owned()).or_default() += 1.0;
        }
        WorkerState {
            busy: self.busy.load(Ordering::Relaxed),
            finished: self.finished(),
            failed: self.failed(),
            per_minute: latest.len() as f64,
            per_minute_by_role: by_role,
            tokens: self.tokens.load(Ordering::Relaxed),
            tokens_per_minute: latest.iter().map(|job| job.n_tokens).sum::<u64>() as f64,
            ..first.clone()
        }
    }

    /// The jobs of the last minute.
    fn last_minute(&self) -> MutexGuard<'_, VecDeque<Finished>> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        while latest.pop_front_if(|job| job.at.elapsed() > MINUTE).is_some() {}
        latest
    }
}
