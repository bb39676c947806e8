//! The fleet as the rest of the program uses it: graders elsewhere for a chat or a server, and the work of a worker.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use crossbeam_channel::Receiver;
use hone_agents::Graders;
pub use hone_fleet::{DeadWork, Fleet, Job, Queues, Work, WorkerState};
use hone_fleet::{Requests, Unsent, Urgency};
use hone_judging::{GradeTask, Jury};
use hone_protocol::{Envelope, Generate, GradedAnswer, Payload, Prospect, WorkResult, prospect};

use crate::app::App;
use crate::interrupt::Interrupt;
use crate::judging::{grade_of, permit, who_grades};

/// The work of a grader.
pub const GRADE: &str = "grade";

impl App {
    /// The fleet that the configuration names, which can be reached now.
    ///
    /// # Errors
    /// When the configuration names none, or it cannot be used.
    pub fn reached_fleet(&self) -> anyhow::Result<Fleet> {
        let settings = &self.config.bus;
        if !settings.is_used() {
            return Err(crate::usage("no bus is named: --bus nats://HOST:4222 does, or the key bus.url"));
        }
        Ok(Fleet::connect(settings, "hone")?)
    }

    /// Graders on other machines, if the configuration names a bus. If that cannot be reached, it is tried again and again.
    pub(crate) fn graders(&self) -> anyhow::Result<Option<Arc<dyn Graders>>> {
        let settings = &self.config.bus;
        if !settings.is_used() {
            return Ok(None);
        }
        let requests = Requests::begin(&Fleet::begin(settings, "hone")?, GRADE);
        let patience = Duration::from_secs_f64(settings.patience);
        Ok(Some(Arc::new(FleetGraders { requests, patience })))
    }
}

/// The machine's name, of which its workers have theirs: letters, digits, `-` and `_`.
pub fn machine_name() -> String {
    let name = sysinfo::System::host_name().unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(32).collect();
    if plain.is_empty() { "machine".to_owned() } else { plain }
}

/// Graders on other machines.
struct FleetGraders {
    requests: Requests,
    patience: Duration,
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
