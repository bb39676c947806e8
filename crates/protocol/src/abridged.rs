//! Messages abridged for records. Clients and models decide how long a text is, but the part that a record keeps,
//! temporarily or permanently, must be bounded. The full texts of an answer are remembered with it.

use serde_json::Value;

use crate::chat::ToolCall;
use crate::critique::CriticDecision;
use crate::envelope::{
    AnswerOptions, AnswersToCompare, Comparison, Envelope, GradedAnswer, Payload, Query, Recall, RecalledEngram,
    Response,
};
use crate::generate::GenerateError;
use crate::sampling::SamplingOptions;
use crate::verdict::{Grade, Preference};

/// The most bytes of a text.
const MOST_TEXT: usize = 32 << 10;
/// The most items of a list that a client sends.
const MOST_ITEMS: usize = 32;

impl Envelope {
    /// An abridged copy for a record. A text over 32 KiB keeps its beginning, followed by a note of its length, and a
    /// client's list keeps its first 32 items. The conversation before a question and the options of its answer are
    /// left out.
    pub fn abridged(&self) -> Envelope {
        Envelope { sender: self.sender.clone(), payload: abridged(&self.payload), ..*self }
    }
}

fn abridged(payload: &Payload) -> Payload {
    match payload {
        Payload::QueryReceived(query) => Payload::QueryReceived(abridged_query(query)),
        Payload::ResponseGeneration(response) => Payload::ResponseGeneration(abridged_response(response)),
        Payload::ResponseFailed(error) => Payload::ResponseFailed(abridged_error(error)),
        Payload::MemoryRecalled(recall) => Payload::MemoryRecalled(abridged_recall(recall)),
        Payload::CritiqueResult(GradedAnswer { query, answer, grade }) => {
            let grade = Grade { feedback: beginning(&grade.feedback), ..grade.clone() };
            Payload::CritiqueResult(GradedAnswer { query: beginning(query), answer: beginning(answer), grade })
        }
        Payload::PairwiseAsked(AnswersToCompare { query, answer_a, answer_b, model_a }) => {
            let [query, answer_a, answer_b, model_a] = [query, answer_a, answer_b, model_a].map(|text| beginning(text));
            Payload::PairwiseAsked(AnswersToCompare { query, answer_a, answer_b, model_a })
        }
        Payload::PairwiseResult(comparison) => {
            let preference = &comparison.preference;
            let preference = Preference { reason: beginning(&preference.reason), ..preference.clone() };
            Payload::PairwiseResult(Comparison { preference, ..*comparison })
        }
        Payload::QueryCancelled(_)
        | Payload::ResponseChunk(_)
        | Payload::MemoryStored(_)
        | Payload::UserFeedback(_)
        | Payload::RewardEvent(_)
        | Payload::SessionClosed(_)
        // Tool output is quoted in excerpts.
        | Payload::EvaluationStarted(_)
        | Payload::EvaluationCompleted(_)
        | Payload::EvaluationFailed(_)
        | Payload::OptimizationStarted(_)
        | Payload::EscalationRequired(_)
        | Payload::TaskAccepted(_)
        | Payload::TaskRetried(_)
        | Payload::TaskReassigned(_)
        | Payload::TaskEscalated(_)
        | Payload::CriticReviewed(_)
        | Payload::CriticOverridden(_) => payload.clone(),
        Payload::CriticPassed(decision) => Payload::CriticPassed(abridged_decision(decision)),
        Payload::CriticBlocked(decision) => Payload::CriticBlocked(abridged_decision(decision)),
        Payload::CriticAbstained(decision) => Payload::CriticAbstained(abridged_decision(decision)),
    }
}

fn abridged_decision(decision: &CriticDecision) -> CriticDecision {
    CriticDecision { reason: beginning(&decision.reason), ..decision.clone() }
}

fn abridged_query(query: &Query) -> Query {
    Query {
        query: beginning(&query.query),
        history: Vec::new(),
        model: beginning(&query.model),
        sampling: abridged_sampling(&query.sampling),
        max_tokens: query.max_tokens,
        stop: query.stop.iter().take(MOST_ITEMS).map(|text| beginning(text)).collect(),
        options: AnswerOptions::default(),
    }
}

fn abridged_response(response: &Response) -> Response {
    Response {
        query: beginning(&response.query),
        answer: beginning(&response.answer),
        thinking: beginning(&response.thinking),
        tool_calls: response.tool_calls.iter().map(abridged_call).collect(),
        is_raw: response.is_raw,
        scope: response.scope.clone(),
        model: beginning(&response.model),
        sampling: abridged_sampling(&response.sampling),
        finish_reason: response.finish_reason,
        stopped_by: response.stopped_by.as_deref().map(beginning),
        timings: response.timings,
    }
}

/// The call, or the beginning of the JSON of its arguments.
fn abridged_call(call: &ToolCall) -> ToolCall {
    let arguments = match call.arguments.to_string() {
        text if text.len() > MOST_TEXT => Value::String(beginning(&text)),
        _ => call.arguments.clone(),
    };
    ToolCall { id: None, name: beginning(&call.name), arguments }
}

