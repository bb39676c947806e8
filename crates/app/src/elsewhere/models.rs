//! The models that workers have.

use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use hone_fleet::{BusSettings, Call, Fleet, OfferedModel, Reported, Roster, Unsent, Urgency, WorkerState};
use hone_models::Store;

use super::process::own_state;

/// How long to wait, once, for the server's list of workers.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait for a worker that may just have started; workers announce themselves repeatedly.
const NEWS: Duration = Duration::from_secs(Fleet::BEAT.as_secs() + 1);

/// The models of the workers of a fleet.
pub(crate) struct FleetModels {
    fleet: Fleet,
    roster: Arc<Roster>,
    store: Arc<Store>,
    url: String,
    was_waited_for: Once,
    reported: OnceLock<Reported>,
}

impl FleetModels {
    /// Connects to the fleet with these settings, in the background.
    fn begin(settings: &BusSettings, store: &Arc<Store>) -> anyhow::Result<FleetModels> {
        let fleet = Fleet::begin(settings, "hone")?;
        let roster = Arc::new(Roster::begin(&fleet));
        let (url, was_waited_for) = (settings.url.clone(), Once::new());
        let store = Arc::clone(store);
        Ok(FleetModels { fleet, roster, store, url, was_waited_for, reported: OnceLock::new() })
    }

    /// Lists this process, which was started with this command, among those that use the fleet.
    pub(crate) fn report(&self, command: &str) {
        self.reported.get_or_init(|| self.fleet.keep_telling(own_state(command)));
    }

    /// Waits until the workers are known, on the first call. Not to be called from an async runtime.
    pub(crate) fn wait(&self) {
        self.was_waited_for.call_once(|| {
            if !self.roster.wait(PATIENCE) {
                tracing::warn!(
                    "the NATS server at {} does not answer yet: what other machines do for this one waits for it",
                    self.url
                );
            }
        });
    }

    /// Waits until a worker has a model for which `is_so` holds, but not longer than it takes to hear of all workers.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub(crate) fn wait_for(
        &self,
        role: &str,
        is_so: impl Fn(&OfferedModel) -> bool,
    ) -> anyhow::Result<Option<OfferedModel>> {
        self.wait();
        ensure!(
            self.is_connected(),
            "the NATS server at {} cannot be reached, so it is not known which models workers have: start it, or install a \
             model here (`hone pull`)",
            self.url
        );
        let find = |roster: &Roster| roster.models(role).into_iter().find(&is_so);
        self.roster.wait_until(NEWS, |roster| find(roster).is_some());
        Ok(find(&self.roster))
    }

    /// Whether the server is connected and a worker has the model of this name for this role.
    pub(super) fn can(&self, role: &str, name: &str) -> bool {
        self.is_connected() && self.has(role, name)
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.fleet.is_connected()
    }

    /// The present workers, and the processes that ask them.
    pub(crate) fn processes(&self) -> Vec<Arc<WorkerState>> {
        self.roster.processes()
    }

    /// Whether a worker has the model of this name for this role.
    pub(crate) fn has(&self, role: &str, name: &str) -> bool {
        self.roster.has(role, &self.store.installed_name(name))
    }

    /// The workers' model of this name for this role.
    pub(crate) fn find(&self, role: &str, name: &str) -> Option<OfferedModel> {
        let name = self.store.installed_name(name);
        self.of_role(role).into_iter().find(|model| model.name == name)
    }

    /// The workers' models for this role.
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
        self.fleet.call(&self.roster, (role, &self.store.installed_name(model)), urgency, content)
    }
}

/// The fleet of a process, connected on first use.
#[derive(Default)]
pub(crate) struct KnownFleet(Mutex<Option<(BusSettings, Arc<FleetModels>)>>);

impl KnownFleet {
    /// The fleet with these settings.
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
