//! Flags of `hone report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hone_judging::Period;
use hone_protocol::{RespondentId, Timestamp};

use super::memory::{moment, respondent};

/// Flags of `hone report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Only work, answers and comparisons of this model; agents are named after their models
    #[arg(long, visible_alias = "model", value_name = "MODEL")]
    pub(crate) agent: Option<String>,
    /// Only answers and comparisons of this respondent: A, B or another name
    #[arg(long, value_name = "NAME", value_parser = respondent)]
    pub(crate) respondent: Option<RespondentId>,
    /// Only tasks and questions of this type: chat (all questions), code, math, question, summary, translation,
    /// writing, or the type in a task's file
    #[arg(long, value_name = "TYPE")]
    pub(crate) task_type: Option<String>,
    /// Only tasks and answers since TIME: 2026-01-31, 2026-01-31T18:30 (UTC), or an age such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Show how the scores change over time
    #[arg(long, value_name = "PERIOD")]
    pub(crate) trend: Option<TrendPeriod>,
    /// Show the most common feedback, grouped by meaning if the embedding model is installed
    #[arg(long)]
    pub(crate) feedback: bool,
    /// Exit with 3 if a judge's mean grade (1 to 5) is below MEAN; a MEAN of 1 or less applies to task outcomes (0 to
    /// 1)
    #[arg(long, value_name = "MEAN")]
    pub(crate) fail_under: Option<f64>,
    #[command(flatten)]
    pub(crate) form: ReportForm,
    #[command(flatten)]
    pub(crate) comparison: ComparisonFlags,
}

/// The comparison of a model with past answers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparison with the past")]
pub(crate) struct ComparisonFlags {
    /// Have MODEL answer past questions, and report whether its answers are better than the past ones
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["trend", "feedback", "csv", "html"])]
    pub(crate) compare: Option<String>,
    /// Number of questions to sample; defaults to 50, or all if there are fewer
    #[arg(long, value_name = "N", requires = "compare", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: Option<u32>,
    /// Random seed; the same seed selects the same questions
    #[arg(long, value_name = "SEED", requires = "compare", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Name of the judge's model, or the path of a GGUF file; repeat for a jury
    #[arg(long, value_name = "MODEL", requires = "compare")]
    pub(crate) judge: Vec<String>,
}

/// Help footer of `hone report`, about `--compare`.
pub(super) const COMPARISON: &str = "\
--compare repeats the first question of each conversation in the terminal or on the page, with
today's system instructions and sampling options, and shows a judge both answers in both orders. It
skips later questions of a conversation, API requests (their earlier turns are not kept), repeated
questions, and past answers that were stopped or cut, used memory, or came from MODEL itself.
Answers and verdicts are kept: an interrupted run resumes with the same command. --since, --model
and --respondent select the past answers; by default, respondent A's. --fail-under applies to the
share of pairs that MODEL wins.";

/// The form of the report, if it is not a text.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct ReportForm {
    /// Print the report as JSON, on one line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the figures as CSV
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write the report to FILE as a web page with graphs
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// The periods of a trend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrendPeriod {
    /// By day (UTC)
    Day,
    /// By week
    Week,
}

impl From<TrendPeriod> for Period {
    fn from(period: TrendPeriod) -> Self {
        match period {
            TrendPeriod::Day => Period::Day,
            TrendPeriod::Week => Period::Week,
        }
    }
}
