//! Verdicts of earlier runs: a small JSON file each, named after a hash of the verdict's inputs.
//!
//! The inputs are the texts, the judge's [`Setting`], and the computation: the program's version, the device, the
//! backend, the format of its KV cache and the bits of its activations. The number of threads is left out: it changes
//! the order in which the same products are added up, so even at temperature 0 the last digits of a probability, and
//! occasionally a score, differ; both are the judge's verdict on the answer. So a cached verdict is one that this
//! program has reached in this setting on this device, and not always the one that it would reach now. `--no-cache`
//! judges anew.
//!
//! The cache only saves time. A file that cannot be read is ignored, and one that cannot be written is reported once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use hone_judging::{CompareTask, GradeTask, JointVerdict, JudgeTask, OwnRubric, ReviewTask, Verdict};
use hone_protocol::{JudgingMethod, hexadecimal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::setting::Setting;
use crate::app::App;
use crate::kept;

/// A task whose verdict can be kept.
pub trait CachedTask: JudgeTask<Verdict: Serialize + DeserializeOwned> + Serialize {
    /// Its name in the cache.
    const KIND: &'static str;
    /// How many run concurrently. The engine takes four sequences, and a comparison takes two.
    const IN_FLIGHT: usize;

    /// Whether every member of a jury has a verdict; `None` if a single judge gave it.
    fn is_of_whole_jury(verdict: &Self::Verdict) -> Option<bool>;
}

impl CachedTask for GradeTask {
    const KIND: &'static str = "grade";
    const IN_FLIGHT: usize = 4;

    fn is_of_whole_jury(verdict: &Self::Verdict) -> Option<bool> {
        is_whole(verdict)
    }
}

impl CachedTask for CompareTask {
    const KIND: &'static str = "compare";
    const IN_FLIGHT: usize = 2;

    fn is_of_whole_jury(verdict: &Self::Verdict) -> Option<bool> {
        is_whole(verdict)
    }
}

impl CachedTask for ReviewTask {
    const KIND: &'static str = "review";
    const IN_FLIGHT: usize = 4;

    fn is_of_whole_jury(_: &Self::Verdict) -> Option<bool> {
        None
    }
}

impl<T: CachedTask> CachedTask for OwnRubric<T> {
    const KIND: &'static str = T::KIND;
    const IN_FLIGHT: usize = T::IN_FLIGHT;

    fn is_of_whole_jury(verdict: &Self::Verdict) -> Option<bool> {
        T::is_of_whole_jury(verdict)
    }
}

fn is_whole<V: JointVerdict>(verdict: &V) -> Option<bool> {
    let members = verdict.members();
    (!members.is_empty()).then(|| members.iter().all(|member| member.verdict.judging().failure.is_none()))
}

/// The verdicts of one judge.
pub(super) struct VerdictCache {
    folder: PathBuf,
    /// The judge and its runtime, on which the verdicts depend.
    judge: Value,
    /// The judge's model, or the names of the jurors.
    model: String,
    /// Its method of judging.
    method: JudgingMethod,
    has_failed: AtomicBool,
}

impl VerdictCache {
    /// The cached verdicts for `setting`; `None` if its model is not installed.
    ///
    /// # Errors
    /// When the device does not exist.
    pub(super) fn new(app: &App, setting: &Setting) -> anyhow::Result<Option<VerdictCache>> {
        if !setting.is_installed {
            return Ok(None);
        }
        let folder = app.data_folder().join("cache").join("grades");
        let judge = json!([setting.judge, app.computed_by()?]);
        let (model, method) = (setting.model.clone(), setting.method);
        Ok(Some(VerdictCache { folder, judge, model, method, has_failed: AtomicBool::new(false) }))
    }

    /// The cached verdict on a task, if any.
    pub(super) fn find<T: CachedTask>(&self, task: &T) -> Option<T::Verdict> {
        let text = std::fs::read(self.path_of(task)).ok()?;
        let verdict: T::Verdict = serde_json::from_slice(&text).ok()?;
        self.is_own::<T>(&verdict).then_some(verdict)
    }

    /// Stores a verdict. Failures (also of a single juror) and verdicts of a fallback judge are not stored.
    pub(super) fn keep<T: CachedTask>(&self, task: &T, verdict: &T::Verdict) {
        if !self.is_own::<T>(verdict) {
            return;
        }
        let path = self.path_of(task);
        if let Err(error) = kept::write(&self.folder, &path, verdict)
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("verdicts are not kept for later: {error:#}");
        }
    }

    /// Whether this judge gave the verdict with its own method, or all jurors of this jury gave theirs.
    fn is_own<T: CachedTask>(&self, verdict: &T::Verdict) -> bool {
        let judging = verdict.judging();
        let is_whole = T::is_of_whole_jury(verdict)
            .unwrap_or_else(|| judging.judge == self.model && judging.method == self.method);
        judging.failure.is_none() && is_whole
    }

    fn path_of<T: CachedTask>(&self, task: &T) -> PathBuf {
        let key = json!([T::KIND, self.judge, task]).to_string();
        self.folder.join(format!("{}.json", hexadecimal(Sha256::digest(key))))
    }
}
