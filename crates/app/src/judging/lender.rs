//! Judges that are created on first use, and keep their verdicts.

use std::sync::{Arc, OnceLock};

use hone_judging::{Fallback, GradeTask, Judge, Jury, Review, ReviewTask, Standings, explained};
use hone_protocol::{Generate, Grade, Judging, Lane};

use super::cache::{CachedTask, VerdictCache};
use super::setting;
use crate::app::App;
use crate::config::Config;
use crate::judge::with_judge;

/// Judges of a configuration, on a given engine, or on one that is started on first use.
pub(super) struct Lender {
    app: App,
    generator: Option<Arc<dyn Generate>>,
    lane: Lane,
    lifts_bar: bool,
    opened: OnceLock<Result<Opened, String>>,
}

/// Judges, and the verdicts that they have given.
struct Opened {
    jury: Jury,
    cache: Option<VerdictCache>,
}

impl Lender {
    /// The judges of a configuration.
    pub(super) fn new(app: App, generator: Option<&Arc<dyn Generate>>) -> Lender {
        let generator = generator.cloned();
        Lender { app, generator, lane: Lane::Background, lifts_bar: false, opened: OnceLock::new() }
    }

    /// The model of this name as the only judge.
    pub(super) fn of_model(app: &App, model: &str, generator: Option<&Arc<dyn Generate>>) -> Lender {
        Lender::new(app.with_config(with_judge(&app.config, model, Fallback::None)), generator)
    }

    /// Makes requests in this lane.
    pub(super) fn in_lane(self, lane: Lane) -> Lender {
        Lender { lane, ..self }
    }

    /// Lets a judge be asked although it has not passed its examination.
    pub(super) fn lifting_bar(self) -> Lender {
        Lender { lifts_bar: true, ..self }
    }

    /// The model of the judge.
    pub(super) fn model(&self) -> &str {
        &self.app.config.judge.model
    }

    /// The first judge.
    ///
    /// # Errors
    /// When there is no judge.
    pub(super) fn judge(&self) -> anyhow::Result<Judge> {
        Ok(self.opened().map_err(anyhow::Error::msg)?.jury.first().clone())
    }

    /// A review by the first judge.
    pub(super) fn review(&self, task: &ReviewTask) -> Review {
        if let Err(error) = self.app.store.show(self.model()) {
            return Review::failed(error.to_string());
        }
        self.verdict(task, |jury| jury.first().judge(task.clone(), "")).unwrap_or_else(Review::failed)
    }

    /// A grade for an answer of the configured model, with reasons for the next author to learn from.
    pub(super) fn grade(&self, task: &GradeTask) -> Grade {
        let author = self.app.config.engine.model.as_str();
        let failed = |reason: String| Grade { judging: Judging::failed(reason), ..Grade::default() };
        let grade = self.verdict(task, |jury| jury.judge(task.clone(), author)).unwrap_or_else(failed);
        match self.opened() {
            Ok(opened) if grade.lacks_reasons() => {
                let grade = with_reasons(&opened.jury, task, author, grade);
                opened.cache.iter().for_each(|cache| cache.keep(task, &grade));
                grade
            }
            _ => grade,
        }
    }

    /// The verdict of an earlier run, or a new one.
    ///
    /// # Errors
    /// The reason why there are no judges.
    fn verdict<T: CachedTask>(&self, task: &T, judge: impl FnOnce(&Jury) -> T::Verdict) -> Result<T::Verdict, String> {
        let Opened { jury, cache, .. } = self.opened()?;
        if let Some(found) = cache.as_ref().and_then(|cache| cache.find(task)) {
            return Ok(found);
        }
        let verdict = judge(jury);
        cache.iter().for_each(|cache| cache.keep(task, &verdict));
        Ok(verdict)
    }

    fn opened(&self) -> Result<&Opened, String> {
        self.opened.get_or_init(|| self.open().map_err(|error| format!("{error:#}"))).as_ref().map_err(Clone::clone)
    }

    fn open(&self) -> anyhow::Result<Opened> {
        let generator = match &self.generator {
            Some(generator) => Arc::clone(generator),
            None => self.app.generator()?,
        };
        let jury = self.app.jury(generator)?.in_lane(self.lane).of_unknown_authors();
        let cache = VerdictCache::new(&self.app, &setting(&self.app, &jury, &self.app.config.engine.model))?;
        if self.lifts_bar {
            jury.first().set_standings(Standings::default());
        }
        Ok(Opened { jury, cache })
    }
}

/// The grade with reasons, if its judges write any.
fn with_reasons(jury: &Jury, task: &GradeTask, author: &str, grade: Grade) -> Grade {
    let written = jury.clone().with_reasons().judge(task.clone(), author);
    explained(grade.clone(), &written).unwrap_or_else(|reason| {
        tracing::info!("a grade stays without reasons: {reason}");
        grade
    })
}

/// The judge of answers, or the first of the jury, unless another model is named.
pub(super) fn named_or_judge<'a>(config: &'a Config, name: &'a str) -> &'a str {
    match name {
        "" => config.judge.jurors().first().map_or(config.judge.model.as_str(), String::as_str),
        name => name,
    }
}
