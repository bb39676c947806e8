//! Flags of `hone bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hone_app::config::Override;

use super::{ContextFlag, EngineFlags, JsonFlag};

/// Flags of `hone bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// Tokens in the prompt; 0 skips this test
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512)]
    pub(crate) prompt_tokens: usize,
    /// Tokens to generate; 0 skips this test
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    pub(crate) generation_tokens: usize,
    /// Number of runs of each test
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5)]
    pub(crate) repetitions: usize,
    /// Tokens in each sequence's context when a test begins
    #[arg(short = 'd', long, value_name = "D", default_value_t = 0)]
    pub(crate) depth: usize,
    /// Number of concurrent sequences; the figures are totals for all sequences
    #[arg(short = 'b', long, value_name = "B", default_value_t = 1)]
    pub(crate) batch: usize,
    /// Run the tests declared in FILE, and write a dated CSV
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt_tokens", "generation_tokens", "repetitions", "depth", "batch", "json"])]
    pub(crate) sweep: Option<PathBuf>,
    /// Folder for the sweep's CSV; defaults to the current folder
    #[arg(short, long, value_name = "FOLDER", requires = "sweep")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl BenchArguments {
    /// Adds the configuration keys that the flags of the command, or of its subcommand, set.
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        let (engine, context) = match &self.command {
            Some(BenchCommand::Contention(arguments)) => (&arguments.engine, Some(&arguments.context)),
            Some(BenchCommand::Sharing(arguments)) => (&arguments.engine, Some(&arguments.context)),
            None => (&self.engine, None),
        };
        engine.add_to(overrides);
        context.into_iter().for_each(|context| context.add_to(overrides));
    }
}

/// Subcommands of `hone bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure how much a continuously grading judge slows down a chat
    Contention(ContentionArguments),
    /// Measure the speedup from shared prompt prefixes
    Sharing(SharingArguments),
}

/// Flags of `hone bench contention`.
#[derive(Debug, Args)]
pub(crate) struct ContentionArguments {
    /// Name of the answering model, or the path of a GGUF file; same as --model
    #[arg(long, value_name = "MODEL", conflicts_with = "model")]
    pub(crate) generator: Option<String>,
    /// Name of the judge's model, or the path of a GGUF file
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: String,
    /// Number of questions to ask, both alone and while the judge grades
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) requests: usize,
    /// Number of answers to grade when measuring the judge alone
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) gradings: usize,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlag,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone bench sharing`.
#[derive(Debug, Args)]
pub(crate) struct SharingArguments {
    /// Name of the answering model, or the path of a GGUF file; same as --model
    #[arg(long, value_name = "MODEL", conflicts_with = "model")]
    pub(crate) generator: Option<String>,
    /// Name of the judge's model, or the path of a GGUF file; defaults to the generator
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: Option<String>,
    /// Number of candidate answers to generate for a task's prompt
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) candidates: usize,
    /// Number of runs of each measurement
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5)]
    pub(crate) repetitions: usize,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlag,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}
