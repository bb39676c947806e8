//! `hone memory stats`: figures about memory.

use hone_app::describe::bytes;
use hone_memory::{ComparisonTally, JudgeTally, MemoryStore, Scores, Statistics, Tally, Verification, Whose};
use serde::Serialize;

use crate::arguments::MemoryStatsArguments;
use crate::badge;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// The titles of the tables.
const TALLIES: [&str; 12] = [
    "",
    "answers",
    "scored",
    "self-graded",
    "unscored",
    "mean",
    "likely right",
    "likely wrong",
    "won",
    "lost",
    "good",
    "bad",
];
const JUDGES: [&str; 8] = ["grades by", "scored", "mean", "1/5", "2/5", "3/5", "4/5", "5/5"];
const COMPARISONS: [&str; 6] = ["comparisons by", "pairs", "consistent", "A won", "B won", "ties"];

/// The output of `--json`.
#[derive(Serialize)]
struct JsonStatistics<'a> {
    #[serde(flatten)]
    statistics: &'a Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'a Verification>,
}

pub(super) fn run(app: &Invocation, store: &MemoryStore, arguments: &MemoryStatsArguments) -> anyhow::Result<Outcome> {
    let statistics = store.statistics(Whose::Everyones)?;
    let check = if arguments.check { Some(store.verify()?) } else { None };
    if arguments.json.json {
        app.output.print_json(&JsonStatistics { statistics: &statistics, check: check.as_ref() })?;
    } else {
        app.output.print_titled(&TALLIES, tallies(&statistics))?;
        for (titles, rows) in [(&JUDGES[..], judges(&statistics)), (&COMPARISONS, comparisons(&statistics))]
            .into_iter()
            .filter(|(_, rows)| !rows.is_empty())
        {
            app.output.print_line("")?;
            app.output.print_titled(titles, rows)?;
        }
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
    let mut rows = vec![tally("all", &statistics.all)];
    rows.extend(statistics.models.iter().map(|(model, of_model)| tally(model, of_model)));
    rows.extend(statistics.respondents.iter().map(|(name, of_one)| tally(&format!("respondent {name}"), of_one)));
    rows
}

fn tally(name: &str, tally: &Tally) -> Vec<String> {
    let mean = tally.mean_score.map_or_else(|| "-".to_string(), |mean| format!("{mean:.2}"));
    let counts = |counts: &[u64]| counts.iter().map(u64::to_string).collect::<Vec<_>>();
    let mut row = vec![name.to_string()];
    row.extend(counts(&[tally.engrams, tally.scored, tally.self_graded, tally.unscored]));
    row.push(mean);
    row.extend(counts(&[tally.likely_right, tally.likely_wrong]));
    row.extend(counts(&[tally.pairwise_wins, tally.pairwise_losses, tally.good, tally.bad]));
    row
}

/// The scores of each judge: all, and by model and respondent if there are several.
fn judges(statistics: &Statistics) -> Vec<Vec<String>> {
    statistics.judges.iter().flat_map(judge).collect()
}

fn judge(tally: &JudgeTally) -> Vec<Vec<String>> {
    let judging = tally.judging();
    let name = format!("{} {} for {}", badge::mark(Some(&judging)), badge::judge_name(&judging), tally.rubric);
    let counts = tally.scores.iter().map(u64::to_string);
    let mut rows = vec![scores(name, &tally.all).into_iter().chain(counts).collect()];
    let respondents = tally.respondents.iter().map(|(name, of_one)| (format!("respondent {name}"), of_one));
    for groups in [tally.models.iter().map(|(name, it)| (name.clone(), it)).collect(), respondents.collect::<Vec<_>>()]
    {
        if groups.len() > 1 {
            rows.extend(groups.into_iter().map(|(name, of_group)| scores(format!("  {name}"), of_group)));
        }
    }
    rows
}

fn scores(name: String, scores: &Scores) -> Vec<String> {
    vec![name, scores.scored.to_string(), format!("{:.2}", scores.mean_score)]
}

fn comparisons(statistics: &Statistics) -> Vec<Vec<String>> {
    let row = |it: &ComparisonTally| {
        let name = format!("{} {}", badge::mark(Some(&it.judging())), badge::judge_name(&it.judging()));
        let counts = [it.compared, it.consistent, it.wins_a, it.wins_b, it.ties].map(|count| count.to_string());
        [vec![name], counts.to_vec()].concat()
    };
    statistics.comparisons.iter().map(row).collect()
}

fn facts(statistics: &Statistics) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_string(), value];
    let mut rows = Vec::new();
    rows.extend(statistics.vectors.iter().map(|(model, count)| row("vectors", format!("{count} of {model}"))));
    let mut index = format!("{} vectors of {}", statistics.indexed_vectors, statistics.indexed_model);
    if statistics.index_memory_bytes > 0 {
        let (in_memory, on_disk) = (bytes(statistics.index_memory_bytes), bytes(statistics.index_file_bytes));
        index = format!("{index}, {in_memory} in memory, {on_disk} on disk");
    }
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
