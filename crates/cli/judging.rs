//! The judge on the command line: made from the configuration, given its rubric, and put to work on one task or on a file.

pub(crate) mod batch;
mod cache;
mod driver;
mod lines;
mod rubrics;
mod work;

use std::path::Path;
use std::sync::Arc;

use hone_protocol::{Generate, Lane};
use hone_quality::{Fallback, Judge};

use crate::app::App;
use crate::arguments::BatchFlags;
use crate::config::Places;
use crate::failure::usage;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::progress;
use cache::VerdictCache;
use driver::{Driver, Judged};
pub(crate) use work::{CompareWork, GradeWork, Work};

/// The judge that the configuration describes.
///
/// # Errors
/// When its rubric is not to be found, or its settings contradict each other.
pub(crate) fn judge(app: &App, generator: Arc<dyn Generate>) -> anyhow::Result<Judge> {
    let settings = app.config.critic.clone();
    let rubric = rubrics::find(&settings.rubric, Places::of_this_process().folder())?;
    Judge::new(generator, settings, rubric).map_err(|invalid| usage(format!("the section critic: {invalid}")))
}

/// A judge at work, with all that it takes.
pub(crate) struct Courtroom {
    judge: Judge,
    answered_by: String,
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
        let (critic, answered_by) = (&app.config.critic, &app.config.engine.model);
        let is_installed = app.store.show(&critic.model).is_ok();
        let falls_back = !is_installed && critic.fallback == Fallback::Generator;
        let model = if falls_back { answered_by } else { &critic.model };
        if falls_back {
            app.installed(answered_by)?;
        }
        let lane = if arguments.files().is_some() { Lane::Batch } else { Lane::Interactive };
        let judge = judge(app, app.generator()?)?.in_lane(lane);
        let cache = (!arguments.no_cache).then(|| VerdictCache::new(app, &judge, model)).flatten();
        Ok(Courtroom {
            judge,
            answered_by: answered_by.clone(),
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

    /// Judges the lines of a file that are not in `output` yet, and writes them there in the order of the input.
    ///
    /// # Errors
    /// When a line of the input is not what it should be, in which case nothing is judged, or a file cannot be read or
    /// written.
    pub(crate) fn judge_file<W: Work>(&self, input: &Path, output: &Path) -> anyhow::Result<batch::Summary> {
        batch::run::<W>(&self.driver(), self.output, input, output)
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
