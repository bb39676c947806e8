//! The judge of a server's clients, over HTTP or MCP: the same that `hone grade` and `hone compare` ask.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use hone_judging::{CompareTask, GradeTask};
use hone_protocol::{Generate, Grade, Preference};
use hone_server::Judges;

use super::JudgeSession;
use super::task::BatchTask;
use crate::app::App;
use crate::terminal::interrupt::Interrupt;

/// The configured judge, made anew for each verdict: an examination may have been taken in the meantime.
pub(crate) struct ServedJudges {
    app: App,
    generator: Arc<dyn Generate>,
}

impl ServedJudges {
    /// The judge that the configuration describes, on an engine that runs.
    pub(crate) fn new(app: &App, generator: Arc<dyn Generate>) -> ServedJudges {
        ServedJudges { app: app.with_config(app.config.clone()), generator }
    }

    fn judge<T: BatchTask>(&self, task: T, withdrawn: Receiver<()>) -> Result<Option<T::Verdict>, String> {
        if !withdrawn.is_empty() {
            return Ok(None);
        }
        let generator = Arc::clone(&self.generator);
        let session = JudgeSession::open_for_client(&self.app, generator, Interrupt::from_channel(withdrawn));
        session.and_then(|session| session.judge_quietly(task)).map_err(|error| format!("{error:#}"))
    }
}

impl Judges for ServedJudges {
    fn grade(&self, task: GradeTask, withdrawn: Receiver<()>) -> Result<Option<Grade>, String> {
        self.judge(task, withdrawn)
    }

    fn compare(&self, task: CompareTask, withdrawn: Receiver<()>) -> Result<Option<Preference>, String> {
        self.judge(task, withdrawn)
    }
}
