//! Flags of `hone launch`.

use std::ffi::OsString;

use clap::Args;
use hone_app::config::Override;

use super::shared::{ModelFlag, add};

pub(crate) const EXAMPLES: &str = "\
Examples:
  hone launch                       list the agents
  hone launch claude -m qwen3:4b    start Claude Code, and a server if none is running
  hone launch codex exec 'Explain src/main.rs'
  hone launch claude -- --print 'Explain src/main.rs'    pass everything after -- to the agent

If the server requires a key, set it in HONE_API_KEY. `hone down` stops a server started this way.";

/// Flags of `hone launch`.
#[derive(Debug, Args)]
pub(crate) struct LaunchArguments {
    /// Agent to start: claude, codex, opencode, qwen, aider, gptme or continue; without it, list the agents
    #[arg(value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Print the command and its environment without starting anything
    #[arg(long)]
    pub(crate) print: bool,
    /// Address of the running server, or of the one to start; defaults to 127.0.0.1:11435
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelFlag,
    /// Arguments for the agent
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

impl LaunchArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "server.listen", "--listen", self.listen.clone());
        self.model.add_to(overrides);
    }
}
