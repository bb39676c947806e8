//! Flags of `hone research`.

use clap::Args;
use hone_app::config::Override;

use super::JsonFlag;
use super::critic::CriticFlags;

/// Help footer of `hone research`.
pub(super) const RESEARCH_HELP: &str = "\
Each claim in the answer cites its source passages and is checked against them; unsupported claims are left out
(research.unsupported). The exit code is 1 if no claim is supported: the sources do not contain an answer. Claims that
no rule can decide and no judge has checked are marked (not checked), and the exit code is 3.
The critic challenges the answer before it is remembered. In hard mode the exit code is 3 if the critic blocks the
answer, and 1 if the critic could not be asked or its verdict does not count.
Text, Markdown, source code, HTML and PDF files are read. In folders, hidden files and files that .gitignore names are
skipped.";

/// Flags of `hone research`.
#[derive(Debug, Args)]
pub(crate) struct ResearchArguments {
    /// The question to answer
    #[arg(value_name = "QUESTION")]
    pub(crate) question: String,
    /// Read a file, all files in a folder, the files that match a pattern, or stdin (-); may be repeated
    #[arg(short, long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Recall nothing from memory, and do not remember the answer
    #[arg(long)]
    pub(crate) no_memory: bool,
    #[command(flatten)]
    pub(crate) critic: CriticFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl ResearchArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.critic.add_to(overrides);
    }
}
