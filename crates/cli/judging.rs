//! The judge on the command line: made from the configuration, given its rubric, and put to work on one task or on a file.

pub(crate) mod batch;
mod cache;
mod driver;
mod key;
mod lines;
mod rubrics;
mod setting;
mod work;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hone_protocol::{Generate, Lane};
use hone_quality::{CriticSettings, Fallback, Judge};

use crate::app::App;
use crate::arguments::BatchFlags;
use crate::config::{Config, Places, Source};
use crate::failure::usage;
use crate::terminal::Output;
use crate::terminal::interrupt::Interrupt;
use crate::terminal::progress;
use cache::VerdictCache;
use driver::{Driver, Judged};
use setting::Setting;
pub(crate) use work::{CompareWork, GradeWork, Work};

/// The judge that the configuration describes.
///
/// # Errors
/// When its rubric is not to be found, its settings contradict each other, or it was named on the command line, has nobody
/// to stand in for it and is not installed.
pub(crate) fn judge(app: &App, generator: Arc<dyn Generate>) -> anyhow::Result<Judge> {
    let settings = settings(&app.config);
    let rubric = rubrics::find(&settings.rubric, Places::of_this_process().folder())?;
    if is_named_by_hand(&app.config) && settings.fallback == Fallback::None {
        app.store.show(&settings.model).with_context(|| format!("cannot judge with {:?}", settings.model))?;
    }
    let key = key::fence_key(app.data_folder())?;
    Judge::new(generator, settings, rubric, key).map_err(|invalid| usage(format!("the section critic: {invalid}")))
}

/// The judge's settings. The answering model stands in for the judge that is shipped as the default; for one that was named
/// on the command line it does so only where somebody has said that it shall.
fn settings(config: &Config) -> CriticSettings {
    let is_fallback_chosen = config.source_of("critic.fallback") != Some(&Source::Default);
    let fallback = match is_named_by_hand(config) && !is_fallback_chosen {
        true => Fallback::None,
        false => config.critic.fallback,
    };
    CriticSettings { fallback, ..config.critic.clone() }
}

fn is_named_by_hand(config: &Config) -> bool {
    matches!(config.source_of("critic.model"), Some(Source::Flag(_)))
}

/// A judge at work, with all that it takes.
pub(crate) struct Courtroom {
    judge: Judge,
    answered_by: String,
    setting: Setting,
    cache: Option<VerdictCache>,
    interrupt: Interrupt,
    output: Output,
}

impl Courtroom {
    /// Starts the engine and makes the judge. The model that stands in for a judge which is not installed is fetched first
    /// where it is not here either.
    ///
    /// # Errors
    /// When there is no judge to be made, or no engine to be started.
    pub(crate) fn open(app: &App, arguments: &BatchFlags) -> anyhow::Result<Courtroom> {
        let answered_by = &app.config.engine.model;
        let lane = if arguments.files().is_some() { Lane::Batch } else { Lane::Interactive };
        let judge = judge(app, app.generator()?)?.in_lane(lane);
        let critic = judge.settings();
        let falls_back = critic.fallback == Fallback::Generator && app.store.show(&critic.model).is_err();
        if falls_back {
            app.installed(answered_by)?;
        }
        let setting = Setting::new(app, &judge, if falls_back { answered_by } else { &critic.model });
        let cache = if arguments.no_cache { None } else { VerdictCache::new(app, &setting)? };
        Ok(Courtroom {
            judge,
            answered_by: answered_by.clone(),
            setting,
            cache,
            interrupt: Interrupt::install()?,
            output: app.output,
        })
    }

    /// Judges one task; `None` where a person stopped it.
    ///
    /// # Errors
    /// None of the judge's: a verdict says itself why it is none.
    pub(crate) fn judge_one<W: Work>(&self, task: W::Task) -> anyhow::Result<Option<W::Verdict>> {
        let spinner = progress::spinner(self.output, "judging");
        let mut verdict = None;
        let ending = self.driver().judge_all::<W>(&[task], |judged: Judged<W::Verdict>| {
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
    pub(crate) fn judge_file<W: Work>(&self, input: &Path, output: &Path) -> anyhow::Result<batch::Summary> {
        batch::run::<W>(&self.driver(), &self.setting, self.output, batch::Files { input, output })
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
