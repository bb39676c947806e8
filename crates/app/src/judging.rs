//! Judges at work: on one task, on a file of tasks, in an examination, and for other callers.

mod answered;
mod batch;
mod cache;
mod claims;
mod critic_examination;
mod critiques;
pub mod dataset;
mod driver;
mod examination;
mod idle;
mod known;
mod lender;
pub mod lines;
mod reviews;
mod served;
mod setting;
mod task;

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use hone_judging::{
    CriticMarks, Fallback, GradeTask, Judge, JudgeSettings, Jury, LIKELIHOOD, Marks, Question, QuestionSet, Standing,
    Standings, explained,
};
use hone_protocol::{ContentType, Generate, GenerateError, Grade, GradedAnswer, Lane, OwnerId, Remark};
use serde_json::{Map, Value};

use crate::app::App;
use crate::decisions::Remarkers;
use crate::interrupt::Interrupt;
use crate::judge::marks::{JudgeSetup, MarksStore};
use crate::judge::{is_named_by_hand, with_judge};
use crate::progress::{Activity, Progress, Silent};
pub use answered::{AnsweredLines, UnansweredLines};
pub use batch::Summary;
use cache::VerdictCache;
pub use claims::ClaimJudge;
pub use critic_examination::critic_model;
pub use critiques::{Critic, CriticStanding, ExaminedCritic, background_critic};
pub use driver::Completed;
use driver::{Driver, Judged};
pub use idle::{Advice, Chat, IdleExamination};
pub use known::{KnownJudge, known_judges};
pub use reviews::reviewers;
pub use served::ServedJudges;
pub use setting::SETTING;
use setting::Setting;
pub use task::{BatchTask, columns};

/// One or more judges, with the engine, the cache and the interrupt.
pub struct JudgeSession {
    judge: Jury,
    answered_by: String,
    setting: Setting,
    cache: Option<VerdictCache>,
    interrupt: Interrupt,
}

impl JudgeSession {
    /// Starts the engine and creates the judge of answers by the model `author`, or by unknown authors. If the judge is
    /// not installed, its fallback model is downloaded first if necessary.
    ///
    /// # Errors
    /// When the judge cannot be created, or the engine cannot be started.
    pub fn open(app: &App, lane: Lane, author: Option<&str>, interrupt: Interrupt) -> anyhow::Result<JudgeSession> {
        JudgeSession::cached(app, app.jury(app.generator()?)?.in_lane(lane), author, interrupt)
    }

    /// The session without a cache: every verdict is a new one, and none is kept.
    pub fn without_cache(self) -> JudgeSession {
        JudgeSession { cache: None, ..self }
    }

    /// Like [`JudgeSession::open`], on an engine that is also used for something else.
    ///
    /// # Errors
    /// When the judge cannot be created.
    pub fn open_on(
        app: &App,
        generator: Arc<dyn Generate>,
        lane: Lane,
        interrupt: Interrupt,
    ) -> anyhow::Result<JudgeSession> {
        JudgeSession::cached(app, app.jury(generator)?.in_lane(lane), None, interrupt)
    }

    fn cached(app: &App, judge: Jury, author: Option<&str>, interrupt: Interrupt) -> anyhow::Result<JudgeSession> {
        let author = known_author(app, author);
        let (judge, answered_by) = match author {
            Some(author) => (judge, author),
            None => (judge.of_unknown_authors(), app.config.engine.model.as_str()),
        };
        permit(app, &judge, author.unwrap_or_default())?;
        for settings in judge.judges().map(Judge::settings) {
            let model = asked_model(app, settings, answered_by);
            if model != settings.model {
                app.installed(model)?;
            }
        }
        let setting = setting(app, &judge, answered_by);
        let setting = author.map_or(setting.clone(), |author| setting.of_author(author));
        let cache = VerdictCache::new(app, &setting)?;
        Ok(JudgeSession { judge, answered_by: answered_by.to_owned(), setting, cache, interrupt })
    }

