//! Flags of `hone serve` and `hone mcp`.

use clap::Args;
use hone_app::config::Override;

use super::{ContextFlag, EngineFlags, JudgeFlag};

/// Flags of `hone serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Address and port to listen on; defaults to 127.0.0.1:11435
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Also listen on this port; Ollama clients expect 11434
    #[arg(long, value_name = "PORT")]
    pub(crate) compat_port: Option<u16>,
    /// Do not grade answers
    #[arg(long)]
    pub(crate) no_grade: bool,
    #[command(flatten)]
    pub(crate) bus: super::BusFlag,
    /// Have a second respondent answer questions from the page as well, for comparison with the first
    #[arg(long)]
    pub(crate) respondent_b: bool,
    /// The second respondent's model; defaults to the first respondent's
    #[arg(long, value_name = "MODEL")]
    pub(crate) model_b: Option<String>,
    /// The second respondent's temperature; defaults to 0.5
    #[arg(long, value_name = "T")]
    pub(crate) temperature_b: Option<f64>,
    /// Open the page in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Create an API key, print it with its hash, and exit
    #[arg(long)]
    pub(crate) new_key: bool,
    #[command(flatten)]
    pub(crate) judge: JudgeFlag,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlag,
}

impl ServeArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        super::shared::add(overrides, "server.listen", "--listen", self.listen.clone());
        super::shared::add(overrides, "server.compat_port", "--compat-port", self.compat_port.map(i64::from));
        super::shared::add(overrides, "server.respondent_b", "--respondent-b", self.respondent_b.then_some(true));
        super::shared::add(overrides, "server.model_b", "--model-b", self.model_b.clone());
        super::shared::add(overrides, "server.temperature_b", "--temperature-b", self.temperature_b);
        self.bus.add_to(overrides);
        self.judge.add_to(overrides);
        self.engine.add_to(overrides);
        self.context.add_to(overrides);
    }
}

/// Flags of `hone mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Rubric to grade by: built-in, or from the configuration's `rubrics` folder
    #[arg(long, value_name = "NAME")]
    rubric: Option<String>,
    #[command(flatten)]
    judge: JudgeFlag,
    #[command(flatten)]
    engine: EngineFlags,
}

impl McpArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        super::shared::add(overrides, "judge.rubric", "--rubric", self.rubric.clone());
        self.judge.add_to(overrides);
        self.engine.add_to(overrides);
    }
}
