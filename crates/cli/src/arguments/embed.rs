//! Flags of `hone embed`.

use clap::Args;
use hone_app::config::Override;

use super::JsonFlag;
use super::shared;

/// Flags of `hone embed`.
#[derive(Debug, Args)]
pub(crate) struct EmbedArguments {
    /// Texts; without any, each line of stdin is one
    #[arg(value_name = "TEXT", conflicts_with = "json_lines")]
    pub(crate) texts: Vec<String>,
    /// Each line of stdin is a JSON string, or an object with the key text, whose other keys --json copies
    #[arg(long)]
    pub(crate) json_lines: bool,
    /// Embed search queries, which some models treat differently from texts
    #[arg(long)]
    pub(crate) query: bool,
    /// Name of an embedding model, or the path of its folder
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Print an object for each text, on a line of its own, instead of the numbers alone
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl EmbedArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        shared::add(overrides, "memory.embedder", "--model", self.model.clone());
    }
}
