//! Answers that a client sends to be graded or compared. They are judged while the client waits, and not remembered.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use crossbeam_channel::{Receiver, Sender, bounded};
use hone_app::judging::ServedJudges;
use hone_judging::{CompareTask, GradeTask};
use hone_protocol::{Grade, GradedAnswer, OwnerId, Preference};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use super::badge::{grade_json, judge_name};
use super::blocking;
use super::shapes::{HoneGrade, HonePreference};
use crate::clients::Client;
use crate::error::ApiError;
use crate::requests::parsed;
use crate::{Shared, take_place};

/// An answer to grade.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneGradeRequest)]
pub(crate) struct GradeRequest {
    /// The question.
    query: String,
    /// The answer to grade.
    answer: String,
    /// An answer that deserves the best score, if there is one.
    #[serde(default)]
    reference: Option<String>,
    /// The model that gave the answer, if it is known: a judge treats its own answers differently.
    #[serde(default)]
    answered_by: Option<String>,
}

/// Two answers to compare.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneCompareRequest)]
pub(crate) struct CompareRequest {
    /// The question.
    query: String,
    /// The first answer.
    a: String,
    /// The second answer.
    b: String,
}

/// Grades an answer, which need not be hone's. The score is null if there is a `failure`, or if the likelihood judge
/// gives a `probability` instead.
#[utoipa::path(
    post,
    path = "/hone/v1/grade",
    tag = "hone",
    request_body = GradeRequest,
    responses((status = OK, body = HoneGrade))
)]
pub(super) async fn grade(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let request = parsed(body).await?;
    shared.check_serving()?;
    Bench::of(&shared).grade(request, client.owner()).await.map(Json)
}

/// The judge's choice between two answers. The winner is null for a tie, and if `failure` says why there is no verdict.
#[utoipa::path(
    post,
    path = "/hone/v1/compare",
    tag = "hone",
    request_body = CompareRequest,
    responses((status = OK, body = HonePreference))
)]
pub(super) async fn compare(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let request = parsed(body).await?;
    shared.check_serving()?;
    Bench::of(&shared).compare(request, client.owner()).await.map(Json)
}

/// The judges, and the room for pending requests.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) judges: Arc<ServedJudges>,
    pub(crate) room: Arc<Semaphore>,
}

impl Bench {
    pub(super) fn of(shared: &Shared) -> Bench {
        Bench { judges: Arc::clone(&shared.parts.judges), room: Arc::clone(&shared.room) }
    }

    pub(super) async fn grade(&self, request: GradeRequest, owner: Option<OwnerId>) -> Result<Value, ApiError> {
        let GradeRequest { query, answer, reference, answered_by } = request;
        let task = GradeTask { query, answer, reference };
        let judge =
            move |judges: &ServedJudges, withdrawn| judges.judge(task, answered_by.as_deref(), owner, withdrawn);
        let grade = self.judged(judge).await?;
        Ok(grade_json(Some(&grade)))
    }

    pub(super) async fn compare(&self, request: CompareRequest, owner: Option<OwnerId>) -> Result<Value, ApiError> {
        let CompareRequest { query, a, b } = request;
        let task = CompareTask { query, answer_a: a, answer_b: b };
        let preference = self.judged(move |judges, withdrawn| judges.judge(task, None, owner, withdrawn)).await?;
        Ok(preference_json(&preference))
    }

    /// The grade of a client's answer with reasons and remarks, which are made now if they are missing.
    pub(super) async fn explained(
        &self,
        graded: GradedAnswer,
        answered_by: String,
        owner: Option<OwnerId>,
    ) -> Result<Grade, ApiError> {
        self.judged(move |judges, withdrawn| judges.explained(&graded, &answered_by, owner, withdrawn)).await
    }

    /// Judges on a thread that may block. It takes a place among the questions in progress, and ends when the client is
    /// gone.
    async fn judged<V: Send + 'static>(
        &self,
        judge: impl FnOnce(&ServedJudges, Receiver<()>) -> Result<Option<V>, String> + Send + 'static,
    ) -> Result<V, ApiError> {
        let place = take_place(&self.room)?;
        let judges = Arc::clone(&self.judges);
        let (withdraw, withdrawn) = bounded(1);
        let open = withdraw.clone();
        let _waiting = Waiting(withdraw);
        let failed = |reason: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, reason);
        let verdict = blocking(move || {
            // The channel stays open while the judge listens to it, and the place is taken while the judge works.
            let (_open, _place) = (open, place);
            judge(&judges, withdrawn).map_err(failed)
        });
        verdict.await?.ok_or_else(|| failed("the judge was stopped".to_owned()))
    }
}

/// A client waiting for a verdict; dropping it withdraws the request.
struct Waiting(Sender<()>);

impl Drop for Waiting {
    fn drop(&mut self) {
        // A finished judge no longer listens.
        let _ = self.0.try_send(());
    }
}

fn preference_json(preference: &Preference) -> Value {
    let mut object = serde_json::to_value(preference).unwrap_or_default();
    object["by"] = json!(judge_name(&preference.judging));
    object
}
