//! Answers that others grade, and the judge that grades theirs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use crossbeam_channel::Receiver;
use hone_agents::Graders;
use hone_fleet::{Fleet, Requests, Route, Unsent, Urgency};
use hone_judging::{GradeTask, Jury};
use hone_protocol::{Envelope, Generate, GradedAnswer, Payload, Prospect, WorkResult, prospect};

use super::GRADE;
use crate::app::App;
use crate::interrupt::Interrupt;
use crate::judging::{grade_of, permit, who_grades};

/// Graders on other machines.
pub(super) struct FleetGraders {
    requests: Requests,
    patience: Duration,
}

impl FleetGraders {
    /// Those of a fleet, for whose grades somebody waits this long.
    pub(super) fn new(fleet: &Fleet, patience: Duration) -> FleetGraders {
        FleetGraders { requests: Requests::begin(fleet, Route::of_role(GRADE)), patience }
    }
}

impl Graders for FleetGraders {
    fn ask(&self, answer: &Envelope, is_urgent: bool) -> Result<(), &'static str> {
        let asked = self.requests.ask(answer, if is_urgent { Urgency::Now } else { Urgency::Later });
        asked.map_err(|unsent| match unsent {
            Unsent::TooLong => prospect::TOO_LONG,
            Unsent::NoRoom => prospect::LATE,
        })
    }

    fn grades(&self) -> &Receiver<WorkResult> {
        self.requests.results()
    }

    fn can_be_reached(&self) -> bool {
        self.requests.is_connected()
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

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
