//! The messages that agents exchange.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::chat::{Message, Tool, ToolCall};
use crate::critique::{BlockRuling, CriticDecision, CriticOverride};
use crate::evaluation::{WorkDecided, WorkEvaluated, WorkStep};
use crate::generate::{Constraint, FinishReason, GenerateError, ThinkingOptions, Timings, TokenLogprobs};
use crate::ids::{EnvelopeId, OwnerId, QueryId, RespondentId, SessionId, Timestamp};
use crate::prospect;
use crate::sampling::SamplingOptions;
use crate::verdict::{Grade, Judging, JudgingMethod, Preference};

/// One message on the bus.
///
/// In JSON the payload is stored under `payload`, and its kind, the subject, under `subject`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Its own id.
    pub id: EnvelopeId,
    /// Name of the agent that sent it.
    pub sender: String,
    /// The conversation.
    pub session_id: SessionId,
    /// The key of the client that it belongs to; `None` for the person at the terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// The question, as its respondent knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_id: Option<QueryId>,
    /// The question as it was received: the `query_id` of respondent A. Everything about one question shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<QueryId>,
    /// The respondent concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respondent_id: Option<RespondentId>,
    /// When it was sent.
    pub at: Timestamp,
    /// The content.
    #[serde(flatten)]
    pub payload: Payload,
}

impl Envelope {
    /// A message sent now, about no particular question.
    pub fn new(sender: impl Into<String>, session_id: SessionId, payload: Payload) -> Self {
        Envelope {
            id: EnvelopeId::fresh(),
            sender: sender.into(),
            session_id,
            owner: None,
            query_id: None,
            correlation_id: None,
            respondent_id: None,
            at: Timestamp::now(),
            payload,
        }
    }

    /// Assigns the message to a question and its respondent.
    pub fn about(self, query_id: QueryId, correlation_id: QueryId, respondent_id: RespondentId) -> Self {
        Envelope {
            query_id: Some(query_id),
            correlation_id: Some(correlation_id),
            respondent_id: Some(respondent_id),
            ..self
        }
    }

    /// Assigns the message to this owner.
    pub fn owned_by(self, owner: Option<OwnerId>) -> Self {
        Envelope { owner, ..self }
    }

    /// A message sent now, about the same conversation, question and respondent.
    pub fn reply(&self, sender: impl Into<String>, payload: Payload) -> Self {
        Envelope {
            owner: self.owner,
            query_id: self.query_id,
            correlation_id: self.correlation_id,
            respondent_id: self.respondent_id,
            ..Envelope::new(sender, self.session_id, payload)
        }
    }

    /// The subject.
    pub fn subject(&self) -> Subject {
        self.payload.subject()
    }
}

