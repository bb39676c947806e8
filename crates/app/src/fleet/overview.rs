//! The fleet at a glance: its workers, and the work that is left.

use std::sync::Arc;

use hone_fleet::{Fleet, FleetError, Queues, WorkerState};
use serde::Serialize;

use crate::app::App;

/// The workers of a fleet, and its work.
#[derive(Clone, Debug, Serialize)]
pub struct FleetOverview {
    /// Whether the server is connected now; if not, nothing else is known.
    pub is_connected: bool,
    /// The workers by name.
    pub workers: Vec<Arc<WorkerState>>,
    /// The processes that use the fleet, by name.
    pub users: Vec<Arc<WorkerState>>,
    /// The pending work.
    pub queues: Queues,
    /// The seconds until the open work of every kind is done, at the rates of the last minute; null if some kind has
    /// open work and none was finished in that minute.
    pub seconds_to_drain: Option<f64>,
}

impl FleetOverview {
    /// The overview of a connected fleet with these processes.
    ///
    /// # Errors
    /// When the server does not report its queues.
    fn new(fleet: &Fleet, processes: Vec<Arc<WorkerState>>) -> Result<FleetOverview, FleetError> {
        let (workers, users): (Vec<_>, Vec<_>) = processes.into_iter().partition(|process| process.is_worker());
        let queues = fleet.queues()?;
        let rate_of = |role: &str| -> f64 { workers.iter().filter_map(|it| it.per_minute_by_role.get(role)).sum() };
        let seconds = |(role, open): (&String, &u64)| {
            let per_minute = rate_of(role);
            (per_minute > 0.0).then(|| *open as f64 * 60.0 / per_minute)
        };
        let seconds_to_drain =
            queues.open_by_role.iter().map(seconds).try_fold(0.0, |longest: f64, it| Some(longest.max(it?)));
        Ok(FleetOverview { is_connected: true, workers, users, queues, seconds_to_drain })
    }

    fn disconnected() -> FleetOverview {
        let (workers, users) = (Vec::new(), Vec::new());
        FleetOverview { is_connected: false, workers, users, queues: Queues::default(), seconds_to_drain: None }
    }
}

impl App {
    /// The fleet at a glance, if the configuration names a bus. Not to be called from an async runtime.
    pub fn fleet_overview(&self) -> Option<FleetOverview> {
        let models = self.fleet_models().ok()??;
        let seen = models.is_connected().then(|| FleetOverview::new(models.fleet(), models.processes()));
        Some(seen.and_then(Result::ok).unwrap_or_else(FleetOverview::disconnected))
    }

    /// The fleet at a glance, if its server answers now.
    ///
    /// # Errors
    /// When the configuration names none, or it cannot be used.
    pub fn reached_overview(&self) -> anyhow::Result<FleetOverview> {
        let fleet = self.reached_fleet()?;
        let processes = fleet.processes()?.into_iter().map(Arc::new).collect();
        Ok(FleetOverview::new(&fleet, processes)?)
    }
}