    /// Starts the engine and creates the judge for a backlog of answers.
    ///
    /// # Errors
    /// See [`JudgeSession::open`].
    pub fn open_for_backlog(app: &App, interrupt: Interrupt) -> anyhow::Result<JudgeSession> {
        let judge = app.jury(app.generator()?)?.in_lane(Lane::Batch);
        Ok(JudgeSession::uncached(app, judge, &app.config.engine.model, interrupt))
    }

    /// Creates the judge of answers by `author` for a waiting client, on a running engine. `withdrawn` is pressed when the
    /// client stops waiting. There is no cache, so that earlier requests of other clients do not make a verdict come sooner.
    ///
    /// # Errors
    /// When the judge cannot be created.
    fn open_for_client(
        app: &App,
        generator: Arc<dyn Generate>,
        author: Option<&str>,
        owner: Option<OwnerId>,
        withdrawn: Interrupt,
    ) -> anyhow::Result<JudgeSession> {
        let judge = app.jury(generator)?.in_lane(Lane::Interactive).of_owner(owner);
        let (judge, author) = match known_author(app, author) {
            Some(author) => (judge, author),
            None => (judge.of_unknown_authors(), app.config.engine.model.as_str()),
        };
        Ok(JudgeSession::uncached(app, judge, author, withdrawn))
    }

    fn uncached(app: &App, judge: Jury, answered_by: &str, interrupt: Interrupt) -> JudgeSession {
        let (setting, answered_by) = (setting(app, &judge, answered_by), answered_by.to_owned());
        JudgeSession { judge, answered_by, setting, cache: None, interrupt }
    }

    /// The interrupt that stops it.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Judges answers of one model, and passes the verdicts on in their order, each with the index of its task.
    ///
    /// # Errors
    /// Any error of `on_verdict`, after which nothing more is judged.
    pub fn judge_all<T: BatchTask>(
        &self,
        tasks: &[T],
        answered_by: &str,
        activity: &dyn Activity,
        mut on_verdict: impl FnMut(usize, T::Verdict) -> anyhow::Result<()>,
    ) -> anyhow::Result<Completed> {
        Driver { answered_by, ..self.driver(activity) }
            .judge_all(tasks, |judged| on_verdict(judged.index, judged.verdict))
    }

    /// Creates the judge for its examination: it is asked alone, regardless of earlier marks, and without a fallback.
    ///
    /// # Errors
    /// When it is not installed, or the engine cannot be started.
    pub fn open_for_examination(app: &App, interrupt: Interrupt) -> anyhow::Result<JudgeSession> {
        JudgeSession::examining(app, App::generator, interrupt)
    }

    /// Like [`JudgeSession::open_for_examination`], with an engine that is created once the judge is known to be
    /// installed, and with any interrupt.
    fn examining(
        app: &App,
        generator: impl FnOnce(&App) -> anyhow::Result<Arc<dyn Generate>>,
        interrupt: Interrupt,
    ) -> anyhow::Result<JudgeSession> {
        let app = &app.with_config(with_judge(&app.config, &app.config.judge.model, Fallback::None));
        let model = asked_model(app, &app.config.judge, "");
        app.store.show(model)?;
        let judge = app.jury(generator(app)?)?.in_lane(Lane::Batch).of_unknown_authors();
        judge.first().set_standings(Standings::default());
        let setting = setting(app, &judge, &app.config.engine.model);
        let cache = VerdictCache::new(app, &setting)?;
        Ok(JudgeSession { judge, answered_by: String::new(), setting, cache, interrupt })
    }

    /// The seconds per grade, without waiting and loading. The last of several answers is timed, when everything that
    /// gradings share is in the KV cache. `None` if the user stopped it.
    ///
    /// # Errors
    /// When the judge is not installed or gives no grade.
    pub fn seconds_per_grade(app: &App, interrupt: Interrupt, activity: &dyn Activity) -> anyhow::Result<Option<f64>> {
        JudgeSession::open_for_examination(app, interrupt)?.without_cache().seconds_of_last_grade(activity)
    }

