//! Flags of `hone critic`, `hone intention` and `hone consolidate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hone_app::config::Override;
use hone_protocol::ContentType;

use super::{EngineFlags, JsonFlag, SamplingFlags, shared};

/// Help footer of `hone critic check`.
const CHECK_HELP: &str = "\
The exit code is 3 if a criterion is not met. A criterion with too few figures counts as neither met nor missed.";

/// Help footer of the commands that pass a gate.
pub(super) const GATE_HELP: &str = "\
In hard mode the exit code is 3 if the critic blocks a text, and 1 if the critic could not be asked; in both cases the
text stays out of long-term memory. Gates are soft for a critic that has not passed its examination
(`hone critic exam`). `hone critic` shows and changes the modes.";

/// Help footer of `hone critic exam`.
const EXAM_HELP: &str = "\
For each type of text, the critic reads 40 sound texts and 40 with a planted flaw. It passes if at least 80 % of its
blocks are right (critique.least_precision) and, with 95 % confidence, more than half are, and if it blocks at least
half of the texts that it should block. The exit code is 3 if it does not pass. An interrupted examination resumes
where it stopped; a chat also runs the examination on its own while nobody is waiting.";

/// Flags of `hone critic`.
#[derive(Debug, Args)]
pub(crate) struct CriticArguments {
    #[command(subcommand)]
    pub(crate) command: CriticCommand,
}

/// Subcommands of `hone critic`.
#[derive(Debug, Subcommand)]
pub(crate) enum CriticCommand {
    /// Show the critic's mode, examination and limits at each gate, and the number of unreviewed texts
    Status(CriticJsonArguments),
    /// Skip the critic at every gate, leaving texts unreviewed; running processes follow at once
    Bypass,
    /// Record the critic's verdicts at every gate, but block nothing
    Soft,
    /// Keep texts that the critic blocks or cannot review out of long-term memory
    Hard,
    /// Return to the configured modes
    Configured,
    /// List the texts that the critic blocked, or let through only because of soft mode, newest first
    Blocks(CriticBlocksArguments),
    /// Record whether a block was right; a wrongly blocked text enters long-term memory
    Review(CriticReviewArguments),
    /// Have the critic review remembered answers, and notes that have no verdict yet
    #[command(after_help = GATE_HELP)]
    Vet(CriticVetArguments),
    /// Examine the critic on sound texts and texts with planted flaws; it may block only if it passes
    #[command(after_help = EXAM_HELP)]
    Exam(CriticExamArguments),
    /// Show statistics of the critic's verdicts
    Stats(CriticStatsArguments),
    /// Check whether the critic does its job: few and correct blocks, better grades, and nothing bad let through
    #[command(after_help = CHECK_HELP)]
    Check(CriticJsonArguments),
}

/// Flags of `hone critic status` and `check`.
#[derive(Debug, Args)]
pub(crate) struct CriticJsonArguments {
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone critic blocks`.
#[derive(Debug, Args)]
pub(crate) struct CriticBlocksArguments {
    /// Only blocks that nobody has reviewed
    #[arg(long)]
    pub(crate) open: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone critic review`.
#[derive(Debug, Args)]
pub(crate) struct CriticReviewArguments {
    /// The blocked text's id, or its first digits
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The block was right
    #[arg(long, required_unless_present = "wrong", conflicts_with = "wrong")]
    pub(crate) right: bool,
    /// The block was wrong
    #[arg(long)]
    pub(crate) wrong: bool,
}

/// Flags of `hone critic stats`.
#[derive(Debug, Args)]
pub(crate) struct CriticStatsArguments {
    /// Also write the statistics to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone critic exam`.
#[derive(Debug, Args)]
pub(crate) struct CriticExamArguments {
    /// Examine only on texts of this type: general, intention, research or consolidation
    #[arg(long = "type", value_name = "TYPE", value_parser = str::parse::<ContentType>)]
    pub(crate) kind: Option<ContentType>,
    #[command(flatten)]
    pub(crate) critic: CriticFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone critic vet`.
#[derive(Debug, Args)]
pub(crate) struct CriticVetArguments {
    /// Maximum number of texts to review, newest first; 0 reviews all
    #[arg(short, value_name = "COUNT", default_value_t = 0)]
    pub(crate) n: usize,
    #[command(flatten)]
    pub(crate) idle: IdleFlag,
    #[command(flatten)]
    pub(crate) critic: CriticFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone intention`.
#[derive(Debug, Args)]
pub(crate) struct IntentionArguments {
    #[command(flatten)]
    pub(crate) critic: CriticFlags,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone consolidate`.
#[derive(Debug, Args)]
pub(crate) struct ConsolidateArguments {
    #[command(flatten)]
    pub(crate) idle: IdleFlag,
    #[command(flatten)]
    pub(crate) critic: CriticFlags,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// When work in the background is done.
#[derive(Debug, Args)]
pub(crate) struct IdleFlag {
    /// Work only while nobody is asking anything, and wait whenever a limit is reached
    #[arg(long)]
    pub(crate) when_idle: bool,
}

/// The model that writes, and the one that criticizes.
#[derive(Debug, Args)]
pub(crate) struct CriticFlags {
    /// Name of the critic's model, or the path of a GGUF file
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: Option<String>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

impl CriticFlags {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.engine.add_to(overrides);
        shared::add_judges(overrides, self.judge.as_slice());
    }
}

impl CriticArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        match &self.command {
            CriticCommand::Vet(arguments) => arguments.critic.add_to(overrides),
            CriticCommand::Exam(arguments) => arguments.critic.add_to(overrides),
            _ => {}
        }
    }
}

impl IntentionArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.critic.add_to(overrides);
        self.sampling.add_to(overrides);
    }
}

impl ConsolidateArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.critic.add_to(overrides);
        self.sampling.add_to(overrides);
    }
}
