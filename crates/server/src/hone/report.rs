//! The quality of the answers: the distribution of the scores, their trend, and the winners of comparisons.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hone_memory::{Engram, Filters, JudgeTally, MemoryStore, Statistics, Whose};
use serde_json::{Value, json};

use super::badge::judge_name;
use super::blocking;
use super::graph::{WinRate, distribution, shares, trend};
use super::memory::memory_of;
use super::shapes::HoneReport;
use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;

/// The number of answers in the trend.
const MOST_ANSWERS: usize = 500;

/// Statistics about the answers in memory, with graphs.
#[utoipa::path(
    get,
    path = "/hone/v1/report",
    tag = "hone",
    responses((status = OK, body = HoneReport), (status = NOT_FOUND))
)]
pub(super) async fn show(State(shared): State<Arc<Shared>>, client: Client) -> Result<Json<Value>, ApiError> {
    let store = memory_of(&shared)?.store.clone();
    blocking(move || report(&store, client.whose()).map(Json)).await
}

/// The statistics about an owner's answers.
pub(super) fn report(store: &MemoryStore, whose: Whose) -> Result<Value, ApiError> {
    let statistics = store.statistics(whose)?;
    let filters = Filters { whose, scored: Some(true), ..Filters::default() };
    let mut scored = store.list(&filters, MOST_ANSWERS)?;
    scored.reverse();
    let judges: Vec<Value> = statistics.judges.iter().map(judge).collect();
    Ok(json!({
        "judges": judges,
        "trend": of_latest_judge(&scored),
        "win_rates": win_rates(&statistics),
        "statistics": statistics,
    }))
}

fn judge(tally: &JudgeTally) -> Value {
    json!({
        "judge": judge_name(&tally.judging()),
        "rubric": tally.rubric,
        "scored": tally.all.scored,
        "mean_score": tally.all.mean_score,
        "scores": tally.scores,
        "svg": distribution(&tally.scores),
    })
}

/// The trend of the scores by the judge that graded last: scores of different judges are on different scales.
fn of_latest_judge(scored: &[Engram]) -> Value {
    let grades = scored.iter().filter_map(|engram| engram.grade.as_ref().map(|grade| (engram.at, grade)));
    let Some((_, latest)) = grades.clone().next_back() else { return Value::Null };
    let points: Vec<(u64, u8)> = grades
        .filter(|(_, grade)| grade.is_comparable(latest))
        .filter_map(|(at, grade)| Some((at.0, grade.score?)))
        .collect();
    let scores: Vec<f64> = points.iter().map(|(_, score)| f64::from(*score)).collect();
    let listed: Vec<Value> = points.iter().map(|(at, score)| json!({"at": at, "score": score})).collect();
    json!({"judge": judge_name(&latest.judging), "points": listed, "svg": trend(&scores)})
}

/// The share of comparisons that each model and each respondent has won; ties do not count. `null` without comparisons.
fn win_rates(statistics: &Statistics) -> Value {
    let groups = statistics.models.iter().chain(&statistics.respondents);
    let rates: Vec<WinRate> = groups
        .map(|(name, tally)| WinRate {
            of: name.clone(),
            won: tally.pairwise_wins,
            compared: tally.pairwise_wins + tally.pairwise_losses,
        })
        .filter(|rate| rate.compared > 0)
        .collect();
    match rates.is_empty() {
        true => Value::Null,
        false => json!({"rates": rates, "svg": shares(&rates)}),
    }
}
