//! `hone report`: how good the agents and models are, by their tasks and by the grades of their answers.

mod feedback;
mod page;
mod regression;
mod rows;
mod work;

use anyhow::Context;
use hone_agents::CriticStatistics;
use hone_app::describe::{moment, on_one_line};
use hone_judging::{
    GRADES, OUTCOMES, PairReport, Period, QualityReport, ReportRow, ScaleReport, ScoreFigures, Share, Strength,
};
use hone_memory::Whose;
use hone_protocol::Timestamp;
use hone_work::{TaskRecord, WorkReport, type_of};
use serde::Serialize;

use self::feedback::{CommonFeedback, Grouping, commonest};
use self::rows::{answer_rows, pair_rows, task_rows};
use crate::arguments::ReportArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// The type of all answers, whatever the type of their questions is.
const CHAT: &str = "chat";

/// The report with the comparisons of answers.
#[derive(Debug, Serialize)]
struct WholeReport {
    #[serde(flatten)]
    quality: QualityReport,
    /// Figures over tasks.
    work: WorkReport,
    /// The comparisons of each judge.
    comparisons: Vec<PairReport>,
    /// The blocks of the critic that a person has reviewed, and the share that was right; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    reviewed_blocks: Option<Share>,
    /// The commonest feedback; `None` unless it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    feedback: Option<CommonFeedback>,
}

/// Reports.
///
/// # Errors
/// When tasks or memory cannot be read, or the report cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &ReportArguments) -> anyhow::Result<Outcome> {
    let [_, best] = if arguments.comparison.compare.is_some() { OUTCOMES } else { GRADES };
    if let Some(bound) = arguments.fail_under.filter(|bound| !(0.0..=best).contains(bound)) {
        return Err(usage(format!("--fail-under is {bound}: it must be 0 to {best}")));
    }
    if let Some(model) = &arguments.comparison.compare {
        return regression::run(app, arguments, model);
    }
    let (records, errors) = app.tasks().list();
    errors.iter().for_each(|error| app.output.error(&error.to_string()));
    let tasks: Vec<&TaskRecord> = records.iter().filter(|record| is_wanted_task(record, arguments)).collect();
    let (phases, period) = (app.phases()?, arguments.trend.map(Period::from));
    let mut rows = task_rows(&tasks, &phases);
    let (mut pairs, mut reviewed_blocks) = (Vec::new(), None);
    if app.has_memory() {
        let store = app.memory_to_read()?;
        reviewed_blocks = Some(CriticStatistics::of_memory(&store)?.precision_of_blocks).filter(|share| share.of > 0);
        let outlines = store.outlines(Whose::Everyones, arguments.feedback)?;
        rows.extend(answer_rows(&outlines));
        pairs = pair_rows(&outlines, arguments);
    }
    rows.retain(|row| is_wanted(row, arguments));
    let report = WholeReport {
        quality: QualityReport::of(&rows, period),
        work: WorkReport::of(&tasks, &phases, period.map(|period| move |at| period.begin_of(at))),
        comparisons: PairReport::all(&pairs),
        reviewed_blocks,
        feedback: arguments.feedback.then(|| commonest(app, &rows)),
    };
    let form = &arguments.form;
    match &form.html {
        Some(path) => std::fs::write(path, page::page(&report))
            .with_context(|| format!("cannot write the report to {}", path.display()))?,
        None if form.json => app.output.print_json(&report)?,
        None if form.csv => print_csv(app, &report)?,
        None => print_text(app, &report)?,
    }
    // No grade is below 1.
    let range = if arguments.fail_under.is_some_and(|bound| bound <= GRADES[0]) { OUTCOMES } else { GRADES };
    Ok(outcome(report.quality.lowest_mean(range), arguments.fail_under))
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
        && arguments.respondent.is_none_or(|respondent| row.respondent == Some(respondent))
        && arguments
            .task_type
            .as_ref()
            .is_none_or(|kind| *kind == *row.kind || kind == CHAT && row.respondent.is_some())
        && arguments.since.is_none_or(|since| since.0 <= row.at)
}

