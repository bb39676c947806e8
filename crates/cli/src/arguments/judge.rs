//! Flags of `hone judge`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hone_app::config::Override;

use super::{EngineFlags, JsonFlag};

/// Flags of `hone judge`.
#[derive(Debug, Args)]
pub(crate) struct JudgeArguments {
    #[command(subcommand)]
    pub(crate) command: JudgeCommand,
}

/// Subcommands of `hone judge`.
#[derive(Debug, Subcommand)]
pub(crate) enum JudgeCommand {
    /// List judges with their examination marks
    List(JudgeListArguments),
    /// Examine a judge on answers that are known to be good or bad
    Exam(JudgeExamArguments),
    /// Measure how well judges agree with the human judgments in a data set
    #[command(after_help = EVAL_HELP)]
    Eval(JudgeEvalArguments),
    /// Learn from human ratings how often a person agrees with each of a judge's scores
    Calibrate(JudgeCalibrateArguments),
    /// Compute the answer features that the likelihood judge is fitted to
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
    #[command(flatten)]
    pub(crate) grading: GradingFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// How a judge grades.
#[derive(Debug, Args)]
pub(crate) struct GradingFlags {
    /// Rubric to grade by: built-in, or from the configuration's `rubrics` folder; a line of a data set may have its
    /// own
    #[arg(long, value_name = "NAME")]
    pub(crate) rubric: Option<String>,
    /// Profile that defines how the judge is prompted; defaults to its model's profile
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

impl GradingFlags {
    fn add_to(&self, overrides: &mut Vec<Override>) {
        super::shared::add(overrides, "judge.rubric", "--rubric", self.rubric.clone());
        super::shared::add(overrides, "judge.profile", "--profile", self.profile.clone());
    }
}

/// Help footer of `hone judge eval`.
const EVAL_HELP: &str = "\
FILE contains one JSON object per line, or a JSON array of objects, with the keys
  question, answer, score          an answer and its reference score; optionally reference, an answer that deserves a 5
  question, a, b, winner           two answers and the better one: A, B or tie
or with the keys of prometheus-eval's Feedback-Bench and Preference-Bench, RewardBench, JudgeBench, MT-bench's human
judgments or LLMBar.";

/// Flags of `hone judge eval`.
#[derive(Debug, Args)]
pub(crate) struct JudgeEvalArguments {
    /// Data set; defaults to the examination's questions
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Name of a judge's model, the path of a GGUF file, or `likelihood`; may be repeated; defaults to the configured
    /// judge
    #[arg(long, value_name = "JUDGE")]
    pub(crate) judge: Vec<String>,
    #[command(flatten)]
    pub(crate) grading: GradingFlags,
    /// Print the figures as CSV
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Also write a reliability diagram to FILE, as SVG: how often answers with a given score are good
    #[arg(long, value_name = "FILE")]
    pub(crate) diagram: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone judge calibrate`.
#[derive(Debug, Args)]
pub(crate) struct JudgeCalibrateArguments {
    /// Name of the judge's model, or the path of a GGUF file; defaults to the configured judge
    #[arg(value_name = "JUDGE")]
    pub(crate) judge: Option<String>,
    /// A data set of answers with scores from 1 to 5, as for `hone judge eval`; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) grading: GradingFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone judge features`.
#[derive(Debug, Args)]
pub(crate) struct JudgeFeaturesArguments {
    /// File with one JSON object per line, with the keys query and answer; each is printed with its features
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
                super::shared::add(overrides, "judge.model", "JUDGE", arguments.judge.clone());
                arguments.grading.add_to(overrides);
            }
            JudgeCommand::Eval(arguments) => {
                arguments.engine.add_to(overrides);
                arguments.grading.add_to(overrides);
            }
            JudgeCommand::Calibrate(arguments) => {
                arguments.engine.add_to(overrides);
                super::shared::add(overrides, "judge.model", "JUDGE", arguments.judge.clone());
                arguments.grading.add_to(overrides);
            }
            JudgeCommand::Features(arguments) => arguments.engine.add_to(overrides),
        }
    }
}
