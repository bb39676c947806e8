//! The fleet as front ends use it: its workers and their work.

mod grading;
mod overview;
mod working;

pub use hone_fleet::{DeadWork, Fleet, FleetError, Job, OfferedModel, Queues, Route, Work, WorkerState};

pub use self::grading::{FleetJudge, JudgedElsewhere};
pub use self::overview::FleetOverview;
pub use self::working::{FleetWork, WorkEnd, WorkerModels};
use crate::app::App;
pub use crate::elsewhere::{EMBED, GENERATE, GRADE, own_state};
pub use crate::running::embed_request::EmbedRequest;

impl App {
    /// The configured fleet, which must be reachable now.
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

    /// Lists this process among those that use the fleet, if the configuration names one. `command` is the command that
    /// it was started with; everyone who uses the fleet sees it.
    ///
    /// # Errors
    /// When the fleet cannot be used.
    pub fn report_to_fleet(&self) -> anyhow::Result<()> {
        if let Some(models) = self.fleet_models()? {
            models.report(&self.command);
        }
        Ok(())
    }
}
