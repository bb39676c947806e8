//! `hone memory stats`: figures about memory.

use hone_memory::{MemoryStore, Statistics, Tally, Verification};
use serde::Serialize;

use crate::app::App;
use crate::arguments::MemoryStatsArguments;
use crate::failure::Outcome;
use crate::terminal::bytes;

/// What `--json` prints.
#[derive(Serialize)]
struct JsonStatistics<'a> {
    #[serde(flatten)]
    statistics: &'a Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'a Verification>,
}

pub(super) fn run(app: &App, store: &MemoryStore, arguments: &MemoryStatsArguments) -> anyhow::Result<Outcome> {
    let statistics = store.statistics()?;
    let check = if arguments.check { Some(store.verify()?) } else { None };
    if arguments.json.json {
        app.output.print_json(&JsonStatistics { statistics: &statistics, check: check.as_ref() })?;
    } else {
        app.output.print_table(&tallies(&statistics))?;
        app.output.print_line("")?;
        app.output.print_table(&facts(&statistics))?;
    }
    let problems = check.map(|check| check.problems).unwrap_or_default();
    for problem in &problems {
        app.output.error(problem);
    }
    Ok(if problems.is_empty() { Outcome::Done } else { Outcome::Failed })
}

fn tallies(statistics: &Statistics) -> Vec<Vec<String>> {
    let titles = ["", "ANSWERS", "SCORED", "UNSCORED", "MEAN", "WON", "LOST", "GOOD", "BAD"];
    let mut rows = vec![titles.map(str::to_string).to_vec(), tally("all", &statistics.all)];
    rows.extend(statistics.models.iter().map(|(model, of_model)| tally(model, of_model)));
    rows.extend(statistics.respondents.iter().map(|(name, of_one)| tally(&format!("respondent {name}"), of_one)));
    rows
}

fn tally(name: &str, tally: &Tally) -> Vec<String> {
    let mean = tally.mean_score.map_or_else(|| "-".to_string(), |mean| format!("{mean:.2}"));
    let counts = |counts: &[u64]| counts.iter().map(u64::to_string).collect::<Vec<_>>();
    let mut row = vec![name.to_string()];
    row.extend(counts(&[tally.engrams, tally.scored, tally.unscored]));
    row.push(mean);
    row.extend(counts(&[tally.pairwise_wins, tally.pairwise_losses, tally.good, tally.bad]));
    row
}

fn facts(statistics: &Statistics) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_string(), value];
    let scores = (1..).zip(statistics.scores).map(|(score, count)| format!("{score}/5: {count}"));
    let mut rows = vec![row("scores", scores.collect::<Vec<_>>().join(", "))];
    rows.extend(statistics.vectors.iter().map(|(model, count)| row("vectors", format!("{count} of {model}"))));
    let index = format!(
        "{} vectors of {}, {} in memory, {} on disk",
        statistics.indexed_vectors,
        statistics.indexed_model,
        bytes(statistics.index_memory_bytes),
        bytes(statistics.index_file_bytes)
    );
    rows.push(row("index", index));
    rows.push(row("events", statistics.events.to_string()));
    if statistics.due > 0 {
        rows.push(row("due", format!("{} that memory could not accept yet", statistics.due)));
    }
    for (name, count) in [("grades due", statistics.grades_due), ("comparisons due", statistics.comparisons_due)] {
        if count > 0 {
            rows.push(row(name, format!("{count} (`hone grade --due`)")));
        }
    }
    rows.push(row("on disk", bytes(statistics.storage_bytes)));
    rows
}
