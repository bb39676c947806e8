//! `hone report`: how good the agents and models are, by their tasks and by the grades of their answers.

mod page;

use anyhow::Context;
use hone_agents::TaskStore;
use hone_memory::{ComparisonTally, Filters, MemoryStore};
use hone_protocol::Timestamp;
use hone_quality::{Figures, QualityReport, ReportRow, ScaleReport, share_with_interval};
use serde::Serialize;

use super::memory::open_to_read;
use crate::app::App;
use crate::arguments::ReportArguments;
use crate::badge::judge_name;
use crate::describe::moment;
use crate::failure::{Outcome, usage};

/// The most answers that a report counts.
const MOST_ANSWERS: usize = 1_000_000;
/// The type of answers, which are no tasks.
const CHAT: &str = "chat";
/// The type of tasks that name none.
const UNNAMED: &str = "task";

/// The report with the comparisons of answers.
#[derive(Debug, Serialize)]
struct WholeReport {
    #[serde(flatten)]
    quality: QualityReport,
    /// The comparisons of each judge.
    comparisons: Vec<WinRate>,
}

/// How often respondent A's answer was the better one.
#[derive(Debug, Serialize)]
struct WinRate {
    /// The judge.
    judge: String,
    /// Pairs with a winner.
    decided: u64,
    /// The share of A's wins among them.
    a: Option<f64>,
    /// Its 95 % interval.
    interval: Option<[f64; 2]>,
    /// The share of verdicts that differ between the two orders.
    inconsistent: Option<f64>,
}

/// Reports.
///
/// # Errors
/// When tasks or memory cannot be read, or the report cannot be written.
pub(crate) fn run(app: &App, arguments: &ReportArguments) -> anyhow::Result<Outcome> {
    if let Some(bound) = arguments.fail_under.filter(|bound| !(0.0..=1.0).contains(bound)) {
        return Err(usage(format!("--fail-under is {bound}: it must be 0 to 1")));
    }
    let mut rows = task_rows(app);
    let mut comparisons = Vec::new();
    if app.memory_folder().exists() {
        let store = open_to_read(app)?;
        rows.extend(answer_rows(&store)?);
        comparisons = store.statistics(Filters::default().whose)?.comparisons.iter().map(win_rate).collect();
    }
    rows.retain(|row| is_wanted(row, arguments));
    let quality = QualityReport::of(&rows, arguments.trend.map(Into::into));
    let report = WholeReport { quality, comparisons };
    let form = &arguments.form;
    match &form.html {
        Some(path) => std::fs::write(path, page::page(&report))
            .with_context(|| format!("cannot write the report to {}", path.display()))?,
        None if form.json => app.output.print_json(&report)?,
        None if form.csv => print_csv(app, &report)?,
        None => print_text(app, &report, arguments.feedback)?,
    }
    Ok(outcome(report.quality.lowest_mean(), arguments.fail_under))
}

/// Without a score, a threshold is not reached.
fn outcome(mean: Option<f64>, bound: Option<f64>) -> Outcome {
    match (mean, bound) {
        (_, None) => Outcome::Done,
        (None, Some(_)) => Outcome::Failed,
        (Some(mean), Some(bound)) if mean < bound => Outcome::BelowThreshold,
        (Some(_), Some(_)) => Outcome::Done,
    }
}

fn is_wanted(row: &ReportRow, arguments: &ReportArguments) -> bool {
    arguments.agent.as_ref().is_none_or(|agent| *agent == row.agent)
        && arguments.task_type.as_ref().is_none_or(|kind| *kind == row.kind)
        && arguments.since.is_none_or(|since| since.0 <= row.at)
}

/// A row for every attempt that the gate has decided about.
fn task_rows(app: &App) -> Vec<ReportRow> {
    let (records, errors) = TaskStore::new(app.data_folder().join("tasks")).list();
    errors.iter().for_each(|error| app.output.error(&error.to_string()));
    let rows = records.iter().flat_map(|record| {
        let kind = Some(&record.assignment.kind).filter(|kind| !kind.is_empty()).map_or(UNNAMED, String::as_str);
        record.attempts.iter().filter_map(move |attempt| {
            let decision = attempt.decision.as_ref()?;
            Some(ReportRow {
                agent: attempt.agent.clone(),
                kind: kind.to_owned(),
                scale: "gate".to_owned(),
                score: decision.score,
                at: attempt.started.0,
                action: Some(decision.action),
                suggestions: attempt.results.iter().flat_map(|result| result.suggestions.clone()).collect(),
            })
        })
    });
    rows.collect()
}

