//! The judge of a worker.

use std::sync::Arc;

use anyhow::bail;
use crossbeam_channel::Receiver;
use hone_judging::{GradeTask, Jury};
use hone_protocol::{Envelope, Generate, GradedAnswer, Payload, Prospect};

use crate::app::App;
use crate::elsewhere::GRADE;
use crate::interrupt::Interrupt;
use crate::judging::{grade_of, permit, who_grades};

/// A judge that grades what comes from elsewhere.
#[derive(Clone)]
pub struct FleetJudge {
    jury: Jury,
    name: String,
}

impl FleetJudge {
    /// The configured judge, on an engine that runs.
    ///
    /// # Errors
    /// When it cannot be made, or may not grade: it is missing, or has not passed its examination.
    pub fn new(app: &App, generator: Arc<dyn Generate>) -> anyhow::Result<FleetJudge> {
        let jury = app.jury(generator)?;
        permit(app, &jury)?;
        let name = who_grades(app, &jury);
        Ok(FleetJudge { jury, name })
    }

    /// Who grades.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The answer to a message: the grade of the answer in it. `None` if there is no answer in it, or something comes from
    /// `stop` first.
    ///
    /// # Errors
    /// Why the judge cannot grade now.
    pub fn answer(&self, message: &Envelope, stop: &Receiver<()>) -> anyhow::Result<Option<Envelope>> {
        let Payload::ResponseGeneration(response) = &message.payload else { return Ok(None) };
        let task = GradeTask { query: response.query.clone(), answer: response.answer.clone(), reference: None };
        let jury = self.jury.clone().of_owner(message.owner);
        let Some(grade) = grade_of(&jury, task, &response.model, &Interrupt::from_channel(stop.clone()))? else {
            return Ok(None);
        };
        if let (Some(Prospect::Failed), Some(failure)) = (grade.judging.prospect(), &grade.judging.failure) {
            bail!("{failure}");
        }
        let graded = GradedAnswer { query: response.query.clone(), answer: response.answer.clone(), grade };
        Ok(Some(message.reply(GRADE, Payload::CritiqueResult(graded))))
    }
}
