//! `hone critic`: the critic's decisions, and their weight.

mod blocks;
mod check;
mod exam;
mod status;
mod vet;

use anyhow::Context;
use hone_agents::CriticStatistics;
use hone_files::write_private;
use hone_protocol::CriticMode;

use crate::arguments::{CriticArguments, CriticCommand, CriticStatsArguments};
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Runs the subcommand.
///
/// # Errors
/// When memory cannot be read or written.
pub(crate) fn run(app: &Invocation, arguments: &CriticArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        CriticCommand::Status(arguments) => status::run(app, &app.memory_to_read()?, arguments.json.json),
        CriticCommand::Bypass => set(app, Some(CriticMode::Off)),
        CriticCommand::Soft => set(app, Some(CriticMode::Soft)),
        CriticCommand::Hard => set(app, Some(CriticMode::Hard)),
        CriticCommand::Configured => set(app, None),
        CriticCommand::Blocks(arguments) => blocks::list(app, &app.memory_to_read()?, arguments),
        CriticCommand::Review(arguments) => blocks::review(app, &app.memory_to_write()?, arguments),
        CriticCommand::Vet(arguments) => vet::run(app, arguments),
        CriticCommand::Exam(arguments) => exam::run(app, arguments),
        CriticCommand::Stats(arguments) => stats(app, arguments),
        CriticCommand::Check(arguments) => check::run(app, &app.memory_to_read()?, arguments.json.json),
    }
}

fn set(app: &Invocation, mode: Option<CriticMode>) -> anyhow::Result<Outcome> {
    app.memory_to_write()?.set_critic_override(mode)?;
    app.output.print_line(match mode {
        Some(CriticMode::Off) => "no critic is asked: what is written stays unreviewed",
        Some(CriticMode::Soft) => "every gate is soft: what the critic says is kept, and blocks nothing",
        Some(CriticMode::Hard) => "every gate is hard: what the critic blocks does not count as long-term memory",
        None => "every gate has the mode of the configuration",
    })?;
    Ok(Outcome::Done)
}

fn stats(app: &Invocation, arguments: &CriticStatsArguments) -> anyhow::Result<Outcome> {
    let statistics = CriticStatistics::of_memory(&app.memory_to_read()?)?;
    if let Some(path) = &arguments.output {
        write_private(path, &serde_json::to_vec_pretty(&statistics)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json.json {
        app.output.print_json(&statistics)?;
        return Ok(Outcome::Done);
    }
    let counts = |counts: &std::collections::BTreeMap<&str, usize>| {
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let share = |share: Option<f64>| share.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    let validity = statistics.average_validity.map_or("–".to_owned(), |validity| format!("{validity:.2}"));
    let precision = &statistics.precision_of_blocks;
    let mut rows = vec![
        ["critiques".to_owned(), statistics.total_critiques.to_string()],
        ["by level".to_owned(), counts(&statistics.by_level)],
        ["by type".to_owned(), counts(&statistics.by_type)],
        ["blocked".to_owned(), share(statistics.block_rate)],
        ["mean validity".to_owned(), validity],
        ["blocks that were right".to_owned(), format!("{} of {} reviewed", share(precision.share), precision.of)],
    ];
    if let Some(last) = &statistics.last_block {
        rows.push(["last block".to_owned(), format!("{}: {}", last.content_type, last.reason)]);
    }
    app.output.print_table(&rows.into_iter().map(Vec::from).collect::<Vec<_>>())?;
    Ok(Outcome::Done)
}
