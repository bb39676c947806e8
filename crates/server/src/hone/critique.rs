//! Grades by a judge, and ratings by a person.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response as HttpResponse};
use hone_agents::{Exchange, RespondentReply};
use hone_memory::{Engram, MemoryError, MemoryStore};
use hone_protocol::{
    Envelope, Feedback, Grade, GradedAnswer, Judging, Payload, Preference, Prospect, QueryId, Rating, RespondentId,
    Response, SamplingOptions, SessionId,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use super::badge::{grade_json, judge_name};
use super::blocking;
use super::judging::Bench;
use super::shapes::{HoneCritique, HoneRated, HoneRating};
use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::markup::html_of;
use crate::requests::parsed;

/// The longest wait for a grade.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// How long a client waits.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// Seconds.
    #[serde(default)]
    wait: f64,
}

/// The state of an answer's judging.
#[derive(Debug, Default)]
pub(super) struct Judged {
    answer: Option<KnownAnswer>,
    grade: Option<Grade>,
    rating: Option<Rating>,
    other: Option<OtherAnswer>,
    /// Why the other respondent has no answer.
    other_failure: Option<String>,
    comparison: Option<Value>,
    /// Whether the answer is known at all.
    is_known: bool,
    /// Whether a grade may still come.
    is_due: bool,
    /// Whether the comparison with the other answer may still come.
    is_comparison_due: bool,
}

/// An answer whose judge can be asked for its reasons.
#[derive(Clone, Debug)]
struct KnownAnswer {
    query: String,
    answer: String,
    model: String,
}

/// The other respondent's answer to the same question.
#[derive(Debug)]
struct OtherAnswer {
    query_id: Option<QueryId>,
    answer: String,
    model: String,
    sampling: SamplingOptions,
    grade: Option<Grade>,
}

/// The grade of an answer; a client can wait for it.
#[utoipa::path(
    get,
    path = "/hone/v1/critique/{query_id}",
    tag = "hone",
    params(("query_id" = String, Path), Wait),
    responses(
        (status = OK, body = HoneCritique),
        (status = ACCEPTED, body = HoneCritique),
        (status = NOT_FOUND),
        (status = BAD_REQUEST)
    )
)]
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(id): Path<String>,
    Query(Wait { wait }): Query<Wait>,
) -> Result<HttpResponse, ApiError> {
    let id = query_id(&id)?;
    let wait = Duration::try_from_secs_f64(wait).unwrap_or_default().min(LONGEST_WAIT);
    let judged = match timeout(wait, wait_for_grade(&shared, client, id)).await {
        Ok(judged) => judged?,
        Err(_) => look_up(&shared, client, id).await?,
    };
    if !judged.is_known {
        return Err(unknown(id));
    }
    let status = if judged.is_pending() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(judged.to_json(id))).into_response())
}

/// Waits until no better grade can come.
async fn wait_for_grade(shared: &Arc<Shared>, client: Client, id: QueryId) -> Result<Judged, ApiError> {
    let mut heard = shared.hub.hear(client.owner());
    loop {
        let judged = look_up(shared, client, id).await?;
        if !judged.is_known || !judged.is_pending() {
            return Ok(judged);
        }
        let Some(heard) = &mut heard else { return Ok(judged) };
        loop {
            match heard.news.next().await {
                Ok(envelope) if !is_about(&envelope, id) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => break,
                Err(RecvError::Closed) => return Ok(judged),
            }
        }
    }
}

/// The grade with the judge's reasons, and with remarks if an installed model has passed for them. Missing reasons are
/// written now, for example if `judge.feedback` is `on_request`.
#[utoipa::path(
    post,
    path = "/hone/v1/critique/{query_id}/reasons",
    tag = "hone",
    params(("query_id" = String, Path)),
    responses(
        (status = OK, body = HoneCritique),
        (status = NOT_FOUND),
        (status = BAD_REQUEST),
        (status = CONFLICT)
    )
)]
pub(super) async fn explain(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let id = query_id(&id)?;
    let mut judged = look_up(&shared, client, id).await?;
    if !judged.is_known {
        return Err(unknown(id));
    }
    if let Some((graded, model)) = judged.unexplained() {
        shared.check_serving()?;
        let grade = Bench::of(&shared).explained(graded.clone(), model, client.owner()).await?;
        if let Some(memory) = shared.parts.memory.as_ref().filter(|_| grade != graded.grade) {
            // The answer may have been graded again while the judge was writing.
            let standing = look_up(&shared, client, id).await?.grade;
            if standing.is_some_and(|standing| standing.score != grade.score || !standing.is_comparable(&grade)) {
                return Err(ApiError::new(StatusCode::CONFLICT, "the grade has changed meanwhile: ask again"));
            }
            let (store, grade) = (memory.store.clone(), grade.clone());
            blocking(move || store.update_score(id, &grade).map(drop)).await?;
        }
        judged.grade = Some(grade);
    }
    Ok(Json(judged.to_json(id)))
}

