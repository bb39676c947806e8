//! Flags of `hone chat` and `hone run`.

use std::path::PathBuf;

use clap::Args;
use hone_app::config::Override;

use super::{BusFlag, ContextFlag, EngineFlags, JsonFlag, SamplingFlags, SpeculationFlag, shared};

/// Flags of `hone chat`.
#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    /// Answer this question and exit; text on stdin goes with it. Without it, the text on stdin is the question
    #[arg(value_name = "QUESTION")]
    question: Vec<String>,
    /// Let a text file, the files that a pattern matches, or stdin (-) go with the question; can be repeated
    #[arg(short, long = "file", value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Chat with the settings of a preset, which flags override
    #[arg(short, long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// System instructions before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Continue a saved conversation: the one with this name, or this text in its name or first question; without a name, one chooses
    /// from a list, and outside a terminal it is the latest
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) resume: Option<String>,
    /// Continue what was asked last: the latest conversation, or the latest single question
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub(crate) goes_on: bool,
    /// Leave no trace: remember nothing, save no conversation, and keep nothing that is typed in the history
    #[arg(long, conflicts_with_all = ["resume", "goes_on"])]
    pub(crate) incognito: bool,
    /// Begin with the guide for a first start, which is shown once
    #[arg(long, hide = true)]
    pub(crate) guide: bool,
    /// Show answers as the model writes them, and all of its reasoning: render no Markdown
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    pub(crate) tools: ToolFlags,
    #[command(flatten)]
    pub(crate) quality: ChatQualityFlags,
    #[command(flatten)]
    pub(crate) bus: BusFlag,
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

impl ChatArguments {
    /// The single question; `None` without words.
    pub(crate) fn question(&self) -> Option<String> {
        (!self.question.is_empty()).then(|| self.question.join(" "))
    }

    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.engine.add_to(overrides);
        self.bus.add_to(overrides);
        self.context.add_to(overrides);
        self.speculation.add_to(overrides);
        self.sampling.add_to(overrides);
        shared::add(overrides, "chat.system", "--system", self.system.clone());
        shared::add(overrides, "chat.markdown", "--plain", self.plain.then_some(false));
        self.quality.add_to(overrides);
        if self.incognito {
            add_no_memory(overrides, "--incognito");
            shared::add(overrides, "chat.save", "--incognito", Some(false));
            shared::add(overrides, "chat.history_lines", "--incognito", Some(0));
        }
    }
}

/// Flags of `hone run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Name of a model, or the path of a GGUF file
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    name: String,
    #[command(flatten)]
    pub(crate) chat: ChatArguments,
}

impl RunArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.chat.add_to(overrides);
        shared::add(overrides, "engine.model", "hone run MODEL", Some(self.name.clone()));
    }
}

/// Tools that the model of a chat may call.
#[derive(Debug, Args)]
pub(crate) struct ToolFlags {
    /// Let the model call tools of the MCP servers that FILE names, as {"mcpServers": {...}}; each call is asked about
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp: Option<PathBuf>,
    /// Carry out every call without asking
    #[arg(long, requires = "mcp")]
    pub(crate) allow_tools: bool,
}

/// Grading, memory and the second respondent of a chat.
#[derive(Debug, Args)]
#[command(next_help_heading = "Quality")]
pub(crate) struct ChatQualityFlags {
    /// Grade answers; with a single question, wait for the grade
    #[arg(long, conflicts_with = "no_grade")]
    pub(crate) grade: bool,
    /// Do not grade answers
    #[arg(long)]
    pub(crate) no_grade: bool,
    /// Before leaving, wait until every answer of the chat is graded
    #[arg(long, conflicts_with = "no_grade")]
    pub(crate) wait_grades: bool,
    /// The model that grades; repeat it for a jury
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: Vec<String>,
    /// The rubric to grade by: a built-in one, or one in the configuration's folder `rubrics`
    #[arg(long, value_name = "NAME")]
    pub(crate) rubric: Option<String>,
    /// How the model gets remembered answers: auto, tool or off; off also remembers nothing
    #[arg(long, value_name = "MODE")]
    pub(crate) memory: Option<String>,
    /// Let a second respondent answer as well, for comparison with the first; its answers are not shown
    #[arg(long)]
    pub(crate) respondent_b: bool,
    /// The second respondent's model; defaults to the first respondent's
    #[arg(long, value_name = "MODEL", requires = "respondent_b")]
    pub(crate) model_b: Option<String>,
    /// The second respondent's temperature
    #[arg(long, value_name = "T", requires = "respondent_b", default_value_t = 0.5)]
    pub(crate) temperature_b: f32,
    /// Print every event on the bus to stderr
    #[arg(long)]
    pub(crate) monitor: bool,
}

impl ChatQualityFlags {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        shared::add(overrides, "chat.grade", "--grade", self.grade.then_some(true));
        shared::add(overrides, "chat.grade", "--no-grade", self.no_grade.then_some(false));
        shared::add_judges(overrides, &self.judge);
        shared::add(overrides, "judge.rubric", "--rubric", self.rubric.clone());
        match self.memory.as_deref() {
            Some("off") => add_no_memory(overrides, "--memory"),
            mode => shared::add(overrides, "memory.mode", "--memory", mode.map(str::to_owned)),
        }
    }
}

/// Disables recall and remembering.
fn add_no_memory(overrides: &mut Vec<Override>, flag: &'static str) {
    shared::add(overrides, "memory.mode", flag, Some("off"));
    shared::add(overrides, "memory.remember", flag, Some(false));
}
