//! Flags of `hone memory` and `hone events`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hone_memory::{EngramKind, Filters};
use hone_protocol::{InvalidRespondent, RespondentId, SessionId, Subject, Timestamp};
use serde::Serialize;
use time::{Date, Month};

use super::JsonFlag;

/// Flags of `hone memory`.
#[derive(Debug, Args)]
pub(crate) struct MemoryArguments {
    #[command(subcommand)]
    pub(crate) command: MemoryCommand,
}

/// Subcommands of `hone memory`.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Find answers to similar questions, best first
    Search(MemorySearchArguments),
    /// List answers, latest first
    List(MemoryListArguments),
    /// Show everything known about an answer
    Show(MemoryShowArguments),
    /// Export all answers with their vectors as JSON lines
    Export(MemoryExportArguments),
    /// Import answers from a `hone memory export`
    Import(MemoryImportArguments),
    /// Move all memories and conversations into a database or back
    Move(MemoryMoveArguments),
    /// Forget answers
    Rm(MemoryRmArguments),
    /// Show statistics
    Stats(MemoryStatsArguments),
    /// Measure how often recall finds the right items, and how often wrong ones
    Eval(MemoryEvalArguments),
    /// Rebuild a damaged memory from everything readable, keeping the old files
    Repair(MemoryRepairArguments),
}