fn is_about(envelope: &Envelope, id: QueryId) -> bool {
    [envelope.query_id, envelope.correlation_id].contains(&Some(id))
        && matches!(envelope.payload, Payload::CritiqueResult(_) | Payload::PairwiseResult(_))
}

/// The current state.
async fn look_up(shared: &Arc<Shared>, client: Client, id: QueryId) -> Result<Judged, ApiError> {
    let shared = Arc::clone(shared);
    blocking(move || Judged::known(&shared, client, id)).await
}

impl Judged {
    /// The current state, from the latest messages and from memory, whose files this may wait for.
    pub(super) fn known(shared: &Shared, client: Client, id: QueryId) -> Result<Judged, MemoryError> {
        let heard = Judged::heard(&shared.hub.exchange(client.owner(), id), shared.parts.expected.grades);
        match &shared.parts.memory {
            Some(memory) => Ok(heard.or(Judged::remembered(&memory.store, client, id)?)),
            None => Ok(heard),
        }
    }

    /// The state according to the latest messages.
    fn heard(exchange: &Exchange, grades: bool) -> Judged {
        let reply = exchange.reply(RespondentId::A);
        let other = exchange.reply(RespondentId::B);
        let is_known = *reply != RespondentReply::default() || exchange.rating().is_some();
        let answer = |response: &Response| {
            let Response { query, answer, model, .. } = response.clone();
            KnownAnswer { query, answer, model }
        };
        Judged {
            answer: reply.response.as_ref().map(answer),
            grade: reply.grade.clone(),
            rating: exchange.rating(),
            other: OtherAnswer::heard(other),
            other_failure: other.failure.as_ref().map(ToString::to_string),
            comparison: exchange.comparison().map(|comparison| {
                let Preference { winner, consistent, reason, judging, .. } = &comparison.preference;
                comparison_json(*winner, *consistent, reason, judging)
            }),
            is_known,
            is_due: grades && is_known && reply.failure.is_none(),
            is_comparison_due: grades && [reply, other].into_iter().all(RespondentReply::is_worth_comparing),
        }
    }

    /// The state according to memory.
    fn remembered(store: &MemoryStore, client: Client, id: QueryId) -> Result<Judged, MemoryError> {
        let of_client = |engram: &Engram| client.whose().includes(engram.owner);
        let Some(engram) = store.get(id)?.filter(of_client) else { return Ok(Judged::default()) };
        let other = match &engram.compared {
            Some(compared) => store.get(compared.with)?.filter(of_client),
            None => None,
        };
        let Engram { query, answer, model, .. } = engram.clone();
        Ok(Judged {
            answer: Some(KnownAnswer { query, answer, model }),
            is_known: true,
            is_due: engram.due.as_ref().is_some_and(|due| due.grade),
            comparison: engram.compared.as_ref().map(|compared| {
                comparison_json(winner_of(&engram), compared.consistent, &compared.reason, &compared.judging())
            }),
            other: other.map(OtherAnswer::from),
            other_failure: None,
            grade: engram.grade,
            rating: engram.user_feedback,
            is_comparison_due: false,
        })
    }

    /// Adds the data from memory. The more informative grade wins, and memory has the full answer.
    fn or(self, other: Judged) -> Judged {
        let grade = [self.grade, other.grade].into_iter().flatten().min_by_key(Grade::lack);
        Judged {
            answer: other.answer.or(self.answer),
            grade,
            rating: other.rating.or(self.rating),
            other: other.other.or(self.other),
            other_failure: self.other_failure.or(other.other_failure),
            comparison: self.comparison.or(other.comparison),
            is_known: self.is_known || other.is_known,
            is_due: self.is_due || other.is_due,
            is_comparison_due: self.is_comparison_due || other.is_comparison_due,
        }
    }

    /// The answer, its grade and the model that answered, if the grade lacks reasons or remarks.
    fn unexplained(&self) -> Option<(GradedAnswer, String)> {
        let grade = self
            .grade
            .clone()
            .filter(|grade| grade.is_verdict() && (grade.lacks_reasons() || grade.remarks.is_empty()))?;
        let KnownAnswer { query, answer, model } = self.answer.clone()?;
        Some((GradedAnswer { query, answer, grade }, model))
    }

