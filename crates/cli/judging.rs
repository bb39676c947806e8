//! The judge on the command line: applied to one task or to a file of tasks.

pub(crate) mod batch;
mod cache;
mod driver;
mod examination;
mod lines;
mod setting;
mod task;

use std::path::Path;

use anyhow::bail;
use hone_protocol::Lane;
use hone_quality::examination::Marks;
use hone_quality::{CriticSettings, Fallback, Judge, LIKELIHOOD, Standing, Standings};

use crate::app::App;
use crate::arguments::BatchFlags;
use crate::judge::is_named_by_hand;
use crate::terminal::Output;
use crate::terminal::interrupt::Interrupt;
use crate::terminal::progress::{self, Steps};
use cache::VerdictCache;
pub(crate) use driver::Completed;
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
        let judge = app.judge(app.generator()?)?.in_lane(lane).of_unknown_authors();
        if is_named_by_hand(&app.config) {
            lift_bar(&judge, app.output);
        } else if let Some(reason) = judge.refusal("") {
            bail!("{reason}, or name a judge with --judge to get its grades all the same");
        }
        let model = asked_model(app, judge.settings(), answered_by);
        if model != judge.settings().model {
            app.installed(model)?;
        }
        let setting = Setting::new(app, &judge, model);
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

    /// Creates the judge for its examination: it is asked whatever earlier marks say, and nothing stands in for it.
    ///
    /// # Errors
    /// When it is not installed, or the engine cannot be started.
    pub(crate) fn open_for_examination(app: &App) -> anyhow::Result<JudgeSession> {
        let mut config = app.config.clone();
        config.critic.fallback = Fallback::None;
        let app = &app.with_config(config);
        let model = asked_model(app, &app.config.critic, "");
        app.store.show(model)?;
        let judge = app.judge(app.generator()?)?.in_lane(Lane::Batch).of_unknown_authors();
        judge.set_standings(Standings::default());
        let setting = Setting::new(app, &judge, model);
        let cache = VerdictCache::new(app, &setting)?;
        let interrupt = Interrupt::install()?;
        Ok(JudgeSession { judge, answered_by: String::new(), setting, cache, interrupt, output: app.output })
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

    /// Examines the judge; `None` if a person stopped it.
    ///
    /// # Errors
    /// When the judge gives no grade.
    pub(crate) fn examine(&self) -> anyhow::Result<Option<Marks>> {
        let mut steps = Steps::new(self.output, "gradings");
        let marks = examination::examine(&self.driver(), |done, total| steps.show(done, total, ""));
        steps.clear();
        marks
    }

    /// The judge.
    pub(crate) fn judge(&self) -> &Judge {
        &self.judge
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

/// The model that is asked: the judge's, or the one of the judge that stands in for it.
fn asked_model<'a>(app: &'a App, critic: &'a CriticSettings, answered_by: &'a str) -> &'a str {
    match critic.fallback {
        _ if critic.model == LIKELIHOOD => &critic.likelihood_model,
        _ if app.store.show(&critic.model).is_ok() => &critic.model,
        Fallback::Generator => answered_by,
        Fallback::Likelihood => &critic.likelihood_model,
        Fallback::None => &critic.model,
    }
}

/// Lets a judge that was named on the command line grade, and says if its grades should not be relied on.
fn lift_bar(judge: &Judge, output: Output) {
    let standings = judge.standings();
    if let Standing::Barred(reason) = &standings.judge {
        output.note(&format!("do not rely on these grades: {reason}"));
    }
    judge.set_standings(Standings { judge: Standing::Unchecked, likelihood: Standing::Unchecked, ..standings });
}
