//! Flags of `hone config`.

use clap::{Args, Subcommand};
use hone_app::config::Override;

use super::shared::{ContextFlag, EngineFlags, JsonFlag, SamplingFlags, SpeculationFlag};

/// Flags of `hone config`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArguments {
    /// The subcommand; without one, the effective configuration is shown.
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
    /// Print Mermaid diagrams of the agents' states and transitions instead
    #[arg(long)]
    pub(crate) agents: bool,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlag,
    #[command(flatten)]
    pub(crate) speculation: SpeculationFlag,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
}

/// Subcommands of `hone config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    #[command(flatten)]
    Change(ConfigChange),
    /// Print the effective value of a key
    Get(ConfigGetArguments),
    /// List the keys whose name, value or description contains a text
    Grep(ConfigGrepArguments),
}

/// Subcommands of `hone config` that change the user's files.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigChange {
    /// Set a key in your configuration file, keeping the file's comments
    Set(ConfigSetArguments),
    /// Remove a key from your configuration file, so that its default applies
    Unset(ConfigUnsetArguments),
}

/// Flags of `hone config set`.
#[derive(Debug, Args)]
pub(crate) struct ConfigSetArguments {
    /// The key, such as engine.threads
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Value of the key; lists use TOML syntax: '["a", "b"]'
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) value: String,
}

/// Flags of `hone config unset`.
#[derive(Debug, Args)]
pub(crate) struct ConfigUnsetArguments {
    /// The key, such as engine.threads
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
}

/// Flags of `hone config get`.
#[derive(Debug, Args)]
pub(crate) struct ConfigGetArguments {
    /// The key, such as engine.threads
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone config grep`.
#[derive(Debug, Args)]
pub(crate) struct ConfigGrepArguments {
    /// Text to look for, ignoring case
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl ConfigArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.engine.add_to(overrides);
        self.context.add_to(overrides);
        self.speculation.add_to(overrides);
        self.sampling.add_to(overrides);
    }
}
