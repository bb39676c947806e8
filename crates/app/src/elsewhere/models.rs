//! The models that workers have.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hone_fleet::{BusSettings, Call, Fleet, OfferedModel, Roster, Unsent, Urgency, WorkerState};
use hone_models::Store;

/// How long it is waited at the start for what the server knows of its workers.
const PATIENCE: Duration = Duration::from_secs(3);

/// The models of the workers of a fleet.
pub(crate) struct FleetModels {
    fleet: Fleet,
    roster: Arc<Roster>,
    store: Arc<Store>,
}

impl FleetModels {
    /// Those of the fleet with these settings.
    fn begin(settings: &BusSettings, store: &Arc<Store>) -> anyhow::Result<FleetModels> {
        let fleet = Fleet::begin(settings, "hone")?;
        let roster = Arc::new(Roster::begin(&fleet));
        if !roster.wait(PATIENCE) {
            tracing::warn!("the NATS server at {} does not answer yet", settings.url);
        }
        Ok(FleetModels { fleet, roster, store: Arc::clone(store) })
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.fleet.is_connected()
    }

    /// The workers that are there.
    pub(crate) fn workers(&self) -> Vec<Arc<WorkerState>> {
        self.roster.workers()
    }

    /// Whether a worker does this with the model of this name.
    pub(crate) fn has(&self, role: &str, name: &str) -> bool {
        self.roster.has(role, &full_name(&self.store, name))
    }

    /// The model of this name that workers do this with.
    pub(crate) fn find(&self, role: &str, name: &str) -> Option<OfferedModel> {
        let name = full_name(&self.store, name);
        self.of_role(role).into_iter().find(|model| model.name == name)
    }

    /// The models that workers do this with.
    pub(crate) fn of_role(&self, role: &str) -> Vec<OfferedModel> {
        self.roster.models(role)
    }

    /// Asks a worker that has this model.
    pub(super) fn call(
        &self,
        role: &'static str,
        model: &str,
        urgency: Urgency,
        content: Vec<u8>,
    ) -> Result<Call, Unsent> {
        self.fleet.call(&self.roster, (role, &full_name(&self.store, model)), urgency, content)
    }
}

/// The name of a model that has no other: that of the catalog, where it is known there.
pub(crate) fn full_name(store: &Store, name: &str) -> String {
    store.catalog().about(name).map_or_else(|| name.to_owned(), |known| known.name.clone())
}

/// The fleet of a process, which is known once it is asked for.
#[derive(Default)]
pub(crate) struct KnownFleet(Mutex<Option<(BusSettings, Arc<FleetModels>)>>);

impl KnownFleet {
    /// The one with these settings.
    pub(crate) fn get(&self, settings: &BusSettings, store: &Arc<Store>) -> anyhow::Result<Arc<FleetModels>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, models)) = &*known
            && of == settings
        {
            return Ok(Arc::clone(models));
        }
        let models = Arc::new(FleetModels::begin(settings, store)?);
        *known = Some((settings.clone(), Arc::clone(&models)));
        Ok(models)
    }
}