/// Whether a task is part of the report: the model must have worked on it, and respondents do not work on tasks.
fn is_wanted_task(record: &TaskRecord, arguments: &ReportArguments) -> bool {
    let has_worked = |agent: &String| record.attempts.iter().any(|attempt| attempt.agent == *agent);
    arguments.respondent.is_none()
        && arguments.agent.as_ref().is_none_or(has_worked)
        && arguments.task_type.as_ref().is_none_or(|kind| *kind == type_of(record))
        && arguments
            .since
            .is_none_or(|since| since <= record.attempts.last().map_or(record.created, |last| last.started))
}

fn print_text(app: &Invocation, report: &WholeReport) -> anyhow::Result<()> {
    for scale in &report.quality.scales {
        app.output.print_line(&scale.scale)?;
        let rows = named_figures(scale).map(|(name, figures)| cells(scale, name, figures));
        app.output.print_titled(titles(scale), rows)?;
    }
    for table in work::tables(&report.work) {
        app.output.print_titled(table.titles, table.rows)?;
    }
    report.comparisons.iter().try_for_each(|comparisons| print_comparisons(app, comparisons))?;
    if let Some(blocks) = &report.reviewed_blocks {
        app.output.print_line(&reviewed_in_words(blocks))?;
    }
    if let Some(feedback) = &report.feedback {
        app.output.print_line(feedback_heading(feedback))?;
        for (text, count) in &feedback.groups {
            app.output.print_line(&format!("{count:>4} × {}", on_one_line(text)))?;
        }
    }
    Ok(())
}

/// How often the critic's blocks were right.
fn reviewed_in_words(blocks: &Share) -> String {
    let Share { of, share, interval } = blocks;
    format!("blocks of the critic: {of} reviewed, {} of them right ({})", percent(*share), percents(*interval))
}

/// The heading of the feedback groups.
fn feedback_heading(feedback: &CommonFeedback) -> &'static str {
    match feedback.grouped_by {
        Grouping::Meaning => "commonest feedback, by meaning",
        Grouping::Text => "commonest feedback, by text",
    }
}

fn print_comparisons(app: &Invocation, comparisons: &PairReport) -> anyhow::Result<()> {
    app.output.print_line(&comparison_summary(comparisons))?;
    app.output.print_titled(&COMPARISON_TITLES, comparison_rows(comparisons))
}

/// A summary of a judge's comparisons, with biases that may have affected them.
fn comparison_summary(comparisons: &PairReport) -> String {
    let PairReport { judge, compared, ties, inconsistent, longer_won, .. } = comparisons;
    format!(
        "{judge}: {compared} pairs, {ties} ties; {} of the verdicts depend on the order; the longer answer won {} of {} ({})",
        percent(inconsistent.share),
        percent(longer_won.share),
        longer_won.of,
        percents(longer_won.interval),
    )
}

/// The titles of [`comparison_rows`].
const COMPARISON_TITLES: [&str; 6] = ["of", "pairs", "won", "95 %", "strength", "95 %"];

/// A row for each respondent and model: its name, pairs with a winner, the share it won, and its strength where there
/// are more than two.
fn comparison_rows(comparisons: &PairReport) -> impl Iterator<Item = Vec<String>> + '_ {
    let respondents = comparisons.respondents.iter().map(|(name, share)| {
        (format!("respondent {name}"), share, strength_of(&comparisons.respondent_strengths, name))
    });
    let models = comparisons
        .models
        .iter()
        .map(|(name, share)| (name.clone(), share, strength_of(&comparisons.model_strengths, name)));
    respondents.chain(models).map(|(name, share, strength)| {
        let (strength, interval) = strength.map_or(("-".to_owned(), "-".to_owned()), |it| {
            (format!("{:+.2}", it.strength), format!("{:+.2} to {:+.2}", it.interval[0], it.interval[1]))
        });
        vec![name, share.of.to_string(), percent(share.share), percents(share.interval), strength, interval]
    })
}

fn strength_of<'a>(strengths: &'a [Strength], name: &str) -> Option<&'a Strength> {
    strengths.iter().find(|strength| strength.name == name)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

fn percents(interval: Option<[f64; 2]>) -> String {
    interval.map_or("-".to_owned(), |[low, high]| format!("{:.0} to {:.0} %", 100.0 * low, 100.0 * high))
}

