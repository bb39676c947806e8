//! One round of generation as it arrives: separates reasoning, text, tool calls and cost.

use std::time::Instant;

use hone_protocol::{
    Chunk, FinishReason, GenerateError, Generation, GenerationEvent, Message, Prompt, ReasoningTags, Role, Timings,
    TokenLogprobs, ToolCall,
};

use super::clock::RoundClock;
use crate::thinking::{OutputPiece, Splitter};
use crate::tool_calls::CallScanner;

/// The answer so far, over all of its rounds.
#[derive(Debug, Default)]
pub(crate) struct AnswerSoFar {
    pub(crate) text: String,
    pub(crate) thinking: String,
    /// The calls of the client's tools at its end.
    pub(crate) tool_calls: Vec<ToolCall>,
    /// The stop text before which it ended.
    pub(crate) stopped_by: Option<String>,
    pub(crate) timings: Timings,
}

/// A round of generation in progress.
pub(crate) struct Round {
    pub(crate) generation: Generation,
    kind: RoundKind,
    /// Separates reasoning; `None` for a text that is continued as it stands.
    splitter: Option<Splitter>,
    /// Scans for calls, if the model was given tools.
    scanner: Option<CallScanner>,
    /// Text put before the first text of the round.
    separator: &'static str,
    /// The text of this round.
    text: String,
    /// The log-probabilities of tokens whose text has not been passed on yet.
    logprobs: Vec<TokenLogprobs>,
    clock: RoundClock,
    /// Whether the model has produced output or ended, so that its prompt is known to have fitted.
    pub(crate) has_begun: bool,
}

/// The text that a round follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundKind {
    /// None that it belongs to: the round begins an answer, or a paragraph of it.
    Begins,
    /// The text of an earlier round, after which the model called a tool.
    FollowsCalls,
    /// The beginning of the answer, which the model continues.
    Continues,
    /// A text that is not a conversation.
    Raw,
}

impl RoundKind {
    pub(crate) fn of(prompt: &Prompt, answer: &AnswerSoFar) -> RoundKind {
        let Prompt::Chat(messages) = prompt else { return RoundKind::Raw };
        match messages.last() {
            Some(last) if is_begun(last) => RoundKind::Continues,
            _ if answer.text.is_empty() || answer.text.ends_with('\n') => RoundKind::Begins,
            _ => RoundKind::FollowsCalls,
        }
    }

    /// Separates reasoning in a round that begins inside these tags, if any.
    fn splitter(self, inside: Option<ReasoningTags>) -> Option<Splitter> {
        match self {
            RoundKind::Begins | RoundKind::FollowsCalls => Some(Splitter::new(inside)),
            RoundKind::Continues => Some(Splitter::within_answer()),
            RoundKind::Raw => None,
        }
    }
}

/// Whether a message at the end of a prompt is the beginning of the answer.
fn is_begun(last: &Message) -> bool {
    last.role == Role::Assistant && last.tool_calls.is_empty() && !last.content.is_empty()
}

/// The meaning of an event for the round.
#[derive(Debug, PartialEq)]
pub(crate) enum RoundStep {
    /// More may come.
    GoesOn,
    /// The answer is complete.
    Answered(FinishReason),
    /// The model calls tools, after this text.
    Called(Vec<ToolCall>, String),
    /// The answer failed.
    Failed(GenerateError),
}

impl Round {
    /// A round that has just been requested.
    pub(crate) fn new(generation: Generation, scanner: Option<CallScanner>, kind: RoundKind) -> Round {
        Round {
            generation,
            kind,
            splitter: kind.splitter(None),
            scanner,
            separator: if kind == RoundKind::FollowsCalls { "\n\n" } else { "" },
            text: String::new(),
            logprobs: Vec::new(),
            clock: RoundClock::started(Instant::now()),
            has_begun: false,
        }
    }

