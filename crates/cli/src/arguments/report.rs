//! Flags of `hone report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hone_judging::Period;
use hone_protocol::{RespondentId, Timestamp};

use super::memory::{moment, respondent};

/// Flags of `hone report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Only the work and answers of this model, and its comparisons; agents are named by their models
    #[arg(long, visible_alias = "model", value_name = "MODEL")]
    pub(crate) agent: Option<String>,
    /// Only the answers of this respondent, and its comparisons: A, B or another name
    #[arg(long, value_name = "NAME", value_parser = respondent)]
    pub(crate) respondent: Option<RespondentId>,
    /// Only tasks and questions of this type: chat (all questions), code, math, question, summary, translation, writing, or
    /// the type in a task's file
    #[arg(long, value_name = "TYPE")]
    pub(crate) task_type: Option<String>,
    /// Only what is from this time or later: 2026-01-31, 2026-01-31T18:30 (UTC), or 30m, 12h, 7d ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Show how the scores change over time
    #[arg(long, value_name = "PERIOD")]
    pub(crate) trend: Option<TrendPeriod>,
    /// Show the commonest feedback, grouped by its meaning if the embedding model is installed
    #[arg(long)]
    pub(crate) feedback: bool,
    /// Exit with 3 if a judge's mean grade (1 to 5) is below this; up to 1, if the mean outcome of tasks (0 to 1) is
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
    /// Have MODEL answer past questions, and say whether its answers are better than those of the past
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["trend", "feedback", "csv", "html"])]
    pub(crate) compare: Option<String>,
    /// Number of questions to take: 50, or all if there are fewer
    #[arg(long, value_name = "N", requires = "compare", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: Option<u32>,
    /// Which questions are taken: the same seed takes the same ones
    #[arg(long, value_name = "SEED", requires = "compare", default_value_t = 0)]
    pub(crate) seed: u64,
    /// The judge's model; repeat it for a jury
    #[arg(long, value_name = "MODEL", requires = "compare")]
    pub(crate) judge: Vec<String>,
}

/// Help footer of `hone report`, about `--compare`.
pub(super) const COMPARISON: &str = "\
--compare asks what began a conversation in the terminal or on the page, with today's system
instructions and sampling options, and shows a judge both answers in both orders. Left out are later
questions of a conversation, what came over an API (the conversation before it is not kept), answers
that were stopped or cut, that used something remembered, or that MODEL gave itself, and repeated
questions. Answers and verdicts are kept: a run that was stopped resumes with the same command.
--since, --model and --respondent say which answers of the past are taken: those of respondent A,
unless another one is named. --fail-under is about the share of pairs that MODEL wins.";

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
    /// Write the report to a page with graphs
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
