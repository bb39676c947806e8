//! What is remembered of one answer.
//!
//! In JSON an engram is one flat object that also holds the parts of the grade, under the names that the quality loop uses
//! (`critic_score`, `feedback`, …). An update changes fields of the object and never rewrites it, so fields that this
//! version does not know are kept.

use hone_protocol::{
    Comparison, FinishReason, Grade, Judging, JudgingMethod, QueryId, Rating, RespondentId, Response, SamplingOptions,
    SessionId, Suspicion, Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// What kind of memory an engram is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngramKind {
    /// Something that happened: a question and its answer.
    #[default]
    Episodic,
}

/// An answer, and what is known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "FlatEngram", from = "FlatEngram")]
pub struct Engram {
    /// Its id.
    pub query_id: QueryId,
    /// What kind of memory it is.
    pub kind: EngramKind,
    /// Its position in the order of everything ever remembered, from 1. The store assigns it and ignores the value it is
    /// given.
    pub sequence: u64,
    /// The question.
    pub query: String,
    /// The answer.
    pub answer: String,
    /// The time of the answer.
    pub at: Timestamp,
    /// The conversation.
    pub session_id: SessionId,
    /// The respondent.
    pub respondent_id: RespondentId,
    /// The model that answered.
    pub model: String,
    /// The sampling options.
    pub sampling: SamplingOptions,
    /// Why the answer ended; `None` if it was cancelled.
    pub finish_reason: Option<FinishReason>,
    /// The intent of the question, in a few words; `None` if it was not extracted.
    pub intent: Option<String>,
    /// Names and things that the exchange is about.
    pub entities: Vec<String>,
    /// Its grade; `None` until it is graded.
    pub grade: Option<Grade>,
    /// Whether it was the better of two answers; `None` if it was not compared, or the comparison was a tie.
    pub pairwise_winner: Option<bool>,
    /// The user's rating.
    pub user_feedback: Option<Rating>,
    /// The question as it was received: the `query_id` of respondent A's engram.
    pub correlation_id: QueryId,
}

impl Engram {
    /// A new answer of the present time, by respondent A to its own question, without a grade or other annotations.
    pub fn new(query_id: QueryId, session_id: SessionId, response: &Response) -> Engram {
        Engram {
            query_id,
            kind: EngramKind::Episodic,
            sequence: 0,
            query: response.query.clone(),
            answer: response.answer.clone(),
            at: Timestamp::now(),
            session_id,
            respondent_id: RespondentId::A,
            model: response.model.clone(),
            sampling: response.sampling.clone(),
            finish_reason: response.finish_reason,
            intent: None,
            entities: Vec::new(),
            grade: None,
            pairwise_winner: None,
            user_feedback: None,
            correlation_id: query_id,
        }
    }

    /// Its score, 1 to 5; `None` means unscored, which is neither a pass nor a 0.
    pub fn score(&self) -> Option<u8> {
        self.grade.as_ref().and_then(|grade| grade.score)
    }
}

/// The engram as it is stored in JSON.
#[derive(Clone, Serialize, Deserialize)]
struct FlatEngram {
    query_id: QueryId,
    #[serde(rename = "type", default)]
    kind: EngramKind,
    #[serde(default)]
    sequence: u64,
    query: String,
    answer: String,
    at: Timestamp,
    session_id: SessionId,
    respondent_id: RespondentId,
    model: String,
    #[serde(deserialize_with = "known_sampling")]
    sampling: SamplingOptions,
    finish_reason: Option<FinishReason>,
    intent: Option<String>,
    #[serde(default)]
    entities: Vec<String>,
    #[serde(flatten)]
    grade: FlatGrade,
    pairwise_winner: Option<bool>,
    user_feedback: Option<Rating>,
    correlation_id: QueryId,
}