    /// Adds an event to `answer`. Returns the chunks to show, and the meaning of the event.
    pub(crate) fn take(
        &mut self,
        answer: &mut AnswerSoFar,
        event: GenerationEvent,
        now: Instant,
    ) -> (Vec<Chunk>, RoundStep) {
        self.clock.take(&event, now);
        match event {
            GenerationEvent::Started { reasoning, .. } => {
                self.splitter = self.kind.splitter(reasoning);
                (Vec::new(), RoundStep::GoesOn)
            }
            GenerationEvent::Loading { done, total } => (vec![Chunk::Loading { done, total }], RoundStep::GoesOn),
            GenerationEvent::Prefill { done, total } => (vec![Chunk::Prefill { done, total }], RoundStep::GoesOn),
            GenerationEvent::OfPrompt(_) | GenerationEvent::Reward(_) => (Vec::new(), RoundStep::GoesOn),
            GenerationEvent::StoppedBy(text) => {
                answer.stopped_by = Some(text);
                (Vec::new(), RoundStep::GoesOn)
            }
            GenerationEvent::Token { text, logprobs, .. } => {
                self.has_begun = true;
                let was_inside = self.is_inside();
                let pieces = self.split(text);
                // Only log-probabilities of the answer are passed on, without the tags around it.
                self.logprobs.extend(logprobs.filter(|_| !was_inside && !self.is_inside()));
                let chunks = self.show(answer, pieces);
                let is_complete = self.scanner.as_ref().is_some_and(CallScanner::is_complete);
                if is_complete { self.end(answer, chunks, FinishReason::Stop) } else { (chunks, RoundStep::GoesOn) }
            }
            GenerationEvent::Finished { reason, text, .. } => {
                let mut pieces = self.split(text);
                pieces.extend(self.splitter.iter_mut().flat_map(Splitter::finish));
                let chunks = self.show(answer, pieces);
                self.has_begun = true;
                self.end(answer, chunks, reason)
            }
            GenerationEvent::Failed(error) => (Vec::new(), RoundStep::Failed(error)),
        }
    }

    /// Whether the next text may still be reasoning.
    fn is_inside(&self) -> bool {
        self.splitter.as_ref().is_some_and(Splitter::is_inside)
    }

    /// Adds the cost of the finished round to that of its answer.
    pub(crate) fn settle(self, answer: &mut AnswerSoFar) {
        answer.timings.add(&self.clock.timings());
    }

    fn split(&mut self, text: String) -> Vec<OutputPiece> {
        match &mut self.splitter {
            Some(splitter) => splitter.push(&text),
            None => vec![OutputPiece::Text(text)],
        }
    }

    fn end(
        &mut self,
        answer: &mut AnswerSoFar,
        mut chunks: Vec<Chunk>,
        reason: FinishReason,
    ) -> (Vec<Chunk>, RoundStep) {
        let (calls, held_back) = self.scanner.take().map(CallScanner::finish).unwrap_or_default();
        chunks.extend(self.say(answer, held_back));
        let step = if calls.is_empty() {
            RoundStep::Answered(reason)
        } else {
            RoundStep::Called(calls, std::mem::take(&mut self.text))
        };
        (chunks, step)
    }

    fn show(&mut self, answer: &mut AnswerSoFar, pieces: Vec<OutputPiece>) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for piece in pieces {
            match piece {
                OutputPiece::Thinking(text) => {
                    self.logprobs.clear();
                    answer.thinking.push_str(&text);
                    chunks.push(Chunk::Thinking(text));
                }
                OutputPiece::Text(text) => {
                    let certain = self.scanner.as_mut().map(|scanner| scanner.push(&text));
                    chunks.extend(self.say(answer, certain.unwrap_or(text)));
                }
            }
        }
        chunks
    }

    /// Passes on a piece of the answer, after the log-probabilities of its tokens.
    fn say(&mut self, answer: &mut AnswerSoFar, text: String) -> Vec<Chunk> {
        if text.is_empty() {
            return Vec::new();
        }
        self.text.push_str(&text);
        let text = format!("{}{text}", std::mem::take(&mut self.separator));
        answer.text.push_str(&text);
        let logprobs = std::mem::take(&mut self.logprobs).into_iter().map(Chunk::Logprobs);
        logprobs.chain([Chunk::Text(text)]).collect()
    }
}
