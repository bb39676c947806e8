//! Flags of `hone serve` and `hone mcp`.

use clap::Args;
use hone_app::config::Override;

use super::{ContextFlag, EngineFlags, JudgeFlag};

/// Flags of `hone serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The address and port to listen on; the default is 127.0.0.1:11435
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Listen on this port, too, where clients of Ollama look for it: 11434
    #[arg(long, value_name = "PORT")]
    pub(crate) compat_port: Option<u16>,
    /// Do not grade answers
    #[arg(long)]
    pub(crate) no_grade: bool,
    #[command(flatten)]
    pub(crate) bus: super::BusFlag,
    /// Let a second respondent answer the questions of the page as well, for comparison with the first
    #[arg(long)]
    pub(crate) respondent_b: bool,
    /// The second respondent's model; defaults to the first respondent's
    #[arg(long, value_name = "MODEL")]
    pub(crate) model_b: Option<String>,
    /// The second respondent's temperature; the default is 0.5
    #[arg(long, value_name = "T")]
    pub(crate) temperature_b: Option<f64>,
    /// Open the page in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Make a key that lets requests in, print it with its hash, and exit
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
    /// The rubric to grade by: a built-in one, or one in the configuration's folder `rubrics`
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