macro_rules! payloads {
    ($($(#[$documentation:meta])* $variant:ident($content:ty) = $name:literal,)*) => {
        /// An envelope's subject, serialized as `critique.result` and the like.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Subject {
            $($(#[$documentation])* #[serde(rename = $name)] $variant,)*
        }

        impl Subject {
            /// Every subject.
            pub const ALL: &[Subject] = &[$(Subject::$variant,)*];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Subject::$variant => $name,)*
                }
            }
        }

        /// The content of an envelope.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "subject", content = "payload")]
        pub enum Payload {
            $($(#[$documentation])* #[serde(rename = $name)] $variant($content),)*
        }

        impl Payload {
            /// Its kind.
            pub fn subject(&self) -> Subject {
                match self {
                    $(Payload::$variant(_) => Subject::$variant,)*
                }
            }
        }
    };
}

payloads! {
    /// A question was asked.
    QueryReceived(Query) = "query.received",
    /// The answer, or the rest of it, or its grade is no longer wanted.
    QueryCancelled(Nothing) = "query.cancelled",
    /// A piece of an answer. Chunks are not kept in the event log.
    ResponseChunk(Chunk) = "response.chunk",
    /// An answer has ended.
    ResponseGeneration(Response) = "response.generation",
    /// A question could not be answered.
    ResponseFailed(GenerateError) = "response.failed",
    /// Memory gave recollections to an answer.
    MemoryRecalled(Recall) = "memory.recalled",
    /// An answer is remembered.
    MemoryStored(Stored) = "memory.stored",
    /// An answer was graded, or could not be.
    CritiqueResult(GradedAnswer) = "critique.result",
    /// A process asks another one to compare two answers to one question.
    PairwiseAsked(AnswersToCompare) = "pairwise.asked",
    /// Two answers to one question were compared, or could not be.
    PairwiseResult(Comparison) = "pairwise.result",
    /// A person rated an answer.
    UserFeedback(Feedback) = "user.feedback",
    /// The value of an answer to the respondent that gave it.
    RewardEvent(Reward) = "reward.event",
    /// A conversation has ended: its grades are no longer wanted.
    SessionClosed(Nothing) = "session.closed",
    /// Work on a task is being evaluated.
    EvaluationStarted(WorkStep) = "evaluation.started",
    /// Work on a task was evaluated.
    EvaluationCompleted(WorkEvaluated) = "evaluation.completed",
    /// Work on a task could not be evaluated: no evaluator came to a conclusion.
    EvaluationFailed(WorkEvaluated) = "evaluation.failed",
    /// An agent tries again, with the findings about earlier attempts.
    OptimizationStarted(WorkStep) = "optimization.started",
    /// A person must decide about a task.
    EscalationRequired(WorkDecided) = "escalation.required",
    /// The work on a task was accepted.
    TaskAccepted(WorkDecided) = "task.accepted",
    /// The work was not accepted, and the same agent tries again.
    TaskRetried(WorkDecided) = "task.retried",
    /// The work was not accepted, and the next agent tries.
    TaskReassigned(WorkDecided) = "task.reassigned",
    /// The work was not accepted, and no agent is left.
    TaskEscalated(WorkDecided) = "task.escalated",
    /// A memory counts as long-term memory from now on.
    CriticPassed(CriticDecision) = "critic.passed",
    /// A memory was blocked.
    CriticBlocked(CriticDecision) = "critic.blocked",
    /// A memory stays unreviewed: the critic could not be asked, or its word does not count.
    CriticAbstained(CriticDecision) = "critic.abstained",
    /// A person has reviewed a block.
    CriticReviewed(BlockRuling) = "critic.reviewed",
    /// A person has changed how much the critic's word counts.
    CriticOverridden(CriticOverride) = "critic.overridden",
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Subject {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Subject::ALL.iter().find(|subject| subject.as_str() == text);
        found.copied().ok_or_else(|| UnknownSubject(text.to_owned()))
    }
}

/// A name that is not a subject.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no subject {0:?}: there are {all}", all = names())]
pub struct UnknownSubject(String);

fn names() -> String {
    Subject::ALL.iter().map(|subject| subject.as_str()).collect::<Vec<_>>().join(", ")
}

/// An empty payload, for subjects that need no content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing {}

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// The text of the question.
    pub query: String,
    /// The conversation before it, instructions first. It is not kept in the event log, which already has it.
    #[serde(skip)]
    pub history: Vec<Message>,
    /// The model that should answer.
    pub model: String,
    /// How it chooses tokens.
    pub sampling: SamplingOptions,
    /// The most tokens of the answer.
    pub max_tokens: Option<usize>,
    /// Texts before which the answer ends.
    pub stop: Vec<String>,
    /// The client's options for the answer.
    #[serde(skip)]
    pub options: AnswerOptions,
}

impl Query {
    /// A question to a model, with default sampling and no history.
    pub fn new(query: impl Into<String>, model: impl Into<String>) -> Query {
        Query {
            query: query.into(),
            history: Vec::new(),
            model: model.into(),
            sampling: SamplingOptions::default(),
            max_tokens: None,
            stop: Vec::new(),
            options: AnswerOptions::default(),
        }
    }
}

/// A client's options for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerOptions {
    /// The client's own tools; a call of one of them ends the answer.
    pub tools: Vec<Tool>,
    /// The form of the answer.
    pub constraint: Option<Constraint>,
    /// Whether memory may add recollections to the question.
    pub recalls: bool,
    /// Whether a program asks on its own behalf, over an API. Such questions do not become part of the person's memory.
    pub is_of_client: bool,
    /// The turns after the question: calls of the client's tools, and their results.
    pub turns_after: Vec<Message>,
    /// The beginning of the answer, which the model continues; empty if it begins. It is part of the answer.
    pub begun: String,
    /// Report the log-probability of each token ([`Chunk::Logprobs`]), and of this many of the likeliest at its
    /// position; `None` reports nothing.
    pub logprobs: Option<usize>,
    /// Whether and how long the model reasons.
    pub thinking: ThinkingOptions,
    /// Whether the second respondent answers, too.
    pub second: SecondAnswer,
    /// Whether the model continues the question as it stands, without a chat template and without a history.
    pub is_raw: bool,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        AnswerOptions {
            tools: Vec::new(),
            constraint: None,
            recalls: true,
            is_of_client: false,
            turns_after: Vec::new(),
            begun: String::new(),
            logprobs: None,
            thinking: ThinkingOptions::default(),
            second: SecondAnswer::default(),
            is_raw: false,
        }
    }
}

