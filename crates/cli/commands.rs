//! What each command does, one module each.
//!
//! A command is given an [`App`] and its own arguments. Two can do without a valid configuration and are tried first:
//! `completions` needs none, and `doctor` is asked what is wrong with it.

mod bundle;
mod chat;
mod completions;
mod config;
mod describe;
mod doctor;
mod list;
mod pull;
mod rm;
mod show;

use crate::app::App;
use crate::arguments::Command;
use crate::config::{Config, Places};
use crate::failure::Outcome;
use crate::output::Output;

/// Runs a command.
///
/// # Errors
/// What the command could not do.
pub(crate) fn run(command: Command, output: Output) -> anyhow::Result<Outcome> {
    let places = Places::of_this_process();
    let loaded = Config::load(&places, command.overrides());
    match &command {
        Command::Completions(arguments) => return completions::run(arguments),
        Command::Doctor(arguments) => return doctor::run(arguments, &places, loaded, output),
        _ => {}
    }
    let (config, warnings) = loaded?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let app = App::new(config, output)?;
    match command {
        Command::Chat(arguments) => chat::run(&app, arguments),
        Command::Config(arguments) => config::run(&app, &arguments),
        Command::Pull(arguments) => pull::run(&app, arguments),
        Command::List(arguments) => list::run(&app, &arguments),
        Command::Show(arguments) => show::run(&app, &arguments),
        Command::Rm(arguments) => rm::run(&app, &arguments),
        Command::Bundle(arguments) => bundle::run(&app, &arguments),
        _ => anyhow::bail!("this command is not wired yet"),
    }
}
