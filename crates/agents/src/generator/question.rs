//! A question to a respondent, and its progress.

use hone_protocol::{Chunk, FinishReason, Query, Recall, Response, ToolCall, ToolLimits, ToolRounds};

use super::answer::{AnswerSoFar, Round};
use crate::recall::scope;
use crate::topic::Topic;

/// A question and its progress.
pub(crate) struct QuestionInProgress {
    pub(super) topic: Topic,
    /// The query as this respondent answers it.
    pub(super) query: Query,
    pub(super) recollection: Recollection,
    /// Recollections for the round, until it is known that the prompt fits and the model has seen them.
    pub(super) recalled: Vec<Recall>,
    /// The searches in memory.
    pub(super) rounds: ToolRounds,
    pub(super) answer: AnswerSoFar,
    /// Whether the answer's beginning, which is continued, has been passed on.
    pub(super) is_resumed: bool,
}

/// How memory is used in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recollection {
    Tool,
    Context,
    Nothing,
}

impl QuestionInProgress {
    /// A question for whose answer the model may search memory up to `n_searches` times.
    pub(super) fn new(topic: Topic, query: Query, recollection: Recollection, n_searches: usize) -> QuestionInProgress {
        QuestionInProgress {
            topic,
            recollection,
            recalled: Vec::new(),
            rounds: ToolRounds::new(ToolLimits { rounds: usize::MAX, calls: n_searches }),
            answer: AnswerSoFar { text: query.options.begun.clone(), ..AnswerSoFar::default() },
            is_resumed: query.options.begun.is_empty(),
            query,
        }
    }

    /// The beginning of an answer that is continued, once, when the model has begun.
    pub(super) fn resumed(&mut self, has_begun: bool) -> Option<Chunk> {
        if !has_begun || self.is_resumed {
            return None;
        }
        self.is_resumed = true;
        Some(Chunk::Text(self.query.options.begun.clone()))
    }

    /// The calls of the client's own tools.
    pub(super) fn calls_of_client(&self, calls: &[ToolCall]) -> Vec<ToolCall> {
        let is_clients = |call: &&ToolCall| self.query.options.tools.iter().any(|tool| tool.name == call.name);
        calls.iter().filter(is_clients).cloned().collect()
    }

    /// The question after a round, including the round's cost.
    pub(super) fn after(mut self, round: Round) -> QuestionInProgress {
        round.settle(&mut self.answer);
        self
    }

    /// The finished answer.
    pub(super) fn answered(mut self, finish_reason: Option<FinishReason>) -> (Topic, Response) {
        if !self.is_resumed {
            // Nothing was added to the beginning, which is another answer.
            self.answer.text.clear();
        }
        (self.topic, response(&self.query, self.answer, finish_reason))
    }
}

/// The final message of an answer.
pub(super) fn response(query: &Query, answer: AnswerSoFar, finish_reason: Option<FinishReason>) -> Response {
    Response {
        query: query.query.clone(),
        answer: answer.text,
        thinking: answer.thinking,
        tool_calls: answer.tool_calls,
        scope: scope(query),
        is_raw: query.options.is_raw,
        model: query.model.clone(),
        sampling: query.sampling.clone(),
        finish_reason,
        stopped_by: answer.stopped_by,
        timings: answer.timings,
    }
}
