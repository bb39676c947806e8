//! What an app has on other machines.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hone_agents::Graders;
use hone_protocol::Generate;

use super::App;
use crate::config::Source;
use crate::elsewhere::{FleetGraders, FleetModels, GENERATE, RoutedGenerator};

impl App {
    /// The models of workers, if the configuration names a bus. If that cannot be reached, it is tried again and again.
    pub(crate) fn fleet_models(&self) -> anyhow::Result<Option<Arc<FleetModels>>> {
        let settings = &self.config.bus;
        settings.is_used().then(|| self.fleet.get(settings, &self.store)).transpose()
    }

    /// Graders on other machines, if the configuration names a bus. If that cannot be reached, it is tried again and again.
    pub(super) fn graders(&self) -> anyhow::Result<Option<Arc<dyn Graders>>> {
        let Some(models) = self.fleet_models()? else { return Ok(None) };
        let patience = Duration::from_secs_f64(self.config.bus.patience);
        Ok(Some(Arc::new(FleetGraders::new(models.fleet(), patience))))
    }

    /// The engine, and beside it the models that only workers have.
    pub(super) fn routed(&self, own: Arc<dyn Generate>) -> anyhow::Result<Arc<dyn Generate>> {
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

    /// Makes sure that a model is there, whatever it can do; downloads it first if it is in the catalog, not installed, and
    /// no worker has it.
    ///
    /// # Errors
    /// When it is not known, or cannot be downloaded.
    pub fn obtain(&self, name: &str) -> anyhow::Result<()> {
        if self.is_elsewhere(name) {
            return Ok(());
        }
        let installed = self.installed(name).map(drop);
        if self.config.bus.is_used() { installed.context("no worker on the bus has the model") } else { installed }
    }

    /// Makes sure that the configured embedder is there; downloads it first if it is in the catalog, not installed, and no
    /// worker has it.
    ///
    /// # Errors
    /// When it is not known, or cannot be downloaded.
    pub fn obtain_embedder(&self) -> anyhow::Result<()> {
        match self.embedder() {
            Ok(_) => Ok(()),
            Err(_) => self.installed(self.embedder.name()).map(drop),
        }
    }
}
