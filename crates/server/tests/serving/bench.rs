//! Judges of the clients of a server, which a test writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::Receiver;
use hone_judging::{CompareTask, GradeTask, Jury};
use hone_protocol::{Grade, Preference};
use hone_server::Judges;

/// A judge that works at the answer `endless` until it is withdrawn.
#[derive(Default)]
pub(crate) struct StagedJudges {
    pub(crate) jury: Option<Jury>,
    /// How often it has begun with an endless answer.
    pub(crate) endless: AtomicUsize,
    /// How many of those were withdrawn.
    pub(crate) withdrawn: AtomicUsize,
}

impl StagedJudges {
    fn jury(&self) -> Result<&Jury, String> {
        self.jury.as_ref().ok_or_else(|| "there is no judge".to_owned())
    }
}

impl Judges for StagedJudges {
    fn grade(&self, task: GradeTask, withdrawn: Receiver<()>) -> Result<Option<Grade>, String> {
        if task.answer == "endless" {
            self.endless.fetch_add(1, Ordering::Relaxed);
            withdrawn.recv().map_err(|error| error.to_string())?;
            self.withdrawn.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        Ok(Some(self.jury()?.judge(task, "scripted")))
    }

    fn compare(&self, task: CompareTask, _: Receiver<()>) -> Result<Option<Preference>, String> {
        Ok(Some(self.jury()?.judge(task, "scripted")))
    }
}
