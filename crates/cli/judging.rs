//! The judge on the command line: put to work on one task or on a file of them.

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
pub(crate) use driver::Completed;
use driver::{Driver, Judged};
use setting::Setting;
use task::BatchTask;

/// A judge with the engine that it runs on and what else a command needs to judge: the cache, Ctrl-C, the progress.
pub(crate) struct JudgeSession {
    judge: Judge,
    answered_by: String,
    setting: Setting,
    cache: Option<VerdictCache>,
    interrupt: Interrupt,
    output: Output,
}

impl JudgeSession {
    /// Starts the engine and makes the judge. The model that stands in for a judge which is not installed is fetched first
    /// where it is not here either.
    ///
    /// # Errors
    /// When there is no judge to be made, or no engine to be started.
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

    /// Starts the engine and makes the judge for answers that nobody waits for.
    ///
    /// # Errors
    /// See [`JudgeSession::open`].
    pub(crate) fn open_for_backlog(app: &App) -> anyhow::Result<JudgeSession> {
        let judge = app.judge(app.generator()?)?.in_lane(Lane::Batch);
        let setting = Setting::new(app, &judge, &judge.settings().model);
        let answered_by = app.config.engine.model.clone();
        Ok(JudgeSession {
            judge,
            answered_by,
            setting,
            cache: None,
            interrupt: Interrupt::install()?,
            output: app.output,
        })
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Judges answers of one model, and hands the verdicts on in their order, each with the place of its task.
    ///
    /// # Errors
    /// Those of `on_verdict`, after which nothing more is judged.
    pub(crate) fn judge_all<T: BatchTask>(
        &self,
        tasks: &[T],
        answered_by: &str,
        mut on_verdict: impl FnMut(usize, T::Verdict) -> anyhow::Result<()>,
    ) -> anyhow::Result<Completed> {
        Driver { answered_by, ..self.driver() }.judge_all(tasks, |judged| on_verdict(judged.index, judged.verdict))
    }

    /// Judges one task; `None` where a person stopped it.
    ///
    /// # Errors
    /// None of the judge's: a verdict says itself what failed.
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

    /// Judges the lines of a file that have no verdict in `output` yet, and writes them there in the order of the input.
    ///
    /// # Errors
    /// When a line of either file is not what it should be, in which case nothing is judged and nothing changed, or a file
    /// cannot be read or written.
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