fn print_csv(app: &Invocation, report: &WholeReport) -> anyhow::Result<()> {
    app.output.print_line("scale,of,scored,unscored,mean,low,high,spread,likely_right,likely_wrong")?;
    let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.4}"));
    let bounds = |interval: Option<[f64; 2]>| [0, 1].map(|index| number(interval.map(|interval| interval[index])));
    for scale in &report.quality.scales {
        for (name, figures) in named_figures(scale) {
            let ([low, high], mean, spread) = (bounds(figures.interval), number(figures.mean), number(figures.spread));
            let ScoreFigures { scored, unscored, likely_right, likely_wrong, .. } = figures;
            let (scale, name) = (quoted(&scale.scale), quoted(&name));
            app.output.print_line(&format!(
                "{scale},{name},{scored},{unscored},{mean},{low},{high},{spread},{likely_right},{likely_wrong}"
            ))?;
        }
    }
    for comparisons in &report.comparisons {
        let scale = quoted(&format!("wins, {}", comparisons.judge));
        for (name, Share { of, share, interval }) in named_shares(comparisons) {
            let ([low, high], share) = (bounds(*interval), number(*share));
            app.output.print_line(&format!("{scale},{},{of},0,{share},{low},{high},,,", quoted(&name)))?;
        }
    }
    Ok(())
}

/// The shares of a judge's comparisons, each with its name.
fn named_shares(comparisons: &PairReport) -> impl Iterator<Item = (String, &Share)> {
    let respondents = comparisons.respondents.iter().map(|(name, share)| (format!("respondent {name}"), share));
    let models = comparisons.models.iter().map(|(name, share)| (name.clone(), share));
    let biases = [("the longer answer", &comparisons.longer_won), ("inconsistent", &comparisons.inconsistent)];
    respondents.chain(models).chain(biases.map(|(name, share)| (name.to_owned(), share)))
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\"").replace(['\r', '\n'], " "))
}

/// The figures of a scale, each with its name.
fn named_figures(scale: &ScaleReport) -> impl Iterator<Item = (String, &ScoreFigures)> {
    let agents = scale.agents.iter().map(|(name, figures)| (name.clone(), figures));
    let respondents = scale.respondents.iter().map(|(name, figures)| (format!("respondent {name}"), figures));
    let kinds = scale.kinds.iter().map(|(name, figures)| (format!("type {name}"), figures));
    let configurations = scale.configurations.iter().map(|it| {
        let thinking = if it.thinking { ", with reasoning" } else { "" };
        let temperature = it.temperature.map(|it| format!(" at temperature {it}")).unwrap_or_default();
        (format!("{}{temperature}{thinking}, type {}", it.model, it.kind), &it.figures)
    });
    let trend = scale.trend.iter().map(|(at, figures)| (format!("from {}", moment(Timestamp(*at))), figures));
    std::iter::once(("all".to_owned(), &scale.all))
        .chain(agents)
        .chain(respondents)
        .chain(kinds)
        .chain(configurations)
        .chain(trend)
}

/// Whether the judge of this scale marks answers instead of scoring them.
fn has_marks(scale: &ScaleReport) -> bool {
    scale.all.likely_right + scale.all.likely_wrong > 0
}

/// The titles of [`cells`].
fn titles(scale: &ScaleReport) -> &'static [&'static str] {
    match has_marks(scale) {
        true => &["of", "likely right", "likely wrong", "no mark"],
        false => &["of", "scored", "unscored", "mean", "95 %", "spread", "distribution"],
    }
}

/// A row for the figures of one name.
fn cells(scale: &ScaleReport, name: String, figures: &ScoreFigures) -> Vec<String> {
    if has_marks(scale) {
        let ScoreFigures { likely_right, likely_wrong, unscored, .. } = *figures;
        let counts = [likely_right, likely_wrong, unscored - likely_right - likely_wrong];
        return std::iter::once(name).chain(counts.map(|count| count.to_string())).collect();
    }
    let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.2}"));
    let interval = figures.interval.map_or("-".to_owned(), |[low, high]| format!("{low:.2} to {high:.2}"));
    let distribution = figures.distribution.map(|count| count.to_string()).join(" ");
    let (scored, unscored) = (figures.scored.to_string(), figures.unscored.to_string());
    let (mean, spread) = (number(figures.mean), number(figures.spread));
    vec![name, scored, unscored, mean, interval, spread, distribution]
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