fn abridged_sampling(sampling: &SamplingOptions) -> SamplingOptions {
    let logit_bias = sampling.logit_bias.iter().take(MOST_ITEMS).copied().collect();
    SamplingOptions { logit_bias, ..*sampling }
}

fn abridged_error(error: &GenerateError) -> GenerateError {
    match error {
        GenerateError::Model { model, reason } => {
            GenerateError::Model { model: beginning(model), reason: beginning(reason) }
        }
        GenerateError::Request(reason) => GenerateError::Request(beginning(reason)),
        GenerateError::NoTools { model } => GenerateError::NoTools { model: beginning(model) },
        GenerateError::Failed(reason) => GenerateError::Failed(beginning(reason)),
        GenerateError::ContextOverflow { .. }
        | GenerateError::Busy { .. }
        | GenerateError::TimedOut { .. }
        | GenerateError::TooSlow { .. }
        | GenerateError::Stopped => error.clone(),
    }
}

fn abridged_recall(recall: &Recall) -> Recall {
    let abridged = |engram: &RecalledEngram| RecalledEngram {
        query: beginning(&engram.query),
        answer: beginning(&engram.answer),
        ..*engram
    };
    Recall {
        mode: recall.mode,
        search: beginning(&recall.search),
        engrams: recall.engrams.iter().map(abridged).collect(),
    }
}

/// A text, or its beginning and a note of the beginning's and the text's length.
fn beginning(text: &str) -> String {
    if text.len() <= MOST_TEXT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MOST_TEXT);
    format!("{} […: {end} of {} bytes]", &text[..end], text.len())
}

#[cfg(test)]
mod tests {
    use crate::chat::{Message, Role};
    use crate::envelope::RecallMode;
    use crate::ids::{QueryId, SessionId};
    use crate::verdict::JudgingMethod;

    use super::*;

    /// Every payload that holds texts, each of them this one.
    fn payloads(text: &str) -> [Payload; 6] {
        let text = || text.to_owned();
        let sampling = SamplingOptions { logit_bias: vec![(7, 1.0); 10_000], ..SamplingOptions::default() };
        let query = Query { history: vec![Message::new(Role::User, text())], ..Query::new(text(), text()) };
        let engram = RecalledEngram {
            query_id: QueryId::from_bits(1),
            query: text(),
            answer: text(),
            score: None,
            similarity: 1.0,
            relevance: 1.0,
            self_graded: false,
            judging_method: JudgingMethod::Prompted,
            words: 0.0,
            is_fact: false,
            is_unreviewed: false,
        };
        let response = Response {
            thinking: text(),
            tool_calls: vec![ToolCall::new(text(), serde_json::json!({"place": text()}))],
            sampling: sampling.clone(),
            ..Response::new(text(), text(), text())
        };
        let id = QueryId::from_bits(1);
        [
            Payload::QueryReceived(Query { sampling, stop: vec![text(); 2], ..query }),
            Payload::ResponseGeneration(response),
            Payload::ResponseFailed(GenerateError::Model { model: text(), reason: text() }),
            Payload::MemoryRecalled(Recall { mode: RecallMode::Tool, search: text(), engrams: vec![engram] }),
            Payload::CritiqueResult(GradedAnswer {
                query: text(),
                answer: text(),
                grade: Grade { feedback: text(), ..Grade::default() },
            }),
            Payload::PairwiseResult(Comparison {
                original_query_id: id,
                query_id_a: id,
                query_id_b: id,
                score_a: None,
                score_b: None,
                preference: Preference { reason: text(), ..Preference::default() },
            }),
        ]
    }

    #[test]
    fn a_record_is_bounded_and_says_what_is_missing() {
        let long = "é".repeat(1 << 20);
        for payload in payloads(&long) {
            let subject = payload.subject();
            let envelope = Envelope::new("tester", SessionId::from_bits(1), payload);
            let record = envelope.abridged();
            assert_eq!((record.id, record.at, record.subject()), (envelope.id, envelope.at, subject));
            let text = serde_json::to_string(&record).unwrap();
            assert!(text.len() < 7 * MOST_TEXT, "{subject} has {} bytes", text.len());
            assert!(text.contains("é […: 32768 of 2097152 bytes]"), "{subject}");
        }
    }

    #[test]
    fn a_short_message_is_recorded_as_it_is() {
        for payload in payloads("short") {
            let envelope = Envelope::new("tester", SessionId::from_bits(1), payload);
            let mut whole = serde_json::to_value(&envelope).unwrap();
            if let Some(biases) = whole.pointer_mut("/payload/sampling/logit_bias").and_then(Value::as_array_mut) {
                biases.truncate(MOST_ITEMS);
            }
            assert_eq!(serde_json::to_value(envelope.abridged()).unwrap(), whole);
        }
        let asked =
            Payload::QueryReceived(Query { history: vec![Message::new(Role::User, "x")], ..Query::new("y", "m") });
        let Payload::QueryReceived(record) = abridged(&asked) else { panic!("it is a question") };
        assert_eq!(record, Query::new("y", "m"));
    }
}
