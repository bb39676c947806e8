//! Flags of `hone chat` and `hone run`.

use std::path::PathBuf;

use clap::Args;
use hone_app::config::Override;

use super::{BusFlag, ContextFlag, EngineFlags, JsonFlag, SamplingFlags, SpeculationFlag, shared};

/// Flags of `hone chat`.
#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    /// Answer this question, along with any text on stdin, and exit; without QUESTION, the text on stdin is the
    /// question
    #[arg(value_name = "QUESTION")]
    question: Vec<String>,
    /// Attach a text or PDF file, the files that match a pattern, or stdin (-) to the question; may be repeated
    #[arg(short, long = "file", value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Use the settings of a preset; flags override them
    #[arg(short, long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// System instructions before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Continue a saved conversation, given its name or part of its name or first question. Without NAME, a single
    /// question continues the latest, and a chat in a terminal offers a list
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) resume: Option<String>,
    /// Continue the latest conversation or single question, whichever is more recent
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub(crate) goes_on: bool,
    /// Leave no trace: remember nothing, save no conversation, and keep no input history
    #[arg(long, conflicts_with_all = ["resume", "goes_on"])]
    pub(crate) incognito: bool,
    /// Start with the first-run guide, which is shown once
    #[arg(long, hide = true)]
    pub(crate) guide: bool,
    /// Show answers and all reasoning exactly as the model writes them, without rendering Markdown
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
    /// Let the model call tools of the MCP servers in FILE ({"mcpServers": {...}}), asking you before each call
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp: Option<PathBuf>,
    /// Run every tool call without asking
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
    /// Before exiting, wait until every answer in the chat is graded
    #[arg(long, conflicts_with = "no_grade")]
    pub(crate) wait_grades: bool,
    /// Name of the judge's model, or the path of a GGUF file; repeat for a jury
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: Vec<String>,
    /// Rubric to grade by: built-in, or from the configuration's `rubrics` folder
    #[arg(long, value_name = "NAME")]
    pub(crate) rubric: Option<String>,
    /// How the model gets remembered answers: auto, tool or off; off also disables remembering
    #[arg(long, value_name = "MODE")]
    pub(crate) memory: Option<String>,
    /// Have a second respondent answer as well, for comparison with the first; its answers are not shown
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
