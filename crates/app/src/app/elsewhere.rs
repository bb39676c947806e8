//! The part of an app that is on other machines.

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
    pub(super) fn routed(&self, own: Arc<dyn Generate>) -> Arc<dyn Generate> {
        let (store, fleet, settings) = (Arc::clone(&self.store), Arc::clone(&self.fleet), self.config.bus.clone());
        if !settings.is_used() {
            return own;
        }
        Arc::new(RoutedGenerator { own, store, fleet, settings })
    }

    /// Whether the model of this name is not here, and a worker has it.
    pub fn is_elsewhere(&self, name: &str) -> bool {
        if self.store.has(name) {
            return false;
        }
        let Ok(Some(models)) = self.fleet_models() else { return false };
        models.wait();
        models.has(GENERATE, name)
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
        let Some(fleet) = self.fleet_models()? else { return Ok(None) };
        let Some(some) = fleet.wait_for(GENERATE, |_| true)? else { return Ok(None) };
        let models = fleet.of_role(GENERATE);
        let same = models.iter().find(|model| model.name == *usual);
        // Of several the largest answers best, as far as anybody knows here.
        let chosen = same.or_else(|| models.iter().max_by_key(|model| model.bytes));
        Ok(Some(chosen.unwrap_or(&some).name.clone()))
    }

    /// Makes sure that a model is there, whatever it can do; downloads it first if it is in the catalog, not installed, and
    /// no worker has it.
    ///
    /// # Errors
    /// When it is not known, cannot be downloaded, or nobody knows whether a worker has it.
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

    /// Makes sure that the configured embedder is there; downloads it first if it is in the catalog, not installed, and no
    /// worker has it.
    ///
    /// # Errors
    /// When it is not known, or cannot be downloaded.
    pub fn obtain_embedder(&self) -> anyhow::Result<()> {
        let name = self.embedder.name();
        match self.embedder() {
            Ok(_) => Ok(()),
            Err(error) if Path::new(name).is_dir() || self.store.has(name) => Err(error),
            Err(_) => self.installed(name).map(drop),
        }
    }
}
