//! Graders on other machines.

use std::time::Duration;

use crossbeam_channel::Receiver;
use hone_agents::Graders;
use hone_fleet::{Fleet, Requests, Route, Unsent, Urgency};
use hone_protocol::{Envelope, WorkResult, prospect};

use super::GRADE;

/// Graders on other machines.
pub(crate) struct FleetGraders {
    requests: Requests,
    patience: Duration,
}

impl FleetGraders {
    /// The graders of a fleet; `patience` is how long to wait for a verdict.
    pub(crate) fn new(fleet: &Fleet, patience: Duration) -> FleetGraders {
        FleetGraders { requests: Requests::begin(fleet, Route::of_role(GRADE)), patience }
    }
}

impl Graders for FleetGraders {
    fn ask(&self, answers: &Envelope, is_urgent: bool) -> Result<(), &'static str> {
        let asked = self.requests.ask(answers, if is_urgent { Urgency::Now } else { Urgency::Later });
        asked.map_err(|unsent| match unsent {
            Unsent::TooLong => prospect::TOO_LONG,
            Unsent::NoRoom => prospect::NO_WORKER,
        })
    }

    fn verdicts(&self) -> &Receiver<WorkResult> {
        self.requests.results()
    }

    fn can_be_reached(&self) -> bool {
        self.requests.is_connected()
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
