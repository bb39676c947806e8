//! The parts of an app on other machines.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hone_agents::Graders;
use hone_protocol::Generate;

use super::App;
use crate::config::Source;
use crate::elsewhere::{FleetGraders, FleetModels, GENERATE, RoutedGenerator};

impl App {
    /// The models of workers, if the configuration names a bus. An unreachable bus is retried.
    pub(crate) fn fleet_models(&self) -> anyhow::Result<Option<Arc<FleetModels>>> {
        let settings = &self.config.bus;
        settings.is_used().then(|| self.fleet.get(settings, &self.store)).transpose()
    }

    /// Graders on other machines, if the configuration names a bus. An unreachable bus is retried.
    pub(super) fn graders(&self) -> anyhow::Result<Option<Arc<dyn Graders>>> {
        let Some(models) = self.fleet_models()? else { return Ok(None) };
        let patience = Duration::from_secs_f64(self.config.bus.patience);
        Ok(Some(Arc::new(FleetGraders::new(models.fleet(), patience))))
    }

    /// The engine, plus the models that only workers have.
    pub(super) fn routed(&self, own: Arc<dyn Generate>) -> Arc<dyn Generate> {
        let (store, fleet, settings) = (Arc::clone(&self.store), Arc::clone(&self.fleet), self.config.bus.clone());
        if !settings.is_used() {
            return own;
        }
        Arc::new(RoutedGenerator { own, store, fleet, settings })
    }

    /// Whether a worker has the model of this name and this machine does not.
    pub fn is_elsewhere(&self, name: &str) -> bool {
        if self.store.has(name) {
            return false;
        }
        let Ok(Some(models)) = self.fleet_models() else { return false };
        models.wait();
        models.has(GENERATE, name)
    }

    /// The worker's model that answers when the configuration chooses none and the default one is not installed.
    ///
    /// # Errors
    /// When the configured bus cannot be used.
    pub fn model_of_fleet(&self) -> anyhow::Result<Option<String>> {
        let usual = &self.config.engine.model;
        let is_chosen = self.config.source_of("engine.model") != Some(&Source::Default);
        if is_chosen || self.store.has(usual) {
            return Ok(None);
        }
        let Some(fleet) = self.fleet_models()? else { return Ok(None) };
        let Some(some) = fleet.wait_for(GENERATE, |_| true)? else { return Ok(None) };
        let models = fleet.of_role(GENERATE);
        let same = models.iter().find(|model| model.name == *usual);
        // With several candidates, the largest is assumed to answer best.
        let chosen = same.or_else(|| models.iter().max_by_key(|model| model.bytes));
        Ok(Some(chosen.unwrap_or(&some).name.clone()))
    }

    /// Makes sure that a model is available, whatever its abilities; downloads it first if it is in the catalog, not
    /// installed, and on no worker.
    ///
    /// # Errors
    /// When it is unknown, cannot be downloaded, or the workers' models are unknown.
    pub fn obtain(&self, name: &str) -> anyhow::Result<()> {
        if self.store.has(name) || self.store.show(name).is_ok() {
            return Ok(());
        }
        let Some(fleet) = self.fleet_models()? else { return self.installed(name).map(drop) };
        let asked = self.store.installed_name(name);
        match fleet.wait_for(GENERATE, |model| model.name == asked)? {
            Some(_) => Ok(()),
            None => self.installed(name).map(drop).with_context(|| format!("no worker on the bus has {name}")),
        }
    }

    /// Makes sure that the configured embedder is available; downloads it first if it is in the catalog, not installed,
    /// and on no worker.
    ///
    /// # Errors
    /// When it is unknown, or cannot be downloaded.
    pub fn obtain_embedder(&self) -> anyhow::Result<()> {
        let name = self.embedder.name();
        match self.embedder() {
            Ok(_) => Ok(()),
            Err(error) if Path::new(name).is_dir() || self.store.has(name) => Err(error),
            Err(_) => self.installed(name).map(drop),
        }
    }
}
