//! The models that evaluate the work on a task, as `hone task` asks them.

use std::sync::{Arc, OnceLock};

use hone_protocol::{Generate, Grade, Judging};
use hone_quality::{Fallback, GradeTask, Jury, Review, ReviewTask, Reviewers};

use super::cache::{CachedTask, VerdictCache};
use super::setting;
use crate::app::App;
use crate::config::Config;
use crate::judge::with_judge;

/// The configured ones. They use this engine, or one that is started when a model is first asked.
pub(crate) fn reviewers(app: &App, generator: Option<&Arc<dyn Generate>>) -> Reviewers {
    let reviewer = with_judge(&app.config, reviewing_model(&app.config), Fallback::None);
    let reviewer = Lender::new(app.with_config(reviewer), generator);
    let judge = Lender::new(app.with_config(app.config.clone()), generator);
    let review = move |task: &ReviewTask| reviewer.review(task);
    let grade = move |task: &GradeTask| judge.grade(task);
    Reviewers::new(app.config.review.clone(), app.config.gate.threshold, Arc::new(review), Arc::new(grade))
}

/// The model that reviews: the judge, or the first of the jury, unless another one is named.
fn reviewing_model(config: &Config) -> &str {
    match config.review.model.as_str() {
        "" => config.critic.jurors().first().map_or(config.critic.model.as_str(), String::as_str),
        name => name,
    }
}

/// Judges of a configuration, made when they are first asked.
struct Lender {
    app: App,
    generator: Option<Arc<dyn Generate>>,
    opened: OnceLock<Result<Opened, String>>,
}

/// Judges, and the verdicts that they have given.
struct Opened {
    jury: Jury,
    cache: Option<VerdictCache>,
}

impl Lender {
    fn new(app: App, generator: Option<&Arc<dyn Generate>>) -> Lender {
        Lender { app, generator: generator.cloned(), opened: OnceLock::new() }
    }

    fn review(&self, task: &ReviewTask) -> Review {
        let model = &self.app.config.critic.model;
        if let Err(error) = self.app.store.show(model) {
            return Review::failed(error.to_string());
        }
        self.verdict(task, |jury| jury.first().judge(task.clone(), "")).unwrap_or_else(Review::failed)
    }

    fn grade(&self, task: &GradeTask) -> Grade {
        let author = self.app.config.engine.model.as_str();
        let failed = |reason: String| Grade { judging: Judging::failed(reason), ..Grade::default() };
        self.verdict(task, |jury| jury.judge(task.clone(), author)).unwrap_or_else(failed)
    }

    /// The verdict of an earlier run, or a new one.
    ///
    /// # Errors
    /// Why there are no judges.
    fn verdict<T: CachedTask>(&self, task: &T, judge: impl FnOnce(&Jury) -> T::Verdict) -> Result<T::Verdict, String> {
        let opened = self.opened.get_or_init(|| self.open().map_err(|error| format!("{error:#}")));
        let Opened { jury, cache } = opened.as_ref().map_err(Clone::clone)?;
        if let Some(found) = cache.as_ref().and_then(|cache| cache.find(task)) {
            return Ok(found);
        }
        let verdict = judge(jury);
        cache.iter().for_each(|cache| cache.keep(task, &verdict));
        Ok(verdict)
    }

    fn open(&self) -> anyhow::Result<Opened> {
        let generator = match &self.generator {
            Some(generator) => Arc::clone(generator),
            None => self.app.generator()?,
        };
        let jury = self.app.jury(generator)?.of_unknown_authors();
        let cache = VerdictCache::new(&self.app, &setting(&self.app, &jury))?;
        Ok(Opened { jury, cache })
    }
}
