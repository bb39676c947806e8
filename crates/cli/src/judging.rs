//! The judge on the command line: applied to one task or to a file of tasks.

pub(crate) mod batch;
mod cache;
pub(crate) mod claims;
pub(crate) mod critiques;
pub(crate) mod dataset;
mod driver;
mod examination;
pub(crate) mod idle;
mod lender;
pub(crate) mod lines;
pub(crate) mod reviews;
pub(crate) mod served;
mod setting;
mod task;

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use hone_judging::examination::{Marks, Question, Set};
use hone_judging::{CriticSettings, Fallback, Judge, Jury, LIKELIHOOD, Standing, Standings};
use hone_protocol::{Generate, Lane};

use crate::app::App;
use crate::arguments::{BatchFlags, is_pipe};
use crate::judge::marks::{Asked, MarksStore};
use crate::judge::{is_named_by_hand, with_judge};
use crate::terminal::Output;
use crate::terminal::interrupt::Interrupt;
use crate::terminal::progress::{self, Steps};
use cache::VerdictCache;
pub(crate) use driver::Completed;
use driver::{Driver, Judged};
use setting::Setting;
use task::BatchTask;

/// A judge, or several, with the engine and what else a command needs for judging: the cache, Ctrl-C, the progress
/// display.
pub(crate) struct JudgeSession {
    judge: Jury,
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
        let lane = if arguments.files().is_some() { Lane::Batch } else { Lane::Interactive };
        let session = JudgeSession::open_on(app, app.generator()?, lane)?;
        Ok(if arguments.no_cache { JudgeSession { cache: None, ..session } } else { session })
    }

    /// The same on an engine that is used for something else, too.
    ///
    /// # Errors
    /// When the judge cannot be created.
    pub(crate) fn open_on(app: &App, generator: Arc<dyn Generate>, lane: Lane) -> anyhow::Result<JudgeSession> {
        let answered_by = &app.config.engine.model;
        let judge = app.jury(generator)?.in_lane(lane).of_unknown_authors();
        if is_named_by_hand(&app.config) {
            judge.jurors().for_each(|juror| lift_bar(juror, app.output));
        } else if let Some(reason) = judge.refusal("") {
            bail!("{reason}, or name a judge with --judge to get its grades all the same");
        }
        for settings in judge.judges().map(Judge::settings) {
            let model = asked_model(app, settings, answered_by);
            if model != settings.model {
                app.installed(model)?;
            }
        }
        let setting = setting(app, &judge);
        let cache = VerdictCache::new(app, &setting)?;
        let (answered_by, interrupt) = (answered_by.clone(), Interrupt::install()?);
        Ok(JudgeSession { judge, answered_by, setting, cache, interrupt, output: app.output })
    }

    /// Starts the engine and makes the judge for answers that nobody waits for.
    ///
    /// # Errors
    /// See [`JudgeSession::open`].
    pub(crate) fn open_for_backlog(app: &App) -> anyhow::Result<JudgeSession> {
        let judge = app.jury(app.generator()?)?.in_lane(Lane::Batch);
        Ok(JudgeSession::without_cache(app, judge, Interrupt::install()?))
    }

    /// Makes the judge for a client that waits, on an engine that runs. `withdrawn` is pressed when it waits no more.
    /// What others have had judged must not make a verdict come sooner, so there is no cache.
    ///
    /// # Errors
    /// When the judge cannot be created.
    fn open_for_client(app: &App, generator: Arc<dyn Generate>, withdrawn: Interrupt) -> anyhow::Result<JudgeSession> {
        let judge = app.jury(generator)?.in_lane(Lane::Interactive).of_unknown_authors();
        Ok(JudgeSession::without_cache(app, judge, withdrawn))
    }

    fn without_cache(app: &App, judge: Jury, interrupt: Interrupt) -> JudgeSession {
        let (setting, answered_by) = (setting(app, &judge), app.config.engine.model.clone());
        JudgeSession { judge, answered_by, setting, cache: None, interrupt, output: app.output }
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

    /// Creates the judge for its examination: it is asked alone, whatever earlier marks say, and nothing stands in for
    /// it.
    ///
    /// # Errors
    /// When it is not installed, or the engine cannot be started.
    pub(crate) fn open_for_examination(app: &App, interrupt: Interrupt) -> anyhow::Result<JudgeSession> {
        JudgeSession::examining(app, App::generator, interrupt)
    }

    /// The same with an engine that is made when the judge is known to be installed, and something else than Ctrl-C.
    fn examining(
        app: &App,
        generator: impl FnOnce(&App) -> anyhow::Result<Arc<dyn Generate>>,
        interrupt: Interrupt,
    ) -> anyhow::Result<JudgeSession> {
        let app = &app.with_config(with_judge(&app.config, &app.config.critic.model, Fallback::None));
        let model = asked_model(app, &app.config.critic, "");
        app.store.show(model)?;
        let judge = app.jury(generator(app)?)?.in_lane(Lane::Batch).of_unknown_authors();
        judge.first().set_standings(Standings::default());
        let setting = setting(app, &judge);
        let cache = VerdictCache::new(app, &setting)?;
        Ok(JudgeSession { judge, answered_by: String::new(), setting, cache, interrupt, output: app.output })
    }

    /// The seconds that a grade takes, without waiting and loading: that of the last of some answers, for which all
    /// that gradings share is in the KV cache. `None` if the user stopped it.
    ///
    /// # Errors
    /// When the judge is not installed or gives no grade.
    pub(crate) fn seconds_per_grade(app: &App) -> anyhow::Result<Option<f64>> {
        let session = JudgeSession { cache: None, ..JudgeSession::open_for_examination(app, Interrupt::install()?)? };
        let spinner = progress::spinner(app.output, "measuring what a grade costs");
        let seconds = session.seconds_of_last_grade();
        spinner.finish_and_clear();
        seconds
    }

    /// Grades the answers to one question, one after the other, and returns the seconds of the last one.
    fn seconds_of_last_grade(&self) -> anyhow::Result<Option<f64>> {
        let mut seconds = None;
        for task in Set::shipped().questions.iter().take(1).flat_map(Question::grade_tasks) {
            let completed = self.judge_all(&[task], "", |_, grade| {
                if let Some(failure) = grade.judging.failure {
                    bail!("{} gives no grade: {failure}", self.judge().settings().model);
                }
                seconds = Some((grade.judging.seconds - grade.judging.queue_seconds).max(0.0));
                Ok(())
            })?;
            if completed == Completed::UntilInterrupt {
                return Ok(None);
            }
        }
        Ok(seconds)
    }

    /// Judges one task; `None` if the user stopped it.
    ///
    /// # Errors
    /// Not for failures of the judge, which are part of the verdict.
    pub(crate) fn judge_one<T: BatchTask>(&self, task: T) -> anyhow::Result<Option<T::Verdict>> {
        let spinner = progress::spinner(self.output, "judging");
        let verdict = judged_alone(&Driver { bar: Some(&spinner), ..self.driver() }, task);
        spinner.finish_and_clear();
        verdict
    }

    /// The same without a sign that it works.
    fn judge_quietly<T: BatchTask>(&self, task: T) -> anyhow::Result<Option<T::Verdict>> {
        judged_alone(&self.driver(), task)
    }

    /// Judges the lines of a file that have no verdict in `output` yet, and writes the verdicts in the order of the
    /// input.
    ///
    /// # Errors
    /// When a line of either file is invalid, in which case nothing is judged or changed, or a file cannot be read or
    /// written.
    pub(crate) fn judge_file<T: BatchTask>(&self, input: &Path, output: &Path) -> anyhow::Result<batch::Summary> {
        let (driver, setting, screen) = (self.driver(), &self.setting, self.output);
        if is_pipe(output) {
            return batch::stream::<T>(&driver, setting, screen, input, |line| {
                screen.print_line(&serde_json::to_string(line)?)
            });
        }
        batch::run::<T>(&driver, setting, screen, batch::Files { input, output })
    }

    /// Examines the judge; `None` if a person stopped it.
    ///
    /// # Errors
    /// When the judge gives no grade.
    pub(crate) fn examine(&self) -> anyhow::Result<Option<Marks>> {
        let steps = Steps::new(self.output, "gradings");
        let driver = Driver { bar: Some(steps.bar()), ..self.driver() };
        let marks = examination::examine(&driver, |done, total| steps.show(done, total, ""));
        steps.clear();
        marks
    }

    /// The same without a progress bar.
    fn examine_quietly(&self) -> anyhow::Result<Option<Marks>> {
        examination::examine(&self.driver(), |_, _| ())
    }

    /// Keeps the judge's marks.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn keep_marks(&self, app: &App, marks: &Marks) -> anyhow::Result<()> {
        let judge = self.judge();
        let (critic, profile, rubric) = (judge.settings(), judge.profile(), judge.rubric());
        let asked = Asked { model: &critic.model, critic, profile, rubric };
        MarksStore::new(app.data_folder()).keep(&app.store, &asked, marks)
    }

    /// The judge, or the first of the jury.
    pub(crate) fn judge(&self) -> &Judge {
        self.judge.first()
    }

    fn driver(&self) -> Driver<'_> {
        Driver {
            judge: &self.judge,
            answered_by: &self.answered_by,
            cache: self.cache.as_ref(),
            interrupt: &self.interrupt,
            bar: None,
        }
    }
}

/// The verdict on one task; `None` if the user stopped it.
fn judged_alone<T: BatchTask>(driver: &Driver<'_>, task: T) -> anyhow::Result<Option<T::Verdict>> {
    let mut verdict = None;
    let ending = driver.judge_all(&[task], |judged: Judged<T::Verdict>| {
        verdict = Some(judged.verdict);
        Ok(())
    });
    ending.map(|_| verdict)
}

/// What the verdicts of these judges depend on.
fn setting(app: &App, judge: &Jury) -> Setting {
    Setting::new(app, judge, |judge| asked_model(app, judge.settings(), &app.config.engine.model).to_owned())
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
