//! The fleet as the rest of the program uses it: graders and models elsewhere for a chat or a server, and the work of a worker.

mod embedding;
mod generating;
mod grading;
mod models;
mod overview;
mod working;

use std::sync::Arc;
use std::time::Duration;

use hone_agents::Graders;
pub use hone_fleet::{DeadWork, Fleet, Job, OfferedModel, Queues, Route, Work, WorkerState};
use hone_protocol::Generate;

use self::generating::RoutedGenerator;
pub use self::grading::FleetJudge;
pub(crate) use self::models::{FleetModels, KnownFleet};
pub use self::overview::FleetOverview;
pub use self::working::{FleetWork, Settled, WorkerModels};
use crate::app::App;
use crate::config::Source;
pub use crate::running::embed_request::EmbedRequest;

/// The work of a grader.
pub const GRADE: &str = "grade";
/// The work of a generator, for one model.
pub const GENERATE: &str = "generate";
/// The work of an embedder, for one model.
pub const EMBED: &str = "embed";

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
        let Some(models) = self.fleet_models()? else { return Ok(None) };
        let patience = Duration::from_secs_f64(self.config.bus.patience);
        Ok(Some(Arc::new(grading::FleetGraders::new(models.fleet(), patience))))
    }

    /// The engine, and beside it the models that only workers have.
    pub(crate) fn routed(&self, own: Arc<dyn Generate>) -> anyhow::Result<Arc<dyn Generate>> {
        Ok(match self.fleet_models()? {
            Some(models) => Arc::new(RoutedGenerator::new(own, Arc::clone(&self.store), models)),
            None => own,
        })
    }

    /// Whether the model of this name is not here, and a worker has it.
    pub fn is_elsewhere(&self, name: &str) -> bool {
        !self.store.has(name)
            && self.fleet_models().is_ok_and(|models| models.is_some_and(|models| models.has(GENERATE, name)))
    }

    /// The model of a worker that answers here, where the configuration chooses none and the usual one is not installed.
    ///
    /// # Errors
    /// When the bus that is configured cannot be used.
    pub fn model_of_fleet(&self) -> anyhow::Result<Option<String>> {
        let usual = &self.config.engine.model;
        let is_chosen = self.config.source_of("engine.model") != Some(&Source::Default);
        if is_chosen || self.store.has(usual) {
            return Ok(None);
        }
        let models = self.fleet_models()?.map(|models| models.of_role(GENERATE)).unwrap_or_default();
        let same = models.iter().find(|model| model.name == *usual);
        // Of several the largest answers best, as far as anybody knows here.
        Ok(same.or_else(|| models.iter().max_by_key(|model| model.bytes)).map(|model| model.name.clone()))
    }
}

/// The machine's name, of which its workers have theirs: letters, digits, `-` and `_`.
pub fn machine_name() -> String {
    let name = sysinfo::System::host_name().unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(32).collect();
    if plain.is_empty() { "machine".to_owned() } else { plain }
}