/// Flags of `hone memory search`.
#[derive(Debug, Args)]
pub(crate) struct MemorySearchArguments {
    /// The question to search for
    #[arg(value_name = "QUERY")]
    pub(crate) query: String,
    /// Maximum number of answers
    #[arg(short, value_name = "N", default_value_t = 10)]
    pub(crate) n: usize,
    /// Only answers at least this similar to the question, -1 to 1
    #[arg(long, value_name = "COSINE", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f32>,
    #[command(flatten)]
    pub(crate) filters: FilterFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory list`.
#[derive(Debug, Args)]
pub(crate) struct MemoryListArguments {
    /// Maximum number of answers; 0 lists all
    #[arg(short, value_name = "N", default_value_t = 20)]
    pub(crate) n: usize,
    #[command(flatten)]
    pub(crate) filters: FilterFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory show`.
#[derive(Debug, Args)]
pub(crate) struct MemoryShowArguments {
    /// The answer's id, or its first digits
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory export`.
#[derive(Debug, Args)]
pub(crate) struct MemoryExportArguments {
    /// File to write; - or nothing for stdout
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory import`.
#[derive(Debug, Args)]
pub(crate) struct MemoryImportArguments {
    /// File to read; - for stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory move`.
#[derive(Debug, Args)]
pub(crate) struct MemoryMoveArguments {
    /// Source: a database as postgres://USER@HOST/NAME, or `local` for the data folder
    #[arg(long, value_name = "PLACE", default_value = "local")]
    pub(crate) from: String,
    /// Destination, in the same form; memories already there are kept
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory rm`.
#[derive(Debug, Args)]
pub(crate) struct MemoryRmArguments {
    /// The answers' ids, or their first digits
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory stats`.
#[derive(Debug, Args)]
pub(crate) struct MemoryStatsArguments {
    /// Also read all of memory and check its consistency
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone memory eval`.
#[derive(Debug, Args)]
pub(crate) struct MemoryEvalArguments {
    /// Conversations and probes in the format of hone (see tests/data/recall.jsonl), LongMemEval or LoCoMo; defaults to
    /// the set that hone's settings were fitted on
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only one half of a set in hone's own format
    #[arg(long, value_name = "SPLIT")]
    pub(crate) split: Option<Split>,
    /// Measure once for each line of FILE: a JSON object of settings that override the configuration, such as
    /// {"threshold": 0.4}
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Also print every probe with the items recalled for it
    #[arg(long)]
    pub(crate) details: bool,
    /// Databases to measure in, with {} for a person's number; defaults to temporary folders
    #[arg(long = "in", value_name = "URL", hide = true)]
    pub(crate) databases: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// The half of a set that settings are fitted on, and the one that only measures them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Split {
    /// The part that settings are fitted on
    Fitted,
    /// The part that only measures them
    HeldOut,
}

/// Flags of `hone memory repair`.
#[derive(Debug, Args)]
pub(crate) struct MemoryRepairArguments {
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Which answers to include.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterFlags {
    /// Only answers in this conversation
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<SessionId>,
    /// Only answers by this respondent: A, B or another name
    #[arg(long, value_name = "NAME", value_parser = respondent)]
    pub(crate) respondent: Option<RespondentId>,
    /// Only answers by this model
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Only answers with at least this score, 1 to 5
    #[arg(long, value_name = "SCORE", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) min_score: Option<u8>,
    /// Only answers since TIME: 2026-01-31, 2026-01-31T18:30 (UTC), or an age such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Only answers before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) until: Option<Timestamp>,
    /// Only answers with a score
    #[arg(long, conflicts_with = "unscored")]
    pub(crate) scored: bool,
    /// Only answers without a score
    #[arg(long)]
    pub(crate) unscored: bool,
    /// Include facts that you stated
    #[arg(long)]
    pub(crate) facts: bool,
    /// Only this kind: episodic (answers), fact, intention, research or consolidation; or all
    #[arg(long, value_name = "KIND", value_parser = kinds, conflicts_with = "facts")]
    pub(crate) kind: Option<Kinds>,
    /// Only exchanges that contain this text, ignoring case
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

impl FilterFlags {
    /// The filters that these flags set.
    pub(crate) fn filters(&self) -> Filters {
        Filters {
            session: self.session,
            respondent: self.respondent,
            model: self.model.clone(),
            min_score: self.min_score,
            since: self.since,
            until: self.until,
            scored: (self.scored || self.unscored).then_some(self.scored),
            text: self.text.clone(),
            facts: self.facts || self.kind == Some(Kinds::All),
            notes: self.kind == Some(Kinds::All),
            kind: self.kind.and_then(Kinds::only),
            ..Filters::default()
        }
    }
}

/// Kinds of memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    All,
    Only(EngramKind),
}

impl Kinds {
    fn only(self) -> Option<EngramKind> {
        match self {
            Kinds::All => None,
            Kinds::Only(kind) => Some(kind),
        }
    }
}

fn kinds(name: &str) -> Result<Kinds, String> {
    match name {
        "all" => Ok(Kinds::All),
        name => EngramKind::named(name).map(Kinds::Only).ok_or_else(|| {
            let names = EngramKind::ALL.map(EngramKind::name).join(", ");
            format!("there is no such kind: there are {names}, and all")
        }),
    }
}

/// Flags of `hone events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArguments {
    /// Show abandoned work on the bus instead of events
    #[arg(long, conflicts_with_all = ["follow", "subjects", "session", "last"])]
    pub(crate) dead: bool,
    /// Ask for abandoned work on the bus again
    #[arg(long, conflicts_with_all = ["dead", "follow", "subjects", "session", "last"])]
    pub(crate) retry: bool,
    #[command(flatten)]
    pub(crate) bus: super::BusFlag,
    /// Keep printing new events, including events of other processes
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events with this subject, such as critique.result; may be repeated
    #[arg(long = "type", value_name = "SUBJECT")]
    pub(crate) subjects: Vec<Subject>,
    /// Only events of this conversation
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<SessionId>,
    /// Only the latest N past events; defaults to all, or to 10 with --follow
    #[arg(short = 'n', value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Print each event as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses the name of a respondent.
pub(super) fn respondent(text: &str) -> Result<RespondentId, String> {
    match text {
        "A" | "a" => Ok(RespondentId::A),
        "B" | "b" => Ok(RespondentId::B),
        name => name.parse().map_err(|invalid: InvalidRespondent| invalid.to_string()),
    }
}

/// Parses a date, a date with a time, or an age such as `7d`.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let wrong = || "a time is 2026-01-31, 2026-01-31T18:30, or 30m, 12h, 7d ago".to_string();
    let units = [('m', 60), ('h', 3_600), ('d', 86_400)];
    if let Some((count, seconds)) = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, seconds)))
    {
        let ago = count.parse::<u32>().ok().map(|count| Duration::from_secs(u64::from(count) * seconds));
        let milliseconds = ago.and_then(|ago| u64::try_from(ago.as_millis()).ok()).ok_or_else(wrong)?;
        return Ok(Timestamp(Timestamp::now().0.saturating_sub(milliseconds)));
    }
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "0:0"));
    let numbers = |text: &str, separator: char| -> Option<Vec<u16>> {
        text.split(separator).map(|part| part.parse::<u16>().ok()).collect()
    };
    let parsed = || {
        let (date, clock) = (numbers(date, '-')?, numbers(clock, ':')?);
        let (&[year, month, day], &[hour, minute]) = (date.as_slice(), clock.as_slice()) else { return None };
        let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
        let date = Date::from_calendar_date(i32::from(year), month, u8::try_from(day).ok()?).ok()?;
        let moment = date.with_hms(u8::try_from(hour).ok()?, u8::try_from(minute).ok()?, 0).ok()?.assume_utc();
        u64::try_from(moment.unix_timestamp()).ok()
    };
    parsed().map(|seconds| Timestamp(1_000 * seconds)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        let check = |text: &str, seconds: u64| assert_eq!(moment(text), Ok(Timestamp(1_000 * seconds)), "{text}");
        check("1970-01-02", 86_400);
        check("1970-01-01T01:30", 5_400);
        check("2026-01-31 18:30", 1_769_884_200);
        let ago = |text: &str| {
            let then = moment(text).unwrap();
            (Timestamp::now().0 - then.0) / 1_000
        };
        assert_eq!([ago("30m"), ago("12h"), ago("7d")], [1_800, 43_200, 604_800]);
        for wrong in ["", "m", "-1d", "1.5h", "yesterday", "2026-13-01", "2026-02-30", "2026-01-31T25:00", "1969-12-31"]
        {
            assert!(moment(wrong).unwrap_err().contains("2026-01-31"), "{wrong}");
        }
    }

    #[test]
    fn respondents_are_a_b_and_others_by_name() {
        assert_eq!((respondent("A"), respondent("b")), (Ok(RespondentId::A), Ok(RespondentId::B)));
        assert_eq!(respondent("qwen3:8b").map(|it| it.to_string()), Ok("qwen3:8b".to_owned()));
        assert!(respondent("").is_err());
    }
}