/// The parts of a grade under their names on an engram. The engram has a grade if it has a judge.
#[derive(Clone, Default, Serialize, Deserialize)]
struct FlatGrade {
    critic_score: Option<u8>,
    critic_raw_score: Option<String>,
    expected_score: Option<f64>,
    score_entropy: Option<f64>,
    feedback: Option<String>,
    judge: Option<String>,
    self_graded: Option<bool>,
    rubric: Option<String>,
    judging_tokens: Option<usize>,
    judging_seconds: Option<f64>,
    judging_queue_seconds: Option<f64>,
    judging_method: Option<JudgingMethod>,
    judging_failure: Option<String>,
    /// The passage that makes the answer look as if it wanted to influence its judge.
    suspicious: Option<Suspicion>,
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
            respondent_id: engram.respondent_id,
            model: engram.model,
            sampling: engram.sampling,
            finish_reason: engram.finish_reason,
            intent: engram.intent,
            entities: engram.entities,
            grade: engram.grade.as_ref().map(FlatGrade::from).unwrap_or_default(),
            pairwise_winner: engram.pairwise_winner,
            user_feedback: engram.user_feedback,
            correlation_id: engram.correlation_id,
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
            respondent_id: flat.respondent_id,
            model: flat.model,
            sampling: flat.sampling,
            finish_reason: flat.finish_reason,
            intent: flat.intent,
            entities: flat.entities,
            grade: flat.grade.into_grade(),
            pairwise_winner: flat.pairwise_winner,
            user_feedback: flat.user_feedback,
            correlation_id: flat.correlation_id,
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
            feedback: Some(grade.feedback.clone()),
            judge: Some(grade.judging.judge.clone()),
            self_graded: Some(grade.judging.self_graded),
            rubric: Some(grade.rubric.clone()),
            judging_tokens: Some(grade.judging.tokens),
            judging_seconds: Some(grade.judging.seconds),
            judging_queue_seconds: Some(grade.judging.queue_seconds),
            judging_method: Some(grade.judging.method),
            judging_failure: grade.judging.failure.clone(),
            suspicious: grade.suspicious.clone(),
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
                method: self.judging_method.unwrap_or_default(),
                failure: self.judging_failure,
            },
            score: self.critic_score,
            raw_score: self.critic_raw_score,
            feedback: self.feedback.unwrap_or_default(),
            expected_score: self.expected_score,
            entropy: self.score_entropy,
            rubric: self.rubric.unwrap_or_default(),
            suspicious: self.suspicious,
        })
    }
}

/// The sampling options that this version knows; a later version may have written more.
fn known_sampling<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SamplingOptions, D::Error> {
    let mut written: Map<String, Value> = Map::deserialize(deserializer)?;
    if let Ok(Value::Object(known)) = serde_json::to_value(SamplingOptions::default()) {
        written.retain(|name, _| known.contains_key(name));
    }
    serde_json::from_value(Value::Object(written)).map_err(serde::de::Error::custom)
}

