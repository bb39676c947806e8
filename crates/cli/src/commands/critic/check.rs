//! `hone critic check`: whether the critic meets the success criteria of its specification.

use hone_agents::{CriticStatistics, LEAST_RIGHT, MOST_BLOCKED};
use hone_memory::{Filters, MemoryStore, Outline, Whose};
use hone_protocol::{JudgingMethod, Rating, VettingState};
use serde::Serialize;

use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Minimum number of critiques, reviewed blocks and grades of each half for a result.
const FEWEST: usize = 10;

/// One criterion.
#[derive(Serialize)]
struct Criterion {
    criterion: &'static str,
    /// Whether it is met; `None` if there are too few figures to say.
    met: Option<bool>,
    figures: String,
}

pub(super) fn run(app: &Invocation, store: &MemoryStore, json: bool) -> anyhow::Result<Outcome> {
    let criteria = [few_blocks(store)?, right_blocks(store)?, better_grades(store)?, nothing_bad(store)?];
    for criterion in &criteria {
        if json {
            app.output.print_json(criterion)?;
            continue;
        }
        let mark = match criterion.met {
            Some(true) => "met",
            Some(false) => "not met",
            None => "too few figures",
        };
        app.output.print_line(&format!("{}: {mark} ({})", criterion.criterion, criterion.figures))?;
    }
    let is_failed = criteria.iter().any(|criterion| criterion.met == Some(false));
    Ok(if is_failed { Outcome::BelowThreshold } else { Outcome::Done })
}

fn few_blocks(store: &MemoryStore) -> anyhow::Result<Criterion> {
    let statistics = CriticStatistics::of_memory(store)?;
    let enough = statistics.total_critiques >= FEWEST;
    let rate = statistics.block_rate.unwrap_or_default();
    Ok(Criterion {
        criterion: "fewer than 5 % are blocked",
        met: enough.then_some(rate < MOST_BLOCKED),
        figures: format!("{:.1} % of {} critiques", 100.0 * rate, statistics.total_critiques),
    })
}

fn right_blocks(store: &MemoryStore) -> anyhow::Result<Criterion> {
    let statistics = CriticStatistics::of_memory(store)?;
    let precision = statistics.precision_of_blocks.share.unwrap_or_default();
    Ok(Criterion {
        criterion: "people confirm the blocks",
        met: (statistics.reviewed_blocks >= FEWEST).then_some(precision >= LEAST_RIGHT),
        figures: format!("{:.0} % of {} reviewed blocks were right", 100.0 * precision, statistics.reviewed_blocks),
    })
}

/// Compares the grades before and after the first critique, by the judge and rubric that gave most of them.
fn better_grades(store: &MemoryStore) -> anyhow::Result<Criterion> {
    let criterion = "grades improve";
    let unknown = |figures: &str| Criterion { criterion, met: None, figures: figures.to_owned() };
    let Some(first) = store.critiques(None)?.first().map(|record| record.at) else {
        return Ok(unknown("nothing was criticized"));
    };
    let outlines = store.outlines(Whose::Everyones, false)?;
    let Some(scale) = commonest_scale(&outlines) else { return Ok(unknown("no answer has a grade")) };
    let scores = |is_after: bool| -> Vec<f64> {
        let of_scale =
            outlines.iter().filter(|it| scale_of(it).as_ref() == Some(&scale) && (it.at > first) == is_after);
        of_scale.filter_map(|it| it.grade.as_ref()?.score).map(f64::from).collect()
    };
    let (before, after) = (scores(false), scores(true));
    if before.len() < FEWEST || after.len() < FEWEST {
        return Ok(unknown(&format!("{} grades before the first critique, {} after it", before.len(), after.len())));
    }
    let ([mean_before, variance_before], [mean_after, variance_after]) = (moments(&before), moments(&after));
    let difference = mean_after - mean_before;
    // The normal approximation of the 95 % interval of a difference of means.
    let width = 1.96 * (variance_before / before.len() as f64 + variance_after / after.len() as f64).sqrt();
    Ok(Criterion {
        criterion,
        met: (difference.abs() > width).then_some(difference > 0.0),
        figures: format!("mean {mean_before:.2} before the first critique, {mean_after:.2} after it, ±{width:.2}"),
    })
}

/// A judge, how it judges, and a rubric: grades of different ones are on different scales.
type Scale = (String, JudgingMethod, String);

fn scale_of(outline: &Outline) -> Option<Scale> {
    let grade = outline.grade.as_ref().filter(|grade| grade.score.is_some())?;
    Some((grade.judge.clone(), grade.method, grade.rubric.clone()))
}

fn commonest_scale(outlines: &[Outline]) -> Option<Scale> {
    let mut counts: Vec<(Scale, usize)> = Vec::new();
    for scale in outlines.iter().filter_map(scale_of) {
        match counts.iter_mut().find(|(known, _)| *known == scale) {
            Some((_, count)) => *count += 1,
            None => counts.push((scale, 1)),
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(scale, _)| scale)
}

/// The mean and the variance of a sample.
fn moments(values: &[f64]) -> [f64; 2] {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    [mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)]
}

fn nothing_bad(store: &MemoryStore) -> anyhow::Result<Criterion> {
    let filters = Filters { notes: true, vetting: Some(VettingState::Reviewed), ..Filters::default() };
    let reviewed = store.list(&filters, usize::MAX)?;
    let ratings: Vec<Rating> = reviewed.iter().filter_map(|engram| engram.user_feedback).collect();
    let bad = ratings.iter().filter(|rating| **rating == Rating::Bad).count();
    Ok(Criterion {
        criterion: "nothing bad is long-term memory",
        met: (bad > 0 || ratings.len() >= FEWEST).then_some(bad == 0),
        figures: format!(
            "of {} reviewed memories a person has rated {} and found {bad} bad",
            reviewed.len(),
            ratings.len()
        ),
    })
}
