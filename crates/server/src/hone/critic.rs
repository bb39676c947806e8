//! The critic's blocks, and a person's verdicts on them.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hone_agents::{CriticBlock, CriticStatistics};
use hone_protocol::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::blocking;
use super::memory::{memory_of, remembered};
use super::shapes::{HoneCritic, HoneReviewed};
use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::requests::parsed;

/// A day, in milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1_000;

/// Whether a block was right.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneReview)]
struct Review {
    right: bool,
}

/// The mode that a person has set, statistics about the critic, and the blocks of the last 24 hours.
#[utoipa::path(
    get,
    path = "/hone/v1/critic",
    tag = "hone",
    responses((status = OK, body = HoneCritic), (status = NOT_FOUND))
)]
pub(super) async fn show(State(shared): State<Arc<Shared>>, client: Client) -> Result<Json<Value>, ApiError> {
    let store = memory_of(&shared)?.store.clone();
    blocking(move || {
        let since = Timestamp(Timestamp::now().0.saturating_sub(DAY));
        let blocks = CriticBlock::since(&store, Some(since), client.whose())?;
        let statistics = CriticStatistics { last_block: None, ..CriticStatistics::of_memory(&store)? };
        Ok::<_, ApiError>(Json(json!({"mode": store.critic_override()?, "statistics": statistics, "blocks": blocks})))
    })
    .await
}

/// Stores whether a block was right. A wrongly blocked engram counts as long-term memory from then on.
#[utoipa::path(
    post,
    path = "/hone/v1/critic/blocks/{id}",
    tag = "hone",
    params(("id" = String, Path)),
    request_body = Review,
    responses((status = OK, body = HoneReviewed), (status = NOT_FOUND), (status = CONFLICT))
)]
pub(super) async fn review(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let review: Review = parsed(body).await?;
    let store = memory_of(&shared)?.store.clone();
    blocking(move || {
        let engram = remembered(&store, client, &id)?;
        if !engram.vetting.critique.as_ref().is_some_and(|critique| critique.result.should_block) {
            return Err(ApiError::new(StatusCode::CONFLICT, format!("{id} was not blocked")));
        }
        store.rule_on_block(&engram, review.right)?;
        let state = store.get(engram.query_id)?.map(|engram| engram.vetting.state);
        Ok(Json(json!({"state": state})))
    })
    .await
}