/// Whether the second respondent answers a question, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecondAnswer {
    /// It answers as it is configured.
    #[default]
    AsConfigured,
    /// It answers with this model.
    By(String),
    /// It does not answer.
    Unwanted,
}

/// A piece of an answer, or progress before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chunk {
    /// A part of the model has been loaded.
    Loading {
        /// Bytes of its weights done so far.
        done: u64,
        /// Bytes of its weights in all.
        total: u64,
    },
    /// A part of the prompt has been processed.
    Prefill {
        /// Prompt tokens done so far.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// The model reasons; this is not part of the answer.
    Thinking(String),
    /// A piece of the answer.
    Text(String),
    /// The log-probabilities of a token, if requested; the text that it completes follows as a separate piece.
    Logprobs(TokenLogprobs),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The question.
    pub query: String,
    /// The answer.
    pub answer: String,
    /// The reasoning before the answer; empty if there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// The client's tools that the model calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Whether it continues the question as it stands, instead of answering it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_raw: bool,
    /// The scope within which it is recalled: that of programs, of the instructions before the conversation, or of both;
    /// `None` for the person's conversations without instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The model that answered.
    pub model: String,
    /// How it chose tokens.
    pub sampling: SamplingOptions,
    /// Why the answer ended; `None` if it was cancelled.
    pub finish_reason: Option<FinishReason>,
    /// The stop text before which it ended, if it ended before one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// The cost.
    pub timings: Timings,
}

impl Response {
    /// An answer that the model has ended, in text alone and with default sampling.
    pub fn new(query: impl Into<String>, answer: impl Into<String>, model: impl Into<String>) -> Self {
        Response {
            query: query.into(),
            answer: answer.into(),
            thinking: String::new(),
            tool_calls: Vec::new(),
            is_raw: false,
            scope: None,
            model: model.into(),
            sampling: SamplingOptions::default(),
            finish_reason: Some(FinishReason::Stop),
            stopped_by: None,
            timings: Timings::default(),
        }
    }

    /// Why it is not worth a verdict; `None` if it is.
    pub fn why_not_judged(&self) -> Option<&'static str> {
        match self.finish_reason {
            None => Some(prospect::CANCELLED),
            Some(_) if self.is_raw => Some(prospect::RAW),
            Some(_) if !self.tool_calls.is_empty() => Some(prospect::CALLS_TOOLS),
            Some(_) => self.answer.trim().is_empty().then_some(prospect::EMPTY),
        }
    }
}

/// The recollections that memory gave to an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recall {
    /// How it was given.
    pub mode: RecallMode,
    /// The search text.
    pub search: String,
    /// The results, best first.
    pub engrams: Vec<RecalledEngram>,
}

/// How a recollection reaches the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecallMode {
    /// It is placed before the question.
    Context,
    /// The model asked for it with a tool call.
    Tool,
}

/// A past exchange, or a fact stated in one, that was recalled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecalledEngram {
    /// Its id.
    pub query_id: QueryId,
    /// The question.
    pub query: String,
    /// The answer.
    pub answer: String,
    /// Its grade.
    pub score: Option<u8>,
    /// Cosine similarity to the search text, -1 to 1.
    pub similarity: f32,
    /// The similarity, weighted by the opinion of a person, a comparison or a judge about the answer.
    pub relevance: f32,
    /// Whether the model that answered gave the grade.
    #[serde(default)]
    pub self_graded: bool,
    /// How the grade was reached.
    #[serde(default, skip_serializing_if = "JudgingMethod::is_prompted")]
    pub judging_method: JudgingMethod,
    /// The share of the question's words that it contains, each weighted by its rarity, 0 to 1.
    #[serde(default)]
    pub words: f32,
    /// Whether it is a fact that the user stated: the statement is its `query`, and it has no answer.
    #[serde(default)]
    pub is_fact: bool,
    /// Whether no critic has passed it yet.
    #[serde(default)]
    pub is_unreviewed: bool,
}

/// An answer was stored durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The engram's position in the order of everything ever remembered.
    pub sequence: u64,
}

/// An answer and its grade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradedAnswer {
    /// The question.
    pub query: String,
    /// The answer.
    pub answer: String,
    /// The grade.
    #[serde(flatten)]
    pub grade: Grade,
}

/// Two answers to one question, to be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswersToCompare {
    /// The question.
    pub query: String,
    /// Respondent A's answer.
    pub answer_a: String,
    /// Respondent B's answer.
    pub answer_b: String,
    /// The model that gave A's answer.
    pub model_a: String,
}

