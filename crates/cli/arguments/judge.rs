//! Flags of `hone judge`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{EngineFlags, JsonFlag};
use crate::config::Override;

/// Flags of `hone judge`.
#[derive(Debug, Args)]
pub(crate) struct JudgeArguments {
    #[command(subcommand)]
    pub(crate) command: JudgeCommand,
}

/// What to do with judges.
#[derive(Debug, Subcommand)]
pub(crate) enum JudgeCommand {
    /// List judges with the marks of their examinations
    List(JudgeListArguments),
    /// Examine a judge with questions whose answers are known to be good or bad
    Exam(JudgeExamArguments),
    /// Compute the features of answers that the likelihood judge is fitted to
    Features(JudgeFeaturesArguments),
}

/// Flags of `hone judge list`.
#[derive(Debug, Args)]
pub(crate) struct JudgeListArguments {
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone judge exam`.
#[derive(Debug, Args)]
pub(crate) struct JudgeExamArguments {
    /// Name of the judge's model, the path of a GGUF file, or `likelihood`; defaults to the configured judge
    #[arg(value_name = "JUDGE")]
    pub(crate) judge: Option<String>,
    /// The rubric to grade by: a built-in one, or one in the folder `rubrics` beside the configuration
    #[arg(long, value_name = "NAME")]
    pub(crate) rubric: Option<String>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone judge features`.
#[derive(Debug, Args)]
pub(crate) struct JudgeFeaturesArguments {
    /// A file with a JSON object per line that has the keys query and answer; each is printed with its features
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

impl JudgeArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        match &self.command {
            JudgeCommand::List(_) => {}
            JudgeCommand::Exam(arguments) => {
                arguments.engine.add_to(overrides);
                super::shared::add(overrides, "critic.model", "JUDGE", arguments.judge.clone());
                super::shared::add(overrides, "critic.rubric", "--rubric", arguments.rubric.clone());
            }
            JudgeCommand::Features(arguments) => arguments.engine.add_to(overrides),
        }
    }
}
