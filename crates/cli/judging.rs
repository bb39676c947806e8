//! The judge on the command line: applied to one task or to a file of tasks.

pub(crate) mod batch;
mod cache;
mod driver;
mod lines;
mod setting;
mod task;

use std::path::Path;

use hone_protocol::Lane;
use hone_quality::{Fallback, Judge};

use crate::app::App;
use crate::arguments::BatchFlags;
use crate::terminal::Output;
use crate::terminal::interrupt::Interrupt;
use crate::terminal::progress;
use cache::VerdictCache;
use driver::{Driver, Judged};
use setting::Setting;
use task::BatchTask;

/// A judge with its engine and what else a command needs for judging: the cache, Ctrl-C, the progress display.
pub(crate) struct JudgeSession {
    judge: Judge,
    answered_by: String,
    setting: Setting,
    cache: Option<VerdictCache>,
    interrupt: Interrupt,
    output: Output,
}

impl JudgeSession {
    /// Starts the engine and creates the judge. If the judge is not installed, the model that stands in for it is
    /// downloaded first if necessary.
    ///
    /// # Errors
    /// When the judge cannot be created, or the engine cannot be started.
    pub(crate) fn open(app: &App, arguments: &BatchFlags) -> anyhow::Result<JudgeSession> {
        let answered_by = &app.config.engine.model;
        let lane = if arguments.files().is_some() { Lane::Batch } else { Lane::Interactive };
        let judge = app.judge(app.generator()?)?.in_lane(lane);
        let critic = judge.settings();
        let falls_back = critic.fallback == Fallback::Generator && app.store.show(&critic.model).is_err();
        if falls_back {
            app.installed(answered_by)?;
        }
        let setting = Setting::new(app, &judge, if falls_back { answered_by } else { &critic.model });
        let cache = if arguments.no_cache { None } else { VerdictCache::new(app, &setting)? };
        Ok(JudgeSession {
            judge,
            answered_by: answered_by.clone(),
            setting,
            cache,
            interrupt: Interrupt::install()?,
            output: app.output,
        })
    }

    /// Judges one task; `None` if the user stopped it.
    ///
    /// # Errors
    /// Not for failures of the judge, which are part of the verdict.
    pub(crate) fn judge_one<T: BatchTask>(&self, task: T) -> anyhow::Result<Option<T::Verdict>> {
        let spinner = progress::spinner(self.output, "judging");
        let mut verdict = None;
        let ending = self.driver().judge_all(&[task], |judged: Judged<T::Verdict>| {
            verdict = Some(judged.verdict);
            Ok(())
        });
        spinner.finish_and_clear();
        ending.map(|_| verdict)
    }

    /// Judges the lines of a file that have no verdict in `output` yet, and writes the verdicts in the order of the
    /// input.
    ///
    /// # Errors
    /// When a line of either file is invalid, in which case nothing is judged or changed, or a file cannot be read or
    /// written.
    pub(crate) fn judge_file<T: BatchTask>(&self, input: &Path, output: &Path) -> anyhow::Result<batch::Summary> {
        batch::run::<T>(&self.driver(), &self.setting, self.output, batch::Files { input, output })
    }

    fn driver(&self) -> Driver<'_> {
        Driver {
            judge: &self.judge,
            answered_by: &self.answered_by,
            cache: self.cache.as_ref(),
            interrupt: &self.interrupt,
        }
    }
}
