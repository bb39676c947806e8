//! Flags of `hone research`.

use clap::Args;
use hone_app::config::Override;

use super::JsonFlag;
use super::critic::CriticFlags;

/// Help footer of `hone research`.
pub(super) const RESEARCH_HELP: &str = "\
Each claim of the answer cites the passages that it is taken from, and is checked against them; claims without support are
left out (research.unsupported). The exit code is 1 if no claim is supported: there is no answer in these sources. Claims that no
rule can decide about and no judge has checked are marked (not checked), and the exit code is 3.
The answer is remembered after the critic has challenged it; in hard mode the exit code is 3 if the critic blocks it, and 1 if it
could not be asked or its word does not count.
Text, Markdown, source code, HTML and PDF files are read. Of a folder, hidden files and what .gitignore names are left out.";

/// Flags of `hone research`.
#[derive(Debug, Args)]
pub(crate) struct ResearchArguments {
    /// The question to answer
    #[arg(value_name = "QUESTION")]
    pub(crate) question: String,
    /// Read a file, all files of a folder, the files that a pattern matches, or stdin (-); can be repeated
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
