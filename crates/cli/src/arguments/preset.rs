//! Flags of `hone preset`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hone_app::config::Override;

use super::shared::{self, ContextFlag, JsonFlag, SamplingFlags};

/// Flags of `hone preset`.
#[derive(Debug, Args)]
pub(crate) struct PresetArguments {
    #[command(subcommand)]
    pub(crate) command: PresetCommand,
}

/// Subcommands of `hone preset`.
#[derive(Debug, Subcommand)]
pub(crate) enum PresetCommand {
    /// Create a preset from a model and settings, or from an Ollama Modelfile; `hone chat -p NAME` uses it
    Create(Box<PresetCreateArguments>),
    /// List presets
    List(PresetListArguments),
    /// Show the settings of a preset
    Show(PresetNameArguments),
    /// Delete a preset
    Delete(PresetNameArguments),
}

/// Flags of `hone preset create`.
#[derive(Debug, Args)]
pub(crate) struct PresetCreateArguments {
    /// Name of the preset
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Name of a model, or the path of a GGUF file
    #[arg(long, value_name = "MODEL")]
    pub(crate) from: Option<String>,
    /// Take the settings from this Modelfile; flags override them
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) modelfile: Option<PathBuf>,
    /// System instructions before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Message before the conversation; may be repeated
    #[arg(long = "message", value_name = "ROLE: TEXT")]
    pub(crate) messages: Vec<String>,
    /// Replace an existing preset of this name
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) context: ContextFlag,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
}

impl PresetCreateArguments {
    /// The settings that flags give to the preset.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let mut overrides = Vec::new();
        shared::add(&mut overrides, "engine.model", "--from", self.from.clone());
        shared::add(&mut overrides, "chat.system", "--system", self.system.clone());
        let messages = (!self.messages.is_empty()).then(|| self.messages.clone());
        shared::add(&mut overrides, "chat.messages", "--message", messages);
        self.context.add_to(&mut overrides);
        self.sampling.add_to(&mut overrides);
        overrides
    }
}

/// Flags of `hone preset list`.
#[derive(Debug, Args)]
pub(crate) struct PresetListArguments {
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// A preset.
#[derive(Debug, Args)]
pub(crate) struct PresetNameArguments {
    /// Name of the preset
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}
