//! Flags of `hone up`, `hone down` and `hone logs`.

use clap::Args;

use super::{JsonFlag, ServeArguments};

/// Flags of `hone up`.
#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}

/// Flags of `hone down`.
#[derive(Debug, Args)]
pub(crate) struct DownArguments {
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// Number of lines to print; 0 prints all
    #[arg(short, value_name = "N", default_value_t = 50)]
    pub(crate) n: usize,
    /// Keep printing new lines, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
}
