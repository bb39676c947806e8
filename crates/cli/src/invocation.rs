//! The context of a command: the app, and the streams of this process.

use std::ops::Deref;
use std::sync::Arc;

use hone_app::App;
use hone_app::config::{Config, Source};
use hone_app::decisions::Remarkers;
use hone_protocol::Generate;

use crate::chat::shell::ModelShelf;
use crate::terminal::Output;

/// An app in a terminal.
pub(crate) struct Invocation {
    app: App,
    /// The process's output streams.
    pub(crate) output: Output,
}

impl Invocation {
    /// Finds the user's data folder and the models in it and in this executable; creates nothing. Other processes see
    /// the name of the command.
    ///
    /// # Errors
    /// When the data folder cannot be determined, or the models inside this executable are damaged.
    pub(crate) fn new(config: Config, output: Output, command: &str) -> anyhow::Result<Invocation> {
        Ok(Invocation { app: App::new(config, Arc::new(output), command)?, output })
    }

    /// This app with a different configuration.
    pub(crate) fn with_config(&self, config: Config) -> Invocation {
        Invocation::of(self.app.with_config(config), self.output)
    }

    /// This app with the model of a worker, where the configuration chooses none and the usual one is not installed.
    ///
    /// # Errors
    /// When the bus that is configured cannot be used.
    pub(crate) fn with_model_of_fleet(&self) -> anyhow::Result<Invocation> {
        let mut config = self.config.clone();
        if let Some(model) = self.model_of_fleet()? {
            self.output.note(&format!("answering with {model} on a worker"));
            config.set_text("engine.model", &model, Source::Worker)?;
        }
        Ok(self.with_config(config))
    }

    /// An app whose progress is shown on these streams.
    pub(crate) fn of(app: App, output: Output) -> Invocation {
        Invocation { app, output }
    }
}

impl Deref for Invocation {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl ModelShelf for Invocation {
    fn provide(&self, name: &str) -> anyhow::Result<()> {
        self.app.provide(name)
    }

    fn names(&self) -> Vec<String> {
        self.app.model_names()
    }

    fn remarkers(&self, generator: &Arc<dyn Generate>, author: &str) -> Remarkers {
        Remarkers::find(&self.app, generator, author)
    }
}
