//! Flags of `hone launch`.

use std::ffi::OsString;

use clap::Args;
use hone_app::config::Override;

use super::shared::{ModelFlag, add};

pub(crate) const EXAMPLES: &str = "\
Examples:
  hone launch                       list the agents
  hone launch claude -m qwen3:4b    start Claude Code; a server is started if none runs
  hone launch codex exec 'Explain src/main.rs'
  hone launch claude -- --print 'Explain src/main.rs'    what follows -- is the agent's

A server that demands a key is given the one in HONE_API_KEY. `hone down` ends a server that was started.";

/// Flags of `hone launch`.
#[derive(Debug, Args)]
pub(crate) struct LaunchArguments {
    /// The agent: claude, codex, opencode, qwen, aider, gptme or continue; without it, they are listed
    #[arg(value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Print the command with its environment, and start nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Where the server listens, or is to listen; the default is 127.0.0.1:11435
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelFlag,
    /// Arguments of the agent
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

impl LaunchArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "server.listen", "--listen", self.listen.clone());
        self.model.add_to(overrides);
    }
}
