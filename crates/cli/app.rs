//! What a command works with: the configuration in force, the streams, the models, and the engine where it needs one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hone_protocol::Generate;

use crate::config::Config;
use crate::output::Output;

/// What a command is given.
pub(crate) struct App {
    /// What is in force.
    pub(crate) config: Config,
    /// What stdout and stderr lead to.
    pub(crate) output: Output,
    data_folder: PathBuf,
}

impl App {
    /// Finds the user's data folder; touches nothing.
    ///
    /// # Errors
    /// When there is no such folder to be found.
    pub(crate) fn new(config: Config, output: Output) -> anyhow::Result<App> {
        let data_folder = std::env::var_os("HONE_HOME").map(PathBuf::from).unwrap_or_default();
        Ok(App { config, output, data_folder })
    }

    /// The folder of what hone keeps; it need not exist yet.
    pub(crate) fn data_folder(&self) -> &Path {
        &self.data_folder
    }

    /// Starts the engine as the configuration says.
    ///
    /// # Errors
    /// When the device or the backend cannot be had.
    pub(crate) fn generator(&self) -> anyhow::Result<Arc<dyn Generate>> {
        anyhow::bail!("this binary was built without an engine")
    }
}

impl crate::chat::shell::ModelShelf for App {
    fn provide(&self, _name: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}