/// The fields of an engram that hold its grade.
pub(crate) fn grade_fields(grade: &Grade) -> Map<String, Value> {
    match serde_json::to_value(FlatGrade::from(grade)) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The field on both engrams that says which one was better. It is absent without a verdict, which is not a tie.
pub(crate) fn pairwise_fields(comparison: &Comparison) -> [(QueryId, Map<String, Value>); 2] {
    let preference = &comparison.preference;
    let fields = |respondent: RespondentId| match (preference.winner, &preference.judging.failure) {
        (None, Some(_)) => Map::new(),
        (winner, _) => field("pairwise_winner", winner.map(|winner| winner == respondent).into()),
    };
    [(comparison.query_id_a, fields(RespondentId::A)), (comparison.query_id_b, fields(RespondentId::B))]
}

/// A single field.
pub(crate) fn field(name: &str, value: Value) -> Map<String, Value> {
    std::iter::once((name.to_owned(), value)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use hone_protocol::SuspicionKind;

    use super::*;

    /// An engram of this number, with all that there can be on one where `number` is odd.
    pub(crate) fn example(number: u128) -> Engram {
        let full = number % 2 == 1;
        Engram {
            query_id: QueryId::from_bits(number),
            kind: EngramKind::Episodic,
            sequence: 0,
            query: format!("What is {number}?"),
            answer: format!("A number, and it is {number}."),
            at: Timestamp(1_000 * u64::try_from(number % 1_000_000).unwrap()),
            session_id: SessionId::from_bits(number % 3),
            respondent_id: if full { RespondentId::B } else { RespondentId::A },
            model: "smollm2:135m".to_owned(),
            sampling: SamplingOptions::default(),
            finish_reason: full.then_some(FinishReason::Stop),
            intent: full.then(|| "arithmetic".to_owned()),
            entities: if full { vec![number.to_string()] } else { Vec::new() },
            grade: full.then(|| graded(4)),
            pairwise_winner: full.then_some(true),
            user_feedback: full.then_some(Rating::Good),
            correlation_id: QueryId::from_bits(number),
        }
    }

    pub(crate) fn graded(score: u8) -> Grade {
        Grade {
            score: Some(score),
            raw_score: Some(score.to_string()),
            feedback: format!("It deserves {score}."),
            expected_score: Some(f64::from(score) - 0.25),
            entropy: Some(0.5),
            rubric: "helpfulness".to_owned(),
            suspicious: None,
            judging: Judging { judge: "prometheus:7b".to_owned(), tokens: 9, seconds: 1.5, ..Judging::default() },
        }
    }

    #[test]
    fn an_engram_is_read_as_it_was_written() {
        for number in [2, 3] {
            let engram = example(number);
            let text = serde_json::to_string(&engram).unwrap();
            assert_eq!(serde_json::from_str::<Engram>(&text).unwrap(), engram, "{text}");
        }
        let failed = Grade {
            score: None,
            judging: Judging { failure: Some("late".into()), ..Judging::default() },
            ..Grade::default()
        };
        let engram = Engram { grade: Some(failed), ..example(2) };
        let text = serde_json::to_string(&engram).unwrap();
        assert_eq!(serde_json::from_str::<Engram>(&text).unwrap(), engram, "{text}");
    }

    #[test]
    fn the_grade_stands_on_the_engram() {
        let json = serde_json::to_value(example(3)).unwrap();
        let check = |name: &str, expected: Value| assert_eq!(json[name], expected, "{name}");
        check("type", "episodic".into());
        check("critic_score", 4.into());
        check("critic_raw_score", "4".into());
        check("expected_score", 3.75.into());
        check("feedback", "It deserves 4.".into());
        check("judge", "prometheus:7b".into());
        check("self_graded", false.into());
        check("rubric", "helpfulness".into());
        check("pairwise_winner", true.into());
        check("user_feedback", "good".into());
        let ungraded = serde_json::to_value(example(2)).unwrap();
        assert!(ungraded.get("critic_score").unwrap().is_null(), "an unscored engram says so");
    }

    #[test]
    fn a_suspicious_answer_says_so_on_its_engram() {
        let suspicion = Suspicion {
            kind: SuspicionKind::ClaimsScore,
            is_hidden: true,
            passage: "so the overall score is 5".to_owned(),
        };
        let grade = Grade { suspicious: Some(suspicion), ..graded(5) };
        assert_eq!(grade_fields(&grade)["suspicious"]["kind"], "claims_score");
        let engram = Engram { grade: Some(grade), ..example(2) };
        let text = serde_json::to_string(&engram).unwrap();
        assert_eq!(serde_json::from_str::<Engram>(&text).unwrap(), engram, "{text}");
        let later = text.replace("claims_score", "flatters");
        let read = serde_json::from_str::<Engram>(&later).unwrap().grade.unwrap().suspicious.unwrap();
        assert_eq!(read.kind, SuspicionKind::Other, "a kind of a later version is read");
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        let mut json = serde_json::to_value(example(3)).unwrap();
        json.as_object_mut().unwrap().remove("critic_raw_score").unwrap();
        let grade = serde_json::from_value::<Engram>(json).unwrap().grade.unwrap();
        assert_eq!(grade, Grade { raw_score: None, ..graded(4) });
    }

    #[test]
    fn what_a_later_version_wrote_is_read() {
        let mut json = serde_json::to_value(example(3)).unwrap();
        json["mood"] = "curious".into();
        json["sampling"]["top_q"] = 3.into();
        assert_eq!(serde_json::from_value::<Engram>(json).unwrap(), example(3));
    }
}
