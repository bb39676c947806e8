//! Verdicts of earlier runs: a small JSON file each, named after a hash of everything that the verdict depends on.
//!
//! The cache only saves time. A file that cannot be read is none, and one that cannot be written is told once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use anyhow::Context;
use hone_models::InstalledModel;
use hone_quality::Judge;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::work::Work;
use crate::app::App;

/// Raised whenever the same inputs would be judged in another way.
const VERSION: u32 = 1;

/// The verdicts of one judge.
pub(super) struct VerdictCache {
    folder: PathBuf,
    /// The judge as far as its verdicts depend on it.
    judge: Value,
    /// The model that is to give the verdicts.
    model: String,
    has_failed: AtomicBool,
}

impl VerdictCache {
    /// The verdicts of `judge` where `model` grades; `None` where that model is not installed.
    pub(super) fn new(app: &App, judge: &Judge, model: &str) -> Option<VerdictCache> {
        let installed = app.store.show(model).ok()?;
        let folder = app.data_folder().join("cache").join("grades");
        let self_graded = model == app.config.engine.model;
        let judge = json!([identity(&installed), self_graded, settings(judge)]);
        Some(VerdictCache { folder, judge, model: model.to_owned(), has_failed: AtomicBool::new(false) })
    }

    /// The verdict on a task that was judged before.
    pub(super) fn find<W: Work>(&self, task: &W::Task) -> Option<W::Verdict> {
        let text = std::fs::read(self.path_of::<W>(task)).ok()?;
        let verdict: W::Verdict = serde_json::from_slice(&text).ok()?;
        W::judging(&verdict).failure.is_none().then_some(verdict)
    }

    /// Keeps a verdict. One that is none, or that another model gave in the end, is not kept.
    pub(super) fn keep<W: Work>(&self, task: &W::Task, verdict: &W::Verdict) {
        let judging = W::judging(verdict);
        if judging.failure.is_some() || judging.judge != self.model {
            return;
        }
        let path = self.path_of::<W>(task);
        if let Err(error) = self.write(&path, verdict)
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("verdicts are not kept for later: {error:#}");
        }
    }

    fn write(&self, path: &Path, verdict: &impl serde::Serialize) -> anyhow::Result<()> {
        let failure = || format!("cannot write {}", path.display());
        std::fs::create_dir_all(&self.folder).with_context(failure)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).with_context(failure)?;
        serde_json::to_writer(&mut file, verdict).with_context(failure)?;
        file.persist(path).with_context(failure)?;
        Ok(())
    }

    fn path_of<W: Work>(&self, task: &W::Task) -> PathBuf {
        let key = json!([VERSION, W::KIND, self.judge, W::texts(task)]).to_string();
        let hash: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{hash}.json"))
    }
}

/// What tells a model from another one of the same name: its hash, or where that is not known its place, length and date.
fn identity(model: &InstalledModel) -> Value {
    let file = |file: &hone_models::InstalledFile| match &file.sha256 {
        Some(sha256) => json!([file.name, sha256]),
        None => {
            let modified = std::fs::metadata(&file.location.path).and_then(|metadata| metadata.modified()).ok();
            let nanoseconds =
                modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_nanos());
            json!([file.location.path, file.location.length, nanoseconds.map(|count| count.to_string())])
        }
    };
    json!([model.name, model.files.iter().map(file).collect::<Vec<_>>()])
}

fn settings(judge: &Judge) -> Value {
    let settings = judge.settings();
    let templates = &settings.templates;
    json!([
        settings.temperature,
        settings.context,
        settings.feedback_tokens,
        settings.tie_margin,
        templates.absolute_system,
        templates.absolute_prompt,
        templates.absolute_reference_prompt,
        templates.pairwise_system,
        templates.pairwise_prompt,
        judge.rubric().name,
        judge.rubric().text(),
    ])
}
