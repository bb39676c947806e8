//! Flags of `hone embed`.

use clap::Args;
use hone_app::config::Override;

use super::JsonFlag;
use super::shared;

/// Flags of `hone embed`.
#[derive(Debug, Args)]
pub(crate) struct EmbedArguments {
    /// Texts to embed; without any, each line of stdin is a text
    #[arg(value_name = "TEXT", conflicts_with = "json_lines")]
    pub(crate) texts: Vec<String>,
    /// Read each line of stdin as a JSON string, or as an object with the key text, whose other keys --json copies
    #[arg(long)]
    pub(crate) json_lines: bool,
    /// Embed search queries, which some models treat differently from texts
    #[arg(long)]
    pub(crate) query: bool,
    /// Name of an embedding model, or the path of its folder
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Print one JSON object per line for each text, instead of only the numbers
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl EmbedArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        shared::add(overrides, "memory.embedder", "--model", self.model.clone());
    }
}
