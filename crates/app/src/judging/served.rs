//! The judge of a server's clients, over HTTP or MCP; `hone grade` and `hone compare` ask the same one.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use hone_judging::Jury;
use hone_protocol::{Generate, Grade, GradedAnswer, OwnerId, Remark};

use super::driver::Driver;
use super::task::BatchTask;
use super::{JudgeSession, judged_alone, reasons};
use crate::app::App;
use crate::decisions::Remarkers;
use crate::interrupt::Interrupt;
use crate::progress::Silent;

/// Judges the tasks that clients send.
pub struct ServedJudges {
    source: Source,
}

/// The origin of the judge.
enum Source {
    /// The configured judge, created anew for each verdict: an examination may have been taken in the meantime.
    Configured {
        app: Box<App>,
        generator: Arc<dyn Generate>,
    },
    Given(Jury),
}

impl ServedJudges {
    /// The judge that the configuration describes, on a running engine.
    pub fn configured(app: &App, generator: Arc<dyn Generate>) -> ServedJudges {
        ServedJudges { source: Source::Configured { app: Box::new(app.with_config(app.config.clone())), generator } }
    }

    /// These judges, whatever the configuration describes.
    pub fn given(jury: Jury) -> ServedJudges {
        ServedJudges { source: Source::Given(jury) }
    }

    /// The verdict on a task of an owner, about answers of the model `author`, if it is known; `None` if something comes
    /// from `withdrawn` first. Blocks as long as the judge takes.
    ///
    /// # Errors
    /// When no judge can be asked. A judge without a verdict is not an error: the verdict says why.
    pub fn judge<T: BatchTask>(
        &self,
        task: T,
        author: Option<&str>,
        owner: Option<OwnerId>,
        withdrawn: Receiver<()>,
    ) -> Result<Option<T::Verdict>, String> {
        if !withdrawn.is_empty() {
            return Ok(None);
        }
        let interrupt = Interrupt::from_channel(withdrawn);
        let verdict = match &self.source {
            Source::Configured { app, generator } => {
                let author = author.map(|name| app.store.installed_name(name));
                let session =
                    JudgeSession::open_for_client(app, Arc::clone(generator), author.as_deref(), owner, interrupt);
                session.and_then(|session| session.judge_one(task, &Silent))
            }
            Source::Given(jury) => {
                let (judge, interrupt) = (&jury.clone().of_owner(owner), &interrupt);
                let answered_by = author.unwrap_or_default();
                judged_alone(&Driver { judge, answered_by, cache: None, interrupt, activity: &Silent }, task)
            }
        };
        verdict.map_err(|error| format!("{error:#}"))
    }

    /// Adds what is missing to the grade of an owner's answer, which the model `answered_by` gave: reasons, which the
    /// judge writes now, and remarks. `None` if something comes from `withdrawn` first.
    ///
    /// # Errors
    /// When the judge writes no reasons, or is not the one that graded.
    pub fn explained(
        &self,
        graded: &GradedAnswer,
        answered_by: &str,
        owner: Option<OwnerId>,
        withdrawn: Receiver<()>,
    ) -> Result<Option<Grade>, String> {
        if !withdrawn.is_empty() {
            return Ok(None);
        }
        let reasoned = match graded.grade.lacks_reasons() {
            true => self.reasons(graded, answered_by, owner, withdrawn.clone()),
            false => Ok(Some(graded.grade.clone())),
        };
        if reasoned == Ok(None) {
            return Ok(None);
        }
        let remarks = match graded.grade.remarks.is_empty() {
            true => self.remarks(graded, answered_by, owner, &|| !withdrawn.is_empty()),
            false => graded.grade.remarks.clone(),
        };
        match reasoned {
            Ok(grade) => Ok(grade.map(|grade| Grade { remarks, ..grade })),
            Err(reason) if remarks.is_empty() => Err(reason),
            Err(reason) => {
                tracing::info!("a grade stays without reasons: {reason}");
                Ok(Some(Grade { remarks, ..graded.grade.clone() }))
            }
        }
    }

    fn reasons(
        &self,
        graded: &GradedAnswer,
        answered_by: &str,
        owner: Option<OwnerId>,
        withdrawn: Receiver<()>,
    ) -> Result<Option<Grade>, String> {
        let jury = match &self.source {
            Source::Configured { app, generator } => app.jury(Arc::clone(generator)),
            Source::Given(jury) => Ok(jury.clone()),
        };
        let interrupt = Interrupt::from_channel(withdrawn);
        jury.and_then(|jury| reasons(&jury.of_owner(owner), graded, answered_by, &interrupt, &Silent))
            .map_err(|error| format!("{error:#}"))
    }

    fn remarks(
        &self,
        graded: &GradedAnswer,
        author: &str,
        owner: Option<OwnerId>,
        is_withdrawn: &dyn Fn() -> bool,
    ) -> Vec<Remark> {
        let Source::Configured { app, generator } = &self.source else { return Vec::new() };
        let remarkers = Remarkers::find(app, generator, author);
        remarkers.of_owner(owner).remark(&graded.query, &graded.answer, is_withdrawn).unwrap_or_else(|error| {
            tracing::info!("a grade stays without remarks: {error}");
            Vec::new()
        })
    }
}