    /// Grades several answers to one question, one after the other, and returns the seconds of the last one.
    fn seconds_of_last_grade(&self, activity: &dyn Activity) -> anyhow::Result<Option<f64>> {
        let mut seconds = None;
        for task in QuestionSet::shipped().questions.iter().take(1).flat_map(Question::grade_tasks) {
            let completed = self.judge_all(&[task], "", activity, |_, grade| {
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
    /// Failures of the judge are not errors: they are part of the verdict.
    pub fn judge_one<T: BatchTask>(&self, task: T, activity: &dyn Activity) -> anyhow::Result<Option<T::Verdict>> {
        judged_alone(&self.driver(activity), task)
    }

    /// Adds reasons to a grade of this judge, written now; `None` if the user stopped it.
    ///
    /// # Errors
    /// When the judge writes none.
    pub fn with_reasons(
        &self,
        task: GradeTask,
        grade: Grade,
        activity: &dyn Activity,
    ) -> anyhow::Result<Option<Grade>> {
        explained_alone(&self.driver(activity), task, grade)
    }

    /// Remarks on a graded answer; none if the user stopped them.
    ///
    /// # Errors
    /// When the answer is too long for the models that have passed, or they cannot be asked.
    pub fn remarks(&self, app: &App, task: &GradeTask) -> anyhow::Result<Vec<Remark>> {
        let listening = self.interrupt.listen();
        let is_over = || !listening.pressed().is_empty();
        let remarkers = Remarkers::find(app, self.judge().generator(), &self.answered_by);
        match remarkers.remark(&task.query, &task.answer, &is_over) {
            Err(GenerateError::Stopped) => Ok(Vec::new()),
            remarks => Ok(remarks?),
        }
    }

    /// Judges the lines of a file that have no verdict in `output` yet, and writes the verdicts in the order of the
    /// input.
    ///
    /// # Errors
    /// When a line of either file is invalid, in which case nothing is judged or changed, or a file cannot be read or
    /// written.
    pub fn judge_file<T: BatchTask>(
        &self,
        input: &Path,
        output: &Path,
        activity: &dyn Activity,
    ) -> anyhow::Result<Summary> {
        batch::run::<T>(&self.driver(activity), &self.setting, batch::Files { input, output })
    }

    /// Judges the lines of a file, and passes each on with its verdict as soon as all earlier lines have been.
    ///
    /// # Errors
    /// When a line is invalid, in which case nothing is judged, or the file cannot be read; also any error of
    /// `on_line`.
    pub fn judge_lines<T: BatchTask>(
        &self,
        input: &Path,
        activity: &dyn Activity,
        on_line: impl FnMut(&Map<String, Value>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Summary> {
        batch::stream::<T>(&self.driver(activity), &self.setting, input, on_line)
    }

    /// Examines the judge; `None` if the user stopped it.
    ///
    /// # Errors
    /// When the judge gives no grade.
    pub fn examine(&self, activity: &dyn Activity) -> anyhow::Result<Option<Marks>> {
        examination::examine(&self.driver(activity))
    }

    /// Examines the judge as a critic of texts of this type, and saves its marks; `None` if the user stopped it.
    ///
    /// # Errors
    /// When it cannot work, or the marks cannot be written.
    pub fn examine_critic(
        &self,
        app: &App,
        kind: ContentType,
        activity: &dyn Activity,
    ) -> anyhow::Result<Option<CriticMarks>> {
        let marks = critic_examination::examine(&self.driver(activity), &app.config.critique, kind)?;
        if let Some(marks) = &marks {
            critic_examination::keep(app, &self.judge().settings().model, kind, marks)?;
        }
        Ok(marks)
    }

    /// Saves the judge's marks.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn keep_marks(&self, app: &App, marks: &Marks) -> anyhow::Result<()> {
        let judge = self.judge();
        let (settings, profile, rubric) = (judge.settings(), judge.profile(), judge.rubric());
        let setup = JudgeSetup { model: &settings.model, settings, profile, rubric };
        MarksStore::new(app.data_folder()).keep(&app.store, &setup, marks)
    }

    /// The judge, or the first of the jury.
    pub fn judge(&self) -> &Judge {
        self.judge.first()
    }

    fn driver<'a>(&'a self, activity: &'a dyn Activity) -> Driver<'a> {
        Driver {
            judge: &self.judge,
            answered_by: &self.answered_by,
            cache: self.cache.as_ref(),
            interrupt: &self.interrupt,
            activity,
        }
    }
}

/// Adds reasons from these judges to a grade, written now; `None` if `interrupt` is pressed first. The model
/// `answered_by` gave the answer.
///
/// # Errors
/// When they write none, or are not the judges that graded.
pub fn reasons(
    jury: &Jury,
    graded: &GradedAnswer,
    answered_by: &str,
    interrupt: &Interrupt,
    activity: &dyn Activity,
) -> anyhow::Result<Option<Grade>> {
    let GradedAnswer { query, answer, grade } = graded.clone();
    let task = GradeTask { query, answer, reference: None };
    let judge = &jury.clone().in_lane(Lane::Interactive);
    explained_alone(&Driver { judge, answered_by, cache: None, interrupt, activity }, task, grade)
}

fn explained_alone(driver: &Driver<'_>, task: GradeTask, grade: Grade) -> anyhow::Result<Option<Grade>> {
    let judge = &driver.judge.clone().with_reasons();
    let written = judged_alone(&Driver { judge, cache: None, ..*driver }, task)?;
    written.map(|written| explained(grade, &written).map_err(anyhow::Error::msg)).transpose()
}

/// The verdict on a model's answer; `None` if the interrupt is pressed first.
///
/// # Errors
/// When no judge can be asked.
pub(crate) fn verdict_on<T: BatchTask>(
    judge: &Jury,
    task: T,
    answered_by: &str,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<T::Verdict>> {
    judged_alone(&Driver { judge, answered_by, cache: None, interrupt, activity: &Silent }, task)
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

/// The author that a judge is told. Where the generator stands in for the judge, authors are ignored: otherwise a
/// client could choose the judge by naming an author.
fn known_author<'a>(app: &App, author: Option<&'a str>) -> Option<&'a str> {
    author.filter(|_| app.config.judge.fallback != Fallback::Generator)
}

/// The setting that these judges' verdicts on answers of the model `answered_by` depend on.
fn setting(app: &App, judge: &Jury, answered_by: &str) -> Setting {
    Setting::new(app, judge, |judge| asked_model(app, judge.settings(), answered_by).to_owned())
}

/// The model that is asked: the judge's, or its fallback's.
fn asked_model<'a>(app: &'a App, judge: &'a JudgeSettings, answered_by: &'a str) -> &'a str {
    match judge.fallback {
        _ if judge.model == LIKELIHOOD => &judge.likelihood_model,
        _ if app.store.show(&judge.model).is_ok() => &judge.model,
        Fallback::Generator => answered_by,
        Fallback::Likelihood => &judge.likelihood_model,
        Fallback::None => &judge.model,
    }
}

/// Permits a jury to grade answers of the model `answered_by`, or of an unknown one, if it was named on the command line
/// or has passed its examination.
///
/// # Errors
/// The reason why it may not.
pub(crate) fn permit(app: &App, judge: &Jury, answered_by: &str) -> anyhow::Result<()> {
    if is_named_by_hand(&app.config) {
        judge.jurors().for_each(|juror| lift_bar(juror, &*app.progress));
    } else if let Some(reason) = judge.refusal(answered_by) {
        bail!("{reason}, or name a judge with --judge to get its grades all the same");
    }
    Ok(())
}

/// The models that will be asked; a fallback is listed with the judge that it replaces.
pub(crate) fn who_grades(app: &App, judge: &Jury) -> String {
    let name = |judge: &Judge| {
        let settings = judge.settings();
        match asked_model(app, settings, "the answer's model") {
            asked if asked == settings.model => asked.to_owned(),
            asked => format!("{asked} for {}", settings.model),
        }
    };
    judge.judges().map(name).collect::<Vec<_>>().join(", ")
}

/// Lets a judge that was named on the command line grade, and warns if its grades should not be relied on.
fn lift_bar(judge: &Judge, progress: &dyn Progress) {
    let standings = judge.standings();
    if let Standing::Barred(reason) = &standings.judge {
        progress.note(&format!("do not rely on these grades: {reason}"));
    }
    judge.set_standings(Standings { judge: Standing::Unchecked, likelihood: Standing::Unchecked, ..standings });
}
