//! A request to the judge in progress.

use crossbeam_channel::{Receiver, RecvError};
use hone_protocol::{Completion, FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent};

/// A request in progress.
#[derive(Debug)]
pub(crate) struct JudgeRequest {
    generation: Generation,
    completion: Completion,
    has_ended: bool,
    context: usize,
    max_tokens: usize,
    prompt_characters: usize,
}

/// The effect of an event.
#[derive(Debug)]
pub(crate) enum RequestProgress {
    /// More events follow.
    Running,
    /// The judge has finished.
    Ended,
    /// The prompt leaves no room, or no time, for the verdict.
    TooLong(Overflow),
    /// The request failed.
    Failed(GenerateError),
}

/// A prompt that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// Its tokens.
    pub(crate) prompt_tokens: usize,
    /// Its characters.
    pub(crate) prompt_characters: usize,
    /// Tokens available for the prompt.
    pub(crate) room: usize,
    /// The limit that was exceeded.
    pub(crate) limit: Limit,
}

/// A limit on a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The context, in tokens.
    Context(usize),
    /// The judge's time limit.
    Time,
}

impl JudgeRequest {
    /// Sends the request. If it is refused at once, its first event says so.
    pub(crate) fn start(generator: &dyn Generate, request: GenerateRequest, prompt_characters: usize) -> JudgeRequest {
        let (context, max_tokens) = (request.context.unwrap_or(usize::MAX), request.max_tokens.unwrap_or(0));
        let generation = Generation::start(generator, request);
        let completion = Completion::default();
        JudgeRequest { generation, completion, has_ended: false, context, max_tokens, prompt_characters }
    }

    /// The channel of events; `None` if the request has ended.
    pub(crate) fn events(&self) -> Option<&Receiver<GenerationEvent>> {
        (!self.has_ended).then(|| self.generation.events())
    }

    /// The completion so far.
    pub(crate) fn completion(&self) -> &Completion {
        &self.completion
    }

    /// The whole completion; `None` if the request has not ended.
    pub(crate) fn ended(&self) -> Option<&Completion> {
        self.has_ended.then_some(&self.completion)
    }

    /// Processes the next event.
    pub(crate) fn take(&mut self, event: Result<GenerationEvent, RecvError>) -> RequestProgress {
        let event = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
        match self.completion.take(event) {
            Ok(is_last) => self.check_room(is_last),
            Err(GenerateError::ContextOverflow { prompt_tokens, context_tokens }) => {
                RequestProgress::TooLong(self.overflow(prompt_tokens, context_tokens))
            }
            Err(GenerateError::TooSlow { prompt_tokens, room, .. }) => {
                let prompt_characters = self.prompt_characters;
                RequestProgress::TooLong(Overflow { prompt_tokens, prompt_characters, room, limit: Limit::Time })
            }
            Err(error) => RequestProgress::Failed(error),
        }
    }

    /// A truncated verdict does not count, so the prompt must leave room for a complete one. The model's own context,
    /// which may be smaller than requested, becomes apparent only when it is full.
    fn check_room(&mut self, is_last: bool) -> RequestProgress {
        let prompt_tokens = self.completion.prompt_token_ids.len();
        if prompt_tokens + self.max_tokens > self.context {
            return RequestProgress::TooLong(self.overflow(prompt_tokens, self.context));
        }
        match (is_last, self.completion.finish_reason) {
            (false, _) => RequestProgress::Running,
            (true, Some(FinishReason::ContextFull)) => {
                RequestProgress::TooLong(self.overflow(prompt_tokens, prompt_tokens + self.completion.token_ids.len()))
            }
            (true, _) => {
                self.has_ended = true;
                RequestProgress::Ended
            }
        }
    }

    fn overflow(&self, prompt_tokens: usize, context_tokens: usize) -> Overflow {
        let context = self.context.min(context_tokens);
        let room = context.saturating_sub(self.max_tokens);
        Overflow { prompt_tokens, prompt_characters: self.prompt_characters, room, limit: Limit::Context(context) }
    }
}