/// Two answers to one question, compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The question as it was received.
    pub original_query_id: QueryId,
    /// Respondent A's question and engram.
    pub query_id_a: QueryId,
    /// Respondent B's question and engram.
    pub query_id_b: QueryId,
    /// A's own grade; `None` where different judges graded the two answers.
    pub score_a: Option<u8>,
    /// B's own grade; `None` where different judges graded the two answers.
    pub score_b: Option<u8>,
    /// The better one.
    #[serde(flatten)]
    pub preference: Preference,
}

/// One of two answers that were compared.
#[derive(Clone, Copy, Debug)]
pub struct ComparedAnswer<'a> {
    /// Its engram.
    pub query_id: QueryId,
    /// The model that gave it; empty if that is unknown.
    pub model: &'a str,
    /// Its grade.
    pub grade: Option<&'a Grade>,
}

impl Comparison {
    /// A judge's comparison of two answers. It counts as self-graded if the judge gave one of them. Scores by different
    /// judges are left out.
    pub fn new(a: ComparedAnswer<'_>, b: ComparedAnswer<'_>, mut preference: Preference) -> Comparison {
        let Judging { judge, self_graded, .. } = &mut preference.judging;
        *self_graded |= !judge.is_empty() && (judge == a.model || judge == b.model);
        let score = |answer: ComparedAnswer<'_>| answer.grade.and_then(|grade| grade.score);
        let are_comparable = a.grade.zip(b.grade).is_none_or(|(a, b)| a.is_comparable(b));
        let is_one_alone = score(a).is_none() || score(b).is_none();
        let score = |answer| score(answer).filter(|_| are_comparable || is_one_alone);
        Comparison {
            original_query_id: a.query_id,
            query_id_a: a.query_id,
            query_id_b: b.query_id,
            score_a: score(a),
            score_b: score(b),
            preference,
        }
    }
}

/// A person's rating of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    /// Good or bad; `None` takes an earlier rating back.
    pub rating: Option<Rating>,
}

/// Good or bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rating {
    /// It helped.
    Good,
    /// It did not help.
    Bad,
}

/// The value of an answer to the respondent and the model that gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// From -1 to 1.
    pub reward: f64,
    /// The model that answered; empty if the answer is not remembered.
    pub model: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `payload` in an envelope against its JSON without ids and time, and that the JSON can be read back.
    #[track_caller]
    fn check(payload: Payload, expected: &str) {
        let session = SessionId::from_bits(1);
        let (query, original) = (QueryId::from_bits(2), QueryId::from_bits(3));
        let envelope = Envelope::new("tester", session, payload).about(query, original, RespondentId::B);
        let text = serde_json::to_string(&envelope).unwrap();
        assert_eq!(serde_json::from_str::<Envelope>(&text).unwrap(), envelope);
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["correlation_id"], "00000000-0000-0000-0000-000000000003");
        assert_eq!(json["respondent_id"], "B");
        let seen = serde_json::json!({ "subject": json["subject"].take(), "payload": json["payload"].take() });
        assert_eq!(seen, serde_json::from_str::<serde_json::Value>(expected).unwrap());
    }

    #[test]
    fn an_envelope_is_read_as_it_was_written() {
        check(Payload::QueryCancelled(Nothing {}), r#"{"subject": "query.cancelled", "payload": {}}"#);
        check(
            Payload::UserFeedback(Feedback { rating: Some(Rating::Bad) }),
            r#"{"subject": "user.feedback", "payload": {"rating": "bad"}}"#,
        );
        check(
            Payload::MemoryStored(Stored { sequence: 7 }),
            r#"{"subject": "memory.stored", "payload": {"sequence": 7}}"#,
        );
        let comparison = Comparison {
            original_query_id: QueryId::from_bits(3),
            query_id_a: QueryId::from_bits(3),
            query_id_b: QueryId::from_bits(2),
            score_a: Some(4),
            score_b: None,
            preference: Preference { winner: Some(RespondentId::A), ..Preference::default() },
        };
        check(
            Payload::PairwiseResult(comparison),
            r#"{"subject": "pairwise.result", "payload": {
                "original_query_id": "00000000-0000-0000-0000-000000000003",
                "query_id_a": "00000000-0000-0000-0000-000000000003",
                "query_id_b": "00000000-0000-0000-0000-000000000002",
                "score_a": 4, "score_b": null, "winner": "A", "log_odds": 0.0, "consistent": false, "reason": "",
                "judge": "", "self_graded": false, "tokens": 0, "seconds": 0.0, "queue_seconds": 0.0}}"#,
        );
    }

    #[test]
    fn every_subject_has_its_name() {
        for subject in Subject::ALL {
            assert_eq!(subject.as_str().parse(), Ok(*subject));
            assert_eq!(serde_json::to_value(subject).unwrap(), subject.as_str());
        }
        assert!("critique".parse::<Subject>().unwrap_err().to_string().contains("critique.result"));
    }
}
