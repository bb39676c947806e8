//! The engram as one flat object.

use hone_protocol::{
    FinishReason, Grade, Judging, JudgingMethod, Juror, Likely, OwnerId, QueryId, Rating, Remark, RespondentId,
    SamplingOptions, SessionId, Suspicion, Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{Compared, Engram, EngramKind};
use crate::backlog::Due;
use crate::vetting::Vetting;

/// The engram as it is stored in JSON.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct FlatEngram {
    query_id: QueryId,
    #[serde(rename = "type", default)]
    kind: EngramKind,
    #[serde(default)]
    sequence: u64,
    query: String,
    answer: String,
    at: Timestamp,
    session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    respondent_id: RespondentId,
    model: String,
    #[serde(deserialize_with = "known_sampling")]
    sampling: SamplingOptions,
    #[serde(default)]
    thinking: bool,
    finish_reason: Option<FinishReason>,
    intent: Option<String>,
    #[serde(default)]
    entities: Vec<String>,
    #[serde(flatten)]
    grade: FlatGrade,
    pairwise_winner: Option<bool>,
    user_feedback: Option<Rating>,
    correlation_id: QueryId,
    #[serde(default)]
    compared: Option<Compared>,
    #[serde(default)]
    due: Option<Due>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<QueryId>,
    #[serde(default, skip_serializing_if = "is_false")]
    is_update: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    facts_extracted: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<QueryId>,
    #[serde(default, skip_serializing_if = "is_default")]
    vetting: Vetting,
}

/// The parts of a grade under their names on an engram. The engram has a grade if it has a judge.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct FlatGrade {
    critic_score: Option<u8>,
    critic_raw_score: Option<String>,
    expected_score: Option<f64>,
    score_entropy: Option<f64>,
    /// The likelihood judge's probability; that judge gives no score.
    #[serde(default)]
    probability: Option<f64>,
    #[serde(default)]
    likely: Option<Likely>,
    feedback: Option<String>,
    judge: Option<String>,
    self_graded: Option<bool>,
    rubric: Option<String>,
    judging_tokens: Option<usize>,
    judging_seconds: Option<f64>,
    judging_queue_seconds: Option<f64>,
    #[serde(default)]
    judging_concluded_early: Option<bool>,
    judging_method: Option<JudgingMethod>,
    judging_failure: Option<String>,
    /// The passage that looks like an attempt to influence the judge.
    suspicious: Option<Suspicion>,
    critic_spread: Option<u8>,
    critic_disputed: Option<bool>,
    /// The members of the jury with their own grades, for a jury.
    critic_jury: Option<Vec<Juror<Grade>>>,
    critic_remarks: Option<Vec<Remark>>,
}

impl From<Engram> for FlatEngram {
    fn from(engram: Engram) -> Self {
        FlatEngram {
            query_id: engram.query_id,
            kind: engram.kind,
            sequence: engram.sequence,
            query: engram.query,
            answer: engram.answer,
            at: engram.at,
            session_id: engram.session_id,
            owner: engram.owner,
            scope: engram.scope,
            respondent_id: engram.respondent_id,
            model: engram.model,
            sampling: engram.sampling,
            thinking: engram.thinking,
            finish_reason: engram.finish_reason,
            intent: engram.intent,
            entities: engram.entities,
            grade: engram.grade.as_ref().map(FlatGrade::from).unwrap_or_default(),
            pairwise_winner: engram.pairwise_winner,
            user_feedback: engram.user_feedback,
            correlation_id: engram.correlation_id,
            compared: engram.compared,
            due: engram.due,
            source: engram.source,
            is_update: engram.is_update,
            facts_extracted: engram.facts_extracted,
            sources: engram.sources,
            vetting: engram.vetting,
        }
    }
}

impl From<FlatEngram> for Engram {
    fn from(flat: FlatEngram) -> Self {
        Engram {
            query_id: flat.query_id,
            kind: flat.kind,
            sequence: flat.sequence,
            query: flat.query,
            answer: flat.answer,
            at: flat.at,
            session_id: flat.session_id,
            owner: flat.owner,
            scope: flat.scope,
            respondent_id: flat.respondent_id,
            model: flat.model,
            sampling: flat.sampling,
            thinking: flat.thinking,
            finish_reason: flat.finish_reason,
            intent: flat.intent,
            entities: flat.entities,
            grade: flat.grade.into_grade(),
            pairwise_winner: flat.pairwise_winner,
            user_feedback: flat.user_feedback,
            correlation_id: flat.correlation_id,
            compared: flat.compared,
            due: flat.due,
            source: flat.source,
            is_update: flat.is_update,
            facts_extracted: flat.facts_extracted,
            sources: flat.sources,
            vetting: flat.vetting,
        }
    }
}

impl From<&Grade> for FlatGrade {
    fn from(grade: &Grade) -> Self {
        FlatGrade {
            critic_score: grade.score,
            critic_raw_score: grade.raw_score.clone(),
            expected_score: grade.expected_score,
            score_entropy: grade.entropy,
            probability: grade.probability,
            likely: grade.likely,
            feedback: Some(grade.feedback.clone()),
            judge: Some(grade.judging.judge.clone()),
            self_graded: Some(grade.judging.self_graded),
            rubric: Some(grade.rubric.clone()),
            judging_tokens: Some(grade.judging.tokens),
            judging_seconds: Some(grade.judging.seconds),
            judging_queue_seconds: Some(grade.judging.queue_seconds),
            judging_concluded_early: Some(grade.judging.concluded_early),
            judging_method: Some(grade.judging.method),
            judging_failure: grade.judging.failure.clone(),
            suspicious: grade.suspicious.clone(),
            critic_spread: grade.spread,
            critic_disputed: grade.spread.map(|_| grade.disputed),
            critic_jury: (!grade.jury.is_empty()).then(|| grade.jury.clone()),
            critic_remarks: (!grade.remarks.is_empty()).then(|| grade.remarks.clone()),
        }
    }
}

impl FlatGrade {
    fn into_grade(self) -> Option<Grade> {
        Some(Grade {
            judging: Judging {
                judge: self.judge?,
                self_graded: self.self_graded.unwrap_or_default(),
                tokens: self.judging_tokens.unwrap_or_default(),
                seconds: self.judging_seconds.unwrap_or_default(),
                queue_seconds: self.judging_queue_seconds.unwrap_or_default(),
                concluded_early: self.judging_concluded_early.unwrap_or_default(),
                method: self.judging_method.unwrap_or_default(),
                failure: self.judging_failure,
            },
            score: self.critic_score,
            raw_score: self.critic_raw_score,
            feedback: self.feedback.unwrap_or_default(),
            expected_score: self.expected_score,
            entropy: self.score_entropy,
            probability: self.probability,
            likely: self.likely,
            rubric: self.rubric.unwrap_or_default(),
            suspicious: self.suspicious,
            spread: self.critic_spread,
            disputed: self.critic_disputed.unwrap_or_default(),
            jury: self.critic_jury.unwrap_or_default(),
            remarks: self.critic_remarks.unwrap_or_default(),
        })
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_default(vetting: &Vetting) -> bool {
    *vetting == Vetting::default()
}

/// The sampling options that this version knows; a later version may have written more.
fn known_sampling<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SamplingOptions, D::Error> {
    let mut written: Map<String, Value> = Map::deserialize(deserializer)?;
    if let Ok(Value::Object(known)) = serde_json::to_value(SamplingOptions::default()) {
        written.retain(|name, _| known.contains_key(name));
    }
    serde_json::from_value(Value::Object(written)).map_err(serde::de::Error::custom)
}