/// A row for every answer; grades that a model gave itself are on a scale of their own.
fn answer_rows(store: &MemoryStore) -> anyhow::Result<Vec<ReportRow>> {
    let engrams = store.list(&Filters::default(), MOST_ANSWERS)?;
    let rows = engrams.into_iter().filter(|engram| !engram.model.is_empty()).map(|engram| {
        let grade = engram.grade.as_ref();
        let scale = grade
            .filter(|grade| grade.score.is_some())
            .map_or("ungraded".to_owned(), |grade| format!("{}, {}", judge_name(&grade.judging), grade.rubric));
        ReportRow {
            agent: engram.model,
            kind: CHAT.to_owned(),
            scale,
            score: grade.and_then(|grade| grade.score).map(|score| f64::from(score.saturating_sub(1)) / 4.0),
            at: engram.at.0,
            action: None,
            suggestions: Vec::new(),
        }
    });
    Ok(rows.collect())
}

fn win_rate(tally: &ComparisonTally) -> WinRate {
    let decided = tally.wins_a + tally.wins_b;
    let rate = share_with_interval(tally.wins_a, decided);
    WinRate {
        judge: judge_name(&tally.judging()),
        decided,
        a: rate.map(|(share, _)| share),
        interval: rate.map(|(_, interval)| interval),
        inconsistent: share_with_interval(tally.compared - tally.consistent, tally.compared).map(|(share, _)| share),
    }
}

fn print_text(app: &App, report: &WholeReport, with_feedback: bool) -> anyhow::Result<()> {
    let mut rows = vec![row_of(["scale", "of", "scored", "unscored", "mean", "95 %", "spread", "distribution"])];
    for scale in &report.quality.scales {
        rows.extend(named_figures(scale).map(|(name, figures)| cells(&scale.scale, &name, figures)));
    }
    app.output.print_table(&rows)?;
    let mut rows = vec![row_of(["type", "attempts", "accepted", "retried", "reassigned", "escalated"])];
    for (kind, shares) in &report.quality.decisions {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut row = vec![kind.clone(), shares.attempts.to_string()];
        row.extend([shares.accepted, shares.retried, shares.reassigned, shares.escalated].map(percent));
        rows.push(row);
    }
    if rows.len() > 1 {
        app.output.print_table(&rows)?;
    }
    for rate in report.comparisons.iter().filter(|rate| rate.decided > 0) {
        let (share, [low, high]) = (rate.a.unwrap_or_default(), rate.interval.unwrap_or_default());
        let inconsistent = 100.0 * rate.inconsistent.unwrap_or_default();
        app.output.print_line(&format!(
            "{}: A is better in {:.0} % of {} pairs ({:.0}–{:.0} %), {inconsistent:.0} % of verdicts depend on the order",
            rate.judge,
            100.0 * share,
            rate.decided,
            100.0 * low,
            100.0 * high
        ))?;
    }
    if with_feedback {
        for (text, count) in &report.quality.feedback {
            app.output.print_line(&format!("{count:>4} × {text}"))?;
        }
    }
    Ok(())
}

fn print_csv(app: &App, report: &WholeReport) -> anyhow::Result<()> {
    app.output.print_line("scale,of,scored,unscored,mean,low,high,spread")?;
    for scale in &report.quality.scales {
        for (name, figures) in named_figures(scale) {
            let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.4}"));
            let [low, high] = [0, 1].map(|index| number(figures.interval.map(|interval| interval[index])));
            let (mean, spread) = (number(figures.mean), number(figures.spread));
            let (scored, unscored) = (figures.scored, figures.unscored);
            let (scale, name) = (quoted(&scale.scale), quoted(&name));
            app.output.print_line(&format!("{scale},{name},{scored},{unscored},{mean},{low},{high},{spread}"))?;
        }
    }
    Ok(())
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\"").replace(['\r', '\n'], " "))
}

/// The figures of a scale, each with what it is about.
fn named_figures(scale: &ScaleReport) -> impl Iterator<Item = (String, &Figures)> {
    let agents = scale.agents.iter().map(|(name, figures)| (name.clone(), figures));
    let kinds = scale.kinds.iter().map(|(name, figures)| (format!("type {name}"), figures));
    let trend = scale.trend.iter().map(|(at, figures)| (format!("from {}", moment(Timestamp(*at))), figures));
    std::iter::once(("all".to_owned(), &scale.all)).chain(agents).chain(kinds).chain(trend)
}

fn cells(scale: &str, name: &str, figures: &Figures) -> Vec<String> {
    let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.2}"));
    let interval = figures.interval.map_or("-".to_owned(), |[low, high]| format!("{low:.2}–{high:.2}"));
    let distribution = figures.distribution.map(|count| count.to_string()).join(" ");
    let (scored, unscored) = (figures.scored.to_string(), figures.unscored.to_string());
    let (mean, spread) = (number(figures.mean), number(figures.spread));
    vec![scale.to_owned(), name.to_owned(), scored, unscored, mean, interval, spread, distribution]
}

fn row_of<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_not_reached_without_scores() {
        assert_eq!(outcome(None, None), Outcome::Done);
        assert_eq!(outcome(None, Some(0.1)), Outcome::Failed);
        assert_eq!(outcome(Some(0.4), Some(0.5)), Outcome::BelowThreshold);
        assert_eq!(outcome(Some(0.5), Some(0.5)), Outcome::Done);
    }
}
