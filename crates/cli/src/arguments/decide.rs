//! Flags of `hone decide`.

use std::path::PathBuf;

use clap::Args;
use hone_app::config::Override;
use hone_protocol::DecisionRequest;

use super::shared::LineFlags;
use super::{EngineFlags, JsonFlag};

/// Flags of `hone decide`.
#[derive(Debug, Args)]
#[command(after_help = "\
The --questions FILE has the format of the System One API, in TOML (or JSON, if it ends in .json):
  [team]
  type = \"choice\"                       # or noul (yes or no), or score
  instructions = \"Which team should answer?\"
  criteria = { billing = \"Payments and invoices\", support = \"All the rest\" }

With --input, each line has the text (or any JSON) under the key state; the output adds the key
answers.

The exit code is 3 if a probability is below --at-least, or if --exam finds the model no better
than chance at any one kind of question.")]
pub(crate) struct DecideArguments {
    /// File with the text; without FILE, or with -, read stdin
    #[arg(value_name = "FILE", conflicts_with_all = ["exam", "input"])]
    pub(crate) file: Option<PathBuf>,
    /// Ask a yes-or-no question; may be repeated, like the next two flags
    #[arg(short, long, value_name = "NAME=TEXT")]
    pub(crate) question: Vec<String>,
    /// Ask which of several options is right
    #[arg(long, value_name = "NAME=TEXT:A,B")]
    pub(crate) choice: Vec<String>,
    /// Ask for a level; list the levels lowest first
    #[arg(long, value_name = "NAME=TEXT:A,B")]
    pub(crate) score: Vec<String>,
    /// Also ask the questions in FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) questions: Option<PathBuf>,
    /// Exit with 3 if the probability of yes (NAME=P) or of an option (NAME:OPTION=P) is below P; may be repeated
    #[arg(long, value_name = "NAME=P", conflicts_with_all = ["exam", "input"])]
    pub(crate) at_least: Vec<String>,
    /// Present the options of a choice in up to N orders, and average the answers
    #[arg(long, value_name = "N", default_value_t = DecisionRequest::ORDERS, conflicts_with = "exam")]
    pub(crate) orders: usize,
    /// Examine the model with questions whose answers are known
    #[arg(long, conflicts_with_all = ["question", "choice", "score", "questions", "input"])]
    pub(crate) exam: bool,
    /// With --exam, examine a model anew whose marks are known
    #[arg(long, requires = "exam")]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) lines: LineFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl DecideArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.engine.add_to(overrides);
    }
}