    /// Whether a client should ask again.
    fn is_pending(&self) -> bool {
        match &self.grade {
            None => self.is_due,
            Some(grade) => grade.judging.prospect().is_some_and(|prospect| prospect != Prospect::Final) && self.is_due,
        }
    }

    /// The whole state, for a client.
    pub(super) fn to_json(&self, id: QueryId) -> Value {
        let mut object = grade_json(self.grade.as_ref());
        object["query_id"] = json!(id);
        object["status"] = json!(match (&self.grade, self.is_pending()) {
            (_, true) => "pending",
            (Some(grade), _) if grade.is_verdict() => "graded",
            _ => "ungraded",
        });
        object["rating"] = json!(self.rating);
        object["comparison"] = json!(self.comparison);
        object["is_comparing"] = json!(self.is_comparison_due && self.comparison.is_none());
        object["other"] = json!(self.other.as_ref().map(OtherAnswer::to_json));
        object["other_failure"] = json!(self.other_failure);
        object
    }
}

impl OtherAnswer {
    /// The other answer according to the latest messages.
    fn heard(reply: &RespondentReply) -> Option<OtherAnswer> {
        let Response { answer, model, sampling, .. } = reply.response.clone()?;
        Some(OtherAnswer { query_id: reply.query_id, answer, model, sampling, grade: reply.grade.clone() })
    }

    fn to_json(&self) -> Value {
        json!({
            "query_id": self.query_id,
            "answer": self.answer,
            "html": html_of(&self.answer),
            "model": self.model,
            "temperature": self.sampling.temperature,
            "grade": grade_json(self.grade.as_ref()),
        })
    }
}

impl From<Engram> for OtherAnswer {
    fn from(engram: Engram) -> OtherAnswer {
        let Engram { query_id, answer, model, sampling, grade, .. } = engram;
        OtherAnswer { query_id: Some(query_id), answer, model, sampling, grade }
    }
}

/// The respondent whose answer won the comparison; `None` for a tie, or if there was no verdict.
fn winner_of(engram: &Engram) -> Option<RespondentId> {
    let has_won = engram.pairwise_winner?;
    let other = if engram.respondent_id == RespondentId::A { RespondentId::B } else { RespondentId::A };
    Some(if has_won { engram.respondent_id } else { other })
}

/// The comparison of two answers: `winner` is null for a tie, and if `failure` says why there is no verdict.
fn comparison_json(winner: Option<RespondentId>, consistent: bool, reason: &str, judging: &Judging) -> Value {
    json!({
        "winner": winner,
        "consistent": consistent,
        "reason": reason,
        "by": judge_name(judging),
        "failure": judging.failure,
    })
}

/// A person's rating of an answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneRatingRequest)]
struct RatingRequest {
    query_id: String,
    /// null takes an earlier rating back.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(value_type = HoneRating)]
    rating: Option<Rating>,
}

/// Publishes a person's rating of an answer.
#[utoipa::path(
    post,
    path = "/hone/v1/feedback",
    tag = "hone",
    request_body = RatingRequest,
    responses((status = OK, body = HoneRated), (status = NOT_FOUND))
)]
pub(super) async fn rate(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let RatingRequest { query_id: id, rating } = parsed(body).await?;
    let id = query_id(&id)?;
    if !look_up(&shared, client, id).await?.is_known {
        return Err(unknown(id));
    }
    if let Some(memory) = &shared.parts.memory {
        let store = memory.store.clone();
        // Durable before the client gets the response; the memory agent merges the same rating and announces the
        // reward.
        blocking(move || store.annotate_feedback(id, rating).map(drop)).await?;
    }
    let payload = Payload::UserFeedback(Feedback { rating });
    // A separate session: a rating does not close an existing one.
    let envelope = Envelope::new("server", SessionId::fresh(), payload).owned_by(client.owner());
    let envelope = envelope.about(id, id, RespondentId::A);
    if let Err(overloaded) = shared.parts.bus.publish(envelope) {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, overloaded.to_string()));
    }
    Ok(Json(json!({"query_id": id, "rating": rating})))
}

/// Parses the full id of an answer.
pub(super) fn query_id(text: &str) -> Result<QueryId, ApiError> {
    text.parse().map_err(|_| ApiError::bad_request(format!("{text:?} is not the id of an answer")))
}

fn unknown(id: QueryId) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("no answer {id} is known"))
}
